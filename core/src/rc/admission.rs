// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How many offers a node takes. To answer one makes a queue pair, and one whose sender
//! is not known costs a look-up at a meta server before; so both have a limit of their
//! own. A flood from one sender uses up that sender's share only, and a flood from
//! unknown ones leaves known senders theirs.
//!
//! The address of an unknown sender is not proven before its look-up, so addresses that
//! ask for look-ups are counted apart from known senders: an offer with a forged address
//! takes nothing from the known sender that has this address. It takes from the look-ups
//! of the address that it names, and a sender that forges many addresses can take all
//! look-ups of the node; then offers of unknown senders are refused, and no others.

use crate::gid::Gid;

/// Offers that a known sender may make at once.
const BURST_PER_SENDER: u32 = 4;
/// After that, one in so long.
const INTERVAL_PER_SENDER_NS: u64 = 500_000_000;
/// Look-ups of unknown senders at once, for the node.
const BURST_OF_LOOKUPS: u32 = 16;
/// After that, one in so long.
const INTERVAL_OF_LOOKUPS_NS: u64 = 50_000_000;
/// Look-ups for one address at once.
const BURST_PER_ADDRESS: u32 = 2;
/// After that, one in so long. A node whose offer is not answered makes its next one
/// later than that ([`super::Want`]).
const INTERVAL_PER_ADDRESS_NS: u64 = 2_000_000_000;
/// Known senders whose offers are counted at a time.
const SENDERS: usize = 128;
/// Addresses whose look-ups are counted at a time. The look-ups of a node suffice for no
/// more: 56 addresses with one in the last interval, and 20 more with two in the last
/// two. So none is refused for want of a row.
const ADDRESSES: usize = 80;

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

/// The tokens that each of some senders has taken. A row whose bucket is full is free.
struct Shares<const ROWS: usize>([Sender; ROWS]);

impl<const ROWS: usize> Shares<ROWS> {
    const NEW: Self = Self(
        [Sender {
            gid: Gid([0; 16]),
            bucket: Bucket::FULL,
        }; ROWS],
    );

    /// The sender's row, or a free one; `None`: there is none.
    fn row(&mut self, gid: &Gid, now_ns: u64) -> Option<&mut Sender> {
        let is_known = |row: &Sender| row.gid == *gid && !row.bucket.is_full(now_ns);
        let is_free = |row: &Sender| row.bucket.is_full(now_ns);
        let known = self.0.iter().position(is_known);
        let index = known.or_else(|| self.0.iter().position(is_free))?;
        self.0.get_mut(index)
    }
}

/// The offers that a node took of late.
pub struct Admission {
    senders: Shares<SENDERS>,
    addresses: Shares<ADDRESSES>,
    lookups: Bucket,
}

impl Admission {
    /// None yet.
    pub const NEW: Self = Self {
        senders: Shares::NEW,
        addresses: Shares::NEW,
        lookups: Bucket::FULL,
    };

    /// Whether an offer may be answered whose sender is known to be `gid`.
    #[must_use]
    pub fn takes_offer(&mut self, gid: &Gid, now_ns: u64) -> bool {
        let Some(row) = self.senders.row(gid, now_ns) else {
            return false;
        };
        row.gid = *gid;
        row.bucket
            .take(BURST_PER_SENDER, INTERVAL_PER_SENDER_NS, now_ns)
    }

    /// Whether the record of a sender may be looked up that is not known and says that
    /// it is `gid`. If it is, its offer may be answered too.
    #[must_use]
    pub fn takes_lookup(&mut self, gid: &Gid, now_ns: u64) -> bool {
        let Some(row) = self.addresses.row(gid, now_ns) else {
            return false;
        };
        // The share first, so that an address without one takes nothing from the node.
        let mut share = row.bucket;
        let is_admitted = share.take(BURST_PER_ADDRESS, INTERVAL_PER_ADDRESS_NS, now_ns)
            && self
                .lookups
                .take(BURST_OF_LOOKUPS, INTERVAL_OF_LOOKUPS_NS, now_ns);
        if is_admitted {
            *row = Sender {
                gid: *gid,
                bucket: share,
            };
        }
        is_admitted
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
