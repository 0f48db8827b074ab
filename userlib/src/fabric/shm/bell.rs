// SPDX-License-Identifier: MIT OR Apache-2.0

//! The doorbell: a futex word in a node's memory (spindle §II.D).
//!
//! Who sleeps announces it, then looks once more for work, then waits. Who has
//! written looks for an announcement afterwards. Both have a full fence in
//! between, so that one of the two sees the other.

use crate::deadline::end_of;
use crate::futex::{self, Scope};
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
            futex::wake(self.word, 1, Scope::Host);
        }
    }

    /// Wakes the sleeper even if somebody seems to have done it: a node that is killed between
    /// the two instructions of [`Self::ring`] has said so and woken nobody.
    pub(super) fn rouse(self) {
        self.word.store(AWAKE, Ordering::SeqCst);
        futex::wake(self.word, 1, Scope::Host);
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
    fn a_sleeper_whose_ringer_was_killed_is_woken_when_the_death_is_noticed() {
        let word = Arc::new(AtomicU32::new(AWAKE));
        let sleeping = Arc::clone(&word);
        let sleeper = std::thread::spawn(move || Bell::new(&sleeping).sleep(None, &mut || false));
        while word.load(Ordering::SeqCst) != ASLEEP {
            std::thread::yield_now();
        }
        // Given a node that rang and was killed before it woke anybody: to others there is
        // nobody to be woken.
        std::thread::sleep(Duration::from_millis(10));
        word.store(AWAKE, Ordering::SeqCst);
        Bell::new(&word).ring();
        // When its death is noticed, the sleeper wakes.
        Bell::new(&word).rouse();
        sleeper.join().expect("it wakes");
    }
}
