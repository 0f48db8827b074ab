// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rings: mappings that are none, indices and entries that make no sense, and
//! entries that change while the kernel copies them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{ensure, Result};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags};
use weft_core::uapi::{
    self, Pod, SendWr, Sge, Wc, MAX_KEPT_RING_BYTES, MAX_SEND_WR, OP_WRITE, SEND_SIGNALED,
};

use super::ring_memory::{connected, send, Receiver};
use super::{refused, BOUND};
use crate::raw::{request, Field, Memory, Queue, Session};
use crate::rng::Rng;
use crate::world::{counter, gid, wait_for, SETTLE};
use weft_testkit::report::Report;

const PAGE: usize = 4096;
const WAIT_NS: u64 = 5_000_000_000;
const NONSENSE: [u32; 7] = [1, 15, 17, 1 << 16, 1 << 31, u32::MAX - 1, u32::MAX];

/// All checks of rings.
pub fn run(report: &mut Report) -> Result<()> {
    mappings(report)?;
    report.check("small rings are the session's next VQP's", kept);
    report.check("rings outlive their VQP and their session", outlive);
    report.check("a VQP goes on without its rings", unmapped);
    report.check("a forked child does not have them", forked);
    report.check("nonsense in the user's indices harms nobody else", || {
        NONSENSE.into_iter().try_for_each(indices)
    });
    report.check("nonsense in the kernel's indices is overlooked", || {
        NONSENSE.into_iter().try_for_each(kernels_indices)
    });
    report.check("completions that are not taken hold their places", || {
        held_up()
    });
    report.check("requests that change while they are copied", changing);
    report.check(
        "rings go with their last request while they are written",
        written_while_they_go,
    );
    Ok(())
}

/// A connected VQP with memory on both sides.
struct Fixture {
    near: Session,
    _far: Session,
    _memory: [Memory; 2],
    queue: Queue,
    wr: SendWr,
}

impl Fixture {
    fn new(capacity: u32) -> Result<Self> {
        let (near, far) = (Session::open(0)?, Session::open(1)?);
        let memory = [Memory::map(PAGE)?, Memory::map(PAGE)?];
        let lkey = near.register(&memory[0], 0, PAGE as u64, 7)?.lkey;
        let rkey = far.register(&memory[1], 0, PAGE as u64, 7)?.rkey;
        let queue = near.queue(capacity, capacity)?;
        near.qconnect(queue.vqp, gid(1))?;
        let local = Sge {
            addr: memory[0].addr(),
            len: 8,
            lkey,
        };
        let wr = SendWr {
            flags: SEND_SIGNALED,
            ..request(OP_WRITE, local, memory[1].addr(), rkey)
        };
        Ok(Self {
            near,
            _far: far,
            _memory: memory,
            queue,
            wr,
        })
    }

    /// Whether a fresh VQP of the session does what it should.
    fn another_works(&self) -> Result<()> {
        let queue = self.near.queue(16, 0)?;
        self.near.qconnect(queue.vqp, gid(1))?;
        let mut wcs = [Wc::zeroed(); 16];
        let done = queue.enter(&self.near, &[self.wr; 16], &mut wcs, 16, WAIT_NS)?;
        ensure!(done == (16, 16), "another VQP did {done:?} of 16");
        ensure!(
            wcs.iter().all(|wc| wc.status == 0),
            "one of its requests failed"
        );
        Ok(self.near.destroy_vqp(queue.vqp)?)
    }
}

