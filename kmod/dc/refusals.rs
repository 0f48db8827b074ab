// SPDX-License-Identifier: GPL-2.0

//! How often a target answers requests that it does not carry out for want of a
//! context. Anybody who reaches the UDP port can send such requests, from any address;
//! so their answers are rate-limited as ICMP errors are, per node and per source.
//!
//! A peer with an outdated record learns that it is: its initiator repeats the request
//! seven times within a second, and a stream without an answer makes the record suspect
//! too.

use kernel::alloc::KVBox;
use kernel::prelude::*;
use weft_core::pace::{Pace, Rate};

use crate::counters::COUNTERS;
use crate::net::Endpoint;
use crate::random::KeyedHash;

/// Refusals of a node.
const NODE: Rate = Rate {
    burst: 256,
    per_second: 1000,
};
/// Refusals to one address. A peer has many streams, which all begin anew at once.
const SOURCE: Rate = Rate {
    burst: 64,
    per_second: 100,
};
/// Buckets of addresses. Which addresses share one nobody can choose.
const SOURCES: usize = 1024;

/// A node's refusals.
pub(super) struct Refusals {
    hash: KeyedHash,
    node: Pace,
    sources: KVBox<[Pace; SOURCES]>,
}

impl Refusals {
    /// None yet.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            hash: KeyedHash::new(),
            node: Pace::new(),
            sources: KVBox::new([const { Pace::new() }; SOURCES], GFP_KERNEL)?,
        })
    }

    /// Whether a refusal may be sent there now, which then counts as sent. Any context.
    pub(super) fn may_send(&self, to: Endpoint, now_ns: u64) -> bool {
        let words = [u32::from_ne_bytes(to.addr), 0, 0, 0];
        let source = self.sources.get(self.hash.place(words, SOURCES));
        // The source's first: one that asks too often takes nothing from others.
        let may = source.is_some_and(|source| source.take(SOURCE, now_ns))
            && self.node.take(NODE, now_ns);
        if may {
            COUNTERS.refusals_sent.bump();
        } else {
            COUNTERS.refusals_suppressed.bump();
        }
        may
    }
}
