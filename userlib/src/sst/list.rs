// SPDX-License-Identifier: MIT OR Apache-2.0

//! Guarded lists: more words than a cache line holds (spindle §II.B).
//!
//! A push may bring the words in any order, so the owner pushes the words
//! first and the guard, the number of appended words, behind them in another
//! write. Who sees the guard sees the words. Truncation at the front is
//! announced before its places are used again, so a reader that looks at it
//! once more after copying knows which of its words are still good.

use crate::sync::atomic::{fence, AtomicU64, Ordering};

/// The list has no place for another word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the list holds {0} words, which is its limit: truncate it first")]
pub struct ListFull(pub usize);

/// A list of up to `N` words, appended at the end and truncated at the front
/// by its owner.
///
/// # Invariants
///
/// `truncated <= appended <= truncated + N`. Word `i` is at `i % N`, and is
/// overwritten only after `truncated > i` was stored, and pushed.
#[derive(Debug)]
#[repr(C)]
pub struct List<const N: usize> {
    words: [AtomicU64; N],
    /// Words ever truncated.
    truncated: AtomicU64,
    /// The guard: words ever appended.
    appended: AtomicU64,
}

#[cfg(not(loom))]
// SAFETY: atomic words only, all zeros is the empty list.
unsafe impl<const N: usize> super::Cell for List<N> {}

impl<const N: usize> Default for List<N> {
    fn default() -> Self {
        Self {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            truncated: AtomicU64::new(0),
            appended: AtomicU64::new(0),
        }
    }
}

impl<const N: usize> List<N> {
    /// Bytes of the guard, the last word.
    pub(super) const GUARD_BYTES: usize = size_of::<u64>();

    /// Appends words. For the owner only, from one thread.
    ///
    /// # Errors
    ///
    /// [`ListFull`], with nothing appended.
    pub fn append(&self, words: &[u64]) -> Result<(), ListFull> {
        let truncated = self.truncated.load(Ordering::Relaxed);
        let appended = self.appended.load(Ordering::Relaxed);
        let end = appended + words.len() as u64;
        if end - truncated > N as u64 {
            return Err(ListFull(N));
        }
        // INVARIANT: these places are of words below `truncated`. The fence
        // keeps the stores behind the one of `truncated`, for a reader that
        // sees one of them.
        fence(Ordering::Release);
        for (at, &word) in (appended..).zip(words) {
            self.words[place::<N>(at)].store(word, Ordering::Relaxed);
        }
        self.appended.store(end, Ordering::Release);
        Ok(())
    }

    /// Drops up to `count` words at the front. For the owner only. Push before
    /// the next append.
    pub fn truncate(&self, count: u64) {
        let truncated = self.truncated.load(Ordering::Relaxed);
        let appended = self.appended.load(Ordering::Relaxed);
        let end = truncated.saturating_add(count).min(appended);
        self.truncated.store(end, Ordering::Release);
    }

    /// The words, each with its number since the beginning. In a peer's row
    /// they are those of one moment.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(u64, u64)> {
        let appended = self.appended.load(Ordering::Acquire);
        let first = self.truncated.load(Ordering::Acquire);
        // A peer's row is not to be trusted with the size of an allocation.
        let first = first.max(appended.saturating_sub(N as u64));
        let mut words: Vec<(u64, u64)> = (first..appended)
            .map(|at| (at, self.words[place::<N>(at)].load(Ordering::Relaxed)))
            .collect();
        // Behind the words: whoever has overwritten one that we read had
        // stored `truncated` before.
        fence(Ordering::Acquire);
        let still = self.truncated.load(Ordering::Relaxed);
        words.retain(|&(at, _)| at >= still);
        words
    }
}

fn place<const N: usize>(at: u64) -> usize {
    usize::try_from(at % N as u64).unwrap_or(0)
}
