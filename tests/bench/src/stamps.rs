// SPDX-License-Identifier: MIT OR Apache-2.0

//! Time stamps for a loop in which a call of the clock would change what is measured.
//!
//! A stamp is the processor's time stamp counter, as in perftest. soft-RoCE's worker thread goes
//! to sleep a few microseconds after a request: with the clock read between two of them, it
//! slept before most, and a READ of 8 bytes took half as long again.

use std::time::{Duration, Instant};

/// Takes a stamp at the begin of each lap.
pub struct Stamps {
    counts: Vec<u64>,
    began: Moment,
}

/// The laps that a [`Stamps`] has seen.
pub struct Laps {
    pub times: Vec<Duration>,
    /// When the last one ended.
    pub ended: Instant,
}

/// The time by both the clock and the counter.
struct Moment {
    time: Instant,
    count: u64,
}

impl Moment {
    fn now() -> Self {
        Self {
            time: Instant::now(),
            count: counter(),
        }
    }
}

impl Stamps {
    /// Begins, with room for so many laps.
    pub fn begin(laps: u32) -> Self {
        let mut counts = Vec::new();
        // Written to, so that no page of it is missing later.
        counts.resize(laps as usize, u64::MAX);
        counts.clear();
        Self {
            counts,
            began: Moment::now(),
        }
    }

    /// A lap begins, and the one before ends.
    #[inline]
    pub fn take(&mut self) {
        self.counts.push(counter());
    }

    /// Ends the last lap.
    pub fn end(mut self) -> Laps {
        let ended = Moment::now();
        self.counts.push(ended.count);
        let ticks = ended.count.saturating_sub(self.began.count).max(1);
        let tick_ns = (ended.time - self.began.time).as_nanos() as f64 / ticks as f64;
        let lap = |pair: &[u64]| {
            let ticks = pair[1].saturating_sub(pair[0]);
            Duration::from_nanos((ticks as f64 * tick_ns).round() as u64)
        };
        Laps {
            times: self.counts.windows(2).map(lap).collect(),
            ended: ended.time,
        }
    }
}

/// The time stamp counter, which the kernel too has for its clock where it is worth anything.
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_are_in_the_clocks_time() {
        let naps = [2, 20, 5].map(Duration::from_millis);
        let before = Instant::now();
        let mut stamps = Stamps::begin(3);
        for nap in naps {
            stamps.take();
            std::thread::sleep(nap);
        }
        let laps = stamps.end();
        let elapsed = before.elapsed();
        assert_eq!(laps.times.len(), naps.len());
        for (lap, nap) in laps.times.iter().zip(naps) {
            assert!(lap.mul_f64(1.01) >= nap, "{lap:?} of {nap:?}");
        }
        let sum: Duration = laps.times.iter().sum();
        assert!(sum <= elapsed.mul_f64(1.01), "{sum:?} of {elapsed:?}");
        assert!(laps.ended - before <= elapsed);
    }

    #[test]
    fn without_a_stamp_there_is_no_lap() {
        assert!(Stamps::begin(0).end().times.is_empty());
    }
}
