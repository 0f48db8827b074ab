// SPDX-License-Identifier: MIT OR Apache-2.0

//! A subgroup of a group with views: what a change of views does to it
//! ([`super::super::views`]).

use super::super::deliverer::{CorruptSender, Deliverer};
use super::super::layout::Places;
use super::super::opening::Opening;
use super::super::rows::SubgroupRow;
use super::super::shared::Shared;
use super::sending::Own;
use super::{Delivery, Dirty, Member};
use crate::fabric::{FabricError, NodeSet};
use crate::predicates::Outcome;
use crate::smc::Sent;
use crate::sst::Table;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Where a sender's ring goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Resumption {
    /// Offset in the ring.
    pub(in super::super) start: usize,
    /// The first of its slots whose message has not been delivered.
    pub(in super::super) slot: u64,
}

impl Member {
    pub(in super::super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The three predicates, in a view. One that has not been given the application's state
    /// yet delivers nothing.
    pub(in super::super) fn go_on_in_view(&mut self, delivers: bool) -> bool {
        self.delivers = delivers;
        let locking = !self.shared.spec.options.early_lock_release;
        let lock_of = locking.then(|| Arc::clone(&self.shared));
        let _lock = lock_of.as_ref().and_then(|shared| shared.baseline_lock());
        self.go_on(NodeSet::EMPTY) != Outcome::Idle
    }

    /// Lets the others look into this member's ring for its messages that are not sent yet.
    /// Answers with how many it has sent in this view, if it sends.
    pub(in super::super) fn show_ring(&mut self) -> u64 {
        let endpoint = &self.shared.endpoint;
        let Some(own) = &mut self.own else {
            return 0;
        };
        own.remote
            .retain(|&(peer, _)| endpoint.sight_of(peer).is_none());
        own.sent.messages
    }

    /// Peers that were posted to since this was asked last.
    pub(in super::super) fn take_rung(&mut self) -> NodeSet {
        std::mem::take(&mut self.rung)
    }

    /// Tells peers all that they do not know: what this member has received is final. The
    /// other members of the view have to know that as well, because one of them may lead.
    pub(in super::super) fn freeze(&mut self, view: NodeSet) {
        self.push();
        let write = self.table.write(SubgroupRow::received());
        for other in view.minus(self.members).iter() {
            self.post(other, write);
        }
    }

    /// Messages and nulls of this view that it has received all of.
    pub(in super::super) fn received(&self) -> u64 {
        self.received
    }

    /// Delivers what all have agreed on, at most [`Self::received`].
    ///
    /// # Errors
    ///
    /// The sender whose ring is corrupt.
    pub(in super::super) fn deliver_to(&mut self, trim: u64) -> Result<(), CorruptSender> {
        if let Delivery::Upcall(deliverer, upcall) = &mut self.delivery {
            deliverer.run_known(&self.seen, trim, upcall.as_mut())?;
        }
        Ok(())
    }

    /// As [`Self::deliver_to`], but the application is told nothing.
    ///
    /// # Errors
    ///
    /// The sender whose ring is corrupt.
    pub(in super::super) fn skip_to(&mut self, trim: u64) -> Result<(), CorruptSender> {
        if let Delivery::Upcall(deliverer, _) = &mut self.delivery {
            deliverer.run_known(&self.seen, trim, &mut |_| {})?;
        }
        Ok(())
    }

    /// Where this member's ring goes on behind what was delivered, if it sends. `slot` was
    /// the first of its slots in this view.
    pub(in super::super) fn resumption(&self, slot: u64) -> Option<Resumption> {
        let Delivery::Upcall(deliverer, _) = &self.delivery else {
            return None;
        };
        let inbox = deliverer.inbox(self.own.as_ref()?.index)?;
        Some(Resumption {
            start: inbox.at(),
            slot: slot + inbox.taken(),
        })
    }

    /// Begins anew, in the next view, whose members have delivered all that came before.
    ///
    /// # Errors
    ///
    /// Those of [`Table::new`] and of rings.
    pub(in super::super) fn reopen(
        &mut self,
        places: &Places,
        opening: &Opening,
    ) -> Result<(), FabricError> {
        let endpoint = &self.shared.endpoint;
        self.table = Table::new(Arc::clone(endpoint), opening.table)?;
        self.own = Own::of(&self.shared, places, opening)?;
        self.members = opening.members;
        self.peers = opening.members.minus(NodeSet::EMPTY.with(endpoint.rank()));
        self.senders = Arc::clone(&opening.senders);
        self.seen = vec![Sent::default(); opening.senders.len()];
        self.received = 0;
        self.told_delivered = 0;
        self.dirty = Dirty::default();
        if let Delivery::Upcall(deliverer, _) = &mut self.delivery {
            let shared = Arc::clone(&self.shared);
            **deliverer = Deliverer::new(shared, places, opening)?;
        }
        self.free_below(opening.slot);
        if self.own.is_none() {
            self.shared.stay_silent();
        }
        Ok(())
    }

    /// A view begins in which this node is not in the subgroup. In the views before, all have
    /// delivered the messages of its slots below this one.
    pub(in super::super) fn rest(&mut self, slot: u64) {
        self.own = None;
        self.free_below(slot);
        self.shared.stay_silent();
    }

    /// Adds all that decides what the member does next, but the region.
    #[cfg(test)]
    pub(in super::super) fn fingerprint(&self, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        (&self.seen, self.received, self.told_delivered).hash(hasher);
        (self.dirty.sent, self.dirty.received).hash(hasher);
        if let Some(own) = &self.own {
            (own.sent, &own.under_way, own.flushed).hash(hasher);
            own.remote.hash(hasher);
            own.outbox.has_more(&self.shared.slots).hash(hasher);
        }
        if let Delivery::Upcall(deliverer, _) = &self.delivery {
            let inboxes = (0..self.senders.len()).filter_map(|at| deliverer.inbox(at));
            for inbox in inboxes {
                (inbox.at(), inbox.taken(), inbox.seen()).hash(hasher);
            }
            deliverer.progress().hash(hasher);
        }
    }

    /// Everybody has delivered the messages of the own slots below this one.
    fn free_below(&self, slot: u64) {
        let shared = &self.shared;
        shared.slots.free(slot);
        shared.flushed.store(slot, Ordering::Release);
        shared.delivered.open();
        shared.room.open();
    }
}
