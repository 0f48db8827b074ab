// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a subgroup counts: the paper's figures (§IV.A), for whoever measures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of a batch histogram: 1, 2 to 3, 4 to 7, and so on.
pub const BATCH_BUCKETS: usize = 16;

/// Sizes of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// Batches.
    pub count: u64,
    /// Messages in all of them.
    pub messages: u64,
    /// Batches by size: bucket `i` has those of `2^i` to `2^(i+1) - 1`.
    pub buckets: [u64; BATCH_BUCKETS],
}

impl Batches {
    /// The mean size.
    #[must_use]
    pub fn mean(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a mean to read")]
        if self.count == 0 {
            0.0
        } else {
            self.messages as f64 / self.count as f64
        }
    }
}

/// A member's figures of a subgroup, since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Messages that this member posted. In a group with views, one that was not delivered in
    /// its view is posted again in a later one, and counts again.
    pub sent: u64,
    /// Nulls that it sent: rounds in which it had nothing to say.
    pub nulls: u64,
    /// Messages that it delivered. In a group with views, those count too that it went past
    /// because it is given the state behind them.
    pub delivered: u64,
    /// Bytes of them.
    pub delivered_bytes: u64,
    /// One-sided writes that it posted: messages and state, each peer counts.
    pub posts: u64,
    /// Those of them that carried messages.
    pub message_posts: u64,
    /// Times that a sender waited for a free slot.
    pub waits: u64,
    /// How long, all senders' waits added up.
    pub waited: Duration,
    /// Messages posted at once. A slot that was given up counts as one.
    pub send_batches: Batches,
    /// Messages and nulls of other members, taken in in one step. A slot that was given up
    /// counts as a message. Without [`Options::receive_batching`] a step takes in at most one
    /// of each sender.
    ///
    /// [`Options::receive_batching`]: super::Options::receive_batching
    pub receive_batches: Batches,
    /// Messages delivered at once, counted as in [`Self::delivered`].
    pub delivery_batches: Batches,
}

/// A counter that one thread raises and all may read.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Adds without a locked instruction. From one thread only.
    pub(super) fn add(&self, more: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(more);
        self.0.store(sum, Ordering::Relaxed);
    }

    /// Adds from any thread.
    pub(super) fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(super) struct BatchCounts {
    count: Count,
    messages: Count,
    buckets: [Count; BATCH_BUCKETS],
}

impl BatchCounts {
    /// From one thread only.
    pub(super) fn add(&self, size: u64) {
        let Some(bucket) = size.checked_ilog2() else {
            return;
        };
        let bucket = usize::try_from(bucket).unwrap_or(0).min(BATCH_BUCKETS - 1);
        self.count.add(1);
        self.messages.add(size);
        self.buckets[bucket].add(1);
    }

    fn snapshot(&self) -> Batches {
        Batches {
            count: self.count.get(),
            messages: self.messages.get(),
            buckets: std::array::from_fn(|at| self.buckets[at].get()),
        }
    }
}

/// The figures as they are counted. Raised by the polling thread, except where
/// it says shared; delivery's by whoever delivers.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: Count,
    pub(super) nulls: Count,
    pub(super) delivered: Count,
    pub(super) delivered_bytes: Count,
    pub(super) posts: Count,
    pub(super) message_posts: Count,
    /// Shared by senders.
    pub(super) waits: Count,
    /// Shared by senders.
    pub(super) waited_ns: Count,
    pub(super) send_batches: BatchCounts,
    pub(super) receive_batches: BatchCounts,
    pub(super) delivery_batches: BatchCounts,
}

impl Counts {
    pub(super) fn snapshot(&self) -> Metrics {
        Metrics {
            sent: self.sent.get(),
            nulls: self.nulls.get(),
            delivered: self.delivered.get(),
            delivered_bytes: self.delivered_bytes.get(),
            posts: self.posts.get(),
            message_posts: self.message_posts.get(),
            waits: self.waits.get(),
            waited: Duration::from_nanos(self.waited_ns.get()),
            send_batches: self.send_batches.snapshot(),
            receive_batches: self.receive_batches.snapshot(),
            delivery_batches: self.delivery_batches.snapshot(),
        }
    }
}
