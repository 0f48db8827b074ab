// SPDX-License-Identifier: MIT OR Apache-2.0

//! ENTER: how long it waits, and what ends that.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::{self, Pod, MAX_BATCH};

use super::refused;
use crate::raw::{buffer, message, Field, Memory, Queue, Session};
use crate::signals::{arrived, under_signals};
use crate::world::{gid, timely};
use weft_testkit::pace::patient;
use weft_testkit::report::Report;

/// A wait that ends long before.
const WAIT_NS: u64 = 60_000_000_000;
/// A wait that outlasts what happens meanwhile.
const LONG_WAIT: Duration = Duration::from_secs(8);
/// A thread that was started has made its call after this time.
const BEGUN: Duration = Duration::from_millis(300);
/// A call that waited for the waiter would take longer.
const AT_ONCE: Duration = Duration::from_secs(4);

/// All checks of ENTER's numbers and of waiting.
pub fn run(report: &mut Report) -> Result<()> {
    let session = Session::open(0)?;
    let vqp = session.create_vqp(4)?;
    session.qconnect(vqp, gid(1))?;
    for count in [5, MAX_BATCH, MAX_BATCH + 1, u32::MAX] {
        let name = format!("{count} work requests in a ring of 4");
        refused(report, &name, Errno::EINVAL, || {
            session.enter(vqp, count, 0, 0)
        });
        let name = format!("waiting for {count} completions in a ring of 4");
        refused(report, &name, Errno::EINVAL, || {
            session.enter(vqp, 0, count, 0)
        });
    }
    report.check("a wait ends when its time is over", || {
        let start = Instant::now();
        session.enter(vqp, 0, 1, 50_000_000)?;
        let took = start.elapsed();
        ensure!(took >= Duration::from_millis(50), "it ended after {took:?}");
        ensure!(took < super::BOUND, "it ended after {took:?}");
        Ok(())
    });
    report.check("a signal ends a wait: EINTR", || interrupted(&session, vqp));
    report.check(
        "signals end no registration, however often they come",
        || registers(&session),
    );
    report.check(
        "a queue full of requests that nobody is told of makes room for the next",
        || full_of_silence(&session),
    );
    report.check("one that stays full: ENOSPC when the time is over", || {
        stays_full(&session)
    });
    report.check("closing the VQP does not wait for who waits on it", || {
        destroyed(&session)
    });
    Ok(())
}

fn interrupted(session: &Session, vqp: u32) -> Result<()> {
    let result = under_signals(|| session.enter(vqp, 0, 1, WAIT_NS))?;
    ensure!(result == Err(Errno::EINTR), "got {result:?}");
    Ok(())
}

/// So much memory, none of which is there yet, and so often that several signals come in the
/// middle of it.
fn registers(session: &Session) -> Result<()> {
    const LEN: usize = 32 << 20;
    const SIGNALS: usize = 3;
    let start = Instant::now();
    under_signals(|| {
        let mut met = 0;
        while met < SIGNALS {
            let memory = Memory::map(LEN)?;
            let before = arrived();
            let region = session.register(&memory, 0, LEN as u64, uapi::ACCESS_ALL)?;
            met += arrived() - before;
            session.deregister(region.lkey)?;
            let took = start.elapsed();
            ensure!(
                took < patient(super::BOUND),
                "{met} signals within {took:?}"
            );
        }
        Ok(())
    })?
}

const PORT: u32 = 6711;
const DEPTH: u32 = 4;

/// A receiver, and a VQP to it that is full of messages which wait for buffers.
fn full(session: &Session) -> Result<(Queue, Queue)> {
    let receiver = session.queue(1, 2 * DEPTH)?;
    session.qbind(receiver.vqp, PORT)?;
    let sender = session.queue(DEPTH, 0)?;
    session.qconnect_port(sender.vqp, gid(0), PORT)?;
    let silent = uapi::SendWr {
        flags: uapi::SEND_INLINE,
        ..message(b"silent")
    };
    let (taken, _) = sender.enter(session, &[silent; DEPTH as usize], &mut [], 0, 0)?;
    ensure!(taken == DEPTH as usize, "{taken} were taken");
    Ok((receiver, sender))
}

/// Their receiver has buffers after a while.
fn full_of_silence(session: &Session) -> Result<()> {
    let (receiver, sender) = full(session)?;
    let page = Memory::map(4096)?;
    let lkey = session
        .register(&page, 0, 4096, uapi::ACCESS_LOCAL_WRITE)?
        .lkey;
    let local = uapi::Sge {
        addr: page.addr(),
        len: 64,
        lkey,
    };
    let mut wcs = [uapi::Wc::zeroed()];
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            for n in 0..=u64::from(DEPTH) {
                receiver.post_recv(&buffer(n, local));
            }
        });
        sender.enter(session, &[message(b"signalled")], &mut wcs, 1, WAIT_NS)
    })?;
    ensure!(ended == (1, 1), "{ended:?} were taken and ended");
    ensure!(wcs[0].status == 0, "it ended with {}", wcs[0].status);
    session.destroy_vqp(sender.vqp)?;
    session.destroy_vqp(receiver.vqp)?;
    Ok(session.deregister(lkey)?)
}

/// Their receiver has none while the call waits.
fn stays_full(session: &Session) -> Result<()> {
    let (receiver, sender) = full(session)?;
    let start = Instant::now();
    let answer = session.enter(sender.vqp, 1, 1, 50_000_000);
    ensure!(answer == Err(Errno::ENOSPC), "it is {answer:?}");
    let took = start.elapsed();
    ensure!(took >= Duration::from_millis(50), "it ended after {took:?}");
    let head = sender.index(Field::SqHead).load(Ordering::Acquire);
    ensure!(head == DEPTH, "the index moved to {head}");
    session.destroy_vqp(sender.vqp)?;
    Ok(session.destroy_vqp(receiver.vqp)?)
}

/// The waiter keeps the VQP; the handle is free, and its time ends the wait.
fn destroyed(session: &Session) -> Result<()> {
    let said = session.describe_vqp(4, 0)?;
    let wait_ns = patient(LONG_WAIT).as_nanos() as u64;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| session.enter_rings(said.rings, 0, 1, wait_ns));
        thread::sleep(patient(BEGUN));
        ensure!(!waiter.is_finished(), "it did not wait");
        timely(AT_ONCE, || session.destroy_vqp(said.vqp))?.context("destroying")?;
        let result = waiter.join().map_err(|_| anyhow!("the waiter panicked"))?;
        ensure!(result == Ok(0), "the waiter got {result:?}");
        let gone = session.destroy_vqp_alone(said.vqp);
        ensure!(gone == Err(Errno::EBADF), "the handle is still there");
        Ok(())
    })
}