fn mappings(report: &mut Report) -> Result<()> {
    const BOTH: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);
    let (session, other) = (Session::open(0)?, Session::open(0)?);
    let bare = Session::bare()?;
    let said = session.describe_vqp(16, 16)?;
    let bytes = said.ring_bytes as usize;
    let map = |session: &Session, offset, len, flags| {
        Memory::of_device(session.as_fd(), offset, len, BOTH, flags).map(drop)
    };
    let shared = MapFlags::MAP_SHARED;
    let at = said.map_offset;
    let mut bad = |name: &str, wanted, session, offset, len, flags| {
        refused(report, name, wanted, || map(session, offset, len, flags));
    };
    let einval = Errno::EINVAL;
    bad(
        "mapping before HELLO",
        Errno::EPROTO,
        &bare,
        at,
        bytes,
        shared,
    );
    bad(
        "another session's rings",
        Errno::EBADF,
        &other,
        at,
        bytes,
        shared,
    );
    bad("a page too few", einval, &session, at, bytes - PAGE, shared);
    bad(
        "a page too many",
        einval,
        &session,
        at,
        bytes + PAGE,
        shared,
    );
    bad("a gigabyte", einval, &session, at, 1 << 30, shared);
    bad(
        "from the second page on",
        einval,
        &session,
        at + PAGE as u64,
        bytes,
        shared,
    );
    bad(
        "rings of one's own",
        einval,
        &session,
        at,
        bytes,
        MapFlags::MAP_PRIVATE,
    );
    let stride = 1 << 24;
    bad(
        "rings of no VQP",
        Errno::EBADF,
        &session,
        at + stride,
        bytes,
        shared,
    );
    bad(
        "rings of handle 256",
        Errno::EBADF,
        &session,
        256 * stride,
        bytes,
        shared,
    );
    bad(
        "rings far away",
        Errno::EBADF,
        &session,
        stride << 31,
        bytes,
        shared,
    );
    let last = i64::MAX as u64 & !(PAGE as u64 - 1) & !(bytes.next_power_of_two() as u64 - 1);
    bad(
        "rings at the end of all",
        einval,
        &session,
        last,
        bytes,
        shared,
    );
    session.destroy_vqp(said.vqp)?;
    bad(
        "rings of a VQP that has gone",
        Errno::EBADF,
        &session,
        at,
        bytes,
        shared,
    );
    Ok(())
}

/// Small rings are another VQP's afterwards, with indices of zero; not in another
/// session.
fn kept() -> Result<()> {
    let (session, other) = (Session::open(0)?, Session::open(0)?);
    let queue = session.queue(16, 16)?;
    session.destroy_vqp(queue.vqp)?;
    for field in Field::ALL {
        queue.index(field).store(u32::MAX, Ordering::Relaxed);
    }
    let (heir, stranger) = (session.queue(16, 16)?, other.queue(16, 16)?);
    ensure!(
        heir.said.map_offset == queue.said.map_offset,
        "the rings were not kept"
    );
    for field in Field::ALL {
        let index = |queue: &Queue| queue.index(field).load(Ordering::Relaxed);
        ensure!(index(&heir) == 0, "an index is not zero");
        ensure!(index(&stranger) == 0, "another session's index is not zero");
        queue.index(field).store(7, Ordering::Relaxed);
        ensure!(index(&heir) == 7, "a place means other memory than before");
        ensure!(index(&stranger) == 0, "another session has these rings too");
    }
    Ok(())
}

/// The memory is there as long as the mapping. Rings as long as these are not kept.
fn outlive() -> Result<()> {
    let session = Session::open(0)?;
    let queue = session.queue(MAX_SEND_WR, 16)?;
    ensure!(
        queue.said.ring_bytes > MAX_KEPT_RING_BYTES,
        "the rings are too short for this"
    );
    session.destroy_vqp(queue.vqp)?;
    queue.index(Field::CqHead).store(7, Ordering::Relaxed);
    let other = session.queue(MAX_SEND_WR, 16)?;
    ensure!(other.vqp != queue.vqp, "a handle was given twice");
    ensure!(
        other.index(Field::CqHead).load(Ordering::Relaxed) == 0,
        "the new rings are the old ones"
    );
    drop(session);
    for field in Field::ALL {
        other.index(field).store(u32::MAX, Ordering::Relaxed);
    }
    ensure!(
        queue.index(Field::CqHead).load(Ordering::Relaxed) == 7,
        "it has changed"
    );
    Ok(())
}

/// What was posted goes on, and the rest of the session too.
fn unmapped() -> Result<()> {
    let Fixture {
        near, queue, wr, ..
    } = &mut Fixture::new(16)?;
    queue.enter(near, &[*wr; 16], &mut [], 0, 0)?;
    let said = queue.said;
    let vqp = queue.vqp;
    *queue = near.queue(4, 0)?;
    // They are what they were, wherever they are mapped.
    let again = Queue::map(near, &said)?;
    near.enter(vqp, 0, 16, WAIT_NS)?;
    let mut wcs = [Wc::zeroed(); 17];
    let count = again.take(&mut wcs);
    ensure!(count == 16, "{count} completions of 16");
    ensure!(wcs.iter().all(|wc| wc.status == 0), "a request failed");
    Ok(())
}

