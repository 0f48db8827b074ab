// SPDX-License-Identifier: MIT OR Apache-2.0

//! How those who trust each other agree on the end of a view: wedge, propose, echo, decide.

use super::ballot::Ballot;
use super::part::Part;
use super::rows::{SeatRow, StateRow, ViewRow};
use super::{Newcomer, Views};
use crate::fabric::NodeSet;
use crate::multicast::rows::SubgroupRow;

/// How a view ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    /// The members of the next view.
    pub(super) next: NodeSet,
    /// Those of the others who have left.
    pub(super) left: NodeSet,
    /// Members of the next view that leave once they have given a state away.
    pub(super) leaving: NodeSet,
    /// Who joins with the next view.
    pub(super) newcomer: Option<Newcomer>,
    /// Members of the next view that lack the application's state.
    pub(super) lacking: NodeSet,
    /// For each subgroup, how it ends.
    pub(super) ends: Vec<PartEnd>,
}

/// How a subgroup ends in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartEnd {
    /// How much of the view's messages counts.
    pub(super) trim: u64,
    /// Of a subgroup with state: members of the next view that have it, and have delivered that.
    pub(super) before: NodeSet,
}

impl Views {
    /// From here on this member sends, receives and delivers nothing in this view.
    pub(super) fn wedge(&mut self) -> bool {
        if self.table().own().wedged.is_raised() {
            return false;
        }
        if self.leaves() && !self.seats.own().leaving.is_raised() {
            self.seats.own().leaving.raise();
            self.tell_seat(SeatRow::leaving(), self.view.members);
        }
        if self.opened {
            for part in self.parts.iter_mut().filter(|part| part.takes_part) {
                part.member.freeze(self.view.members);
            }
        }
        self.table().own().wedged.raise();
        self.tell(ViewRow::wedged());
        true
    }

    /// As the leader, proposes how the view ends, once it may.
    pub(super) fn propose(&mut self) -> bool {
        let ballot = Ballot::of(self.rank);
        let leads = self.trusted().iter().next() == Some(self.rank);
        if !leads || self.ballot(self.rank) == ballot || !self.may_agree() {
            return false;
        }
        let lower: NodeSet = (0..self.rank).collect();
        let lower = self.view.members.and(lower).bits();
        let ready = |member| {
            let row = self.row(member);
            row.wedged.is_raised()
                && lower & !row.suspects.get() == 0
                && !self.ballot(member).is_changing()
        };
        if !self.trusted().iter().all(ready) {
            return false;
        }
        let trusted = self.trusted().iter();
        let known = trusted.max_by_key(|&member| self.ballot(member));
        let proposal = match known.filter(|&member| self.ballot(member) != Ballot::NONE) {
            Some(member) => self.proposal_of(member),
            None => Some(self.own_proposal()),
        };
        // None if the row has changed meanwhile: later, then.
        let Some(proposal) = proposal else {
            return false;
        };
        self.write_proposal(ballot, &proposal);
        true
    }

    fn own_proposal(&self) -> Proposal {
        let trusted = self.trusted();
        let lacking = self.still_lacking();
        let parity = self.view.parity();
        let trims = self.parts.iter().map(|part| {
            let lacking = lacking.union(part.still_lacking(parity));
            let received = |member| part.tables[parity].row(member).received.get();
            let members = trusted.and(part.membership.members);
            if members.minus(lacking).is_empty() {
                // Nobody is left who may have delivered something.
                return 0;
            }
            members.iter().map(received).min().unwrap_or(0)
        });
        self.propose_members(trims.collect())
    }

    /// Copies the leader's proposal.
    pub(super) fn echo(&mut self) -> bool {
        let Some(leader) = self.trusted().iter().next() else {
            return false;
        };
        let ballot = Ballot::of(leader);
        if leader == self.rank
            || self.ballot(leader) != ballot
            || self.ballot(self.rank) >= ballot
            || !self.may_agree()
        {
            return false;
        }
        self.copy(leader)
    }

