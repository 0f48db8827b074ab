// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What is seen of a peer's traffic, cheaply: counts that are handed on a few hundred times a
//! second, and the time that one request in many takes.

use super::Transport;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Requests of up to so many bytes count as small: they cost by the request, others by the
/// byte.
pub const SMALL_BYTES: u32 = 4096;

/// Requests whose time was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Time of the small ones, from post to completion.
    pub small_ns: u64,
    /// How many those were.
    pub small_count: u64,
    /// Time of the others.
    pub large_ns: u64,
    /// Their bytes.
    pub large_bytes: u64,
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
}

impl Traffic {
    /// Adds what was seen elsewhere of the same peer.
    pub fn add(&mut self, other: &Self) {
        self.small_ops = self.small_ops.saturating_add(other.small_ops);
        self.large_bytes = self.large_bytes.saturating_add(other.large_bytes);
        for (sum, more) in self.samples.iter_mut().zip(&other.samples) {
            sum.small_ns = sum.small_ns.saturating_add(more.small_ns);
            sum.small_count = sum.small_count.saturating_add(more.small_count);
            sum.large_ns = sum.large_ns.saturating_add(more.large_ns);
            sum.large_bytes = sum.large_bytes.saturating_add(more.large_bytes);
        }
        if other.probe_ns != 0 {
            self.probe_ns = other.probe_ns;
        }
    }

    /// Whether there was any.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.small_ops | self.large_bytes != 0
    }
}

#[derive(Default)]
struct SampleSums {
    small_ns: AtomicU64,
    small_count: AtomicU64,
    large_ns: AtomicU64,
    large_bytes: AtomicU64,
}

impl SampleSums {
    fn take(&self) -> Samples {
        Samples {
            small_ns: take(&self.small_ns),
            small_count: take(&self.small_count),
            large_ns: take(&self.large_ns),
            large_bytes: take(&self.large_bytes),
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
}

impl Meter {
    /// Nothing was seen.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A request took so long.
    pub fn sample(&self, by: Transport, len: u32, took_ns: u64) {
        let [dc, rc] = &self.samples;
        let sums = match by {
            Transport::Dc => dc,
            Transport::Rc => rc,
        };
        if len <= SMALL_BYTES {
            sums.small_ns.fetch_add(took_ns, Ordering::Relaxed);
            sums.small_count.fetch_add(1, Ordering::Relaxed);
        } else {
            sums.large_ns.fetch_add(took_ns, Ordering::Relaxed);
            sums.large_bytes
                .fetch_add(u64::from(len), Ordering::Relaxed);
        }
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
}
