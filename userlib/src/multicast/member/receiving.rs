// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive predicate: how far each sender has got, and how far the order is
//! complete here.

use super::Member;
use crate::fabric::NodeSet;
use crate::smc::Sent;

impl Member {
    /// The receive predicate: takes in what has arrived, and counts how far
    /// the delivery order is complete here.
    pub(super) fn receive(&mut self, left: NodeSet) -> bool {
        let batching = self.shared.spec.options.receive_batching;
        let mut arrived = 0;
        for index in 0..self.seen.len() {
            let node = self.senders[index].node;
            if self.own.as_ref().is_some_and(|own| own.index == index) {
                continue;
            }
            let mut now = self.seen[index].widen(self.table.row(node).sent.get());
            if now == self.seen[index] {
                continue;
            }
            if !self.can_be(index, now) {
                self.shared.status.suspect(node);
                return true;
            }
            if !batching {
                // One round at a time, each acknowledged.
                now.rounds = self.seen[index].rounds + 1;
            }
            arrived += now.rounds - self.seen[index].rounds;
            self.seen[index] = now;
            if !batching {
                self.count_received(left);
                self.dirty.received = true;
                self.push_unless_coalescing();
            }
        }
        if arrived == 0 && left.is_empty() {
            return false;
        }
        self.shared.counts.receive_batches.add(arrived);
        if self.count_received(left) {
            self.push_unless_coalescing();
        }
        arrived > 0
    }

    /// Whether a sender can have got so far.
    ///
    /// It has at most a window of messages that this member has not delivered. A null is
    /// sent for a round that somebody has begun with a message: so no round is further from
    /// the delivered ones than all senders' windows together.
    fn can_be(&self, index: usize, now: Sent) -> bool {
        let window = self.shared.spec.shape.window() as u64;
        let senders = self.seen.len() as u64;
        match &self.acks {
            Some(acks) => {
                let taken = acks.own().acks[index].get();
                now.messages.saturating_sub(taken) <= window
            }
            None => {
                let delivered = self.table.own().delivered.get() / senders;
                now.messages <= now.rounds
                    && now.rounds.saturating_sub(delivered) <= window * senders + 1
            }
        }
    }

    /// Recomputes `received_num`: all senders' rounds up to the first that is
    /// missing. Those who have left send nulls for ever.
    pub(super) fn count_received(&mut self, left: NodeSet) -> bool {
        if self.acks.is_some() {
            return false;
        }
        let senders = self.seen.len() as u64;
        let mut first_missing = u64::MAX;
        let mut last = 0;
        for (index, (sent, sender)) in (0_u64..).zip(self.seen.iter().zip(&*self.senders)) {
            let next = sent.rounds * senders + index;
            last = last.max(sent.rounds * senders);
            if !left.contains(sender.node) {
                first_missing = first_missing.min(next);
            }
        }
        // If all have left there is nothing behind the last message.
        let received = if first_missing == u64::MAX {
            last
        } else {
            first_missing
        };
        if received <= self.received {
            return false;
        }
        self.received = received;
        self.table.own().received.advance(received);
        self.dirty.received = true;
        true
    }
}
