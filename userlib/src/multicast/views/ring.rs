// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where the others find a sender's messages: in its own ring, if they can look into it, or in
//! copies in their memory.
//!
//! To look there is the cheaper way. But who has been put out of the group may not know that
//! yet, and may be reading a message that all who go on have delivered. So before the sender
//! writes there again it goes over to its ring's other side, and leaves the first one alone for
//! as long as such a reader is there. Meanwhile it copies its messages to the others: so nobody
//! reads the second side, whatever happens to the group. When the readers have gone, and the
//! messages that it had left on the first side are delivered, it lets the others look again.

use super::part::Part;
use super::rows::{RingRow, SeatRow};
use super::Views;
use crate::fabric::NodeSet;
use crate::multicast::member::Resumption;
use crate::smc::Slots;
use crate::sst::Table;
use std::sync::atomic::Ordering;

/// A subgroup's ring at a member that may send.
#[derive(Debug, Hash)]
pub(super) struct OwnRing {
    /// It has another side, and others can look into it.
    can_be_seen: bool,
    /// They do, in this view.
    is_seen: bool,
    /// Members of the group that look into it, or, if none do in this view, that may be reading
    /// on the other side what was sent in an earlier view.
    audience: NodeSet,
    /// Nodes that are no members any more and may be reading on the side that is not in use,
    /// each with the view that it has installed when it does not any more, if it knows of it.
    readers: Vec<(usize, u64)>,
    /// The first slot on the side that is in use, as long as the ring of a view begins on the
    /// other one.
    over: Option<u64>,
}

impl OwnRing {
    pub(super) fn new(can_be_seen: bool) -> Self {
        Self {
            can_be_seen,
            is_seen: can_be_seen,
            audience: NodeSet::EMPTY,
            readers: Vec::new(),
            over: None,
        }
    }

    pub(super) fn is_seen(&self) -> bool {
        self.is_seen
    }

    /// View `number` begins, of these members. `reads` says of those who are no members any more
    /// whether they may be reading still.
    fn begin(
        &mut self,
        number: u64,
        members: NodeSet,
        reads: impl Fn(usize, u64) -> bool,
        slots: &Slots,
        resumption: &mut Resumption,
    ) {
        self.settle(slots, resumption);
        let gone = self.audience.minus(members);
        self.audience = self.audience.and(members);
        let readers = gone.iter().filter(|&node| reads(node, number));
        let before = self.readers.len();
        self.readers.extend(readers.map(|node| (node, number)));
        if self.readers.len() > before && self.is_seen {
            self.is_seen = false;
            self.over = Some(slots.go_over(resumption.slot));
            self.settle(slots, resumption);
        }
        self.forget(reads);
        if self.audience.is_empty() {
            self.show(resumption.slot);
        }
    }

    /// If nothing is under way on the other side any more, the ring goes on on this one.
    fn settle(&mut self, slots: &Slots, resumption: &mut Resumption) {
        let Some(over) = self.over.filter(|&over| over <= resumption.slot) else {
            return;
        };
        if over == resumption.slot {
            // Nothing was delivered on this one yet.
            resumption.start = slots.shape().other_side(resumption.start);
        }
        self.over = None;
    }

    /// All members have delivered what was sent before the view, of which these look into this
    /// ring if it is seen.
    fn open(&mut self, members: NodeSet) {
        self.audience = match self.is_seen {
            true => members,
            false => NodeSet::EMPTY,
        };
    }

    /// Forgets readers that are known to read no more.
    fn forget(&mut self, reads: impl Fn(usize, u64) -> bool) {
        self.readers.retain(|&(node, number)| reads(node, number));
    }

    /// Whether the others may look from now on: nobody reads on the other side, and no message
    /// is on it any more. The message of slot `slot` is the first that has not been delivered.
    fn show(&mut self, slot: u64) -> bool {
        if self.is_seen || !self.can_be_seen || !self.readers.is_empty() {
            return false;
        }
        self.is_seen = self.over.is_none_or(|over| over <= slot);
        self.is_seen
    }

    /// With which message it goes over to the other side, counted from the one of this slot.
    fn over_from(&self, slot: u64) -> Option<u64> {
        self.over?.checked_sub(slot)
    }
}

impl Views {
    /// View `number` begins, of these members: looks after those who are none any more, and may
    /// not know that yet.
    pub(super) fn turn_rings(&mut self, number: u64, members: NodeSet) {
        let reads = still_reads(&self.seats, self.endpoint.severed());
        for part in &mut self.parts {
            let slots = &part.member.shared().slots;
            let ring = &mut part.ring;
            ring.begin(number, members, &reads, slots, &mut part.resumption);
        }
    }

    /// Says where this member's rings go on in this view.
    pub(super) fn tell_rings(&mut self) {
        let parity = self.view.parity();
        for at in 0..self.parts.len() {
            let part = &self.parts[at];
            let (table, resumption) = (&part.rings[parity], part.resumption);
            let own = table.own();
            own.erase();
            if part.takes_part {
                let over = part.ring.over_from(resumption.slot);
                own.start.store(resumption.start as u64);
                own.over.store(over.map_or(0, |over| over + 1));
                own.shown.store(u64::from(part.ring.is_seen));
                let write = table.write(RingRow::start().through(RingRow::shown()));
                self.post(part.membership.members, write);
            }
        }
    }

    /// All members have installed the view.
    pub(super) fn open_rings(&mut self) {
        for part in &mut self.parts {
            let looks = match part.takes_part {
                true => part.membership.members,
                false => NodeSet::EMPTY,
            };
            part.ring.open(looks);
        }
    }

    /// Lets the others look into this member's rings again, when they may.
    pub(super) fn show_rings(&mut self) -> bool {
        let is_hidden = |part: &Part| part.ring.can_be_seen && !part.ring.is_seen;
        if !self.parts.iter().any(is_hidden) {
            return false;
        }
        let (severed, parity) = (self.endpoint.severed(), self.view.parity());
        let mut fired = false;
        for at in 0..self.parts.len() {
            let part = &mut self.parts[at];
            part.ring.forget(still_reads(&self.seats, severed));
            let slot = part.member.shared().flushed.load(Ordering::Relaxed);
            if !part.takes_part || !part.ring.show(slot) {
                continue;
            }
            fired = true;
            part.ring.open(part.membership.members);
            let first = part.member.show_ring();
            let table = &part.rings[parity];
            table.own().shown.store(first + 1);
            let (write, members) = (table.write(RingRow::shown()), part.membership.members);
            self.post(members, write);
        }
        fired
    }

    /// Forgets the reader that had a seat before: it is cut off.
    pub(super) fn forget_reader(&mut self, seat: usize) {
        for part in &mut self.parts {
            part.ring.forget(|node, _| node != seat);
        }
    }
}

/// Says of a node that is no member since that view whether it may be reading still.
fn still_reads(seats: &Table<SeatRow>, severed: NodeSet) -> impl Fn(usize, u64) -> bool + '_ {
    move |node, number| !severed.contains(node) && seats.row(node).installed.get() < number
}
