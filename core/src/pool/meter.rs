// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What is seen of a peer's traffic, cheaply: counts that are handed on a few hundred times a
//! second, and the time that one request in many takes.

use super::majority::Majority;
use super::Transport;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Requests of up to so many bytes count as small: they cost by the request, others by the
/// byte.
pub const SMALL_BYTES: u32 = 4096;

/// Requests whose time was taken. Their geometric mean counts: of a few that met a busy
/// processor the arithmetic one would say that all are slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Sum of the logarithms of the nanoseconds that small ones took, from post to completion.
    small_logs: u64,
    small_count: u64,
    /// The same of the picoseconds a byte that others took.
    large_logs: u64,
    large_count: u64,
}

impl Samples {
    /// What a small request took, in nanoseconds; `None`: there was none.
    #[must_use]
    pub fn small_ns(&self) -> Option<u64> {
        self.small_logs.checked_div(self.small_count).map(exp2)
    }

    /// What a byte of others took, in picoseconds; `None`: there was none.
    #[must_use]
    pub fn byte_ps(&self) -> Option<u64> {
        self.large_logs.checked_div(self.large_count).map(exp2)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.small_count.saturating_add(self.large_count)
    }
}

/// The logarithm to base 2, in 256ths, of a number that is not 0: between powers of two a
/// straight line.
fn log2(number: u64) -> u64 {
    let whole = number.max(1).ilog2();
    let rest = match whole.checked_sub(8) {
        Some(shift) => number.wrapping_shr(shift),
        None => number.wrapping_shl(8 - whole),
    };
    (u64::from(whole) << 8) | (rest & 0xff)
}

/// The number whose logarithm this is.
fn exp2(log: u64) -> u64 {
    let (whole, rest) = ((log >> 8).min(63) as u32, 0x100 | (log & 0xff));
    match whole.checked_sub(8) {
        Some(shift) => rest.wrapping_shl(shift),
        None => rest.wrapping_shr(8 - whole),
    }
}

/// What was seen of a peer since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Small requests that ended well.
    pub small_ops: u64,
    /// Bytes of others that did.
    pub large_bytes: u64,
    /// Samples by DC and by RC.
    pub samples: [Samples; 2],
    /// The round trip of the last request of the node's own by DC; 0: none has ended.
    pub probe_ns: u64,
    /// The user with most of the requests whose time was taken.
    pub majority: Majority,
}

/// Small requests, and as many for the bytes of others as would be of their size.
pub(super) fn as_small(small_ops: u64, large_bytes: u64) -> u64 {
    small_ops.saturating_add(large_bytes / u64::from(SMALL_BYTES))
}

impl Traffic {
    /// Adds what was seen elsewhere of the same peer.
    pub fn add(&mut self, other: &Self) {
        self.small_ops = self.small_ops.saturating_add(other.small_ops);
        self.large_bytes = self.large_bytes.saturating_add(other.large_bytes);
        for (sum, more) in self.samples.iter_mut().zip(&other.samples) {
            sum.small_logs = sum.small_logs.saturating_add(more.small_logs);
            sum.small_count = sum.small_count.saturating_add(more.small_count);
            sum.large_logs = sum.large_logs.saturating_add(more.large_logs);
            sum.large_count = sum.large_count.saturating_add(more.large_count);
        }
        if other.probe_ns != 0 {
            self.probe_ns = other.probe_ns;
        }
        self.majority = self.majority.merge(other.majority);
    }

    /// As one number: small requests.
    #[must_use]
    pub(super) fn ops(&self) -> u64 {
        as_small(self.small_ops, self.large_bytes)
    }

    /// Whether there was any.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.small_ops | self.large_bytes != 0
    }
}

#[derive(Default)]
struct SampleSums {
    small_logs: AtomicU64,
    small_count: AtomicU64,
    large_logs: AtomicU64,
    large_count: AtomicU64,
}

impl SampleSums {
    fn take(&self) -> Samples {
        Samples {
            small_logs: take(&self.small_logs),
            small_count: take(&self.small_count),
            large_logs: take(&self.large_logs),
            large_count: take(&self.large_count),
        }
    }
}

/// Collects what is seen of a peer, from any CPU, until [`Meter::take`].
#[derive(Default)]
pub struct Meter {
    small_ops: AtomicU64,
    large_bytes: AtomicU64,
    samples: [SampleSums; 2],
    probe_ns: AtomicU64,
    majority: AtomicU64,
}

impl Meter {
    /// Nothing was seen.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A request took so long, one of this user's or the node's own.
    pub fn sample(&self, by: Transport, len: u32, took_ns: u64, user: Option<u32>) {
        let [dc, rc] = &self.samples;
        let sums = match by {
            Transport::Dc => dc,
            Transport::Rc => rc,
        };
        let (logs, count, took) = match len <= SMALL_BYTES {
            true => (&sums.small_logs, &sums.small_count, took_ns),
            false => {
                let took_ps = took_ns.saturating_mul(1000);
                (
                    &sums.large_logs,
                    &sums.large_count,
                    took_ps / u64::from(len),
                )
            }
        };
        logs.fetch_add(log2(took), Ordering::Relaxed);
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(user) = user {
            self.vote(user);
        }
    }

