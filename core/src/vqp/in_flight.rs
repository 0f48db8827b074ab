// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The requests of one virtual queue pair that have not ended.

use crate::sync::{AtomicU32, Ordering};

/// How many there are, and how many there may be. Requests are posted by threads and end
/// in softirqs, of which none waits for another.
pub struct InFlight {
    most: u32,
    count: AtomicU32,
}

impl InFlight {
    /// None yet, of so many at most.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self {
            most,
            count: AtomicU32::new(0),
        }
    }

    /// Counts up to `wanted` more; answers how many.
    #[inline]
    #[must_use]
    pub fn admit(&self, wanted: u32) -> u32 {
        let mut count = self.count.load(Ordering::Relaxed);
        loop {
            let taken = wanted.min(self.most.saturating_sub(count));
            if taken == 0 {
                return 0;
            }
            // Acquire: what those that have ended did is seen by those that follow.
            match self.count.compare_exchange(
                count,
                count + taken,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return taken,
                Err(now) => count = now,
            }
        }
    }

    /// So many have ended, or were not posted after all; no more than were counted.
    #[inline]
    pub fn end(&self, count: u32) {
        self.count.fetch_sub(count, Ordering::Release);
    }

    /// How many there may be.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether there may be more.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.count() < self.most
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_than_there_may_be() {
        let requests = InFlight::new(3);
        assert_eq!(requests.admit(2), 2);
        assert!(requests.has_room());
        assert_eq!(requests.admit(2), 1);
        assert!(!requests.has_room());
        assert_eq!(requests.admit(1), 0);
        requests.end(2);
        assert_eq!(requests.count(), 1);
        assert_eq!(requests.admit(u32::MAX), 2);
    }
}
