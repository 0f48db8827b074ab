// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of a subgroup whose member has failed: those who survive agree on how much of
//! the sequence counts, deliver that much, and then say that it is over.
//!
//! The steps are those of virtual synchrony, without a view behind them:
//!
//! 1. *Suspect*: by own evidence, or because a member that is not suspected does. The row
//!    of a suspect is never looked at again.
//! 2. *Wedge*: nothing is sent, received or delivered any more; `received` is final.
//! 3. *Trim*: the leader is the lowest member that is neither suspected nor has left; it
//!    leads once all who are not suspected suspect every lower one too. When all of them
//!    are wedged it publishes the least `received`. What anybody has delivered, all had
//!    received before, so the trim is not below it. If a row that it trusts has a trim, it
//!    takes that one.
//! 4. *Echo*: the others copy the trim of the leader.
//! 5. *Deliver* up to the trim, once all who are not suspected have it.
//!
//! A member goes on only among a majority of those who had not left before that. (Members
//! may learn of a leave at different times; two majorities have a member in common all the
//! same, because a member that has left is in none.) One that leaves in the middle of the
//! end counts as a member: its echo, or its silence, is part of what others agree on. If it
//! has echoed, no leader waits for what else it may say. One that finds itself suspected, or
//! is in a minority, delivers nothing more, and suspects itself, so that nobody waits for it,
//! and nobody takes over its other suspicions.
//!
//! Each word of a row is pushed with a write of its own, in the order in which it changed:
//! whoever sees a suspicion sees every echo that was made before it. So a leader that takes
//! over has seen the trim of the one before, if anybody may deliver by it.

use super::super::rows::SubgroupRow;
use super::super::watcher::Ending;
use super::Member;
use crate::fabric::NodeSet;
use crate::predicates::Outcome;
use crate::sst::Columns;
use std::sync::atomic::Ordering;

impl Member {
    /// Whether somebody has failed, as far as this member knows, or says so.
    pub(super) fn must_end(&self) -> bool {
        let mut peers = self.peers.iter();
        !self.shared.failed().is_empty()
            || peers.any(|peer| self.table.row(peer).suspects.get() != 0)
    }

    /// A step towards the end.
    pub(super) fn end(&mut self, left: NodeSet) -> Outcome {
        if self.shared.is_over() {
            return Outcome::Idle;
        }
        if self.acks.is_some() {
            // Messages without a common order, each delivered when it came: there is
            // nothing to agree on.
            return self.finish(Ending::Minority);
        }
        // Those for whom the end had begun before they left count as members: the trim of
        // others may be theirs.
        let begun = left
            .iter()
            .filter(|&node| self.table.row(node).suspects.get() != 0);
        let left = left.minus(begun.collect());
        let Some(suspects) = self.find_suspects(left) else {
            return self.finish(Ending::Excluded);
        };
        for node in suspects.iter() {
            self.shared.status.add_failed(node);
        }
        let staying = self.shared.members.minus(left);
        let live = staying.minus(suspects);
        if live.len() * 2 <= staying.len() {
            // Its suspicions stay its own: one that has lost its links would otherwise end
            // the group of all others.
            return self.finish(Ending::Minority);
        }
        let mut fired = self.tell_suspects(suspects);
        fired |= self.wedge();
        fired |= self.trim(live, left);
        if self.have_all_echoed(live) {
            return self.deliver_trimmed();
        }
        fired.into()
    }

    fn suspects(&self) -> NodeSet {
        NodeSet::from_bits(self.table.own().suspects.get())
    }

    /// The members that this one takes for failed: by its own evidence, or because a member
    /// does that it does not suspect. `None` if one of those suspects this member, or it has
    /// failed by its own evidence.
    fn find_suspects(&self, left: NodeSet) -> Option<NodeSet> {
        let rank = self.shared.endpoint.rank();
        // A member that has left without an echo gives none any more.
        let gone = self.shared.status.left().minus(left).and(self.peers);
        let silent = gone
            .iter()
            .filter(|&node| !self.table.row(node).trimmed.is_raised());
        let mut suspects = self.suspects().union(self.shared.failed());
        suspects = suspects.union(silent.collect());
        loop {
            let before = suspects;
            for peer in self.peers.minus(left).iter() {
                if suspects.contains(peer) {
                    continue;
                }
                let theirs = NodeSet::from_bits(self.table.row(peer).suspects.get());
                if theirs.contains(peer) {
                    // It has given up, and what it thought of others is void.
                    suspects = suspects.with(peer);
                } else if theirs.contains(rank) {
                    return None;
                } else {
                    suspects = suspects.union(theirs.and(self.shared.members));
                }
            }
            if suspects == before {
                return (!suspects.contains(rank)).then_some(suspects);
            }
        }
    }