    fn vote(&self, user: u32) {
        let before = self.majority.load(Ordering::Relaxed);
        let after = Majority::from_word(before).vote(user).to_word();
        // If somebody else votes at the same time, one of the votes is lost: they are samples.
        let _ = self
            .majority
            .compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A request of the node's own, by DC, took so long.
    pub fn probed(&self, took_ns: u64) {
        self.probe_ns.store(took_ns, Ordering::Relaxed);
    }

    /// What was seen since the last call. Counts that come at the same time are in this or
    /// in the next.
    pub fn take(&self) -> Traffic {
        let [dc, rc] = &self.samples;
        Traffic {
            small_ops: take(&self.small_ops),
            large_bytes: take(&self.large_bytes),
            samples: [dc.take(), rc.take()],
            probe_ns: take(&self.probe_ns),
            majority: Majority::from_word(take(&self.majority)),
        }
    }
}

/// Reads and clears. Most words are 0, and then their cache line stays shared.
fn take(word: &AtomicU64) -> u64 {
    match word.load(Ordering::Relaxed) {
        0 => 0,
        _ => word.swap(0, Ordering::Relaxed),
    }
}

/// Counts the requests that end on one queue, under its lock, and hands them on when the
/// coarse clock has moved.
#[derive(Debug, Default)]
pub struct Tally {
    small_ops: u32,
    large_bytes: u64,
    tick: u64,
}

impl Tally {
    /// Nothing was counted.
    pub const NEW: Self = Self {
        small_ops: 0,
        large_bytes: 0,
        tick: 0,
    };

    /// A request of so many bytes has ended well.
    #[inline]
    pub fn count(&mut self, len: u32) {
        if len <= SMALL_BYTES {
            self.small_ops = self.small_ops.saturating_add(1);
        } else {
            self.large_bytes = self.large_bytes.saturating_add(u64::from(len));
        }
    }

    /// Hands the counts on, once in each tick of the coarse clock.
    #[inline]
    pub fn hand_on(&mut self, tick: u64, meter: &Meter) {
        if self.tick == tick {
            return;
        }
        self.tick = tick;
        let small_ops = core::mem::take(&mut self.small_ops);
        let large_bytes = core::mem::take(&mut self.large_bytes);
        if small_ops != 0 {
            meter
                .small_ops
                .fetch_add(u64::from(small_ops), Ordering::Relaxed);
        }
        if large_bytes != 0 {
            meter.large_bytes.fetch_add(large_bytes, Ordering::Relaxed);
        }
    }
}

const FREE: u32 = 0;
const RUNNING: u32 = 1;

/// Takes the time of one request at a time: who posts it starts the watch under the poster's
/// lock, who ends it stops it under the reaper's.
#[derive(Default)]
pub struct Stopwatch {
    state: AtomicU32,
    request: AtomicU32,
    begun_ns: AtomicU64,
    /// The coarse clock's tick in which it was started last.
    tick: AtomicU64,
}

impl Stopwatch {
    /// Not running.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the time of a request that is posted now should be taken: once in each tick.
    #[inline]
    #[must_use]
    pub fn is_due(&self, tick: u64) -> bool {
        self.tick.load(Ordering::Relaxed) != tick && self.state.load(Ordering::Acquire) == FREE
    }

    /// It is posted, and was [`due`](Self::is_due). The caller holds the poster's lock.
    pub fn start(&self, request: u32, tick: u64, now_ns: u64) {
        self.tick.store(tick, Ordering::Relaxed);
        self.request.store(request, Ordering::Relaxed);
        self.begun_ns.store(now_ns, Ordering::Relaxed);
        self.state.store(RUNNING, Ordering::Release);
    }

    /// A request has ended. If it is the one, answers when it was posted. The caller holds
    /// the reaper's lock.
    #[inline]
    pub fn stop(&self, request: u32) -> Option<u64> {
        if self.state.load(Ordering::Acquire) != RUNNING
            || self.request.load(Ordering::Relaxed) != request
        {
            return None;
        }
        let begun_ns = self.begun_ns.load(Ordering::Relaxed);
        self.state.store(FREE, Ordering::Release);
        Some(begun_ns)
    }

    /// The time says nothing of the transport: it is not taken. The caller holds the
    /// reaper's lock.
    pub fn cancel(&self) {
        self.state.store(FREE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_near_what_most_took() {
        let meter = Meter::new();
        for n in 0..100 {
            let took_ns = if n % 20 == 0 { 5_000_000 } else { 60_000 };
            meter.sample(Transport::Dc, 8, took_ns, None);
            meter.sample(Transport::Dc, 1 << 20, 2_000_000, None);
        }
        let [dc, rc] = meter.take().samples;
        assert!((60_000..90_000).contains(&dc.small_ns().unwrap()));
        // 2 ms of 2^20 bytes.
        assert!((1800..2000).contains(&dc.byte_ps().unwrap()));
        assert_eq!((dc.count(), rc.count()), (200, 0));
        assert_eq!(rc.small_ns(), None);
        assert!(!meter.take().is_some());
    }

    #[test]
    fn a_logarithm_and_back_is_off_by_less_than_a_percent() {
        for number in [
            1,
            2,
            3,
            255,
            256,
            1000,
            65_537,
            u64::from(u32::MAX),
            u64::MAX,
        ] {
            let back = exp2(log2(number));
            assert!(number.abs_diff(back) <= number / 100, "{number} is {back}");
        }
    }
}
