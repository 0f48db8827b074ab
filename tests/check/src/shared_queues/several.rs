// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several rings of a session: submitting from one to another, two threads with a ring
//! each, and `poll(2)` and epoll over all of them.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use weft_core::dc::MAX_OPS;
use weft_core::uapi::{Pod, RingsCreate, Run, SendWr, Sge, VqpCreate, Wc, OP_READ};
use weft_testkit::pace::patient;

use super::scene::{all_good, signaled, Scene, PATIENCE_NS};
use crate::raw::{buffer, message, Queue, Session};
use crate::signals::under_signals;
use crate::two_sided::ends::new_port;
use crate::world::gid;

/// Longest that a wake-up may take.
const SOON: Duration = Duration::from_secs(20);
/// A call that waits for nothing that comes.
const NEVER_NS: u64 = 300_000_000;

/// How long a call waits. It would notice then, if not before, that there is room.
const LATE: Duration = Duration::from_secs(8);

/// More rings of a session.
fn rings_of(session: &Session, max_send_wr: u32, max_wc: u32) -> Result<(RingsCreate, Queue)> {
    let rings = session.make_rings(max_send_wr, max_wc, 0)?;
    let queue = Queue::of_rings(session, &rings)?;
    Ok((rings, queue))
}

fn take(queue: &Queue) -> Vec<Wc> {
    let mut wcs = vec![Wc::zeroed(); 64];
    let count = queue.take(&mut wcs);
    wcs.truncate(count);
    wcs
}

/// Requests from a ring that has no completions, whose completions go to rings that have no
/// requests; and a wait elsewhere, that does not see them.
pub fn apart() -> Result<()> {
    let scene = Scene::new(8, 8, 0)?;
    let session = &scene.session;
    let (from, submission) = rings_of(session, 16, 0)?;
    let (to, completion) = rings_of(session, 0, 16)?;
    let vqp = session.make_vqp(VqpCreate {
        cq: to.rings,
        gid: gid(1),
        ..scene.vqp_arg(16)
    })?;
    for round in 0..50 {
        let wrs: Vec<SendWr> = (0..16)
            .map(|n| signaled(scene.write(vqp, 0, n, 100), n as u64))
            .collect();
        let taken = submission.submit(session, &wrs, to.rings, 16, PATIENCE_NS)?;
        let wcs = take(&completion);
        ensure!(
            (taken, wcs.len()) == (16, 16),
            "round {round}: {taken}, {}",
            wcs.len()
        );
        all_good(&wcs)?;
    }
    let wr = signaled(scene.write(vqp, 0, 0, 8), 0);
    // They come to other rings than the call waits for.
    let taken = submission.submit(session, &[wr], scene.rings.rings, 1, NEVER_NS)?;
    ensure!(taken == 1 && scene.take(1).is_empty(), "{taken} were taken");
    session.enter_rings(to.rings, 0, 1, PATIENCE_NS)?;
    ensure!(take(&completion).len() == 1, "it has not come");
    // What is not there is refused.
    let refused = [
        session.enter_any(to.rings, 1, to.rings, 0, 0),
        session.enter_any(from.rings, 17, to.rings, 0, 0),
        session.enter_any(from.rings, 0, from.rings, 1, 0),
        session.enter_any(from.rings, 0, to.rings, 17, 0),
    ];
    ensure!(refused == [Err(Errno::EINVAL); 4], "{refused:?}");
    let vqp = VqpCreate {
        cq: from.rings,
        ..scene.vqp_arg(4)
    };
    let refused = session.make_vqp(vqp);
    ensure!(
        refused == Err(Errno::EINVAL),
        "a VQP without completions: {refused:?}"
    );
    Ok(())
}

