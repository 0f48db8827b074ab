// SPDX-License-Identifier: GPL-2.0

//! Regions that were deregistered and cannot go yet: a request uses them, or a
//! peer may still trust what it read of them (krcore §4.2). Their memory stays
//! pinned and charged until then, whatever becomes of their owner.

use kernel::alloc::KBox;
use kernel::prelude::*;
use weft_core::mr::{lease_is_over, LEASE_NS};

use crate::mem::region::Mr;

struct Grave {
    ticket: u64,
    mr: KBox<Mr>,
    removed_ns: u64,
    /// A peer may have read of it.
    leased: bool,
}

impl Grave {
    fn wait_ns(&self, now_ns: u64, links: bool) -> u64 {
        if self.leased && links && !lease_is_over(self.removed_ns, now_ns) {
            LEASE_NS.saturating_sub(now_ns.saturating_sub(self.removed_ns))
        } else {
            0
        }
    }
}

/// # Invariants
///
/// There is room for `live` more graves: taking a region out cannot fail.
pub(super) struct Graves {
    graves: KVec<Grave>,
    live: usize,
    next_ticket: u64,
}

/// What a region in its grave waits for.
pub(super) enum Waits {
    /// Nothing: it is gone.
    Gone,
    /// So many nanoseconds of lease.
    Lease(u64),
    /// Those who use it.
    Users,
}

impl Graves {
    pub(super) const fn new() -> Self {
        Self {
            graves: KVec::new(),
            live: 0,
            next_ticket: 0,
        }
    }

    /// Makes room for one more region's end.
    pub(super) fn reserve(&mut self) -> Result {
        self.graves.reserve(self.live + 1, GFP_KERNEL)?;
        // INVARIANT: there is room for it too.
        self.live += 1;
        Ok(())
    }

    /// The region for which room was made does not come to be.
    pub(super) fn unreserve(&mut self) {
        self.live = self.live.saturating_sub(1);
    }

    /// Takes a region in; answers its ticket.
    pub(super) fn bury(&mut self, mr: KBox<Mr>, now_ns: u64, leased: bool) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        // INVARIANT: one less is live.
        self.live = self.live.saturating_sub(1);
        let grave = Grave {
            ticket,
            mr,
            removed_ns: now_ns,
            leased,
        };
        // There is room by the invariant.
        let _ = self.graves.push_within_capacity(grave);
        ticket
    }

    /// Frees those whose time has come; answers whether there were any. `links`:
    /// peers are connected by RC; without them nobody can use a lease.
    pub(super) fn free_due(&mut self, now_ns: u64, links: bool) -> bool {
        let before = self.graves.len();
        self.graves
            .retain(|grave| grave.mr.is_used() || grave.wait_ns(now_ns, links) != 0);
        self.graves.len() != before
    }

    /// What the region of a ticket waits for.
    pub(super) fn waits(&self, ticket: u64, now_ns: u64, links: bool) -> Waits {
        match self.graves.iter().find(|grave| grave.ticket == ticket) {
            None => Waits::Gone,
            Some(grave) => match grave.wait_ns(now_ns, links) {
                0 => Waits::Users,
                wait_ns => Waits::Lease(wait_ns),
            },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.graves.is_empty()
    }
}
