// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who is down, and who has to hear of it.

use super::bell::Bell;
use crate::fabric::NodeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// The peers that are down. Grows, until another node gets a peer's seat.
#[derive(Debug, Default)]
pub(in crate::fabric) struct Health {
    down: AtomicU64,
    pub(super) bell: Bell,
}

impl Health {
    /// Whether the peer is down.
    pub(in crate::fabric) fn is_down(&self, peer: usize) -> bool {
        self.down().contains(peer)
    }

    /// All that are down.
    pub(super) fn down(&self) -> NodeSet {
        NodeSet::from_bits(self.down.load(Ordering::Acquire))
    }

    /// Another node has the peer's seat.
    pub(super) fn mark_up(&self, peer: usize) {
        let bit = NodeSet::EMPTY.with(peer).bits();
        self.down.fetch_and(!bit, Ordering::AcqRel);
    }

    /// Marks a peer down, and ends the sleep of whoever sleeps.
    pub(in crate::fabric) fn mark_down(&self, peer: usize, why: &str) {
        let bit = NodeSet::EMPTY.with(peer).bits();
        if self.down.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            tracing::debug!(rank = peer, why, "node is down");
            self.bell.ring();
        }
    }
}
