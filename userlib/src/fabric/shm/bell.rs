// SPDX-License-Identifier: MIT OR Apache-2.0

//! The doorbell: a futex word in a node's memory (spindle §II.D).
//!
//! A sleeper announces its sleep, then looks once more for work, then waits. A ringer has
//! written, and looks for an announcement afterwards. Both have a full fence in between, so that
//! one of the two sees the other.
//!
//! A ringer may be stopped or killed before it wakes the sleeper that it has rung. So the word
//! says that there is a sleeper until the sleeper itself is awake, and each ringer wakes it.

use crate::deadline::end_of;
use crate::futex::{self, Scope};
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
/// The sleeper was rung, and has not woken yet.
const RUNG: u32 = 2;

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
        if self.word.load(Ordering::Relaxed) != AWAKE {
            self.wake();
        }
    }

    /// Never changes the word of a node that is awake: only the sleeper itself knows that it is.
    #[cold]
    fn wake(self) {
        let rung = self
            .word
            .compare_exchange(ASLEEP, RUNG, Ordering::SeqCst, Ordering::SeqCst);
        if rung != Err(AWAKE) {
            futex::wake(self.word, 1, Scope::Host);
        }
    }

    /// Waits for a ring, unless `ready` has seen something.
    pub(super) fn sleep(self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        self.word.store(ASLEEP, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !ready() {
            let end = timeout.map(end_of);
            while self.word.load(Ordering::Acquire) == ASLEEP {
                let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    break;
                }
                futex::wait(self.word, ASLEEP, left, Scope::Host);
            }
        }
        self.word.store(AWAKE, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_sleeper_whose_ringer_was_killed_or_stopped_is_woken_by_the_next_ring() {
        let word = Arc::new(AtomicU32::new(AWAKE));
        let sleeping = Arc::clone(&word);
        let sleeper = std::thread::spawn(move || Bell::new(&sleeping).sleep(None, &mut || false));
        while word.load(Ordering::SeqCst) != ASLEEP {
            std::thread::yield_now();
        }
        // Given a node that rang and was stopped before it woke anybody,
        std::thread::sleep(Duration::from_millis(10));
        word.store(RUNG, Ordering::SeqCst);
        // when another one rings,
        Bell::new(&word).ring();
        // then the sleeper wakes, and is known to be awake.
        sleeper.join().expect("it wakes");
        assert_eq!(word.load(Ordering::SeqCst), AWAKE);
    }
}
