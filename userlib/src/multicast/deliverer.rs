// SPDX-License-Identifier: MIT OR Apache-2.0

//! Delivering: the order of messages, and their bytes in place.
//!
//! A deliverer has the receiving ends of all senders' rings and goes through
//! them in delivery order: round by round, in each the senders' turns (spindle
//! §III.B), where a null is gone past. It belongs to the polling thread, which
//! calls the application, or to an application's thread that asks for messages.
//! Either way it writes the delivery columns of the own row, and the polling
//! thread pushes them.

use super::config::Order;
use super::layout::Places;
use super::opening::{Opening, SenderAt};
use super::rows::{AckRow, SubgroupRow};
use super::shared::Shared;
use super::views::rows::RingRow;
use crate::fabric::{FabricError, Region};
use crate::smc::{Corrupt, Inbox, Limit, Ring, Sent};
use crate::sst::Table;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A message, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The node that sent it.
    pub sender: usize,
    /// Its place in the subgroup's order. In an unordered subgroup: its place among
    /// its sender's messages. There are gaps: nulls count in an order, and slots that
    /// were given up count in both.
    pub sequence: u64,
    /// Its bytes, aligned to 8. They are the sender's again after the
    /// delivery: copy what is to stay.
    pub bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// The bytes as a value, in place; none if the length is another or the
    /// type wants more than 8-byte alignment.
    #[must_use]
    pub fn value<T: FromBytes + KnownLayout + Immutable>(&self) -> Option<&'a T> {
        T::ref_from_bytes(self.bytes).ok()
    }
}

/// Messages that are delivered together, in order. Those that are not taken
/// out count as delivered all the same.
#[derive(Debug)]
pub struct Batch<'a> {
    deliverer: &'a mut Deliverer,
    /// Up to here, exclusively; unused if unordered.
    end: u64,
    /// How much more may be taken out; once nothing may, the batch is over.
    left: Limit,
    taken: u64,
    bytes: u64,
    corrupt: Option<usize>,
}

impl<'a> Iterator for Batch<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        if self.left.messages == 0 || self.left.bytes == 0 {
            return None;
        }
        let found = match self.deliverer.shared.spec.order {
            // SAFETY: the columns that say so are written after the batch has
            // ended, and with it 'a (`Deliverer::run`).
            Order::Total => unsafe { self.deliverer.next(self.end) },
            // SAFETY: as above.
            Order::PerSender => unsafe { self.deliverer.next_any() },
        };
        match found {
            Ok(message) => {
                let message = message?;
                self.left.messages -= 1;
                self.left.bytes = self.left.bytes.saturating_sub(message.bytes.len());
                self.taken += 1;
                self.bytes += message.bytes.len() as u64;
                Some(message)
            }
            Err(sender) => {
                self.corrupt = Some(sender);
                self.left.messages = 0;
                None
            }
        }
    }
}

/// A sender's ring holds what no sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CorruptSender(pub(super) usize);

/// The receiving end of a sender's ring.
#[derive(Debug)]
struct End {
    sender: usize,
    inbox: Inbox,
}

/// Where a sender's messages are to be found, if this node is a member.
fn inbox(
    shared: &Shared,
    places: &Places,
    opening: &Opening,
    sender: &SenderAt,
) -> Result<Option<Inbox>, FabricError> {
    let endpoint = &shared.endpoint;
    let ring = |region: Region, node: usize| {
        let base = places.ring(node, sender.ring);
        let ring = base.map(|base| Ring::new(region, base, shared.spec.shape));
        ring.transpose()
    };
    let source = match endpoint.sight_of(sender.node) {
        Some(region) => ring(region, sender.node)?,
        None => None,
    };
    let arrival = ring(endpoint.region().clone(), endpoint.rank())?;
    let inbox = match (opening.rings, source, arrival) {
        (None, Some(source), _) => Inbox::starting_at(source, sender.start),
        (_, source, Some(arrival)) => Inbox::starting_at(arrival, sender.start).with_source(source),
        (_, _, None) => return Ok(None),
    };
    Ok(Some(inbox.in_era(opening.era).going_over(sender.over)))
}