    /// Copies what was decided, if a peer knows it.
    pub(super) fn copy_decision(&mut self) -> bool {
        let Some(peer) = self.find_past() else {
            return false;
        };
        let is_new = self.ballot(self.rank) < self.ballot(peer);
        is_new && self.may_agree() && self.copy(peer)
    }

    /// Copies the proposal of a peer, if it stands.
    fn copy(&mut self, peer: usize) -> bool {
        let ballot = self.ballot(peer);
        let Some(proposal) = self.proposal_of(peer) else {
            return false;
        };
        self.write_proposal(ballot, &proposal);
        true
    }

    /// A trusted peer that has gone on behind this view.
    fn find_past(&self) -> Option<usize> {
        let is_past = |&peer: &usize| self.seats.row(peer).installed.get() > self.view.number;
        self.trusted_peers().iter().find(is_past)
    }

    /// Whether this member may take part in the end of the view: nobody writes rows of the
    /// next one before that, and they are clean.
    fn may_agree(&self) -> bool {
        self.trusted().minus(self.ready).is_empty()
    }

    fn ballot(&self, member: usize) -> Ballot {
        Ballot::from_word(self.row(member).ballot.get())
    }

    /// Puts a proposal into the own row: the words while the ballot says that they change.
    fn write_proposal(&mut self, ballot: Ballot, proposal: &Proposal) {
        self.write_ballot(ballot.changing());
        let own = self.table().own();
        own.next.store(proposal.next.bits());
        own.left.store(proposal.left.bits());
        own.leaving.store(proposal.leaving.bits());
        own.newcomer
            .store(proposal.newcomer.map_or(0, Newcomer::word));
        own.lacking.store(proposal.lacking.bits());
        self.tell(ViewRow::next().through(ViewRow::lacking()));
        let parity = self.view.parity();
        for (at, end) in proposal.ends.iter().enumerate() {
            let part = &self.parts[at];
            let table = &part.tables[parity];
            table.own().trim.store(end.trim);
            let write = table.write(SubgroupRow::trim());
            let states = part.transfer.as_ref().map(|_| {
                let states = &part.states[parity];
                states.own().before.store(end.before.bits());
                states.write(StateRow::before())
            });
            self.post(self.view.members, write);
            if let Some(write) = states {
                self.post(self.view.members, write);
            }
        }
        self.write_ballot(ballot);
    }

    fn write_ballot(&mut self, ballot: Ballot) {
        self.table().own().ballot.advance(ballot.word());
        self.tell(ViewRow::ballot());
    }

    /// The proposal of a member's row, if it stands. Seats that the next view cannot have are left
    /// out: a row that is corrupt may have any.
    fn proposal_of(&self, member: usize) -> Option<Proposal> {
        let before = self.ballot(member);
        let row = self.row(member);
        let parity = self.view.parity();
        let end = |part: &Part| PartEnd {
            trim: part.tables[parity].row(member).trim.get(),
            before: NodeSet::from_bits(part.states[parity].row(member).before.get()),
        };
        let newcomer = Newcomer::from_word(row.newcomer.get());
        let newcomer = newcomer.filter(|newcomer| newcomer.seat < self.endpoint.nodes());
        let members = self.view.members;
        let possible = newcomer.iter().fold(members, |all, new| all.with(new.seat));
        let next = NodeSet::from_bits(row.next.get()).and(possible);
        let proposal = Proposal {
            next,
            left: NodeSet::from_bits(row.left.get()).and(members),
            leaving: NodeSet::from_bits(row.leaving.get()).and(next),
            newcomer,
            lacking: NodeSet::from_bits(row.lacking.get()).and(next),
            ends: self.parts.iter().map(end).collect(),
        };
        (before.stands() && self.ballot(member) == before).then_some(proposal)
    }

    /// How the view ends, once that is certain.
    pub(super) fn decision(&self) -> Option<Proposal> {
        let ballot = self.ballot(self.rank);
        if !ballot.stands() {
            return None;
        }
        let is_certain = match self.find_past() {
            Some(peer) => ballot >= self.ballot(peer),
            None => self
                .trusted()
                .iter()
                .all(|member| self.ballot(member) == ballot),
        };
        is_certain.then(|| self.proposal_of(self.rank))?
    }
}
