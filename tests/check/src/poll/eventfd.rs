// SPDX-License-Identifier: MIT OR Apache-2.0

//! An eventfd for a completion queue: it tells of each completion, or of many together and
//! never too late.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use weft_core::uapi::{
    Pod, SendWr as RawSendWr, Sge, Wc as RawWc, WcStatus, ACCESS_ALL, MAX_NOTIFY_COUNT,
    MAX_NOTIFY_US, OP_WRITE, SEND_SIGNALED,
};
use weft_shim::{
    Access, Device, MemoryRegion, Moderation, Qp, QpConfig, Queues, QueuesConfig, SendWr, Wc,
};

use super::{is_readable, ASLEEP, SOON};
use crate::raw::{buffer, message, request, Memory, Queue, Session};
use crate::two_sided::ends::new_port;
use crate::world::{full_access, gid};

/// As rare as it may be.
const RARELY: Moderation = Moderation {
    count: MAX_NOTIFY_COUNT,
    period: Duration::from_micros(MAX_NOTIFY_US as u64),
};

/// Queues of node 0 with a queue pair to node 1, and the eventfd.
struct Desk {
    device: Device,
    queues: Queues,
    qp: Qp,
    local: MemoryRegion,
    far: MemoryRegion,
    eventfd: EventFd,
}

impl Desk {
    fn new(moderation: Moderation) -> Result<Self> {
        let device = Device::open_on(0)?;
        let queues = Queues::create(&device, &QueuesConfig::default())?;
        let far = Device::open_on(1)?;
        let desk = Self {
            qp: queues.connect(gid(1), 0, &QpConfig::default())?,
            queues,
            local: MemoryRegion::allocate(&device, 4096, Access::LOCAL_WRITE)?,
            far: MemoryRegion::allocate(&far, 4096, full_access())?,
            eventfd: EventFd::from_flags(EfdFlags::EFD_NONBLOCK)?,
            device,
        };
        desk.queues.notify(&desk.eventfd, moderation)?;
        Ok(desk)
    }

    /// Posts signalled WRITEs and does not wait.
    fn post(&mut self, count: usize) -> Result<()> {
        let wr = SendWr::write(self.local.slice(0..8)?, self.far.remote());
        let wrs = vec![wr.on(&self.qp).signaled(); count];
        let posted = self.queues.post_send(&wrs)?;
        ensure!(posted == count, "{posted} of {count} were taken");
        Ok(())
    }

    /// How often it was signalled since it was last read.
    fn signals(&self) -> Result<u64> {
        match self.eventfd.read() {
            Err(Errno::EAGAIN) => Ok(0),
            other => Ok(other?),
        }
    }

    fn is_signaled(&self, within: Duration) -> Result<bool> {
        is_readable(self.eventfd.as_fd(), within)
    }

    /// As programs do: waits for the eventfd, reads it, takes all; until there were so many.
    fn take(&mut self, count: usize) -> Result<()> {
        let mut taken = 0;
        while taken < count {
            ensure!(self.is_signaled(SOON)?, "{taken} of {count} were told of");
            self.signals()?;
            taken += self.drain()?;
        }
        ensure!(taken == count, "{taken} completions of {count} requests");
        Ok(())
    }

    fn drain(&mut self) -> Result<usize> {
        let (mut wcs, mut taken) = ([Wc::default(); 16], 0);
        loop {
            let count = self.queues.poll_cq(&mut wcs);
            if count == 0 {
                return Ok(taken);
            }
            wcs[..count]
                .iter()
                .try_for_each(|wc| wc.result().map(drop))?;
            taken += count;
        }
    }
}

/// It is signalled for each completion, and not before.
pub fn each() -> Result<()> {
    let mut desk = Desk::new(Moderation::default())?;
    for round in 0..100 {
        ensure!(desk.signals()? == 0, "round {round}: too early");
        desk.post(1)?;
        desk.take(1).with_context(|| format!("round {round}"))?;
    }
    desk.post(100)?;
    desk.take(100)
}

