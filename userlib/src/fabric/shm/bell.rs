// SPDX-License-Identifier: MIT OR Apache-2.0

//! The doorbell: a futex word in a node's memory (spindle §II.D).
//!
//! Who sleeps announces it, then looks once more for work, then waits. Who has
//! written looks for an announcement afterwards. Both have a full fence in
//! between, so that one of the two sees the other.

use std::ptr;
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// A node's doorbell, wherever it is mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bell<'a> {
    word: &'a AtomicU32,
}

impl<'a> Bell<'a> {
    pub(super) fn new(word: &'a AtomicU32) -> Self {
        Self { word }
    }

    /// Wakes the sleeper, if there is one. Two instructions if not.
    pub(super) fn ring(self) {
        fence(Ordering::SeqCst);
        if self.word.load(Ordering::Relaxed) == ASLEEP
            && self.word.swap(AWAKE, Ordering::SeqCst) == ASLEEP
        {
            futex(self.word, libc::FUTEX_WAKE, 1, None);
        }
    }

    /// Waits for a ring, unless `ready` has seen something.
    pub(super) fn sleep(self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        self.word.store(ASLEEP, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !ready() {
            let end = timeout.map(|timeout| Instant::now() + timeout);
            while self.word.load(Ordering::Acquire) == ASLEEP {
                let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    break;
                }
                futex(self.word, libc::FUTEX_WAIT, ASLEEP, left);
            }
        }
        self.word.store(AWAKE, Ordering::SeqCst);
    }
}

/// Waits on, or wakes, a word that other processes map too. All outcomes are
/// alike to the callers, which look at the word again.
fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: Option<Duration>) {
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
            operation,
            value,
            timeout.as_ref().map_or(ptr::null(), ptr::from_ref),
        );
    }
}
