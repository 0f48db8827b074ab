// SPDX-License-Identifier: MIT OR Apache-2.0

//! `poll(2)` and epoll on a session, and eventfds of its completion queues: they tell of
//! every completion, wake whoever waits, and leave nothing behind.

mod eventfd;
mod tasks;

use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use nix::libc::SIGKILL;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use weft_core::uapi::{Pod, Sge, Wc as RawWc, OP_WRITE, SEND_SIGNALED};
use weft_shim::{Access, Device, MemoryRegion, RecvWr, SendWr, Wc};
use weft_testkit::pace::patient;

use crate::raw::{request, Field, Memory, Session};
use crate::rc::with_rc;
use crate::two_sided::Ear;
use crate::world::{gid, wait_for, worker, Baseline, Link, Transport};
use weft_testkit::report::Report;

/// Longest that a wake-up may take.
const SOON: Duration = Duration::from_secs(20);
/// How long a thread is given to go to sleep in `poll`.
const ASLEEP: Duration = Duration::from_millis(200);
const VQPS: usize = 64;

/// All checks.
pub fn run(report: &mut Report) {
    let baseline = report.need("the gauges stand still", || Baseline::take(2));
    report.check("before HELLO: POLLERR", before_hello);
    on(report, Transport::Usual);
    report.check(
        "a message wakes a thread that sleeps in poll",
        message_wakes,
    );
    report.check("tasks of tokio wait for their completions", tasks::run);
    report.check("level-triggered epoll repeats itself", level_triggered);
    report.check(
        "edge-triggered epoll tells of each completion",
        edge_triggered,
    );
    report.check("each of 64 VQPs makes the session readable", each_vqp);
    report.check(
        "an eventfd tells of what was there, and wakes",
        eventfd::late,
    );
    report.check(
        "it tells of many at once, and of none too late",
        eventfd::moderated,
    );
    report.check("it tells of messages", eventfd::messages);
    report.check(
        "it tells of buffers that are handed back",
        eventfd::handed_back,
    );
    report.check("it goes at any time, and so do its queues", eventfd::goes);
    report.check("it is changed meanwhile", eventfd::changed_meanwhile);
    report.check("indices that lie fool their own session alone", lies);
    report.check("a thread that polls outlives its session's close", closed);
    report.check("processes that are killed in poll", killed);
    report.check(
        "an eventfd tells of all buffers that are handed back",
        eventfd::handed_back_by_itself,
    );
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || baseline.is_back());
    }
    with_rc(report, 2, |report| on(report, Transport::Rc));
}

/// What does not depend on the transport, by this one.
fn on(report: &mut Report, transport: Transport) {
    let name = format!("{transport:?}: readable from the end of a WRITE until it is taken");
    transport.check(report, &name, own_write);
    let name = format!("{transport:?}: the end of a WRITE wakes a thread that sleeps in poll");
    transport.check(report, &name, write_wakes);
    let name = format!("{transport:?}: an eventfd tells of each completion");
    transport.check(report, &name, eventfd::each);
}

/// What `poll` answers within so long.
fn told(fd: BorrowedFd<'_>, within: Duration) -> Result<PollFlags> {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    nix::poll::poll(&mut fds, PollTimeout::try_from(within)?)?;
    fds[0].revents().context("flags that nobody knows")
}

fn is_readable(fd: BorrowedFd<'_>, within: Duration) -> Result<bool> {
    Ok(told(fd, patient(within))?.contains(PollFlags::POLLIN))
}

fn before_hello() -> Result<()> {
    let told = told(Session::bare()?.as_fd(), Duration::ZERO)?;
    ensure!(told == PollFlags::POLLERR, "{told:?}");
    Ok(())
}

/// Posts a signalled WRITE and does not wait.
fn post(link: &mut Link) -> Result<()> {
    let wr = SendWr::write(link.local.slice(0..8)?, link.remote.remote()).signaled();
    let progress = link.vqp.enter(&[wr], &mut [], 0, Duration::ZERO)?;
    ensure!(progress.submitted == 1, "it was not taken");
    Ok(())
}

fn take(link: &mut Link) -> Result<usize> {
    let mut wcs = [Wc::default(); 4];
    Ok(link.vqp.enter(&[], &mut wcs, 0, Duration::ZERO)?.completed)
}

fn own_write() -> Result<()> {
    let mut link = Link::new(1, 4096, 16)?;
    let device = link.device.clone();
    for _ in 0..100 {
        ensure!(!is_readable(device.as_fd(), Duration::ZERO)?, "too early");
        post(&mut link)?;
        ensure!(is_readable(device.as_fd(), SOON)?, "it is never told");
        ensure!(take(&mut link)? == 1, "there was nothing to take");
    }
    Ok(())
}

fn write_wakes() -> Result<()> {
    let mut link = Link::new(1, 4096, 16)?;
    let device = link.device.clone();
    wakes(&device, || post(&mut link))
}

/// Runs `act` while a thread sleeps in `poll`, which has to wake it.
fn wakes(device: &Device, act: impl FnOnce() -> Result<()>) -> Result<()> {
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| is_readable(device.as_fd(), SOON));
        thread::sleep(ASLEEP);
        ensure!(!sleeper.is_finished(), "it did not sleep");
        act()?;
        let woken = sleeper.join().map_err(|_| anyhow!("it panicked"))??;
        ensure!(woken, "it slept on");
        Ok(())
    })
}