/// Completions that were there before it, and a thread that sleeps.
pub fn late() -> Result<()> {
    let mut desk = Desk::new(Moderation::default())?;
    desk.queues.notify_none()?;
    desk.post(8)?;
    ensure!(is_readable(desk.device.as_fd(), SOON)?, "nothing completes");
    ensure!(
        desk.signals()? == 0,
        "it is signalled though it was taken away"
    );
    desk.queues.notify(&desk.eventfd, RARELY)?;
    ensure!(desk.is_signaled(Duration::ZERO)?, "not of what was there");
    desk.take(8)?;
    desk.queues.notify(&desk.eventfd, Moderation::default())?;
    ensure!(desk.signals()? == 0, "there is nothing to tell of");
    let eventfd = desk.eventfd.as_fd().try_clone_to_owned()?;
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| is_readable(eventfd.as_fd(), SOON));
        thread::sleep(ASLEEP);
        ensure!(!sleeper.is_finished(), "it did not sleep");
        desk.post(1)?;
        let woken = sleeper.join().map_err(|_| anyhow!("it panicked"))??;
        ensure!(woken, "it slept on");
        desk.take(1)
    })
}

/// Many are told of together: fewer signals than completions, and a single one not before
/// its time nor never.
pub fn moderated() -> Result<()> {
    const MANY: u64 = 64;
    let eight = Moderation { count: 8, ..RARELY };
    let mut desk = Desk::new(eight)?;
    let mut signals = 0;
    for _ in 0..10 {
        desk.post(MANY as usize)?;
        let mut wcs = [Wc::default(); MANY as usize];
        let done = desk
            .queues
            .enter(&[], &mut wcs, MANY as usize, SOON)?
            .completed;
        ensure!(done == wcs.len(), "{done} of {MANY} completed");
        signals += desk.signals()?;
    }
    println!("# {signals} signals of {} completions", 10 * MANY);
    ensure!((1..=10 * MANY / 4).contains(&signals), "{signals} signals");
    desk.queues.notify(&desk.eventfd, RARELY)?;
    desk.signals()?;
    for round in 0..20 {
        let start = Instant::now();
        desk.post(1)?;
        ensure!(desk.is_signaled(SOON)?, "round {round}: it is never told");
        let waited = start.elapsed();
        ensure!(waited >= RARELY.period, "round {round}: after {waited:?}");
        desk.take(1)?;
    }
    Ok(())
}

/// A message that arrives is told of too.
pub fn messages() -> Result<()> {
    let (near, far) = (Session::open(0)?, Session::open(1)?);
    let (receiver, port) = (far.queue(4, 8)?, new_port());
    far.qbind(receiver.vqp, port)?;
    let memory = Memory::map(4096)?;
    let region = far.register(&memory, 0, 4096, ACCESS_ALL)?;
    let eventfd = EventFd::new()?;
    far.notify(far.rings_of(receiver.vqp)?, eventfd.as_fd(), 1, 0)?;
    let into = Sge {
        addr: region.addr,
        len: 64,
        lkey: region.lkey,
    };
    ensure!(receiver.post_recv(&buffer(1, into)), "it takes no buffer");
    let sender = near.queue(4, 0)?;
    near.qconnect_port(sender.vqp, gid(1), port)?;
    ensure!(!is_readable(eventfd.as_fd(), Duration::ZERO)?, "too early");
    sender.outcome(&near, message(b"a message"))?;
    ensure!(is_readable(eventfd.as_fd(), SOON)?, "it is never told");
    let taken = receiver.take(&mut [RawWc::zeroed(); 2]);
    ensure!(taken == 1, "{taken} messages");
    Ok(())
}

