// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How many offers a node takes. To answer one makes a queue pair, and one whose sender
//! is not known costs a look-up at a meta server before; so both have a limit of their
//! own. A flood from one sender uses up that sender's share only, and a flood from
//! unknown ones leaves known senders theirs.

use crate::gid::Gid;

/// Offers that a known sender may make at once.
const BURST_PER_SENDER: u32 = 4;
/// After that, one in so long.
const INTERVAL_PER_SENDER_NS: u64 = 500_000_000;
/// Look-ups of unknown senders at once, for the node.
const BURST_OF_LOOKUPS: u32 = 16;
/// After that, one in so long.
const INTERVAL_OF_LOOKUPS_NS: u64 = 50_000_000;
/// Senders whose offers are counted at a time.
const SENDERS: usize = 128;

/// A bucket of tokens that fills with time.
#[derive(Clone, Copy)]
struct Bucket {
    /// The bucket is full from then on. So many intervals before, it has so many
    /// tokens less.
    full_ns: u64,
}

impl Bucket {
    const FULL: Self = Self { full_ns: 0 };

    fn is_full(&self, now_ns: u64) -> bool {
        self.full_ns <= now_ns
    }

    /// Takes a token out, if there is one.
    fn take(&mut self, burst: u32, interval_ns: u64, now_ns: u64) -> bool {
        let full_ns = self.full_ns.max(now_ns).saturating_add(interval_ns);
        let is_there = full_ns - now_ns <= interval_ns.saturating_mul(u64::from(burst));
        if is_there {
            self.full_ns = full_ns;
        }
        is_there
    }
}

#[derive(Clone, Copy)]
struct Sender {
    gid: Gid,
    bucket: Bucket,
}

/// The offers that a node took of late.
pub struct Admission {
    /// A row whose bucket is full is free.
    senders: [Sender; SENDERS],
    lookups: Bucket,
}

impl Admission {
    /// None yet.
    pub const NEW: Self = Self {
        senders: [Sender {
            gid: Gid([0; 16]),
            bucket: Bucket::FULL,
        }; SENDERS],
        lookups: Bucket::FULL,
    };

    /// Whether an offer may be answered whose sender was proven to be `gid`.
    #[must_use]
    pub fn takes_offer(&mut self, gid: &Gid, now_ns: u64) -> bool {
        let is_known = |row: &Sender| row.gid == *gid && !row.bucket.is_full(now_ns);
        let is_free = |row: &Sender| row.bucket.is_full(now_ns);
        let known = self.senders.iter().position(is_known);
        let index = known.or_else(|| self.senders.iter().position(is_free));
        let Some(row) = index.and_then(|index| self.senders.get_mut(index)) else {
            return false;
        };
        row.gid = *gid;
        row.bucket
            .take(BURST_PER_SENDER, INTERVAL_PER_SENDER_NS, now_ns)
    }

    /// Whether the record of a sender that is not known may be looked up.
    #[must_use]
    pub fn takes_lookup(&mut self, now_ns: u64) -> bool {
        self.lookups
            .take(BURST_OF_LOOKUPS, INTERVAL_OF_LOOKUPS_NS, now_ns)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
