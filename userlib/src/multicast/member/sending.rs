// SPDX-License-Identifier: MIT OR Apache-2.0

//! The send predicate: what is committed is posted, silent rounds are filled with
//! nulls, and slots are freed when everybody has delivered.

use super::super::layout::Places;
use super::super::opening::Opening;
use super::super::shared::Shared;
use super::{Member, BATCH_BYTES};
use crate::fabric::{FabricError, NodeSet, Write};
use crate::smc::{Limit, Outbox, Ring, Sent};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// This member as a sender.
pub(super) struct Own {
    /// Its index among the senders.
    pub(super) index: usize,
    pub(super) outbox: Outbox,
    /// Where its ring is here, and at each peer that cannot see it here.
    pub(super) base: usize,
    pub(super) remote: Vec<(usize, usize)>,
    pub(super) sent: Sent,
    /// Sequence number behind each message that is under way.
    pub(super) under_way: VecDeque<u64>,
    /// Messages that everybody has delivered.
    pub(super) flushed: u64,
}

impl Own {
    /// This member, if it sends.
    pub(super) fn of(
        shared: &Shared,
        places: &Places,
        opening: &Opening,
    ) -> Result<Option<Self>, FabricError> {
        let endpoint = &shared.endpoint;
        let rank = endpoint.rank();
        let mut senders = opening.senders.iter();
        let Some(index) = senders.position(|sender| sender.node == rank) else {
            return Ok(None);
        };
        let sender = opening.senders[index];
        let Some(base) = places.ring(rank, sender.ring) else {
            return Ok(None);
        };
        let ring = Ring::new(endpoint.region().clone(), base, shared.spec.shape)?;
        let looks_in = |peer| opening.shown && endpoint.sight_of(peer).is_some();
        let peers = opening.members.minus(NodeSet::EMPTY.with(rank));
        let remote = peers
            .iter()
            .filter(|&peer| !looks_in(peer))
            .filter_map(|peer| Some((peer, places.ring(peer, sender.ring)?)));
        Ok(Some(Self {
            index,
            outbox: Outbox::starting_at(ring, opening.slot, sender.start).in_era(opening.era),
            base,
            remote: remote.collect(),
            sent: Sent::default(),
            under_way: VecDeque::with_capacity(shared.spec.shape.window()),
            flushed: opening.slot,
        }))
    }
}

impl Member {
    /// The send predicate: posts what is committed.
    pub(super) fn send(&mut self) -> bool {
        let Some(own) = &mut self.own else {
            return false;
        };
        let options = self.shared.spec.options;
        let limit = Limit {
            messages: if options.send_batching { u64::MAX } else { 1 },
            bytes: BATCH_BYTES,
        };
        let stage = own.outbox.stage(&self.shared.slots, own.sent.rounds, limit);
        if stage.messages == 0 {
            return false;
        }
        let senders = self.seen.len() as u64;
        for round in own.sent.rounds..own.sent.rounds + stage.messages {
            own.under_way
                .push_back(round * senders + own.index as u64 + 1);
        }
        own.sent.rounds += stage.messages;
        own.sent.messages += stage.messages;
        let mut writes = [Write {
            local: 0,
            remote: 0,
            len: 0,
        }; 2];
        let ranges = stage.ranges().count();
        for &(peer, remote) in &own.remote {
            for (write, (offset, len)) in writes.iter_mut().zip(stage.ranges()) {
                *write = Write {
                    local: own.base + offset,
                    remote: remote + offset,
                    len,
                };
            }
            // Who is down is noticed by `Watcher`, not here.
            if self.shared.endpoint.post(peer, &writes[..ranges]).is_ok() {
                self.shared.counts.posts.add(ranges as u64);
                self.shared.counts.message_posts.add(ranges as u64);
            }
        }
        self.shared.counts.sent.add(stage.messages - stage.voids);
        self.shared.counts.send_batches.add(stage.messages);
        self.tell_sent();
        true
    }

    /// Makes known that this sender has gone on.
    pub(super) fn tell_sent(&mut self) {
        if let Some(own) = &self.own {
            self.seen[own.index] = own.sent;
            self.table.own().sent.store(own.sent.to_word());
            self.dirty.sent = true;
        }
        self.count_received(self.shared.status.left());
        self.push_unless_coalescing();
    }

    /// The null rule (§III.B): for each message that was received, send a null
    /// if that null precedes it in delivery order, unless there are messages
    /// to fill the rounds with: those that a batch's limit has left for the next
    /// step.
    pub(super) fn fill_with_nulls(&mut self, left: NodeSet) -> bool {
        let Some(own) = &mut self.own else {
            return false;
        };
        if !self.shared.spec.options.nulls || self.acks.is_some() {
            return false;
        }
        let mut target = own.sent.rounds;
        for (index, sent) in self.seen.iter().enumerate() {
            // Round `k = rounds - 1` of theirs: ours precedes it up to round
            // `k` if our turn comes first, else up to `k - 1`.
            let precede = sent.rounds.saturating_sub(u64::from(own.index > index));
            target = target.max(precede);
        }
        let nulls = target - own.sent.rounds;
        if nulls == 0
            || own.outbox.has_more(&self.shared.slots)
            || left.contains(self.senders[own.index].node)
        {
            return false;
        }
        own.sent.rounds = target;
        self.shared.counts.nulls.add(nulls);
        self.tell_sent();
        true
    }

    /// Frees the slots of messages that everybody has delivered.
    pub(super) fn free(&mut self, gone: NodeSet) -> bool {
        let Some(own) = &mut self.own else {
            return false;
        };
        if own.under_way.is_empty() {
            return false;
        }
        let staying = self.members.minus(gone);
        let before = own.flushed;
        if let Some(acks) = &self.acks {
            let all = staying
                .iter()
                .map(|node| acks.row(node).acks[own.index].get());
            let flushed = all.fold(own.sent.messages, u64::min);
            while own.flushed < flushed {
                own.under_way.pop_front();
                own.flushed += 1;
            }
        } else {
            let all = staying
                .iter()
                .map(|node| self.table.row(node).delivered.get());
            let delivered = all.fold(u64::MAX, u64::min);
            while own.under_way.front().is_some_and(|&end| end <= delivered) {
                own.under_way.pop_front();
                own.flushed += 1;
            }
        }
        if own.flushed == before {
            return false;
        }
        let shared = &self.shared;
        shared.slots.free(own.flushed);
        shared.flushed.store(own.flushed, Ordering::Release);
        shared.delivered.open();
        // Whoever waits for a slot is woken for a few messages, not for each.
        let window = shared.spec.shape.window();
        if own.under_way.is_empty() || shared.slots.room() * 4 >= window {
            shared.room.open();
        }
        true
    }
}