/// A queue pair with receive buffers of its own, and a WRITE whose key its peer does not know.
struct Wrongdoer {
    near: Session,
    queue: Queue,
    /// Memory for the buffers.
    sge: Sge,
    to_nothing: RawSendWr,
}

impl Wrongdoer {
    fn new(memory: &Memory, buffers: u32) -> Result<Self> {
        let near = Session::open(0)?;
        let queue = near.queue(4, buffers)?;
        near.qconnect(queue.vqp, gid(1))?;
        let region = near.register(memory, 0, 4096, ACCESS_ALL)?;
        let sge = Sge {
            addr: region.addr,
            len: 64,
            lkey: region.lkey,
        };
        let mut to_nothing = request(OP_WRITE, sge, 0x1000, 0);
        to_nothing.flags |= SEND_SIGNALED;
        Ok(Self {
            near,
            queue,
            sge,
            to_nothing,
        })
    }

    /// An eventfd that is signalled for each completion from now on.
    fn told(&self) -> Result<EventFd> {
        let eventfd = EventFd::from_flags(EfdFlags::EFD_NONBLOCK)?;
        let rings = self.near.rings_of(self.queue.vqp)?;
        self.near.notify(rings, eventfd.as_fd(), 1, 0)?;
        Ok(eventfd)
    }
}

/// Receive buffers of a queue pair in error are handed back by whoever looks at its ring: others
/// are told of that too.
pub fn handed_back() -> Result<()> {
    const BUFFERS: usize = 2;
    let memory = Memory::map(4096)?;
    let wrongdoer = Wrongdoer::new(&memory, 8)?;
    let (near, queue, sge) = (&wrongdoer.near, &wrongdoer.queue, wrongdoer.sge);
    let status = queue.outcome(near, wrongdoer.to_nothing)?;
    ensure!(status == WcStatus::RemAccessErr, "it ended with {status:?}");
    let eventfd = wrongdoer.told()?;
    for n in 0..BUFFERS as u64 {
        ensure!(queue.post_recv(&buffer(n, sge)), "it takes no buffer");
    }
    near.enter(queue.vqp, 0, 1, 0)?;
    ensure!(is_readable(eventfd.as_fd(), SOON)?, "it is never told");
    let mut wcs = [RawWc::zeroed(); BUFFERS + 1];
    let taken = queue.take(&mut wcs);
    let flushed = WcStatus::WrFlushErr as u16;
    let are_flushed = wcs[..taken].iter().all(|wc| wc.status == flushed);
    ensure!(taken == BUFFERS && are_flushed, "{:?}", &wcs[..taken]);
    Ok(())
}

/// A program that waits by its eventfd alone, and whose queue pair has failed before, gets all
/// buffers back that it posts before a request, however many they are.
pub fn handed_back_by_itself() -> Result<()> {
    const BUFFERS: u64 = 100;
    const REQUEST: u64 = 1000;
    let memory = Memory::map(4096)?;
    let wrongdoer = Wrongdoer::new(&memory, 128)?;
    let (near, queue, sge) = (&wrongdoer.near, &wrongdoer.queue, wrongdoer.sge);
    let eventfd = wrongdoer.told()?;
    let wr = RawSendWr {
        wr_id: REQUEST,
        ..wrongdoer.to_nothing
    };
    let take = |wanted: usize| -> Result<Vec<u64>> {
        let mut ended = Vec::new();
        while ended.len() < wanted {
            let told = is_readable(eventfd.as_fd(), SOON)?;
            ensure!(told, "{} of {wanted} were told of", ended.len());
            let _ = eventfd.read();
            let mut wcs = [RawWc::zeroed(); 128];
            let taken = queue.take(&mut wcs);
            let failed = wcs[..taken].iter().all(|wc| wc.status != 0);
            ensure!(failed, "one succeeded: {:?}", &wcs[..taken]);
            ended.extend(wcs[..taken].iter().map(|wc| wc.wr_id));
        }
        ended.sort_unstable();
        Ok(ended)
    };
    // When the second has ended, the queue pair knows that the first has failed.
    for _ in 0..2 {
        queue.enter(near, &[wr], &mut [], 0, 0)?;
        take(1)?;
    }
    for n in 0..BUFFERS {
        ensure!(queue.post_recv(&buffer(n, sge)), "it takes no buffer");
    }
    queue.enter(near, &[wr], &mut [], 0, 0)?;
    let ended = take(BUFFERS as usize + 1)?;
    let wanted = (0..BUFFERS).chain([REQUEST]);
    ensure!(ended.iter().copied().eq(wanted), "{ended:?} came back");
    Ok(())
}