/// A call that waits for room goes on as soon as there is some, also if its requests'
/// completions go to other rings than it waits for.
pub fn room_elsewhere() -> Result<()> {
    const DEPTH: usize = 4;
    let scene = Scene::new(64, 8, 0)?;
    let session = &scene.session;
    let (to, completion) = rings_of(session, 0, 64)?;
    let (port, far) = (new_port(), &scene.peers[0]);
    let bound = far.session.queue(4, 2 * DEPTH as u32)?;
    far.session.qbind(bound.vqp, port)?;
    let vqp = session.make_vqp(VqpCreate {
        cq: to.rings,
        gid: gid(1),
        port,
        ..scene.vqp_arg(DEPTH as u32)
    })?;
    let hello = SendWr {
        vqp,
        ..message(b"hello")
    };
    scene.post_all(&[hello; DEPTH])?;
    let into = Sge {
        addr: far.region.addr,
        len: 64,
        lkey: far.region.lkey,
    };
    let took = thread::scope(|scope| {
        let call = scope.spawn(|| post_and_wait(session, &scene.queue, hello));
        thread::sleep(Duration::from_millis(200));
        ensure!(!call.is_finished(), "it did not wait for room");
        let start = Instant::now();
        for n in 0..2 * DEPTH as u64 {
            ensure!(bound.post_recv(&buffer(n, into)), "no room for a buffer");
        }
        // The last one is that of the call.
        for _ in 0..=DEPTH {
            bound.next(&far.session)?;
        }
        let took = start.elapsed();
        let taken = call.join().map_err(|_| anyhow!("it panicked"))??;
        ensure!(taken == 1, "the call took {taken}");
        Ok(took)
    })?;
    ensure!(took < patient(LATE / 2), "its request waited for {took:?}");
    session.enter_rings(to.rings, 0, DEPTH as u32 + 1, PATIENCE_NS)?;
    let wcs = take(&completion);
    ensure!(wcs.len() == DEPTH + 1, "{wcs:?}");
    all_good(&wcs)
}

/// One request, and a wait for what never comes.
fn post_and_wait(session: &Session, queue: &Queue, wr: SendWr) -> Result<usize, Errno> {
    let timeout_ns = patient(LATE).as_nanos() as u64;
    queue.submit(session, &[wr], queue.said.of_rings.rings, 1, timeout_ns)
}

