// SPDX-License-Identifier: GPL-2.0

//! Regions that were deregistered and cannot go yet: a request uses them, or a
//! peer may still use what it read of them (`weft_core::mr`). Their memory stays
//! pinned and charged until then, whatever becomes of their owner.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KBox;
use kernel::prelude::*;
use weft_core::mr::Ledger;

use crate::mem::region::Mr;

struct Grave {
    ticket: u64,
    mr: KBox<Mr>,
    /// The number of its removal, if a peer may have read of it.
    seq: Option<u64>,
}

impl Grave {
    fn is_known(&self, ledger: &Ledger) -> bool {
        self.seq.is_some_and(|seq| !ledger.is_unused(seq))
    }
}

/// # Invariants
///
/// There is room for `live` more graves: taking a region out cannot fail.
pub(super) struct Graves {
    graves: KVVec<Grave>,
    live: usize,
    next_ticket: u64,
}

/// What a region in its grave waits for.
pub(super) enum Waits {
    /// Nothing: it is gone.
    Gone,
    /// Peers who may use it.
    Peers,
    /// Those who use it.
    Users,
}

impl Graves {
    pub(super) const fn new() -> Self {
        Self {
            graves: KVVec::new(),
            live: 0,
            next_ticket: 0,
        }
    }

    /// Makes room for one more region's end.
    pub(super) fn reserve(&mut self) -> Result {
        self.graves.reserve(self.live + 1, GFP_KERNEL_ACCOUNT)?;
        // INVARIANT: there is room for it too.
        self.live += 1;
        Ok(())
    }

    /// The region for which room was made does not come to be.
    pub(super) fn unreserve(&mut self) {
        self.live = self.live.saturating_sub(1);
    }

    /// Takes a region in; answers its ticket.
    pub(super) fn bury(&mut self, mr: KBox<Mr>, seq: Option<u64>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        // INVARIANT: one less is live.
        self.live = self.live.saturating_sub(1);
        let grave = Grave { ticket, mr, seq };
        // There is room by the invariant.
        let _ = self.graves.push_within_capacity(grave);
        ticket
    }

    /// Removals that peers may have to be told of, with their keys, in their order.
    pub(super) fn removed(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let graves = self.graves.iter();
        graves.filter_map(|grave| Some((grave.seq?, grave.mr.key)))
    }

    /// Frees those whose time has come; answers whether there were any.
    pub(super) fn free_due(&mut self, ledger: &Ledger) -> bool {
        let before = self.graves.len();
        self.graves
            .retain(|grave| grave.mr.is_used() || grave.is_known(ledger));
        self.graves.len() != before
    }

    /// What the region of a ticket waits for.
    pub(super) fn waits(&self, ticket: u64, ledger: &Ledger) -> Waits {
        match self.graves.iter().find(|grave| grave.ticket == ticket) {
            None => Waits::Gone,
            Some(grave) if grave.is_known(ledger) => Waits::Peers,
            Some(_) => Waits::Users,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.graves.is_empty()
    }
}