/// The eventfd, and the rings, go at any time: while requests are on their way, and while a
/// timer runs.
pub fn goes() -> Result<()> {
    let soon = Moderation {
        count: MAX_NOTIFY_COUNT,
        period: Duration::from_micros(200),
    };
    for round in 0..200 {
        let mut desk = Desk::new(if round % 2 == 0 { soon } else { RARELY })?;
        desk.post(16)?;
        match round % 4 {
            // Its descriptor goes: whoever holds it no more hears nothing more.
            0 => {
                desk.eventfd = EventFd::from_flags(EfdFlags::EFD_NONBLOCK)?;
                let mut wcs = [Wc::default(); 16];
                let done = desk.queues.enter(&[], &mut wcs, 16, SOON)?.completed;
                ensure!(done == 16, "{done} of 16 completed");
                ensure!(desk.signals()? == 0, "another eventfd is signalled");
            }
            1 => desk.queues.notify_none()?,
            // All of it goes.
            _ => {}
        }
    }
    Ok(())
}

/// One thread changes the eventfd all the time; another posts, and hears of all.
pub fn changed_meanwhile() -> Result<()> {
    const MOST: usize = 16;
    let (near, far) = (Session::open(0)?, Session::open(1)?);
    let (memory, target) = (Memory::map(4096)?, Memory::map(4096)?);
    let local = near.register(&memory, 0, 64, ACCESS_ALL)?;
    let remote = far.register(&target, 0, 64, ACCESS_ALL)?;
    let queue = near.queue(MOST as u32, 0)?;
    near.qconnect(queue.vqp, gid(1))?;
    let local = Sge {
        addr: local.addr,
        len: 8,
        lkey: local.lkey,
    };
    let mut wr = request(OP_WRITE, local, remote.addr, remote.rkey);
    wr.flags |= SEND_SIGNALED;
    let eventfd = EventFd::from_flags(EfdFlags::EFD_NONBLOCK)?;
    let rings = near.rings_of(queue.vqp)?;
    let change = |count, period_us| near.notify(rings, eventfd.as_fd(), count, period_us);
    change(1, 0)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let changer = scope.spawn(|| -> Result<u32, Errno> {
            let mut times = 0;
            while !is_over.load(Ordering::Relaxed) {
                for (count, period_us) in [(1, 0), (3, 100), (MAX_NOTIFY_COUNT, 1000)] {
                    change(count, period_us)?;
                    times += 1;
                }
            }
            Ok(times)
        });
        let outcome = (0..500).try_for_each(|round| {
            let wrs = vec![wr; 1 + round % MOST];
            queue.enter(&near, &wrs, &mut [], 0, 0)?;
            let (mut wcs, mut taken) = ([RawWc::zeroed(); MOST], 0);
            while taken < wrs.len() {
                let told = is_readable(eventfd.as_fd(), SOON)?;
                ensure!(told, "round {round}: {taken} of {} were told of", wrs.len());
                // It may have been read for a completion that was taken before.
                let _ = eventfd.read();
                taken += queue.take(&mut wcs);
            }
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        let times = changer.join().map_err(|_| anyhow!("it panicked"))??;
        println!("# it was changed {times} times meanwhile");
        outcome
    })
}
