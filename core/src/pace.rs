// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A bound on how often something is done, as a token bucket that is one word: the
//! time at which the bucket is full again (the generic cell rate algorithm of ATM
//! traffic management, I.371). No lock: any number of CPUs ask at once.

use crate::sync::{AtomicU64, Ordering};

/// How often CPUs that ask at the same time are let collide; then the answer is no.
const TRIES: usize = 4;

/// How often something may be done.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Times at once, after a pause.
    pub burst: u64,
    /// Times a second, in the long run.
    pub per_second: u64,
}

/// A token bucket. A new one is full.
pub struct Pace {
    full_ns: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

impl Pace {
    /// A full bucket.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            full_ns: AtomicU64::new(0),
        }
    }

    /// A full bucket.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self {
            full_ns: AtomicU64::new(0),
        }
    }

    /// Takes a token out, if there is one.
    pub fn take(&self, rate: Rate, now_ns: u64) -> bool {
        let token_ns = 1_000_000_000 / rate.per_second.max(1);
        let bucket_ns = token_ns.saturating_mul(rate.burst);
        let mut full_ns = self.full_ns.load(Ordering::Relaxed);
        for _ in 0..TRIES {
            let taken_ns = full_ns.max(now_ns).saturating_add(token_ns);
            if taken_ns - now_ns > bucket_ns {
                return false;
            }
            match self.full_ns.compare_exchange_weak(
                full_ns,
                taken_ns,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(other) => full_ns = other,
            }
        }
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: Rate = Rate {
        burst: 5,
        per_second: 100,
    };

    #[test]
    fn a_burst_then_one_at_a_time() {
        let pace = Pace::new();
        let taken = |now_ns| (0..100).filter(|_| pace.take(RATE, now_ns)).count();
        assert_eq!(taken(1_000), 5);
        assert_eq!(taken(9_000_000), 0);
        assert_eq!(taken(10_001_000), 1);
        assert_eq!(taken(10_000_000_000), 5);
    }

    proptest! {
        /// Whenever it is asked: no more than the burst and what time gives, and no
        /// fewer if it is asked often.
        #[test]
        fn the_rate_holds(gaps_us in prop::collection::vec(0u64..30_000, 1..500)) {
            let pace = Pace::new();
            let (mut now_ns, mut taken) = (0, 0);
            for gap_us in gaps_us {
                now_ns += gap_us * 1_000;
                taken += u64::from(pace.take(RATE, now_ns));
                prop_assert!(taken <= RATE.burst + now_ns / 10_000_000);
            }
        }

        #[test]
        fn nothing_overflows(now_ns in any::<u64>(), burst in any::<u64>(), per_second in any::<u64>()) {
            let pace = Pace::new();
            for _ in 0..3 {
                let _ = pace.take(Rate { burst, per_second }, now_ns);
            }
        }
    }

    #[test]
    fn cpus_that_ask_at_once_share_one_bucket() {
        let pace = Pace::new();
        let taken: usize = std::thread::scope(|scope| {
            let ask = || (0..1_000).filter(|_| pace.take(RATE, 1)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(taken, 5);
    }
}
