// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sleeping on a word, and waking who sleeps on it.

use std::ptr;
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Who maps the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Threads of this process.
    Process,
    /// Other processes too.
    Host,
}

impl Scope {
    fn flag(self) -> i32 {
        match self {
            Self::Process => libc::FUTEX_PRIVATE_FLAG,
            Self::Host => 0,
        }
    }
}

/// Sleeps while the word has this value, until woken, for at most `timeout`.
/// It may return for no reason: the caller looks again.
pub(crate) fn wait(word: &AtomicU32, value: u32, timeout: Option<Duration>, scope: Scope) {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    // SAFETY: the word is mapped while it is borrowed, and the time, if any,
    // lives until the call returns.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | scope.flag(),
            value,
            timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
        );
    }
}

/// Wakes up to `count` sleepers.
pub(crate) fn wake(word: &AtomicU32, count: i32, scope: Scope) {
    // SAFETY: the word is mapped while it is borrowed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | scope.flag(),
            count,
        );
    }
}

/// A place where threads of this process wait for a condition that another
/// thread makes true. Who opens it pays next to nothing if nobody waits.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    opened: AtomicU32,
    waiting: AtomicU32,
}

impl Gate {
    /// Wakes whoever waits to look again. Called after the condition changed.
    pub(crate) fn open(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.opened.fetch_add(1, Ordering::Release);
            wake(&self.opened, i32::MAX, Scope::Process);
        }
    }

    /// Waits until `done`, or the end; answers with the last that it said.
    pub(crate) fn wait_until(&self, end: Option<Instant>, mut done: impl FnMut() -> bool) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let reached = loop {
            let opened = self.opened.load(Ordering::Acquire);
            fence(Ordering::SeqCst);
            if done() {
                break true;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break false;
            }
            wait(&self.opened, opened, left, Scope::Process);
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        reached
    }
}
