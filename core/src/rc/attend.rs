// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Who looks at a completion queue.
//!
//! A completion that its waiter finds by polling is the fastest; an event that
//! nobody needs costs a wake-up. So the queue is armed only when requests are
//! outstanding and nobody polls. The rule: whoever posts, or stops polling, looks
//! afterwards at what the other has done; of two that do so at once, at least one
//! sees the other and arms the queue.
//!
//! Of several that poll, one has the turn: it looks at the device's queue all the time, the
//! others mostly at what the first has found for them. More would only take the queue's lock
//! from one another, and from the thread that completes.

use crate::sync::{fence, AtomicBool, AtomicU32, Ordering};

/// The threads that poll a completion queue.
pub struct Attendance {
    count: AtomicU32,
    /// Somebody has the turn.
    turn: AtomicBool,
}

impl Attendance {
    /// Nobody.
    #[must_use]
    pub fn new() -> Self {
        Self {
            count: AtomicU32::new(0),
            turn: AtomicBool::new(false),
        }
    }

    /// One begins to poll.
    #[inline]
    pub fn enter(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// One stops. Answers whether nobody is left: then it has to look whether
    /// requests are outstanding, and to arm the queue if so.
    #[inline]
    #[must_use]
    pub fn leave(&self) -> bool {
        let last = self.count.fetch_sub(1, Ordering::Relaxed) == 1;
        // Pairs with the one below: between leaving and looking for requests,
        // and between publishing a request and looking for pollers.
        fence(Ordering::SeqCst);
        last
    }

    /// Whether a request that was just published has to be looked after by an
    /// event: nobody polls.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Takes the turn, if nobody has it; the caller gives it back with
    /// [`Self::end_turn`].
    #[inline]
    #[must_use]
    pub fn take_turn(&self) -> bool {
        !self.turn.load(Ordering::Relaxed) && !self.turn.swap(true, Ordering::Acquire)
    }

    /// Gives the turn back.
    #[inline]
    pub fn end_turn(&self) {
        self.turn.store(false, Ordering::Release);
    }
}

impl Default for Attendance {
    fn default() -> Self {
        Self::new()
    }
}
