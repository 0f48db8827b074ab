// SPDX-License-Identifier: MIT OR Apache-2.0

//! One subgroup at one member: the send, receive and delivery predicates
//! (spindle §II.D), in one step of the polling thread.
//!
//! The order within a step is chosen so that one push at its end says
//! everything: what has arrived is taken in, what is committed is posted, nulls
//! fill the rounds that are still missing, what is stable is delivered; then
//! the three columns, which are one cache line, go to the peers behind the
//! messages (§III.C). With early lock release off, each predicate pushes for
//! itself under the lock.

use super::config::Order;
use super::deliverer::{Batch, CorruptSender, Deliverer};
use super::layout::Places;
use super::rows::{AckRow, SubgroupRow};
use super::shared::Shared;
use crate::fabric::{FabricError, NodeSet, Write};
use crate::predicates::Outcome;
use crate::smc::outbox::Limit;
use crate::smc::{Outbox, Ring, Sent};
use crate::sst::{Columns, Table};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Bytes after which a batch is posted: longer ones would keep receivers
/// waiting while they are copied.
const BATCH_BYTES: usize = 96 * 1024;

pub(super) type Upcall = Box<dyn FnMut(&mut Batch<'_>) + Send>;

/// How a member gets its messages.
pub(super) enum Delivery {
    /// The polling thread calls.
    Upcall(Box<Deliverer>, Upcall),
    /// A thread of the application asks.
    Elsewhere,
}

/// This member as a sender.
struct Own {
    /// Its index among the senders.
    index: usize,
    outbox: Outbox,
    /// Where its ring is here, and at each peer.
    base: usize,
    remote: Vec<(usize, usize)>,
    sent: Sent,
    /// Sequence number behind each message that is under way.
    under_way: VecDeque<u64>,
    /// Messages that everybody has delivered.
    flushed: u64,
}

/// Columns that peers do not know yet.
#[derive(Clone, Copy, Default)]
struct Dirty {
    sent: bool,
    received: bool,
}

/// One subgroup's state at the polling thread.
pub(super) struct Member {
    shared: Arc<Shared>,
    table: Table<SubgroupRow>,
    acks: Option<Table<AckRow>>,
    peers: NodeSet,
    own: Option<Own>,
    /// What each sender was seen to have sent, by index.
    seen: Vec<Sent>,
    received: u64,
    /// What peers were told of deliveries.
    told_delivered: u64,
    told_acks: Vec<u64>,
    dirty: Dirty,
    delivery: Delivery,
    /// Peers that were posted to in this step.
    rung: NodeSet,
}

impl Member {
    pub(super) fn new(
        shared: Arc<Shared>,
        places: &Places,
        delivery: Delivery,
    ) -> Result<Self, FabricError> {
        let endpoint = &shared.endpoint;
        let rank = endpoint.rank();
        let peers = shared.members().minus(NodeSet::EMPTY.with(rank));
        let index = shared.spec.senders.iter().position(|&node| node == rank);
        let mut own = None;
        if let Some((index, base)) = index.and_then(|at| Some((at, places.ring(rank, at)?))) {
            let ring = Ring::new(endpoint.region().clone(), base, shared.spec.shape)?;
            let remote = peers
                .iter()
                .filter_map(|peer| Some((peer, places.ring(peer, index)?)));
            own = Some(Own {
                index,
                outbox: Outbox::new(ring),
                base,
                remote: remote.collect(),
                sent: Sent::default(),
                under_way: VecDeque::with_capacity(shared.spec.shape.window()),
                flushed: 0,
            });
        }
        let acks = match shared.spec.order {
            Order::Total => None,
            Order::PerSender => Some(Table::new(Arc::clone(endpoint), places.acks)?),
        };
        let senders = shared.spec.senders.len();
        Ok(Self {
            table: Table::new(Arc::clone(endpoint), places.table)?,
            acks,
            peers,
            own,
            seen: vec![Sent::default(); senders],
            received: 0,
            told_delivered: 0,
            told_acks: vec![0; senders],
            dirty: Dirty::default(),
            delivery,
            rung: NodeSet::EMPTY,
            shared,
        })
    }

    /// Evaluates the three predicates once.
    pub(super) fn step(&mut self) -> Outcome {
        let shared = Arc::clone(&self.shared);
        let _lock = shared.baseline_lock();
        let left = shared.status.left();
        let mut fired = self.receive(left);
        fired |= self.send();
        fired |= self.fill_with_nulls(left);
        fired |= self.deliver(left);
        fired |= self.push();
        fired |= self.free(left);
        for peer in std::mem::take(&mut self.rung).iter() {
            shared.endpoint.ring(peer);
        }
        fired.into()
    }

    /// The receive predicate: takes in what has arrived, and counts how far
    /// the delivery order is complete here.
    fn receive(&mut self, left: NodeSet) -> bool {
        let batching = self.shared.spec.options.receive_batching;
        let mut arrived = 0;
        for index in 0..self.seen.len() {
            let node = self.shared.spec.senders[index];
            if self.own.as_ref().is_some_and(|own| own.index == index) {
                continue;
            }
            let mut now = self.seen[index].widen(self.table.row(node).sent.get());
            if now == self.seen[index] {
                continue;
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

    /// Recomputes `received_num`: all senders' rounds up to the first that is
    /// missing. Those who have left send nulls for ever.
    fn count_received(&mut self, left: NodeSet) -> bool {
        if self.acks.is_some() {
            return false;
        }
        let senders = self.seen.len() as u64;
        let mut first_missing = u64::MAX;
        let mut last = 0;
        for (index, (sent, &node)) in (0_u64..).zip(self.seen.iter().zip(&self.shared.spec.senders))
        {
            let next = sent.rounds * senders + index;
            last = last.max(sent.rounds * senders);
            if !left.contains(node) {
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

    /// The send predicate: posts what is committed.
    fn send(&mut self) -> bool {
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
    fn tell_sent(&mut self) {
        if let Some(own) = &self.own {
            self.seen[own.index] = own.sent;
            self.table.own().sent.store(own.sent.to_word());
            self.dirty.sent = true;
        }
        self.count_received(self.shared.status.left());
        self.push_unless_coalescing();
    }

    /// The null rule (§III.B): for each message that was received, send a null
    /// if that null precedes it in delivery order. What was ready to be sent
    /// has filled its rounds before.
    fn fill_with_nulls(&mut self, left: NodeSet) -> bool {
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
        if nulls == 0 || left.contains(self.shared.spec.senders[own.index]) {
            return false;
        }
        own.sent.rounds = target;
        self.shared.counts.nulls.add(nulls);
        self.tell_sent();
        true
    }

    /// The delivery predicate: what every member has received is stable.
    fn deliver(&mut self, left: NodeSet) -> bool {
        let stable = self.stable(left);
        let batching = self.shared.spec.options.delivery_batching;
        let fired = match &mut self.delivery {
            Delivery::Elsewhere => {
                let grown = self.shared.stable.load(Ordering::Relaxed) != stable;
                if grown {
                    self.shared.stable.store(stable, Ordering::Release);
                    self.shared.arrival.open();
                }
                grown
            }
            Delivery::Upcall(deliverer, upcall) => {
                if self.acks.is_none() && !deliverer.has_below(stable) {
                    return false;
                }
                let most = if batching { u64::MAX } else { 1 };
                match deliverer.run(stable, most, upcall.as_mut()) {
                    Ok(fired) => fired,
                    Err(CorruptSender(node)) => {
                        self.shared.status.add_failed(node);
                        true
                    }
                }
            }
        };
        if fired {
            self.push_unless_coalescing();
        }
        fired
    }

    /// Messages and nulls that all members have received. In an unordered
    /// subgroup: a number that grows when something arrives.
    fn stable(&self, left: NodeSet) -> u64 {
        if self.acks.is_some() {
            return self.seen.iter().map(|sent| sent.messages).sum();
        }
        let staying = self.peers.minus(left);
        staying
            .iter()
            .map(|node| self.table.row(node).received.get())
            .fold(self.received, u64::min)
    }

    fn push_unless_coalescing(&mut self) {
        if !self.shared.spec.options.early_lock_release {
            self.push();
        }
    }

    /// Pushes what peers do not know of the own row: the columns between the
    /// first and the last that changed.
    fn push(&mut self) -> bool {
        let delivered = self.table.own().delivered.get();
        let mut columns: Option<Columns<SubgroupRow>> = None;
        for (changed, column) in [
            (self.dirty.sent, SubgroupRow::sent()),
            (self.dirty.received, SubgroupRow::received()),
            (delivered != self.told_delivered, SubgroupRow::delivered()),
        ] {
            if changed {
                columns = Some(columns.map_or(column, |first| first.through(column)));
            }
        }
        self.dirty = Dirty::default();
        self.told_delivered = delivered;
        if let Some(columns) = columns {
            let write = self.table.write(columns);
            for peer in self.peers.iter() {
                self.post(peer, write);
            }
        }
        self.push_acks() || columns.is_some()
    }

    /// Tells each sender of an unordered subgroup, and only it, how much of it
    /// was delivered here.
    fn push_acks(&mut self) -> bool {
        let Some(acks) = &self.acks else {
            return false;
        };
        let own = &acks.own().acks;
        let mut changed = Vec::new();
        for (index, told) in self.told_acks.iter_mut().enumerate() {
            let ack = own[index].get();
            if ack != *told {
                *told = ack;
                let write = acks.write(AckRow::acks().word(index));
                changed.push((self.shared.spec.senders[index], write));
            }
        }
        for &(node, write) in &changed {
            if self.peers.contains(node) {
                self.post(node, write);
            }
        }
        !changed.is_empty()
    }

    fn post(&mut self, peer: usize, write: Write) {
        // Who is down is noticed by `Watcher`, not here.
        if self.shared.endpoint.post(peer, &[write]).is_ok() {
            self.shared.counts.posts.add(1);
        }
        self.rung = self.rung.with(peer);
    }

    /// Frees the slots of messages that everybody has delivered.
    fn free(&mut self, left: NodeSet) -> bool {
        let Some(own) = &mut self.own else {
            return false;
        };
        if own.under_way.is_empty() {
            return false;
        }
        let staying = self.shared.members().minus(left);
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
        // Whoever waits is woken for a few messages, not for each.
        let window = shared.spec.shape.window();
        if own.under_way.is_empty() || shared.slots.room() * 4 >= window {
            shared.room.open();
        }
        true
    }
}

impl Drop for Member {
    /// The polling thread has stopped, perhaps because a delivery panicked:
    /// nobody may wait for it.
    fn drop(&mut self) {
        self.shared.close();
    }
}
