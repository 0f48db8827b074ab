// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whom a member trusts.
//!
//! A member accuses others by its own evidence, and takes over what those say that it
//! trusts. Of two that accuse each other the lower seat is believed, by everybody: else
//! two thirds of a group could each believe another one of the two, and nobody would be
//! left that all trust. So what a higher seat says against a lower one is not taken over;
//! the lower one accuses it in turn. One that is really gone is accused by all, because
//! each of them notices (fabric promise 4).

use super::rows::ViewRow;
use super::Views;
use crate::fabric::NodeSet;

impl Views {
    /// Whether this view has to end, as far as this member knows.
    pub(super) fn must_change(&self, down: NodeSet) -> bool {
        if self.phase == super::Phase::Changing || self.leaves() || self.join_is_due() {
            return true;
        }
        let noticed = down.union(self.status.suspected());
        if !noticed.and(self.trusted()).is_empty() {
            return true;
        }
        let has_cause = |peer| self.row(peer).wedged.is_raised() || self.has_stopped(peer);
        self.trusted_peers().iter().any(has_cause)
    }

    /// Takes over whom the application suspects.
    pub(super) fn hear_application(&mut self) {
        let accused = self.board.take_accused(self.view.number);
        for member in accused.and(self.trusted_peers()).iter() {
            tracing::warn!(member, "is suspected by the application");
            self.status.suspect(member);
        }
    }

    /// Looks whom to suspect besides those who are suspected, and says whether there were
    /// any; `None` if this member is suspected itself.
    pub(super) fn find_suspects(&mut self, down: NodeSet) -> Option<bool> {
        let before = self.suspects;
        let corrupt = self.status.suspected();
        self.status.take_up(corrupt);
        self.accuse(down.union(corrupt));
        loop {
            let known = self.suspects;
            for peer in self.trusted_peers().iter() {
                if !self.suspects.contains(peer) {
                    self.hear(peer)?;
                }
            }
            if self.suspects == known {
                return Some(self.suspects != before);
            }
        }
    }

    /// Takes over what a peer says of others. `None` if that is that this member is out.
    fn hear(&mut self, peer: usize) -> Option<()> {
        if self.has_stopped(peer) {
            self.accuse(NodeSet::EMPTY.with(peer));
            return Some(());
        }
        let row = self.row(peer);
        // In this order: whom it accuses it has said before.
        let suspects = NodeSet::from_bits(row.suspects.get());
        let accused = NodeSet::from_bits(row.accused.get());
        if suspects.contains(self.rank) || accused.contains(self.rank) {
            if peer < self.rank || !accused.contains(self.rank) {
                return None;
            }
            self.accuse(NodeSet::EMPTY.with(peer));
            return Some(());
        }
        let lower: NodeSet = (0..peer).collect();
        let believed = suspects.minus(accused.and(lower));
        self.suspects = self.suspects.union(believed.and(self.view.members));
        Some(())
    }

    fn accuse(&mut self, nodes: NodeSet) {
        let others = self.trusted_peers();
        self.accused = self.accused.union(nodes.and(others));
        self.suspects = self.suspects.union(nodes.and(others));
    }

    /// Makes known whom this member suspects.
    pub(super) fn tell_suspicions(&mut self) -> bool {
        let (accused, suspects) = (self.accused.bits(), self.suspects.bits());
        let own = self.table().own();
        let (new_accused, new_suspects) =
            (own.accused.get() != accused, own.suspects.get() != suspects);
        if new_accused {
            self.table().own().accused.advance(accused);
            self.tell(ViewRow::accused());
        }
        if new_suspects {
            self.table().own().suspects.advance(suspects);
            self.tell(ViewRow::suspects());
        }
        new_accused || new_suspects
    }
}
