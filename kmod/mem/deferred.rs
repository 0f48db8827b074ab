// SPDX-License-Identifier: GPL-2.0

//! Deferred frees: regions that were deregistered while a request uses them, or a
//! peer may still use what it read of them (`weft_core::mr`). Their memory stays
//! pinned and charged until then, whatever becomes of their owner.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KBox;
use kernel::prelude::*;
use weft_core::mr::Ledger;

use crate::mem::region::Mr;

/// A region that is to be freed.
struct Deferred {
    ticket: u64,
    mr: KBox<Mr>,
    /// The number of its removal, if a peer may have read of it.
    seq: Option<u64>,
}

impl Deferred {
    fn is_known(&self, ledger: &Ledger) -> bool {
        self.seq.is_some_and(|seq| !ledger.is_unused(seq))
    }
}

/// # Invariants
///
/// There is room for `live` more: taking a region out cannot fail.
pub(super) struct DeferredFrees {
    regions: KVVec<Deferred>,
    live: usize,
    next_ticket: u64,
}

/// The event that a deferred free waits for.
pub(super) enum Waits {
    /// Nothing: the region is freed.
    Gone,
    /// Peers that may use the region.
    Peers,
    /// Requests that use it.
    Users,
}

impl DeferredFrees {
    pub(super) const fn new() -> Self {
        Self {
            regions: KVVec::new(),
            live: 0,
            next_ticket: 0,
        }
    }

    /// Makes room for one more region, which will be freed one day.
    pub(super) fn reserve(&mut self) -> Result {
        self.regions.reserve(self.live + 1, GFP_KERNEL_ACCOUNT)?;
        // INVARIANT: there is room for it too.
        self.live += 1;
        Ok(())
    }

    /// The region for which room was made was not registered.
    pub(super) fn unreserve(&mut self) {
        self.live = self.live.saturating_sub(1);
    }

    /// Frees a region when that may be; answers the ticket to wait with.
    pub(super) fn defer(&mut self, mr: KBox<Mr>, seq: Option<u64>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        // INVARIANT: one less is live.
        self.live = self.live.saturating_sub(1);
        let deferred = Deferred { ticket, mr, seq };
        // There is room by the invariant.
        let _ = self.regions.push_within_capacity(deferred);
        ticket
    }

    /// Removals that peers may have to be told of, with their keys, in their order.
    pub(super) fn removed(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let regions = self.regions.iter();
        regions.filter_map(|deferred| Some((deferred.seq?, deferred.mr.key)))
    }

    /// Frees those whose time has come; answers whether there were any.
    pub(super) fn free_due(&mut self, ledger: &Ledger) -> bool {
        let before = self.regions.len();
        self.regions
            .retain(|deferred| deferred.mr.is_used() || deferred.is_known(ledger));
        self.regions.len() != before
    }

    /// The event that the region of a ticket waits for.
    pub(super) fn waits(&self, ticket: u64, ledger: &Ledger) -> Waits {
        match self
            .regions
            .iter()
            .find(|deferred| deferred.ticket == ticket)
        {
            None => Waits::Gone,
            Some(deferred) if deferred.is_known(ledger) => Waits::Peers,
            Some(_) => Waits::Users,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }
}
