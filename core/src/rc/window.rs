// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requests of a queue pair that have not ended: a circle of places, filled
//! by the poster and emptied by the reaper, each of which may be any thread that
//! holds the poster's or the reaper's lock.
//!
//! A place is taken before its request is posted and given back when its
//! completion, or that of a later request, was *taken from the completion
//! queue*. So the requests outstanding, which are at least those in the send
//! queue, and at least the completions that wait, never exceed the depth: with a
//! send queue and a completion queue of that depth neither overflows. That holds
//! whatever is signalled, also when a queue pair breaks and each of its requests
//! makes a completion.
//!
//! It relies on two promises of a reliable queue pair: requests are completed in the
//! order in which they were posted (IBTA vol. 1, 9.5 Transaction Ordering), and one that
//! is not signalled makes a completion if it fails (IBTA vol. 1, 10.7.3.1). So a
//! completion says of all requests before it that they have ended, and ended well.
//!
//! What a place holds is kept by the driver. The poster may touch it between
//! [`Window::claim`] and [`Window::publish`], the reaper from then until
//! [`Window::retire`], and nobody else.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The places. Sequence numbers run freely; a request's place is its number
/// modulo the depth.
///
/// # Invariants
///
/// - `depth` is a power of two, so that places go on over the wrap of numbers.
/// - `tail - head <= depth`. Only the poster writes `tail` and `claimed`, only the
///   reaper `head` and `retired`.
/// - `claimed` and `retired` are the bytes of all requests that were so far, and
///   `pieces` those of the pieces that are outstanding.
pub struct Window {
    depth: u32,
    budget: u64,
    head: AtomicU32,
    tail: AtomicU32,
    claimed: AtomicU64,
    retired: AtomicU64,
    pieces: AtomicU64,
}

/// The poster's own part.
///
/// # Invariants
///
/// `next` is the window's `tail`, plus what was claimed and not yet published.
pub struct Poster {
    next: u32,
    interval: u32,
    /// Requests since the last signalled one.
    run: u32,
}

/// A place that the poster may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The request's number.
    pub seq: u32,
    /// Where it is kept.
    pub place: usize,
}

impl Window {
    /// An empty window of `depth` places, a power of two, and its poster, who
    /// signals at least one request in `interval`. `None`: the numbers make no
    /// sense.
    #[must_use]
    pub fn new(depth: u32, interval: u32, budget: u64) -> Option<(Self, Poster)> {
        Self::starting_at(depth, interval, budget, 0)
    }

    /// Likewise, with `first` as the first number.
    pub(super) fn starting_at(
        depth: u32,
        interval: u32,
        budget: u64,
        first: u32,
    ) -> Option<(Self, Poster)> {
        if !depth.is_power_of_two() || interval == 0 || interval > depth {
            return None;
        }
        // INVARIANT: nothing is claimed.
        let window = Self {
            depth,
            budget,
            head: AtomicU32::new(first),
            tail: AtomicU32::new(first),
            claimed: AtomicU64::new(0),
            retired: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
        };
        let poster = Poster {
            next: first,
            interval,
            run: 0,
        };
        Some((window, poster))
    }

    /// Takes a place for a request of `len` bytes. `None`: there is none, or the bytes
    /// outstanding are enough for requests that have any. How many it has does not count: a long
    /// request would wait for ever while short ones come.
    #[inline]
    pub fn claim(&self, poster: &mut Poster, len: u32) -> Option<Claim> {
        // Acquire: what the reaper did with the place is over.
        let head = self.head.load(Ordering::Acquire);
        let bytes = self.bytes();
        let fits = len == 0 || bytes == 0 || bytes < self.budget;
        if poster.next.wrapping_sub(head) >= self.depth || !fits {
            return None;
        }
        let claim = Claim {
            seq: poster.next,
            place: self.place(poster.next),
        };
        // INVARIANT: there was a place; both count it.
        poster.next = poster.next.wrapping_add(1);
        let claimed = self.claimed.load(Ordering::Relaxed);
        self.claimed
            .store(claimed.wrapping_add(u64::from(len)), Ordering::Relaxed);
        Some(claim)
    }

