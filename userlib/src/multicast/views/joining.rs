// SPDX-License-Identifier: MIT OR Apache-2.0

//! The members' part of a join.
//!
//! A newcomer calls all members. Each that can do so admits it: the fabric has cut off who had
//! the seat before, and the rows that this one has left are erased. All that takes time is
//! done then, before anybody wedges. Who sees that all whom it trusts have admitted the same
//! incarnation wedges, and the leader proposes a change, one newcomer at a time.

use super::agreement::{PartEnd, Proposal};
use super::part::Part;
use super::rows::{SeatRow, SequenceRow, WelcomeRow};
use super::{Phase, View, Views};
use crate::fabric::{Newcomer, NodeSet};
use crate::sst::Columns;

impl Views {
    /// Admits those who call for an empty seat, and forgets newcomers that are down.
    pub(super) fn see_newcomers(&mut self, down: NodeSet) -> bool {
        if self.phase == Phase::Changing {
            // What it has said of newcomers stands until the next view.
            return false;
        }
        let callers = self.endpoint.callers();
        if self.candidates.union(callers).is_empty() {
            return false;
        }
        let callers = callers.minus(self.view.members);
        let lost = self.candidates.and(down);
        for seat in lost.iter() {
            self.candidates = self.candidates.minus(NodeSet::EMPTY.with(seat));
            self.note_admitted(seat, 0);
        }
        for seat in callers.iter() {
            if let Ok(incarnation) = self.endpoint.admit(seat) {
                tracing::debug!(seat, incarnation, "admitted");
                self.erase_seat(seat);
                self.forget_reader(seat);
                self.candidates = self.candidates.with(seat);
                self.note_admitted(seat, incarnation);
            }
        }
        !lost.is_empty() || !callers.is_empty()
    }

    fn note_admitted(&mut self, seat: usize, incarnation: u64) {
        self.incarnations[seat] = incarnation;
        self.seats.own().admitted[seat].store(incarnation);
        self.tell_seat(SeatRow::admitted().word(seat), self.view.members);
    }

    /// Erases what the former member has left.
    fn erase_seat(&self, seat: usize) {
        self.seats.row(seat).erase();
        self.welcomes.row(seat).erase();
        for table in &self.rows {
            table.row(seat).erase();
        }
        for part in &self.parts {
            part.sequences.row(seat).erase();
            for parity in 0..2 {
                part.tables[parity].row(seat).erase();
                part.states[parity].row(seat).erase();
                part.rings[parity].row(seat).erase();
            }
        }
    }

    /// Whether somebody can join, as far as this member knows. It does not wait for the leader
    /// to say so: that would take a message's time more.
    pub(super) fn join_is_due(&self) -> bool {
        !self.candidates.is_empty()
            && self.phase == Phase::Open
            && self.still_lacking().is_empty()
            && self.due_newcomer().is_some()
    }

    /// A newcomer that all have admitted whom this member trusts.
    pub(super) fn due_newcomer(&self) -> Option<Newcomer> {
        let candidates = self.candidates.minus(self.view.members);
        candidates.iter().find_map(|seat| {
            let incarnation = self.incarnations[seat];
            let has_admitted =
                |peer: usize| self.seats.row(peer).admitted[seat].get() == incarnation;
            let is_due = self.trusted_peers().iter().all(has_admitted);
            is_due.then(|| Newcomer::new(seat, incarnation))
        })
    }

    /// Those who lack the application's state, as far as this member knows.
    pub(super) fn still_lacking(&self) -> NodeSet {
        let lacks = |&member: &usize| !self.seats.row(member).restored.is_raised();
        self.lacking.iter().filter(lacks).collect()
    }

    /// Whether this member wants to leave, and may: somebody else has the state, if somebody
    /// is to be given it.
    pub(super) fn leaves(&self) -> bool {
        if !self.board.wants_to_leave() {
            return false;
        }
        let lacking = self.still_lacking();
        let others = self.trusted_peers();
        let parity = self.view.parity();
        let is_lost = |part: &Part| part.is_lost_among(others, parity);
        (lacking.and(others).is_empty() || !others.minus(lacking).is_empty())
            && !self.parts.iter().any(is_lost)
    }

    /// The next view begins: a newcomer in it is a member now. All members of the view are
    /// connected with this incarnation: they were wedged when it was proposed, and who is
    /// wedged admits nobody else.
    pub(super) fn take_in(&mut self) {
        if let Some(newcomer) = self.view.joined.filter(|new| new.seat != self.rank) {
            self.status.add_newcomer(newcomer.seat);
            let seat = NodeSet::EMPTY.with(newcomer.seat);
            self.candidates = self.candidates.minus(seat);
        }
    }

