// SPDX-License-Identifier: MIT OR Apache-2.0

//! The simple cells of a row: counters and flags, a word each, so that a peer
//! sees the old value or the new one.

use super::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only its owner changes, and that a peer sees grow.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

// SAFETY: one atomic word.
unsafe impl Cell for Counter {}

impl Counter {
    /// Its value. What its owner had pushed before is visible.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Raises it. For the owner of the row only, from one thread; a lower
    /// value is a fault of the caller that would undo what peers have seen.
    pub fn advance(&self, value: u64) {
        debug_assert!(self.0.load(Ordering::Relaxed) <= value);
        self.0.store(value, Ordering::Release);
    }

    /// Stores any word, for counters whose order is not the number's.
    pub(crate) fn store(&self, word: u64) {
        self.0.store(word, Ordering::Release);
    }
}

/// A flag that rises once.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Flag(AtomicU64);

// SAFETY: one atomic word.
unsafe impl Cell for Flag {}

impl Flag {
    /// Whether it has risen. What its owner had pushed before is visible.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Raises it. For the owner of the row only.
    pub fn raise(&self) {
        self.0.store(1, Ordering::Release);
    }

    /// Lowers it, where a row is used for something new.
    pub(crate) fn lower(&self) {
        self.0.store(0, Ordering::Release);
    }
}