fn message_wakes() -> Result<()> {
    let mut ear = Ear::new(4096, 4)?;
    let wr = RecvWr::new(ear.memory.slice(0..64)?);
    ensure!(ear.listener.post_recv(&[wr]) == 1, "it takes no buffer");
    let near = Device::open_on(0)?;
    let text = MemoryRegion::allocate(&near, 64, Access::empty())?;
    let mut vqp = ear.sender(&near, 4)?;
    wakes(&ear.device, || {
        vqp.run(SendWr::send(text.slice(0..8)?))?;
        Ok(())
    })
}

fn epoll_on(device: &Device, flags: EpollFlags) -> Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(device.as_fd(), EpollEvent::new(flags, 0))?;
    Ok(epoll)
}

fn events(epoll: &Epoll, within: Duration) -> Result<usize> {
    let timeout = EpollTimeout::try_from(patient(within))?;
    Ok(epoll.wait(&mut [EpollEvent::empty(); 4], timeout)?)
}

fn level_triggered() -> Result<()> {
    let mut link = Link::new(1, 4096, 16)?;
    let device = link.device.clone();
    let epoll = epoll_on(&device, EpollFlags::EPOLLIN)?;
    ensure!(events(&epoll, Duration::ZERO)? == 0, "too early");
    post(&mut link)?;
    for _ in 0..3 {
        ensure!(events(&epoll, SOON)? == 1, "it is not repeated");
    }
    take(&mut link)?;
    ensure!(events(&epoll, Duration::ZERO)? == 0, "it was taken");
    Ok(())
}

fn edge_triggered() -> Result<()> {
    let mut link = Link::new(1, 4096, 16)?;
    let device = link.device.clone();
    let epoll = epoll_on(&device, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
    for round in 0..200 {
        post(&mut link)?;
        let told = events(&epoll, SOON).with_context(|| format!("round {round}"))?;
        ensure!(told == 1, "round {round}: it is never told");
        ensure!(events(&epoll, Duration::ZERO)? == 0, "it is repeated");
        ensure!(take(&mut link)? == 1, "there was nothing to take");
    }
    Ok(())
}

fn each_vqp() -> Result<()> {
    let session = Session::open(0)?;
    let far = Session::open(1)?;
    let (memory, target) = (Memory::map(4096)?, Memory::map(4096)?);
    let local = session.register(&memory, 0, 64, 1)?;
    let remote = far.register(&target, 0, 64, 0xf)?;
    let sge = Sge {
        addr: local.addr,
        len: 8,
        lkey: local.lkey,
    };
    for _ in 0..VQPS {
        let queue = session.queue(4, 0)?;
        session.qconnect(queue.vqp, gid(1))?;
        let mut wr = request(OP_WRITE, sge, remote.addr, remote.rkey);
        wr.flags |= SEND_SIGNALED;
        queue.enter(&session, &[wr], &mut [], 0, 0)?;
        ensure!(is_readable(session.as_fd(), SOON)?, "it is never told");
        ensure!(queue.take(&mut [RawWc::zeroed()]) == 1, "nothing to take");
        ensure!(!is_readable(session.as_fd(), Duration::ZERO)?, "taken");
    }
    Ok(())
}

fn lies() -> Result<()> {
    let (liar, mut link) = (Session::open(0)?, Link::new(1, 4096, 16)?);
    let queue = liar.queue(4, 4)?;
    let honest = link.device.clone();
    for lie in [1, 2, 3, u32::MAX, 1 << 31] {
        for field in Field::ALL {
            let before = queue
                .index(field)
                .swap(lie, std::sync::atomic::Ordering::Relaxed);
            let expected = matches!(field, Field::CqHead);
            let told = is_readable(liar.as_fd(), Duration::ZERO)?;
            ensure!(told == expected, "{field:?} {lie}: {told}");
            ensure!(!is_readable(honest.as_fd(), Duration::ZERO)?, "others hear");
            queue
                .index(field)
                .store(before, std::sync::atomic::Ordering::Relaxed);
        }
    }
    post(&mut link)?;
    ensure!(
        is_readable(honest.as_fd(), SOON)?,
        "the honest one hears nothing"
    );
    Ok(())
}

/// Closing a descriptor does not end a poll that is under way; it holds the file.
fn closed() -> Result<()> {
    let session = Session::open(0)?;
    let fd = session.as_fd().try_clone_to_owned()?;
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| told(fd.as_fd(), Duration::from_millis(600)));
        thread::sleep(ASLEEP);
        drop(session);
        let told = sleeper.join().map_err(|_| anyhow!("it panicked"))??;
        ensure!(told.is_empty(), "{told:?}");
        Ok(())
    })
}

/// Is such a process.
pub fn poll_for_ever() -> Result<()> {
    let link = Link::new(1, 4096, 16)?;
    println!("ready");
    loop {
        told(link.device.as_fd(), Duration::from_secs(1))?;
    }
}

fn killed() -> Result<()> {
    for _ in 0..10 {
        let mut child = worker(&["poller"])?.stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "ready\n", "it says {line:?}");
        child.kill()?;
        let mut status = None;
        wait_for("it dies", SOON, || {
            status = child.try_wait()?;
            Ok(status.is_some())
        })?;
        let signal = status.and_then(|status| status.signal());
        ensure!(signal == Some(SIGKILL), "it ended by itself: {status:?}");
    }
    Ok(())
}
