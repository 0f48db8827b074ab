// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory of rings: what it is charged for, and how it goes.

use std::sync::atomic::Ordering;

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::setresuid;
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{setrlimit, Resource};
use nix::unistd::Pid;
use weft_core::uapi::{self, SendWr, Sge, KEPT_RINGS, MAX_KEPT_RING_BYTES, MAX_SEND_WR, OP_WRITE};
use weft_shim::{Access, Device, MemoryRegion, Vqp, VqpConfig};

use super::expect;
use crate::isolation::users::{in_child, stay_on_first_cpu, wait, NOBODY};
use crate::raw::{buffer, message, request, Memory, Queue, Session};
use crate::world::{counter, gid, wait_for, SETTLE};
use weft_testkit::report::Report;

const PAGE: usize = 4096;
const PORT: u32 = 6712;
/// What a process may pin: some long rings.
const LOCKED: u64 = 1 << 20;
/// No pointer, and not what the module writes.
const MARK: u64 = 0xdbdb_dbdb_dbdb_dbdb;

/// All checks of ring memory.
pub fn run(report: &mut Report) -> Result<()> {
    report.check("rings are charged as long as they are mapped", || {
        wait(in_child(charged_while_mapped)?)
    });
    report.check(
        "rings that are kept make way for memory to register",
        || wait(in_child(make_way)?),
    );
    report.check(
        "a session's last request takes its kept rings along, and the kernel keeps nothing there",
        untouched,
    );
    report.check(
        "that of a process that has ended takes its address space along",
        last_of_all,
    );
    Ok(())
}

/// From now on the process is nobody's, who may pin little.
fn become_nobody() -> Result<()> {
    setrlimit(Resource::RLIMIT_MEMLOCK, LOCKED, LOCKED)?;
    // SAFETY: no memory is involved.
    Errno::result(unsafe { setresuid(NOBODY, NOBODY, NOBODY) })?;
    Ok(())
}

/// Nobody's process: VQPs that are made and destroyed again and again, each with its rings
/// mapped.
fn charged_while_mapped() -> Result<()> {
    become_nobody()?;
    let session = Session::open(0)?;
    let one = session.queue(MAX_SEND_WR, 0)?;
    let bytes = one.said.ring_bytes;
    ensure!(bytes > MAX_KEPT_RING_BYTES, "these rings are kept");
    session.destroy_vqp(one.vqp)?;
    drop(one);
    let fit = (LOCKED / u64::from(bytes)) as usize;
    let mut mapped = Vec::new();
    let outcome = loop {
        match session.queue(MAX_SEND_WR, 0) {
            Ok(queue) if mapped.len() < fit => {
                session.destroy_vqp(queue.vqp)?;
                mapped.push(queue);
            }
            Ok(_) => break Ok(()),
            Err(errno) => break Err(errno),
        }
    };
    let count = mapped.len();
    ensure!(
        outcome == Err(Errno::ENOMEM) && count == fit,
        "{count} rings of {fit} were mapped, then: {outcome:?}"
    );
    let full = || expect(Errno::ENOMEM, || session.create_vqp(MAX_SEND_WR));
    let mut last = mapped.pop().context("no rings")?;
    last.rings.truncate(PAGE)?;
    full().context("after a part was unmapped")?;
    last.rings.relocate()?;
    full().context("after the rest was moved")?;
    drop(last);
    let vqp = session
        .create_vqp(MAX_SEND_WR)
        .context("after all was unmapped")?;
    session.destroy_vqp(vqp)?;
    drop(mapped);
    let again = (0..fit)
        .map(|_| session.queue(MAX_SEND_WR, 0))
        .collect::<Result<Vec<Queue>, _>>()
        .context("after all others were unmapped")?;
    ensure!(again.len() == fit, "{} rings of {fit}", again.len());
    Ok(())
}

/// Nobody's process: as many VQPs as rings are kept, made and destroyed. Then it registers
/// memory for which their rings leave no room. The library also leaves the rings mapped.
fn make_way() -> Result<()> {
    const DEPTH: u32 = 256;
    const BYTES: usize = LOCKED as usize / 2;
    become_nobody()?;
    let memory = Memory::map(BYTES)?;
    let session = Session::open(0)?;
    let queues = (0..KEPT_RINGS)
        .map(|_| session.queue(DEPTH, 0))
        .collect::<Result<Vec<Queue>, _>>()?;
    let sizes: Vec<_> = queues.iter().map(|queue| queue.said.ring_bytes).collect();
    let kept: u64 = sizes.iter().copied().map(u64::from).sum();
    let are_short = sizes.iter().all(|bytes| *bytes <= MAX_KEPT_RING_BYTES);
    ensure!(are_short, "these rings are not kept");
    ensure!(
        kept + BYTES as u64 > LOCKED,
        "{kept} bytes of rings leave room"
    );
    for queue in queues {
        session.destroy_vqp(queue.vqp)?;
    }
    session
        .register(&memory, 0, BYTES as u64, 0)
        .context("beside kept rings")?;
    drop(session);
    let device = Device::open_on(0)?;
    let config = VqpConfig {
        max_send_wr: DEPTH,
        max_recv_wr: 0,
    };
    let vqps = (0..KEPT_RINGS)
        .map(|_| Vqp::create(&device, &config))
        .collect::<Result<Vec<Vqp>, _>>()?;
    drop(vqps);
    MemoryRegion::allocate(&device, BYTES, Access::empty())
        .context("beside rings that are kept mapped")?;
    Ok(())
}