    /// Makes known whom this member suspects.
    fn tell_suspects(&mut self, suspects: NodeSet) -> bool {
        if suspects == self.suspects() {
            return false;
        }
        self.table.own().suspects.advance(suspects.bits());
        self.tell(SubgroupRow::suspects());
        true
    }

    /// From here on `received` does not change any more.
    fn wedge(&mut self) -> bool {
        if self.table.own().wedged.is_raised() {
            return false;
        }
        self.push();
        self.table.own().wedged.raise();
        self.tell(SubgroupRow::wedged());
        true
    }

    /// Finds a trim, if this member leads, or copies the leader's.
    fn trim(&mut self, live: NodeSet, left: NodeSet) -> bool {
        let rank = self.shared.endpoint.rank();
        if self.table.own().trimmed.is_raised() {
            return false;
        }
        let Some(leader) = live.iter().next() else {
            return false;
        };
        let trim = if leader == rank {
            self.leaders_trim(live, left)
        } else {
            let row = self.table.row(leader);
            row.trimmed.is_raised().then(|| row.trim.get())
        };
        let Some(trim) = trim else {
            return false;
        };
        self.table.own().trim.advance(trim);
        self.tell(SubgroupRow::trim());
        self.table.own().trimmed.raise();
        self.tell(SubgroupRow::trimmed());
        true
    }

    /// The trim, once this member may lead and all are wedged.
    fn leaders_trim(&self, live: NodeSet, left: NodeSet) -> Option<u64> {
        let rank = self.shared.endpoint.rank();
        let lower: NodeSet = (0..rank).collect();
        let lower = self.shared.members.and(lower).minus(left);
        let rows = || live.iter().map(|node| self.table.row(node));
        // One that has left in the middle of the end has echoed, and echoes nobody else.
        let gone = self.shared.status.left();
        let is_ready = |node: usize| {
            let row = self.table.row(node);
            let suspects = NodeSet::from_bits(row.suspects.get());
            let follows = lower.minus(suspects).is_empty() || gone.contains(node);
            row.wedged.is_raised() && follows
        };
        if !live.iter().all(is_ready) {
            return None;
        }
        let known = rows().find(|row| row.trimmed.is_raised());
        match known {
            Some(row) => Some(row.trim.get()),
            None => rows().map(|row| row.received.get()).min(),
        }
    }

    fn have_all_echoed(&self, live: NodeSet) -> bool {
        let own = self.table.own();
        let rank = self.shared.endpoint.rank();
        let echoes = |node| {
            let row = self.table.row(node);
            // In this order: a member that suspects this one has echoed somebody else.
            row.trimmed.is_raised()
                && row.trim.get() == own.trim.get()
                && !NodeSet::from_bits(row.suspects.get()).contains(rank)
        };
        own.trimmed.is_raised() && live.iter().all(echoes)
    }

    /// Delivers what all agreed on.
    fn deliver_trimmed(&mut self) -> Outcome {
        let trim = self.table.own().trim.get();
        if trim > self.received {
            // It was agreed on without this member.
            return self.finish(Ending::Excluded);
        }
        if let super::Delivery::Upcall(deliverer, upcall) = &mut self.delivery {
            let delivered = deliverer.run_known(&self.seen, trim, upcall.as_mut());
            if delivered.is_err() {
                // Its copy of a message is damaged; the others have it.
                return self.finish(Ending::Excluded);
            }
        } else {
            self.shared.stable.store(trim, Ordering::Release);
        }
        self.push();
        self.finish(Ending::Agreed)
    }

    fn finish(&mut self, ending: Ending) -> Outcome {
        let name = &self.shared.spec.name;
        tracing::debug!(subgroup = name, ?ending, "a member has failed");
        let rank = self.shared.endpoint.rank();
        if ending == Ending::Excluded {
            self.shared.status.add_failed(rank);
        }
        if ending != Ending::Agreed {
            // Nobody is to wait for it.
            self.tell_suspects(self.suspects().with(rank));
        }
        self.shared.end(ending);
        Outcome::Fired
    }

    /// Pushes a column to all peers, and wakes them.
    fn tell(&mut self, column: Columns<SubgroupRow>) {
        let write = self.table.write(column);
        for peer in self.peers.iter() {
            self.post(peer, write);
        }
    }
}
