// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls that signals interrupt.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use nix::libc::{pthread_kill, pthread_self, SIGUSR1};
use nix::sys::signal::{sigaction, SaFlags, SigAction, SigHandler, SigSet, Signal};

/// Between two signals.
const PAUSE: Duration = Duration::from_millis(20);

/// Signals that have come.
static ARRIVED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_: i32) {
    ARRIVED.fetch_add(1, Ordering::Relaxed);
}

/// Signals that have come so far. One that comes during a system call counts when that ends.
pub fn arrived() -> usize {
    ARRIVED.load(Ordering::Relaxed)
}

/// Makes a call while the calling thread gets signals, again and again, because one may
/// come before the call begins. Their handler counts them, and has nothing restarted.
pub fn under_signals<T>(call: impl FnOnce() -> T) -> Result<T> {
    let action = SigAction::new(
        SigHandler::Handler(on_signal),
        SaFlags::empty(),
        SigSet::empty(),
    );
    // SAFETY: the handler changes a number, which is atomic.
    unsafe { sigaction(Signal::SIGUSR1, &action) }?;
    // SAFETY: no requirement.
    let caller = unsafe { pthread_self() };
    let over = AtomicBool::new(false);
    Ok(thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                thread::sleep(PAUSE);
                // SAFETY: that thread waits for this one.
                unsafe { pthread_kill(caller, SIGUSR1) };
            }
        });
        let result = call();
        over.store(true, Ordering::Relaxed);
        result
    }))
}