/// A receiver without buffers: what is sent to it stays on its way.
pub(super) struct Receiver {
    session: Session,
    queue: Queue,
    page: Memory,
    lkey: u32,
}

impl Receiver {
    /// One with room for so many buffers.
    pub(super) fn new(buffers: u32) -> Result<Self> {
        let session = Session::open(1)?;
        let queue = session.queue(1, buffers)?;
        session.qbind(queue.vqp, PORT)?;
        let page = Memory::map(PAGE)?;
        let lkey = session
            .register(&page, 0, PAGE as u64, uapi::ACCESS_LOCAL_WRITE)?
            .lkey;
        Ok(Self {
            session,
            queue,
            page,
            lkey,
        })
    }

    /// Takes so many messages.
    pub(super) fn takes(&self, count: usize) -> Result<()> {
        let local = Sge {
            addr: self.page.addr(),
            len: 64,
            lkey: self.lkey,
        };
        for _ in 0..count {
            ensure!(self.queue.post_recv(&buffer(1, local)), "no room");
        }
        for _ in 0..count {
            let wc = self.queue.next(&self.session)?;
            ensure!(wc.status == 0, "it ended with {}", wc.status);
        }
        Ok(())
    }
}

/// A VQP with short rings and a message on its way.
fn sender(session: &Session) -> Result<Queue> {
    let queue = connected(session, 4)?;
    ensure!(
        queue.said.ring_bytes <= MAX_KEPT_RING_BYTES,
        "these rings are not kept"
    );
    send(session, &queue)?;
    Ok(queue)
}

/// A VQP whose messages go to the receiver.
pub(super) fn connected(session: &Session, max_send_wr: u32) -> Result<Queue, Errno> {
    let queue = session.queue(max_send_wr, 0)?;
    session.qconnect_port(queue.vqp, gid(1), PORT)?;
    Ok(queue)
}

/// Sends a message that needs no memory, and does not wait.
pub(super) fn send(session: &Session, queue: &Queue) -> Result<()> {
    let silent = SendWr {
        flags: uapi::SEND_INLINE,
        ..message(b"the last")
    };
    let taken = queue.enter(session, &[silent], &mut [], 0, 0)?.0;
    ensure!(taken == 1, "{taken} were taken");
    Ok(())
}

/// Another session has registered the rings, so that it can see what is written there
/// after they have gone.
fn untouched() -> Result<()> {
    let receiver = Receiver::new(1)?;
    let (observer, far) = (Session::open(0)?, Session::open(1)?);
    let copy = Memory::map(PAGE)?;
    let rkey = far.register(&copy, 0, PAGE as u64, 7)?.rkey;
    let before = counter("vqps")?;
    let session = Session::open(0)?;
    let queue = sender(&session)?;
    let addr = queue.rings.addr();
    let lkey = observer.register(&queue.rings, 0, PAGE as u64, 0)?.lkey;
    queue.rings.word(0).store(MARK, Ordering::Relaxed);
    drop((queue, session));
    ensure!(counter("vqps")? == before + 1, "the message has ended");
    receiver.takes(1)?;
    wait_for("the VQP goes", SETTLE, || Ok(counter("vqps")? == before))?;
    let local = Sge { addr, len: 8, lkey };
    let status = observer.outcome(gid(1), request(OP_WRITE, local, copy.addr(), rkey))?;
    ensure!(
        status == uapi::WcStatus::Success,
        "copying ended with {status:?}"
    );
    let found = copy.word(0).load(Ordering::Relaxed);
    ensure!(found == MARK, "the kernel has written {found:#x}");
    Ok(())
}

/// Its rings hold the last reference to what is left of its address space. That must not
/// go in a softirq; only a kernel with lockdep tells.
fn last_of_all() -> Result<()> {
    let receiver = Receiver::new(1)?;
    let before = counter("vqps")?;
    let cpus = sched_getaffinity(Pid::from_raw(0))?;
    // One processor: an idle one would go on using the address space.
    stay_on_first_cpu()?;
    let child = in_child(|| {
        let session = Session::open(0)?;
        let _queue = sender(&session)?;
        Ok(())
    })?;
    let ended = wait(child);
    sched_setaffinity(Pid::from_raw(0), &cpus)?;
    ended?;
    ensure!(counter("vqps")? == before + 1, "the message has ended");
    receiver.takes(1)?;
    wait_for("the VQP goes", SETTLE, || Ok(counter("vqps")? == before))
}