/// Looks whether a sender has said that its own ring is to be looked into.
fn look(rings: &Option<Table<RingRow>>, sender: usize, inbox: &mut Inbox) {
    let Some(rings) = rings.as_ref().filter(|_| inbox.may_look()) else {
        return;
    };
    if let Some(first) = rings.row(sender).shown.get().checked_sub(1) {
        inbox.look_from(first);
    }
}

/// The receiving ends of a subgroup's rings.
///
/// # Invariants
///
/// The turn is sender `turn` in round `round`, and the next sequence number is
/// `next = round * senders + turn`.
#[derive(Debug)]
pub(super) struct Deliverer {
    shared: Arc<Shared>,
    table: Table<SubgroupRow>,
    /// In a view.
    rings: Option<Table<RingRow>>,
    acks: Option<Table<AckRow>>,
    ends: Vec<End>,
    /// What was delivered before the sequence began here.
    first: u64,
    round: u64,
    turn: usize,
    next: u64,
}

impl Deliverer {
    pub(super) fn new(
        shared: Arc<Shared>,
        places: &Places,
        opening: &Opening,
    ) -> Result<Self, FabricError> {
        let endpoint = &shared.endpoint;
        let table = Table::new(Arc::clone(endpoint), opening.table)?;
        let acks = match shared.spec.order {
            Order::Total => None,
            Order::PerSender => Some(Table::new(Arc::clone(endpoint), places.acks)?),
        };
        let rings = opening.rings.map(|at| Table::new(Arc::clone(endpoint), at));
        let rings = rings.transpose()?;
        let mut ends = Vec::with_capacity(opening.senders.len());
        for sender in &*opening.senders {
            let Some(inbox) = inbox(&shared, places, opening, sender)? else {
                break;
            };
            ends.push(End {
                sender: sender.node,
                inbox,
            });
        }
        Ok(Self {
            table,
            rings,
            acks,
            ends,
            first: opening.sequence,
            round: 0,
            turn: 0,
            next: 0,
            shared,
        })
    }

    /// Whether there may be something to deliver below this.
    pub(super) fn has_below(&self, stable: u64) -> bool {
        self.next < stable
    }

