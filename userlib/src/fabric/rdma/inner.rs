// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the threads of a node share: who holds which seat, and who has called for one.
//!
//! A seat's holder changes only between two that hold it one after the other: `calls` is the
//! lock of whoever changes one, behind which comes the seat's own. Where all nodes meet at the
//! beginning nobody ever calls.

use super::control::{self, Memory};
use super::doors::Door;
use super::health::Health;
use super::line::{HungUp, Line, Note};
use super::Transport;
use crate::fabric::{FabricError, NodeSet, Write};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Another node, as long as it is there.
#[derive(Debug)]
pub(super) struct Peer {
    /// 0 of a founder.
    pub(super) incarnation: u64,
    pub(super) region_bytes: usize,
    pub(super) line: Line,
    pub(super) door: Door,
    /// How often it was rung by message. Locked while that is done.
    rings: Mutex<u64>,
}

impl Peer {
    pub(super) fn new(incarnation: u64, region_bytes: usize, line: Line) -> Self {
        Self {
            incarnation,
            region_bytes,
            line,
            door: Door::default(),
            rings: Mutex::new(0),
        }
    }

    /// As [`Self::new`], of one that waits for this node to say that it is ready.
    pub(super) fn unready(incarnation: u64, region_bytes: usize, line: Line) -> Self {
        Self {
            door: Door::shut(),
            ..Self::new(incarnation, region_bytes, line)
        }
    }
}

/// A newcomer that has called for a seat.
#[derive(Debug)]
pub(super) struct Call<L> {
    pub(super) peer: Arc<Peer>,
    pub(super) link: L,
}

/// What the threads share.
#[derive(Debug)]
pub(super) struct Inner<T: Transport> {
    pub(super) rank: usize,
    pub(super) memory: Memory,
    /// Who holds each seat, or held it last; none at the own one.
    seats: Vec<RwLock<Option<Arc<Peer>>>>,
    pub(super) transport: T,
    pub(super) posted: AtomicU64,
    /// The peers that are cut off.
    severed: AtomicU64,
    /// Newcomers that have called.
    calls: Mutex<Vec<Option<Call<T::Link>>>>,
    /// Those of them that can be admitted.
    callers: AtomicU64,
    /// Links of newcomers that have gone again. To drop one may take a while.
    remains: Mutex<Vec<T::Link>>,
    /// Newcomers may call.
    settled: AtomicBool,
    /// Wakes the thread that listens to the lines: there are others.
    pub(super) relisten: EventFd,
    /// Wakes the thread that receives newcomers: somebody has gone, or this node has settled.
    pub(super) reception: EventFd,
}

impl<T: Transport> Inner<T> {
    pub(super) fn new(
        rank: usize,
        seats: usize,
        memory: Memory,
        transport: T,
    ) -> Result<Self, FabricError> {
        let event = || {
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(|errno| FabricError::system("eventfd", errno))
        };
        Ok(Self {
            rank,
            memory,
            seats: (0..seats).map(|_| RwLock::new(None)).collect(),
            transport,
            posted: AtomicU64::new(0),
            severed: AtomicU64::new(0),
            calls: Mutex::new((0..seats).map(|_| None).collect()),
            callers: AtomicU64::new(0),
            remains: Mutex::default(),
            settled: AtomicBool::new(false),
            relisten: event()?,
            reception: event()?,
        })
    }

    pub(super) fn seats(&self) -> usize {
        self.seats.len()
    }