fn forked() -> Result<()> {
    use nix::sys::wait::{waitpid, WaitStatus};
    use nix::unistd::{fork, ForkResult};
    let session = Session::open(0)?;
    let queue = session.queue(16, 16)?;
    let at = queue.index(Field::CqHead);
    // SAFETY: the child does nothing but to read a word and to end.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let value = at.load(Ordering::Relaxed);
            // SAFETY: ends the child without what the parent would do.
            unsafe { nix::libc::_exit(value as i32) };
        }
        ForkResult::Parent { child } => {
            let status = waitpid(child, None)?;
            let died = matches!(
                status,
                WaitStatus::Signaled(_, nix::sys::signal::SIGSEGV, _)
            );
            ensure!(died, "the child has read the rings: {status:?}");
            Ok(())
        }
    }
}

/// A user who lies about what it has taken and posted.
fn indices(lie: u32) -> Result<()> {
    const BATCH: u32 = 16;
    let fixture = Fixture::new(BATCH)?;
    let Fixture {
        near, queue, wr, ..
    } = &fixture;
    queue.enter(near, &[*wr; 8], &mut [], 8, WAIT_NS)?;
    let tail = || queue.index(Field::CqTail).load(Ordering::Acquire);
    let (mut done, mut held) = (8, 8);
    ensure!(tail() == done, "{} completions of 8", tail());
    queue.index(Field::RqTail).store(lie, Ordering::Relaxed);
    let places = queue.said.max_send_wr + queue.said.max_recv_wr;
    for _ in 0..2 {
        let head = tail().wrapping_add(lie);
        queue.index(Field::CqHead).store(head, Ordering::Relaxed);
        // An index that cannot be is ignored: places are held, whatever the user says. It can be
        // that all but the last few were taken.
        held = held.min(lie.wrapping_neg());
        // And what lies within the next requests may come true while they end.
        let free = match lie {
            0..=BATCH => places,
            _ => places - held,
        };
        (0..BATCH).for_each(|at| queue.put(done + at, wr));
        let taken = near.enter(queue.vqp, BATCH, 0, 0)? as u32;
        ensure!(taken <= free, "{taken} were taken by {free} free places");
        near.enter(queue.vqp, 0, BATCH, 100_000_000)?;
        (done, held) = (done + taken, held + taken);
        wait_for("they end", BOUND, || Ok(tail() == done))?;
    }
    fixture.another_works()
}

/// A user who writes what only the kernel should.
fn kernels_indices(lie: u32) -> Result<()> {
    let fixture = Fixture::new(16)?;
    let Fixture {
        near, queue, wr, ..
    } = &fixture;
    for field in [Field::SqHead, Field::CqTail, Field::RqHead] {
        queue.index(field).store(lie, Ordering::Relaxed);
    }
    (0..16).for_each(|at| queue.put(at, wr));
    let taken = near.enter(queue.vqp, 16, 16, WAIT_NS)?;
    ensure!(taken == 16, "{taken} of 16 were taken");
    let tail = queue.index(Field::CqTail).load(Ordering::Acquire);
    ensure!(tail == 16, "the tail is {tail}, not 16");
    fixture.another_works()
}

/// Whatever the user does, completions are not written over others.
fn held_up() -> Result<()> {
    let Fixture {
        near, queue, wr, ..
    } = &Fixture::new(16)?;
    let mut done = 0;
    for round in 0..20u32 {
        (0..16).for_each(|at| queue.put(done + at, wr));
        match near.enter(queue.vqp, 16, 0, 0) {
            Ok(taken) => done += taken as u32,
            Err(Errno::ENOSPC) => ensure!(round > 0, "the first found no room"),
            Err(errno) => return Err(errno.into()),
        }
        // It has taken none.
        queue.index(Field::CqHead).store(0, Ordering::Relaxed);
    }
    near.enter(queue.vqp, 0, done, WAIT_NS)?;
    let places = queue.said.max_send_wr + queue.said.max_recv_wr;
    ensure!(done <= places, "{done} were taken by {places} places");
    let mut wcs = [Wc::zeroed(); 64];
    let count = queue.take(&mut wcs);
    ensure!(count == done as usize, "{count} completions of {done}");
    Ok(())
}

