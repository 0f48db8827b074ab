// SPDX-License-Identifier: GPL-2.0 OR MIT

//! When those who wait for completions by an eventfd are told of them: after so many, or so
//! long after the first that they were not told of (`ibv_modify_cq`).

use crate::sync::{AtomicU32, Ordering};

const IDLE: u32 = 0;
const RUNNING: u32 = 1;

/// What to do about completions that have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Telling {
    /// Nothing: they were told of, or the timer runs.
    Nothing,
    /// Tell of them.
    Now,
    /// Start the timer, which then asks [`Moderation::time_is_over`].
    StartTimer,
}

/// Completions that were told of, and those that were not.
///
/// Completions come by one thread at a time, while the timer may be at its end on another
/// CPU. Neither waits for the other: they may both tell of the same completion, but of each
/// at least one does.
pub struct Moderation {
    count: u32,
    /// The index past the last completion.
    latest: AtomicU32,
    /// The index past the last one that was told of; the timer may set it back.
    told: AtomicU32,
    /// [`RUNNING`] from the timer's start until its end looks at `latest`.
    timer: AtomicU32,
}

impl Moderation {
    /// One that tells of `count` completions at once, of which there are some up to the
    /// index `tail`; those were told of.
    #[must_use]
    pub fn new(count: u32, tail: u32) -> Self {
        Self {
            count,
            latest: AtomicU32::new(tail),
            told: AtomicU32::new(tail),
            timer: AtomicU32::new(IDLE),
        }
    }

    /// There are completions up to the index `tail`. By one thread at a time.
    #[must_use]
    pub fn arrived(&self, tail: u32) -> Telling {
        self.latest.store(tail, Ordering::Relaxed);
        let new = tail.wrapping_sub(self.told.load(Ordering::Relaxed));
        if new == 0 {
            return Telling::Nothing;
        }
        if new >= self.count {
            self.told.store(tail, Ordering::Relaxed);
            return Telling::Now;
        }
        // If the timer runs, its end comes after this in the order of the word's changes, and
        // so sees `latest`.
        match self.timer.swap(RUNNING, Ordering::AcqRel) {
            IDLE => Telling::StartTimer,
            _ => Telling::Nothing,
        }
    }

    /// The timer is at its end. Answers whether there are completions to tell of.
    #[must_use]
    pub fn time_is_over(&self) -> bool {
        self.timer.swap(IDLE, Ordering::AcqRel);
        let latest = self.latest.load(Ordering::Relaxed);
        self.told.swap(latest, Ordering::Relaxed) != latest
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    use Telling::{Nothing, Now, StartTimer};

    #[test]
    fn without_moderation_each_completion_is_told_of() {
        let moderation = Moderation::new(1, u32::MAX);
        assert_eq!(moderation.arrived(u32::MAX), Nothing);
        assert_eq!(moderation.arrived(0), Now);
        assert_eq!(moderation.arrived(3), Now);
        assert_eq!(moderation.arrived(3), Nothing);
    }

    #[test]
    fn so_many_are_told_of_at_once() {
        let moderation = Moderation::new(4, 10);
        let steps = [11, 12, 13, 14, 15].map(|tail| moderation.arrived(tail));
        assert_eq!(steps, [StartTimer, Nothing, Nothing, Now, Nothing]);
        assert!(moderation.time_is_over(), "of the fifth");
        assert!(!moderation.time_is_over());
        assert_eq!(moderation.arrived(19), Now);
    }

    #[test]
    fn what_was_told_of_by_number_is_not_told_of_by_time() {
        let moderation = Moderation::new(2, 0);
        assert_eq!(moderation.arrived(1), StartTimer);
        assert_eq!(moderation.arrived(2), Now);
        assert!(!moderation.time_is_over());
        assert_eq!(moderation.arrived(3), StartTimer, "it runs anew");
        assert!(moderation.time_is_over());
    }
}