    pub(super) fn health(&self) -> &Health {
        self.transport.health()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    pub(super) fn settle(&self) {
        self.settled.store(true, Ordering::Release);
        wake(&self.reception);
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Option<Call<T::Link>>>> {
        // Each change is one store: a panic leaves nothing half-done.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who holds a seat, or held it last.
    pub(super) fn holder(&self, seat: usize) -> Option<Arc<Peer>> {
        let place = self.seats.get(seat)?;
        place.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Seats that have, or had, a holder.
    pub(super) fn held(&self) -> NodeSet {
        let is_held = |&seat: &usize| self.holder(seat).is_some();
        (0..self.seats()).filter(is_held).collect()
    }

    /// All who are listened to, with their seats.
    pub(super) fn all_lines(&self) -> Vec<(usize, Arc<Peer>)> {
        let calls = self.calls();
        let peer_of = |call: &Call<T::Link>| Arc::clone(&call.peer);
        let called = calls.iter().map(|call| call.as_ref().map(peer_of));
        let holders = (0..self.seats()).map(|seat| self.holder(seat));
        let both = holders.enumerate().chain(called.enumerate());
        both.filter_map(|(seat, peer)| Some((seat, peer?)))
            .collect()
    }

    /// Gives a seat to a node that is connected.
    pub(super) fn seat(&self, seat: usize, peer: Arc<Peer>, link: T::Link) {
        let _calls = self.calls();
        self.take_seat(seat, peer, link);
    }

    /// As [`Self::seat`], with the lock.
    fn take_seat(&self, seat: usize, peer: Arc<Peer>, link: T::Link) {
        let place = self.seats[seat].write();
        let mut place = place.unwrap_or_else(PoisonError::into_inner);
        self.transport.seat(seat, link);
        *place = Some(peer);
        drop(place);
        // In this order: one that is down and not cut off would be cut off.
        self.health().mark_up(seat);
        let bit = NodeSet::EMPTY.with(seat).bits();
        self.severed.fetch_and(!bit, Ordering::AcqRel);
        wake(&self.relisten);
    }

    /// Seats that a newcomer could have, as far as this node knows: nobody holds them, who held
    /// them is cut off, and nobody else has called.
    pub(super) fn vacant(&self) -> NodeSet {
        let calls = self.calls();
        let taken = self.held().minus(self.known_severed()).with(self.rank);
        let is_vacant = |&seat: &usize| calls[seat].is_none() && !taken.contains(seat);
        (0..self.seats()).filter(is_vacant).collect()
    }

    /// A newcomer has called for a seat that is vacant, and is connected.
    pub(super) fn note_call(&self, seat: usize, call: Call<T::Link>) {
        let mut calls = self.calls();
        calls[seat] = Some(call);
        self.recount(&calls);
        drop(calls);
        wake(&self.relisten);
        self.health().bell.ring();
    }

    /// The line to somebody has ended.
    pub(super) fn note_end(&self, seat: usize, peer: &Arc<Peer>) {
        let mut calls = self.calls();
        let is_it = |call: &mut Call<T::Link>| Arc::ptr_eq(&call.peer, peer);
        if let Some(call) = calls[seat].take_if(is_it) {
            self.remains().push(call.link);
            self.recount(&calls);
        }
        if self.holder(seat).is_some_and(|now| Arc::ptr_eq(&now, peer)) {
            self.health().mark_down(seat, "its line has ended");
        }
        drop(calls);
        wake(&self.reception);
    }

    /// Takes a peer for down. The reception, if there is one, cuts it off.
    pub(super) fn evict(&self, peer: usize) {
        if self.peer(peer).is_ok() && !self.health().is_down(peer) {
            self.health().mark_down(peer, "it was put out");
            wake(&self.reception);
        }
    }

    fn remains(&self) -> MutexGuard<'_, Vec<T::Link>> {
        self.remains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts off newcomers that have gone again.
    pub(super) fn bury(&self) {
        let remains = std::mem::take(&mut *self.remains());
        drop(remains);
    }

    fn recount(&self, calls: &[Option<Call<T::Link>>]) {
        let callers: NodeSet = (0..calls.len())
            .filter(|&seat| calls[seat].is_some())
            .collect();
        self.callers.store(callers.bits(), Ordering::Release);
    }

    /// Newcomers that can be admitted.
    pub(super) fn callers(&self) -> NodeSet {
        NodeSet::from_bits(self.callers.load(Ordering::Acquire))
    }

    /// Gives a seat to the newcomer that has called for it, and answers with its incarnation.
    pub(super) fn admit(&self, seat: usize) -> Result<u64, FabricError> {
        let mut calls = self.calls();
        let call = calls.get_mut(seat).and_then(Option::take);
        let call = call.ok_or(FabricError::NoCaller(seat))?;
        let incarnation = call.peer.incarnation;
        self.take_seat(seat, call.peer, call.link);
        self.recount(&calls);
        Ok(incarnation)
    }

    fn known_severed(&self) -> NodeSet {
        NodeSet::from_bits(self.severed.load(Ordering::Acquire))
    }

    /// Cuts off the peers that are down, where the transport can, and answers which are. Whichever
    /// thread does it, it ends the sleep of the one that waits for it.
    pub(super) fn severed(&self) -> NodeSet {
        let due = self.health().down().minus(self.known_severed());
        let cut = due.iter().filter(|&peer| self.sever(peer)).count();
        if cut > 0 {
            self.health().bell.ring();
        }
        self.known_severed()
    }

    /// Cuts off the holder of a seat, unless that was done, and answers whether it did it now.
    /// Nobody else gets the seat meanwhile.
    fn sever(&self, rank: usize) -> bool {
        let place = self.seats[rank].read();
        let place = place.unwrap_or_else(PoisonError::into_inner);
        // In this order: [`Self::take_seat`] marks the next holder up first.
        let is_due = !self.known_severed().contains(rank) && self.health().is_down(rank);
        if !is_due || !self.transport.sever(rank) {
            return false;
        }
        // Of who has the seat next nothing has arrived.
        if let Ok(word) = self.memory.all.word(control::rung_by(rank)) {
            word.store(0, Ordering::Release);
        }
        // If it runs, it learns it by that: what it posts may never be answered.
        if let Some(peer) = &*place {
            peer.line.hang_up();
        }
        let bit = NodeSet::EMPTY.with(rank).bits();
        self.severed.fetch_or(bit, Ordering::AcqRel);
        true
    }

    /// Does something to the holder of a seat, if it is this peer, which stays it meanwhile: the
    /// thread that listens may be late with what a former holder has said.
    fn to_holder(&self, rank: usize, peer: &Arc<Peer>, act: impl FnOnce()) {
        let place = self.seats[rank].read();
        let place = place.unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|now| Arc::ptr_eq(now, peer)) {
            act();
        }
    }

    /// A peer says that it sleeps.
    pub(super) fn fell_asleep(&self, rank: usize, peer: &Arc<Peer>) {
        if peer.door.fell_asleep() {
            self.ring_by_message(rank, peer);
        }
    }

    /// Whether a peer's ring has arrived, and so all that it posted before.
    pub(super) fn has_rung(&self, rank: usize, count: u64) -> bool {
        let word = self.memory.all.word(control::rung_by(rank));
        word.is_ok_and(|word| word.load(Ordering::Acquire) >= count)
    }

    /// Tells a peer that this node is ready. A sleep that was not announced to it ends, because
    /// it would not ring.
    pub(super) fn say_ready(&self, peer: &Peer) -> Result<(), HungUp> {
        peer.line.say_ready()?;
        self.rang(peer);
        Ok(())
    }

    /// A peer has rung.
    pub(super) fn rang(&self, peer: &Peer) {
        peer.door.rang();
        self.health().bell.ring();
    }

    /// Rings a peer that sleeps: a count goes behind the data, so that the
    /// listener there knows that the data has come; a note tells it to look.
    pub(super) fn ring_by_message(&self, rank: usize, peer: &Arc<Peer>) {
        self.to_holder(rank, peer, || self.ring_holder(rank, peer));
    }

    fn ring_holder(&self, rank: usize, peer: &Peer) {
        let mut rings = peer.rings.lock().unwrap_or_else(PoisonError::into_inner);
        *rings += 1;
        let Ok(word) = self.memory.all.word(control::rings_at(rank)) else {
            return;
        };
        word.store(*rings, Ordering::Release);
        let write = Write {
            local: control::rings_at(rank),
            remote: control::rung_by(self.rank),
            len: size_of::<u64>(),
        };
        if self.transport.post(rank, &[write]).is_ok() {
            self.tell(rank, peer, Note::Rings(*rings));
        }
    }

    /// Sends a note to the holder of a seat.
    fn tell(&self, rank: usize, peer: &Peer, note: Note) {
        if peer.line.tell(note).is_err() {
            self.health().mark_down(rank, "its line has ended");
        }
    }

    /// Tells the peers that would otherwise not ring.
    pub(super) fn announce_sleep(&self) {
        for rank in self.held().minus(self.health().down()).iter() {
            let peer = self.holder(rank);
            if let Some(peer) = peer.filter(|peer| peer.door.announce()) {
                self.to_holder(rank, &peer, || self.tell(rank, &peer, Note::Sleeps));
            }
        }
    }

    /// Somebody who holds, or held, a seat.
    pub(super) fn peer(&self, rank: usize) -> Result<Arc<Peer>, FabricError> {
        self.holder(rank).ok_or(FabricError::NoSuchPeer {
            peer: rank,
            nodes: self.seats(),
        })
    }

    /// One that is not down.
    pub(super) fn live_peer(&self, rank: usize) -> Result<Arc<Peer>, FabricError> {
        let peer = self.peer(rank)?;
        if self.health().is_down(rank) {
            return Err(FabricError::PeerDown(rank));
        }
        Ok(peer)
    }
}

/// Wakes who waits for an event.
fn wake(event: &EventFd) {
    // The counter is far from full; and if it were, the event would be there.
    let _ = event.write(1);
}

#[cfg(test)]
pub(super) mod tests;