/// Another thread writes requests over those that the kernel copies. Each request
/// ends with a status that it could have; nothing outside of the regions changes.
fn changing() -> Result<()> {
    const ROUNDS: usize = 400;
    let fixture = Fixture::new(16)?;
    let mut rng = Rng::new(11);
    for _ in 0..ROUNDS / 40 {
        let Fixture { near, wr, .. } = &fixture;
        let queue = near.queue(16, 0)?;
        near.qconnect(queue.vqp, gid(1))?;
        let vqp = queue.vqp;
        let good = SendWr { vqp, ..*wr }.as_bytes().to_vec();
        let stop = AtomicBool::new(false);
        let seed = rng.next();
        thread::scope(|scope| {
            scope.spawn(|| rewrite(&queue, &good, seed, &stop));
            let outcome = (0..40).try_for_each(|_| {
                let mut wcs = [Wc::zeroed(); 16];
                let taken = match queue.enter(near, &[*wr; 16], &mut wcs, 0, 0) {
                    // The first one named another VQP just then.
                    Err(Errno::EBADF) => 0,
                    entered => entered?.0,
                };
                near.enter(queue.vqp, 0, 1, 1_000_000)?;
                queue.take(&mut wcs);
                ensure!(taken <= 16, "{taken} of 16 were taken");
                Ok(())
            });
            stop.store(true, Ordering::Relaxed);
            outcome
        })
        .or_else(|error: anyhow::Error| match error.downcast_ref::<Errno>() {
            // Signalled requests that nobody takes fill it.
            Some(Errno::ENOSPC) => Ok(()),
            _ => Err(error),
        })?;
        near.destroy_vqp(queue.vqp)?;
    }
    fixture.another_works()
}

/// Flips words of requests, and back.
fn rewrite(queue: &Queue, good: &[u8], seed: u64, stop: &AtomicBool) {
    let mut rng = Rng::new(seed);
    while !stop.load(Ordering::Relaxed) {
        let place = rng.below(queue.said.sq_entries as usize);
        let word = 8 * rng.below(size_of::<SendWr>() / 8);
        let at = queue.said.sq_offset as usize + place * size_of::<uapi::SendWr>() + word;
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&good[word..word + 8]);
        let good = u64::from_ne_bytes(bytes);
        queue
            .rings
            .word(at)
            .store(good ^ (1 << rng.below(64)), Ordering::Relaxed);
        queue.rings.word(at).store(good, Ordering::Relaxed);
    }
}

/// The last of a destroyed VQP's requests takes its rings along, in a softirq. They
/// are still mapped, and the process writes to them: the kernel keeps nothing there.
fn written_while_they_go() -> Result<()> {
    const ROUNDS: usize = 10;
    const TOGETHER: usize = 24;
    let (receiver, near) = (Receiver::new(TOGETHER as u32)?, Session::open(0)?);
    // Those of earlier checks may be going still.
    only_the_receivers()?;
    for _ in 0..ROUNDS {
        let queues = (0..TOGETHER)
            // So long that they are not kept.
            .map(|_| connected(&near, MAX_SEND_WR))
            .collect::<Result<Vec<_>, _>>()?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for queue in &queues {
                        queue.index(Field::SqHead).store(0xdb, Ordering::Relaxed);
                    }
                }
            });
            let gone =
                destroy_under_way(&near, &queues).and_then(|()| last_ones_end(&receiver, TOGETHER));
            stop.store(true, Ordering::Relaxed);
            gone
        })?;
    }
    Ok(())
}

/// Each VQP has sent a message, which finds no buffer.
fn destroy_under_way(near: &Session, queues: &[Queue]) -> Result<()> {
    for queue in queues {
        send(near, queue)?;
        near.destroy_vqp(queue.vqp)?;
    }
    Ok(())
}

/// All of these messages are still on their way; they find buffers now.
fn last_ones_end(receiver: &Receiver, count: usize) -> Result<()> {
    let left = counter("vqps")? - 1;
    ensure!(left == count as i64, "{left} VQPs of {count} are left");
    receiver.takes(count)?;
    only_the_receivers()
}

fn only_the_receivers() -> Result<()> {
    wait_for("all other VQPs go", SETTLE, || Ok(counter("vqps")? == 1))
}