    /// As [`Window::claim`], for a piece of a request that was cut: `None` also if
    /// the pieces outstanding are enough, which have at most `budget` bytes, or are
    /// one. Ends with [`Window::retire_piece`].
    pub fn claim_piece(&self, poster: &mut Poster, len: u32, budget: u64) -> Option<Claim> {
        // The reaper only makes it less.
        let pieces = self.pieces.load(Ordering::Relaxed);
        if pieces != 0 && pieces.saturating_add(u64::from(len)) > budget {
            return None;
        }
        let claim = self.claim(poster, len)?;
        // INVARIANT: the piece is outstanding from now on.
        self.pieces.fetch_add(u64::from(len), Ordering::Relaxed);
        Some(claim)
    }

    /// Hands the claimed places, filled, to the reaper. To be called before their
    /// requests are posted, since a completion may come at once.
    #[inline]
    pub fn publish(&self, poster: &Poster) {
        self.tail.store(poster.next, Ordering::Release);
    }

    /// Where a request is kept.
    #[inline]
    #[must_use]
    pub fn place(&self, seq: u32) -> usize {
        (seq & (self.depth - 1)) as usize
    }

    /// How many requests were published, over the wrap of numbers.
    #[must_use]
    pub fn published(&self) -> u32 {
        self.tail.load(Ordering::Relaxed)
    }

    /// How many have ended, over the wrap of numbers.
    #[must_use]
    pub fn ended(&self) -> u32 {
        self.head.load(Ordering::Relaxed)
    }

    /// Bytes of those that have not; for the poster at least those, for others a
    /// hint.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        // Acquire: what was retired had been claimed before.
        let retired = self.retired.load(Ordering::Acquire);
        let claimed = self.claimed.load(Ordering::Relaxed);
        claimed.wrapping_sub(retired)
    }

    /// Requests that have not ended. A hint, unless the caller is the reaper or
    /// the poster.
    #[inline]
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Acquire).wrapping_sub(head)
    }

    /// The oldest request that has not ended. For the reaper.
    #[inline]
    #[must_use]
    pub fn oldest(&self) -> Option<u32> {
        let head = self.head.load(Ordering::Relaxed);
        (self.tail.load(Ordering::Acquire) != head).then_some(head)
    }

    /// The only request that has not ended, if there is just one. For the reaper.
    #[inline]
    #[must_use]
    pub fn only(&self) -> Option<u32> {
        let head = self.head.load(Ordering::Relaxed);
        let count = self.tail.load(Ordering::Acquire).wrapping_sub(head);
        (count == 1).then_some(head)
    }

    /// Whether a request is outstanding: completions name nothing else, unless a
    /// device errs. For the reaper.
    #[inline]
    #[must_use]
    pub fn covers(&self, seq: u32) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        let count = self.tail.load(Ordering::Acquire).wrapping_sub(head);
        seq.wrapping_sub(head) < count
    }

    /// Whether all requests that were published when [`Window::published`] said
    /// `until` have ended. To be asked again well before 2^31 more of them.
    #[must_use]
    pub fn has_passed(&self, until: u32) -> bool {
        let left = until.wrapping_sub(self.head.load(Ordering::Acquire));
        // The head is behind `until` by the depth at most, or past it.
        left == 0 || left > self.depth
    }

    /// As [`Window::retire`], for a piece.
    pub fn retire_piece(&self, len: u32) {
        // INVARIANT: `claim_piece` has counted it.
        self.pieces.fetch_sub(u64::from(len), Ordering::Relaxed);
        self.retire(len);
    }

    /// The oldest request, of `len` bytes, has ended and its place is empty. For
    /// the reaper, while there is one.
    #[inline]
    pub fn retire(&self, len: u32) {
        // INVARIANT: the caller has seen that `head` is before `tail`.
        let head = self.head.load(Ordering::Relaxed);
        let retired = self.retired.load(Ordering::Relaxed);
        self.retired
            .store(retired.wrapping_add(u64::from(len)), Ordering::Release);
        self.head.store(head.wrapping_add(1), Ordering::Release);
    }
}

impl Poster {
    /// Counts a request that is about to be posted; answers whether it has to be
    /// signalled (krcore alg. 2, lines 15 to 20). `asked`: it is to be anyway.
    #[inline]
    #[must_use]
    pub fn signals(&mut self, asked: bool) -> bool {
        self.run += 1;
        let signals = asked || self.run >= self.interval;
        if signals {
            self.run = 0;
        }
        signals
    }

    /// Whether the last request of a batch has to be signalled though
    /// [`Poster::signals`] did not say so: nobody knows when the next batch comes
    /// (krcore alg. 2, lines 24 to 26).
    #[inline]
    #[must_use]
    pub fn signals_last(&mut self) -> bool {
        core::mem::take(&mut self.run) != 0
    }
}
