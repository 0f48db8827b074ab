// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a member tells of one measurement.

use std::ops::Add;

use serde::{Deserialize, Serialize};
use weft::multicast::{Batches, BATCH_BUCKETS};
use weft::Metrics;

use crate::stats::Recorded;

/// Sizes of batches: how many, of how many messages, and by powers of two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    /// Batches.
    pub count: u64,
    /// Messages in them.
    pub messages: u64,
    /// Batches of 1, of 2 and 3, of 4 to 7, and so on.
    pub histogram: [u64; BATCH_BUCKETS],
}

impl Sizes {
    fn between(before: &Batches, after: &Batches) -> Self {
        Self {
            count: after.count - before.count,
            messages: after.messages - before.messages,
            histogram: std::array::from_fn(|at| after.buckets[at] - before.buckets[at]),
        }
    }

    /// Adds those of another member or round.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.messages += other.messages;
        for (sum, more) in self.histogram.iter_mut().zip(other.histogram) {
            *sum += more;
        }
    }

    /// The mean size.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.messages as f64 / self.count as f64)
    }
}

/// What was counted in a slice of time, at one member or at all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Length of the slice.
    pub seconds: f64,
    /// Messages that it sent.
    pub sent: u64,
    /// Messages that it delivered.
    pub delivered: u64,
    /// Nulls that it sent.
    pub nulls: u64,
    /// One-sided writes that it posted.
    pub posts: u64,
    /// System calls that carried requests to the module, if the fabric counts them.
    pub system_calls: Option<u64>,
    /// Time that its senders waited for room, in seconds.
    pub waited: f64,
    /// Processor time of its process, in seconds, if it was measured.
    pub cpu: Option<f64>,
    /// Batches of the three stages.
    pub sends: Sizes,
    pub receives: Sizes,
    pub deliveries: Sizes,
    /// From building a message to its delivery at its sender.
    pub latencies: Recorded,
    /// From sending a message on a sleeping group to its delivery at another
    /// member.
    pub wakes: Recorded,
}

impl Seen {
    /// What has changed in a subgroup.
    pub fn between(before: &Metrics, after: &Metrics) -> Self {
        Self {
            sent: after.sent - before.sent,
            delivered: after.delivered - before.delivered,
            nulls: after.nulls - before.nulls,
            posts: after.posts - before.posts,
            waited: (after.waited - before.waited).as_secs_f64(),
            sends: Sizes::between(&before.send_batches, &after.send_batches),
            receives: Sizes::between(&before.receive_batches, &after.receive_batches),
            deliveries: Sizes::between(&before.delivery_batches, &after.delivery_batches),
            ..Self::default()
        }
    }

    /// Adds what another member saw in the same slice, or the same member in
    /// another one. Times are added too.
    pub fn add(&mut self, other: &Self) {
        self.seconds += other.seconds;
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.nulls += other.nulls;
        self.posts += other.posts;
        self.system_calls = sum(self.system_calls, other.system_calls);
        self.waited += other.waited;
        self.cpu = sum(self.cpu, other.cpu);
        self.sends.add(&other.sends);
        self.receives.add(&other.receives);
        self.deliveries.add(&other.deliveries);
        self.latencies.add(&other.latencies);
        self.wakes.add(&other.wakes);
    }
}

/// Of those that there are.
fn sum<T: Add<Output = T>>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_weighed_by_its_batches() {
        let sizes = |count, messages| Sizes {
            count,
            messages,
            ..Sizes::default()
        };
        let mut sum = sizes(1, 10);
        sum.add(&sizes(3, 2));
        assert_eq!(sum.mean(), Some(3.0));
        assert_eq!(Sizes::default().mean(), None);
    }
}
