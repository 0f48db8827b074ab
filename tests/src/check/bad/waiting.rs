// SPDX-License-Identifier: MIT OR Apache-2.0

//! ENTER: how long it waits, and what ends that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::{pthread_kill, pthread_self, SIGUSR1};
use nix::sys::signal::{sigaction, SaFlags, SigAction, SigHandler, SigSet, Signal};
use weft_core::uapi::{self, MAX_BATCH};

use super::refused;
use crate::raw::Session;
use crate::report::Report;
use crate::world::gid;

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
    report.check("closing the VQP does not wait for who waits on it", || {
        destroyed(&session)
    });
    Ok(())
}

extern "C" fn on_signal(_: i32) {}

fn interrupted(session: &Session, vqp: u32) -> Result<()> {
    let action = SigAction::new(
        SigHandler::Handler(on_signal),
        SaFlags::empty(),
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR1, &action) }?;
    // SAFETY: no requirement.
    let waiter = unsafe { pthread_self() };
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // Again and again, because one may come before the wait begins.
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
                // SAFETY: that thread waits for this one.
                unsafe { pthread_kill(waiter, SIGUSR1) };
            }
        });
        let result = session.enter(vqp, 0, 1, 60_000_000_000);
        over.store(true, Ordering::Relaxed);
        ensure!(result == Err(Errno::EINTR), "got {result:?}");
        Ok(())
    })
}

/// The waiter keeps the VQP; the handle is free, and its time ends the wait.
fn destroyed(session: &Session) -> Result<()> {
    let vqp = session.create_vqp(4)?;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| session.enter(vqp, 0, 1, 300_000_000));
        let start = Instant::now();
        session.destroy_vqp(vqp).context("destroying")?;
        ensure!(
            start.elapsed() < super::BOUND,
            "it took {:?}",
            start.elapsed()
        );
        let result = waiter.join().map_err(|_| anyhow!("the waiter panicked"))?;
        // It may come before the waiter has begun.
        ensure!(
            matches!(result, Ok(0) | Err(Errno::EBADF)),
            "the waiter got {result:?}"
        );
        let gone = session.call(
            uapi::IOC_VQP_DESTROY,
            &mut uapi::VqpHandle { vqp, reserved: 0 },
        );
        ensure!(gone == Err(Errno::EBADF), "the handle is still there");
        Ok(())
    })
}