    /// Delivers in total order what is below `stable`, or in each sender's
    /// order what has arrived; at most so much. Answers with whether it got anywhere.
    ///
    /// # Errors
    ///
    /// The sender whose ring is corrupt, after what came before it.
    pub(super) fn run(
        &mut self,
        stable: u64,
        most: Limit,
        deliver: &mut dyn FnMut(&mut Batch<'_>),
    ) -> Result<bool, CorruptSender> {
        self.learn()?;
        self.run_learned(stable, most, deliver)
    }

    /// As [`Self::run`], without a look at the senders' rows: what each has sent is known.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub(super) fn run_known(
        &mut self,
        sent: &[Sent],
        stable: u64,
        deliver: &mut dyn FnMut(&mut Batch<'_>),
    ) -> Result<bool, CorruptSender> {
        for (End { sender, inbox }, sent) in self.ends.iter_mut().zip(sent) {
            look(&self.rings, *sender, inbox);
            let seen = inbox.seen();
            // It may have seen more of it since.
            if seen.messages < sent.messages {
                // Without receive batching, rounds are counted later than their messages.
                let rounds = sent.rounds.max(sent.messages).max(seen.rounds);
                let learned = inbox.learn(Sent { rounds, ..*sent }.to_word());
                learned.map_err(|Corrupt| CorruptSender(*sender))?;
            }
        }
        self.run_learned(stable, Limit::NONE, deliver)
    }

    fn run_learned(
        &mut self,
        stable: u64,
        most: Limit,
        deliver: &mut dyn FnMut(&mut Batch<'_>),
    ) -> Result<bool, CorruptSender> {
        let before = self.progress();
        let has_message = match self.shared.spec.order {
            Order::Total => self.starts_with_message(stable)?,
            Order::PerSender => self.has_any()?,
        };
        if !has_message {
            // Nobody is called for nulls and given-up slots.
            let fired = self.progress() != before;
            if fired {
                self.tell();
            }
            return Ok(fired);
        }
        let mut batch = Batch {
            deliverer: self,
            end: stable,
            left: most,
            taken: 0,
            bytes: 0,
            corrupt: None,
        };
        deliver(&mut batch);
        // What the application did not look at.
        while batch.next().is_some() {}
        let (taken, bytes, corrupt) = (batch.taken, batch.bytes, batch.corrupt);
        self.tell();
        let counts = &self.shared.counts;
        counts.delivered.add(taken);
        counts.delivered_bytes.add(bytes);
        counts.delivery_batches.add(taken);
        match corrupt {
            Some(sender) => Err(CorruptSender(sender)),
            None => Ok(self.progress() != before),
        }
    }

    /// Looks how much each sender has sent. All that was called stable before
    /// is among it.
    fn learn(&mut self) -> Result<(), CorruptSender> {
        for End { sender, inbox } in &mut self.ends {
            // In this order: where it is to be looked for is said before.
            let word = self.table.row(*sender).sent.get();
            look(&self.rings, *sender, inbox);
            inbox
                .learn(word)
                .map_err(|Corrupt| CorruptSender(*sender))?;
        }
        Ok(())
    }

    /// Goes past nulls and given-up slots, and says whether there is a message behind them.
    fn starts_with_message(&mut self, limit: u64) -> Result<bool, CorruptSender> {
        while self.next < limit {
            let End { sender, inbox } = &mut self.ends[self.turn];
            let here = inbox.has(self.round);
            if here.map_err(|Corrupt| CorruptSender(*sender))? {
                return Ok(true);
            }
            self.advance();
        }
        Ok(false)
    }

    /// The next message below the limit, or the sender whose ring is corrupt.
    ///
    /// # Safety
    ///
    /// The message is not used after [`Self::tell`].
    unsafe fn next<'r>(&mut self, limit: u64) -> Result<Option<Message<'r>>, usize> {
        while self.next < limit {
            let End { sender, inbox } = &mut self.ends[self.turn];
            let sender = *sender;
            // SAFETY: the caller's promise.
            let taken = unsafe { inbox.take(self.round) };
            // A record that cannot be read is not gone past.
            let taken = taken.map_err(|Corrupt| sender)?;
            let sequence = self.first + self.next;
            self.advance();
            if let Some(bytes) = taken {
                return Ok(Some(Message {
                    sender,
                    sequence,
                    bytes,
                }));
            }
        }
        Ok(None)
    }

    /// The next message of any sender that has one.
    ///
    /// # Safety
    ///
    /// As for [`Self::next`].
    unsafe fn next_any<'r>(&mut self) -> Result<Option<Message<'r>>, usize> {
        for _ in 0..self.ends.len() {
            let End { sender, inbox } = &mut self.ends[self.turn];
            let sender = *sender;
            // SAFETY: the caller's promise.
            let taken = unsafe { inbox.take_any() };
            if let Some(bytes) = taken.map_err(|Corrupt| sender)? {
                return Ok(Some(Message {
                    sender,
                    sequence: inbox.taken() - 1,
                    bytes,
                }));
            }
            self.turn = (self.turn + 1) % self.ends.len();
        }
        Ok(None)
    }

    /// As [`Self::starts_with_message`], for the next message of any sender. The senders are
    /// asked in the order in which [`Self::next_any`] goes through them.
    fn has_any(&mut self) -> Result<bool, CorruptSender> {
        let (later, first) = self.ends.split_at_mut(self.turn);
        for End { sender, inbox } in first.iter_mut().chain(later) {
            let has_message = inbox.has_any();
            if has_message.map_err(|Corrupt| CorruptSender(*sender))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn advance(&mut self) {
        // INVARIANT: one further in all three.
        self.next += 1;
        self.turn += 1;
        if self.turn == self.ends.len() {
            self.turn = 0;
            self.round += 1;
        }
    }

    /// The receiving end of a sender's ring, by the sender's index.
    pub(super) fn inbox(&self, sender: usize) -> Option<&Inbox> {
        Some(&self.ends.get(sender)?.inbox)
    }

    /// Messages, and nulls in total order, that were delivered.
    pub(super) fn progress(&self) -> u64 {
        match self.acks {
            None => self.next,
            Some(_) => self.ends.iter().map(|end| end.inbox.taken()).sum(),
        }
    }

    /// Writes into the own row what was delivered.
    fn tell(&self) {
        match &self.acks {
            None => self.table.own().delivered.advance(self.next),
            Some(acks) => {
                for (ack, end) in acks.own().acks.iter().zip(&self.ends) {
                    ack.advance(end.inbox.taken());
                }
            }
        }
    }
}
