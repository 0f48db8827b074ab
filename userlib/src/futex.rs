// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sleeping on a word, and waking who sleeps on it.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

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
