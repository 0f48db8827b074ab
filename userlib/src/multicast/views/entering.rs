// SPDX-License-Identifier: MIT OR Apache-2.0

//! How members that enter a subgroup get its state.
//!
//! It goes as the group's state does ([`super::state`]), for each subgroup by itself, and
//! several may enter at once. Who has it follows from the decision on a view's end: those who
//! were in the subgroup before, but for members that still wait for the state. As long as one of
//! them is there, one of them is a member, so nobody's copy is older than the view.

use super::part::Part;
use super::rows::StateRow;
use super::state::{Fetched, NONE};
use super::{Ending, View, Views};
use crate::fabric::NodeSet;
use crate::multicast::membership::Membership;

impl Part {
    /// Those who wait for the subgroup's state in the view, as far as this member knows.
    pub(super) fn still_lacking(&self, parity: usize) -> NodeSet {
        let table = &self.states[parity];
        let lacks = |&member: &usize| !table.row(member).restored.is_raised();
        self.lacking.iter().filter(lacks).collect()
    }

    /// The other members of the subgroup.
    pub(super) fn have_state(&self, parity: usize) -> NodeSet {
        self.membership.members.minus(self.still_lacking(parity))
    }

    /// Whether some of these members would wait in vain, because nobody else of them has the
    /// state.
    pub(super) fn is_lost_among(&self, members: NodeSet, parity: usize) -> bool {
        let waits = !self.still_lacking(parity).and(members).is_empty();
        waits && self.have_state(parity).and(members).is_empty()
    }

    /// Whether somebody in that view is to have the subgroup's state.
    pub(super) fn has_heirs(&self, view: &View) -> bool {
        if self.transfer.is_none() {
            return false;
        }
        let spec = &self.member.shared().spec;
        let named = Membership::of(spec, self.members_of.as_ref(), view);
        !named.members.is_empty()
    }

    /// The member that gives the state to those who lack it in this view.
    fn donor(&self) -> Option<usize> {
        self.membership.members.minus(self.lacking).iter().next()
    }
}

impl Views {
    /// Takes copies of the states, as they are now, that it is this member's part to give.
    pub(super) fn give_part_states(&mut self) {
        let (number, parity) = (self.view.number, self.view.parity());
        for at in 0..self.parts.len() {
            let part = &mut self.parts[at];
            let lacking = part.lacking;
            if lacking.is_empty() || part.donor() != Some(self.rank) {
                continue;
            }
            let Some(transfer) = &mut part.transfer else {
                continue;
            };
            let copied = transfer.copy_to(self.endpoint.region(), number);
            let table = &part.states[parity];
            table.own().state_bytes.store(copied.unwrap_or(NONE));
            table.own().state_of.store(number);
            // In this order.
            let writes = [StateRow::state_bytes(), StateRow::state_of()].map(|of| table.write(of));
            for write in writes {
                self.post(lacking, write);
            }
        }
    }

    /// Reads a piece of each state that this member lacks, once it has the group's.
    pub(super) fn fetch_part_states(&mut self) -> bool {
        if self.is_lacking() {
            return false;
        }
        let mut fired = false;
        for at in 0..self.parts.len() {
            if !self.parts[at].lacking.contains(self.rank) {
                continue;
            }
            match self.fetch_part_state(at) {
                Fetched::Nothing => {}
                Fetched::Some => fired = true,
                Fetched::All => {
                    self.note_restored(at);
                    fired = true;
                }
                Fetched::Refused => return self.stop(Ending::Excluded),
            }
        }
        fired
    }

    fn fetch_part_state(&mut self, at: usize) -> Fetched {
        let (number, parity) = (self.view.number, self.view.parity());
        let part = &mut self.parts[at];
        let Some((donor, transfer)) = part.donor().zip(part.transfer.as_mut()) else {
            return Fetched::Refused;
        };
        let row = part.states[parity].row(donor);
        if row.state_of.get() != number {
            return Fetched::Nothing;
        }
        let fetched = transfer.fetch(&*self.endpoint, donor, row.state_bytes.get(), number);
        // If the donor is down there will be another one.
        fetched.unwrap_or(Fetched::Nothing)
    }

    fn note_restored(&mut self, at: usize) {
        let part = &mut self.parts[at];
        if let Some(transfer) = &mut part.transfer {
            transfer.restore(self.endpoint.region());
        }
        part.lacking = part.lacking.minus(NodeSet::EMPTY.with(self.rank));
        let table = &part.states[self.view.parity()];
        table.own().restored.raise();
        let write = table.write(StateRow::restored());
        self.post(self.view.members, write);
    }
}