    /// Tells the newcomer of this view all that it has to know before it installs it.
    pub(super) fn welcome_newcomer(&mut self) {
        let Some(newcomer) = self.view.joined.filter(|new| new.seat != self.rank) else {
            return;
        };
        let to = NodeSet::EMPTY.with(newcomer.seat);
        let own = self.welcomes.own();
        own.number.store(self.view.number);
        own.members.store(self.view.members.bits());
        own.left.store(self.view.left.bits());
        own.failed.store(self.view.failed.bits());
        own.leaving.store(self.view.leaving.bits());
        own.newcomer.store(newcomer.word());
        own.lacking.store(self.lacking.bits());
        for seat in self.view.members.iter() {
            // Of those that the group began with its row says so already.
            if let Some(incarnation @ 1..) = self.view.incarnation(seat) {
                self.welcomes.own().incarnations[seat].store(incarnation);
                self.welcome(WelcomeRow::incarnations().word(seat), to);
            }
        }
        self.welcome(WelcomeRow::number().through(WelcomeRow::lacking()), to);
        for at in 0..self.parts.len() {
            let part = &self.parts[at];
            let row = part.sequences.own();
            row.sequence.store(part.sequence);
            row.before.store(part.before.bits());
            let columns = SequenceRow::sequence().through(SequenceRow::before());
            let write = part.sequences.write(columns);
            self.post(to, write);
        }
        self.tell_seat(SeatRow::leaving().through(SeatRow::restored()), to);
        for seat in self.candidates.iter() {
            self.tell_seat(SeatRow::admitted().word(seat), to);
        }
    }

    pub(super) fn welcome(&mut self, columns: Columns<WelcomeRow>, to: NodeSet) {
        let write = self.welcomes.write(columns);
        self.post(to, write);
    }

    /// Members that want to leave.
    fn wanting(&self) -> NodeSet {
        let wants = |&member: &usize| self.seats.row(member).leaving.is_raised();
        self.trusted().iter().filter(wants).collect()
    }

    /// Those of the members that want to leave who leave now. Not the last of those who have a
    /// state that others wait for: it leaves when it was given.
    fn leavers(&self, lacking: NodeSet) -> NodeSet {
        let mut left = self.wanting();
        while let Some(needed) = self.needed_of(left, lacking) {
            left = left.minus(NodeSet::EMPTY.with(needed));
        }
        left
    }

    /// One of those that would leave without which a state would be lost.
    fn needed_of(&self, left: NodeSet, lacking: NodeSet) -> Option<usize> {
        let stay = self.trusted().minus(left);
        if stay.minus(lacking).is_empty() && !lacking.and(stay).is_empty() {
            return left.minus(lacking).iter().next();
        }
        let parity = self.view.parity();
        let mut parts = self.parts.iter();
        parts.find_map(|part| {
            let is_lost = part.is_lost_among(stay, parity);
            let have = part.have_state(parity).and(left);
            have.iter().next().filter(|_| is_lost)
        })
    }

    /// Those of the members that would leave who stay for one more view, because they alone have
    /// a subgroup's state, and the next view as it would be without them has members that are to
    /// have it.
    fn donors(&self, left: NodeSet, lacking: NodeSet, next: &View) -> NodeSet {
        let parity = self.view.parity();
        let mut next = next.clone();
        next.leaving = self.wanting().and(next.members);
        let mut donors = NodeSet::EMPTY;
        for part in &self.parts {
            let have = part.have_state(parity).minus(lacking);
            let Some(last) = have.and(left).iter().next() else {
                continue;
            };
            let stays = !have.and(next.members.union(donors)).is_empty();
            if !stays && part.has_heirs(&next) {
                donors = donors.with(last);
            }
        }
        donors
    }

    /// What this member proposes of itself, besides the trims: who stays, who leaves, who
    /// joins, and who has delivered what counts of each subgroup.
    pub(super) fn propose_members(&self, trims: Vec<u64>) -> Proposal {
        let trusted = self.trusted();
        let lacking = self.still_lacking().and(trusted);
        let left = self.leavers(lacking);
        let can_join = lacking.minus(left).is_empty() && !trusted.minus(left).is_empty();
        let newcomer = self.due_newcomer().filter(|_| can_join);
        let seat: NodeSet = newcomer.iter().map(|new| new.seat).collect();
        let next = trusted.minus(left).union(seat);
        let donors = self.donors(left, lacking, &self.view.next(next, left, newcomer));
        let (left, next) = (left.minus(donors), next.union(donors));
        let lacking = lacking.minus(left);
        let stay = trusted.minus(left).minus(lacking);
        let parity = self.view.parity();
        let gets_state = match self.transfer {
            Some(_) => seat,
            None => NodeSet::EMPTY,
        };
        let end = |(part, trim): (&Part, u64)| PartEnd {
            trim,
            before: part.have_state(parity).and(stay),
        };
        Proposal {
            ends: self.parts.iter().zip(trims).map(end).collect(),
            next,
            left,
            leaving: self.wanting().and(next),
            newcomer,
            lacking: lacking.union(gets_state),
        }
    }
}
