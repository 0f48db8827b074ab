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

mod ending;
mod pushing;
mod receiving;
mod sending;
mod viewed;

pub(super) use viewed::Resumption;

use super::config::Order;
use super::deliverer::{Batch, CorruptSender, Deliverer};
use super::layout::Places;
use super::opening::{Opening, SenderAt};
use super::rows::{AckRow, SubgroupRow};
use super::shared::Shared;
use crate::fabric::{FabricError, NodeSet};
use crate::predicates::Outcome;
use crate::smc::{Limit, Sent};
use crate::sst::Table;
use pushing::Dirty;
use sending::Own;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Bytes after which a batch is posted, or its delivery told: the others wait
/// meanwhile, receivers for more and senders for room.
const BATCH_BYTES: usize = 96 * 1024;

pub(super) type Upcall = Box<dyn FnMut(&mut Batch<'_>) + Send>;

/// How a member gets its messages.
pub(super) enum Delivery {
    /// The polling thread calls.
    Upcall(Box<Deliverer>, Upcall),
    /// A thread of the application asks.
    Elsewhere,
}

/// One subgroup's state at the polling thread.
pub(super) struct Member {
    shared: Arc<Shared>,
    table: Table<SubgroupRow>,
    acks: Option<Table<AckRow>>,
    members: NodeSet,
    peers: NodeSet,
    senders: Arc<[SenderAt]>,
    own: Option<Own>,
    /// What each sender was seen to have sent, by index.
    seen: Vec<Sent>,
    received: u64,
    /// What peers were told of deliveries.
    told_delivered: u64,
    told_acks: Vec<u64>,
    dirty: Dirty,
    delivery: Delivery,
    /// Whether it delivers what is stable.
    delivers: bool,
    /// Peers that were posted to in this step.
    rung: NodeSet,
}

impl Member {
    pub(super) fn new(
        shared: Arc<Shared>,
        places: &Places,
        opening: &Opening,
        delivery: Delivery,
    ) -> Result<Self, FabricError> {
        let endpoint = &shared.endpoint;
        let peers = opening.members.minus(NodeSet::EMPTY.with(endpoint.rank()));
        let acks = match shared.spec.order {
            Order::Total => None,
            Order::PerSender => Some(Table::new(Arc::clone(endpoint), places.acks)?),
        };
        let senders = opening.senders.len();
        Ok(Self {
            table: Table::new(Arc::clone(endpoint), opening.table)?,
            acks,
            own: Own::of(&shared, places, opening)?,
            members: opening.members,
            peers,
            senders: Arc::clone(&opening.senders),
            seen: vec![Sent::default(); senders],
            received: 0,
            told_delivered: 0,
            told_acks: vec![0; senders],
            dirty: Dirty::default(),
            delivery,
            delivers: true,
            rung: NodeSet::EMPTY,
            shared,
        })
    }

    /// Evaluates the three predicates once.
    pub(super) fn step(&mut self) -> Outcome {
        // Only for the lock: the count of holders is in a line that senders read.
        let locking = !self.shared.spec.options.early_lock_release;
        let lock_of = locking.then(|| Arc::clone(&self.shared));
        let _lock = lock_of.as_ref().and_then(|shared| shared.baseline_lock());
        let left = self.shared.status.left();
        let mut outcome = Outcome::Idle;
        let endpoint = Arc::clone(&self.shared.endpoint);
        endpoint.together(&mut || {
            outcome = match self.must_end() {
                true => self.end(left),
                false => self.go_on(left),
            };
        });
        for peer in std::mem::take(&mut self.rung).iter() {
            self.shared.endpoint.ring(peer);
        }
        outcome
    }

    /// The three predicates.
    fn go_on(&mut self, left: NodeSet) -> Outcome {
        let mut fired = self.receive(left);
        if !self.shared.is_sound() {
            // A sender's row says what cannot be: how much it has sent is unknown.
            return Outcome::Fired;
        }
        fired |= self.send();
        fired |= self.fill_with_nulls(left);
        fired |= self.deliver(left);
        fired |= self.push();
        fired |= self.free(self.shared.status.gone());
        fired.into()
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
                if !self.delivers || self.acks.is_none() && !deliverer.has_below(stable) {
                    return false;
                }
                let most = Limit {
                    messages: if batching { u64::MAX } else { 1 },
                    bytes: BATCH_BYTES,
                };
                match deliverer.run(stable, most, upcall.as_mut()) {
                    Ok(fired) => fired,
                    Err(CorruptSender(node)) => {
                        self.shared.status.suspect(node);
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
}

impl Drop for Member {
    /// The polling thread has stopped, perhaps because a delivery panicked:
    /// nobody may wait for it.
    fn drop(&mut self) {
        self.shared.close();
    }
}