/// Threads that want the one place of a completion ring take turns: the quicker one is no
/// reason for another to give up before its time is over.
pub fn one_place() -> Result<()> {
    let scene = Scene::new(4, 1, 0)?;
    thread::scope(|scope| {
        let crowd: Vec<_> = (0..RIVALS)
            .map(|thread| {
                let scene = &scene;
                scope.spawn(move || take_turns(scene, thread))
            })
            .collect();
        for thread in crowd {
            thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(())
    })
}

const RIVALS: usize = 4;
const TURNS: usize = 300;

/// One thread's calls. Nobody is told of the request that needs the place; the other one's
/// completion, in a ring of the thread's own, ends the call.
fn take_turns(scene: &Scene, thread: usize) -> Result<()> {
    let session = &scene.session;
    let (own, queue) = rings_of(session, 2, 1)?;
    let vqp = |cq| {
        session.make_vqp(VqpCreate {
            cq,
            gid: gid(1),
            ..scene.vqp_arg(1)
        })
    };
    let (rival, free) = (vqp(scene.rings.rings)?, vqp(own.rings)?);
    let write = |vqp| scene.write(vqp, 0, thread, 8);
    let wrs = [write(rival), signaled(write(free), 0)];
    for turn in 0..TURNS {
        let taken = queue.submit(session, &wrs, own.rings, 1, PATIENCE_NS);
        ensure!(taken == Ok(2), "turn {turn} of thread {thread}: {taken:?}");
        all_good(&take(&queue))?;
    }
    Ok(())
}

/// A signal ends a call whose VQP, or whose ring, is that of a call which waits for room.
pub fn behind_one_that_waits() -> Result<()> {
    // More messages than a stream has room for.
    const MESSAGES: usize = MAX_OPS + 64;
    let scene = Scene::new(256, 256, 0)?;
    let (session, port, far) = (&scene.session, new_port(), &scene.peers[0]);
    let bound = far.session.queue(4, MESSAGES as u32)?;
    far.session.qbind(bound.vqp, port)?;
    let vqp = session.make_vqp(VqpCreate {
        gid: gid(1),
        port,
        ..scene.vqp_arg(MESSAGES as u32)
    })?;
    let hello = SendWr {
        vqp,
        ..message(b"hello")
    };
    let run = Run {
        vqp,
        opcode: OP_READ.into(),
        rkey: far.region.rkey,
        remote_addr: far.region.addr,
        local: scene.sge(0, 8),
        ..Pod::zeroed()
    };
    let into = Sge {
        addr: far.region.addr,
        len: 64,
        lkey: far.region.lkey,
    };
    let (_, other) = rings_of(session, 4, 0)?;
    thread::scope(|scope| {
        let call = scope.spawn(|| scene.post(&[hello; MESSAGES]));
        thread::sleep(Duration::from_millis(200));
        ensure!(!call.is_finished(), "it did not wait for room");
        let rings = scene.rings.rings;
        let outcomes = [
            under_signals(|| other.submit(session, &[hello], rings, 0, 0))?,
            under_signals(|| session.enter_rings(rings, 1, 0, 0))?,
        ];
        let ran = under_signals(|| session.run(&run))?;
        ensure!(!call.is_finished(), "all room came at once");
        for n in 0..MESSAGES as u64 {
            ensure!(bound.post_recv(&buffer(n, into)), "no room for a buffer");
        }
        let taken = call.join().map_err(|_| anyhow!("it panicked"))??;
        ensure!(taken == MESSAGES, "the call took {taken}");
        ensure!(outcomes == [Err(Errno::EINTR); 2], "{outcomes:?}");
        // Nothing was done: it may be tried as another request.
        ensure!(ran == Err(Errno::EAGAIN), "a request of its own: {ran:?}");
        Ok(())
    })?;
    all_good(&scene.collect(MESSAGES)?)?;
    scene.is_quiet()
}

const THREADS: usize = 2;
const EACH: u64 = 3000;

/// Two threads submit from a ring each to one VQP, whose completions a third one takes:
/// each thread's are in its order, all are there once, and the bytes are whole.
pub fn two_threads() -> Result<()> {
    let scene = Scene::new(4, 64, 0)?;
    let vqp = scene.vqp(0, 48)?;
    let all = thread::scope(|scope| {
        let posters: Vec<_> = (0..THREADS)
            .map(|thread| {
                let scene = &scene;
                scope.spawn(move || post_many(scene, vqp, thread as u64))
            })
            .collect();
        let wcs = scene.collect(THREADS * EACH as usize)?;
        for poster in posters {
            poster.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok::<_, anyhow::Error>(wcs)
    })?;
    all_good(&all)?;
    let mut next = [0; THREADS];
    for wc in &all {
        let (thread, number) = ((wc.wr_id >> 32) as usize, u64::from(wc.wr_id as u32));
        let wanted = next.get_mut(thread).context("nobody's request")?;
        ensure!(
            *wanted == number,
            "thread {thread}: {number} came instead of {wanted}"
        );
        *wanted += 1;
    }
    for thread in 0..THREADS {
        let there = scene.peers[0].memory.word(thread * super::scene::SLOT);
        let value = there.load(std::sync::atomic::Ordering::Relaxed);
        ensure!(
            value == EACH - 1,
            "the last bytes of thread {thread} are {value}"
        );
    }
    scene.is_quiet()
}

/// One thread's WRITEs of their numbers to its word.
fn post_many(scene: &Scene, vqp: u32, thread: u64) -> Result<()> {
    let (_, queue) = rings_of(&scene.session, 8, 0)?;
    let wr = |number: u64| {
        let plain = scene.write(vqp, 0, thread as usize, 8);
        let mut wr = signaled(plain, (thread << 32) | number);
        (wr.flags, wr.num_sge, wr.inline_len) = (wr.flags | weft_core::uapi::SEND_INLINE, 0, 8);
        wr.data = [0; 10];
        wr.data[0] = number;
        wr
    };
    let mut number = 0;
    while number < EACH {
        let end = EACH.min(number + 1 + number % 8);
        let wrs: Vec<SendWr> = (number..end).map(wr).collect();
        number += match queue.submit(&scene.session, &wrs, scene.rings.rings, 0, 0) {
            Err(Errno::ENOSPC) => {
                thread::yield_now();
                0
            }
            taken => taken? as u64,
        };
    }
    Ok(())
}

fn is_readable(fd: BorrowedFd<'_>, within: Duration) -> Result<bool> {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    nix::poll::poll(&mut fds, PollTimeout::try_from(patient(within))?)?;
    let told = fds[0].revents().context("flags that nobody knows")?;
    Ok(told.contains(PollFlags::POLLIN))
}

/// Three sets of rings, each with a VQP.
struct Three {
    scene: Scene,
    queues: Vec<(RingsCreate, Queue, u32)>,
}

impl Three {
    fn new() -> Result<Self> {
        let scene = Scene::new(8, 8, 0)?;
        let mut queues = Vec::new();
        for _ in 0..3 {
            let (rings, queue) = rings_of(&scene.session, 8, 8)?;
            let arg = VqpCreate {
                cq: rings.rings,
                gid: gid(1),
                ..scene.vqp_arg(8)
            };
            let vqp = scene.session.make_vqp(arg)?;
            queues.push((rings, queue, vqp));
        }
        Ok(Self { scene, queues })
    }

    fn post(&self, at: usize) -> Result<()> {
        let (rings, queue, vqp) = &self.queues[at];
        let wr = signaled(self.scene.write(*vqp, 0, at, 8), at as u64);
        let taken = queue.submit(&self.scene.session, &[wr], rings.rings, 0, 0)?;
        ensure!(taken == 1, "it was not taken");
        Ok(())
    }

    /// Waits until a completion is there, and does not take it.
    fn settle(&self, at: usize) -> Result<()> {
        self.scene
            .session
            .enter_rings(self.queues[at].0.rings, 0, 1, PATIENCE_NS)?;
        Ok(())
    }
}

/// The session is readable as long as any of its rings has completions.
pub fn any_ring() -> Result<()> {
    let three = Three::new()?;
    let fd = three.scene.session.as_fd();
    for round in 0..60 {
        let (first, second) = (round % 3, (round + 1 + round % 2) % 3);
        ensure!(
            !is_readable(fd, Duration::ZERO)?,
            "round {round}: too early"
        );
        three.post(first)?;
        ensure!(
            is_readable(fd, SOON)?,
            "round {round}: ring {first} is never told"
        );
        three.post(second)?;
        three.settle(second)?;
        ensure!(take(&three.queues[first].1).len() == 1, "nothing to take");
        ensure!(
            is_readable(fd, Duration::ZERO)?,
            "round {round}: ring {second} is forgotten"
        );
        ensure!(take(&three.queues[second].1).len() == 1, "nothing to take");
    }
    ensure!(!is_readable(fd, Duration::ZERO)?, "all were taken");
    // Rings that are destroyed with completions in them say nothing any more.
    three.post(1)?;
    three.settle(1)?;
    ensure!(is_readable(fd, SOON)?, "it is never told");
    let (rings, _, vqp) = &three.queues[1];
    three.scene.session.destroy_vqp(*vqp)?;
    three.scene.session.destroy_rings(rings.rings)?;
    ensure!(
        !is_readable(fd, Duration::ZERO)?,
        "rings that are gone are readable"
    );
    Ok(())
}

/// Edge-triggered epoll tells of a completion in one ring while another one has some.
pub fn edges() -> Result<()> {
    let three = Three::new()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
    epoll.add(three.scene.session.as_fd(), EpollEvent::new(flags, 0))?;
    let events = |within: Duration| {
        let timeout = EpollTimeout::try_from(patient(within))?;
        Ok::<_, anyhow::Error>(epoll.wait(&mut [EpollEvent::empty(); 4], timeout)?)
    };
    // This one stays.
    three.post(2)?;
    ensure!(events(SOON)? == 1, "it is never told");
    for round in 0..100 {
        let at = round % 2;
        three.post(at)?;
        ensure!(events(SOON)? == 1, "round {round}: it is never told");
        three.settle(at)?;
        ensure!(take(&three.queues[at].1).len() == 1, "nothing to take");
    }
    Ok(())
}
