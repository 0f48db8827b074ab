// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a node knows of the seats: who holds them, and who has called for one.
//!
//! Each seat has room for its holder's memory, at one address for ever, where that of a later
//! holder takes the place of the earlier one's: so posting takes no lock. `calls` is the only
//! lock; who changes a holder has it.

use super::super::memory::Memory;
use crate::fabric::{FabricError, NodeSet};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who has a seat, or has called for it. The memory was checked ([`Inner::check`]).
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) incarnation: u64,
    pub(super) memory: OwnedFd,
}

/// A newcomer that has called for a seat.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) peer: Peer,
    /// The line to it, which the attendant listens to.
    pub(super) line: UnixStream,
}

/// A seat.
#[derive(Debug)]
struct Seat {
    /// Its holder's, if it has one.
    memory: Memory,
    /// The holder's.
    incarnation: AtomicU64,
}

/// What the endpoint shares with its attendant.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) name: String,
    pub(super) rank: usize,
    /// 0 of a founder.
    pub(super) incarnation: u64,
    pub(super) memory: Memory,
    /// The memory, for newcomers.
    pub(super) fd: OwnedFd,
    pub(super) hello: Vec<u8>,
    /// A number that is the same for equal hellos.
    pub(super) settings: u64,
    /// All seats; the own one has no holder.
    seats: Vec<Seat>,
    /// Seats that have, or had, a holder.
    held: AtomicU64,
    down: AtomicU64,
    /// Newcomers that have called.
    calls: Mutex<Vec<Option<Call>>>,
    /// Those of them that can be admitted.
    callers: AtomicU64,
    /// Newcomers may call.
    settled: AtomicBool,
    pub(super) posted: AtomicU64,
}

impl Inner {
    pub(super) fn new(
        name: &str,
        rank: usize,
        seats: usize,
        region_bytes: usize,
        hello: &[u8],
    ) -> Result<Self, FabricError> {
        let (memory, fd) = Memory::create(region_bytes)?;
        let seat = |_| {
            Ok(Seat {
                memory: Memory::vacant(region_bytes)?,
                incarnation: AtomicU64::new(0),
            })
        };
        Ok(Self {
            name: name.to_owned(),
            rank,
            incarnation: 0,
            memory,
            fd,
            settings: number_of(hello),
            hello: hello.to_vec(),
            seats: (0..seats).map(seat).collect::<Result<_, FabricError>>()?,
            held: AtomicU64::new(0),
            down: AtomicU64::new(0),
            calls: Mutex::new((0..seats).map(|_| None).collect()),
            callers: AtomicU64::new(0),
            settled: AtomicBool::new(false),
            posted: AtomicU64::new(0),
        })
    }

    pub(super) fn seats(&self) -> usize {
        self.seats.len()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    pub(super) fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }

    pub(super) fn down(&self) -> NodeSet {
        NodeSet::from_bits(self.down.load(Ordering::Acquire))
    }

    pub(super) fn held(&self) -> NodeSet {
        NodeSet::from_bits(self.held.load(Ordering::Acquire))
    }

    /// The memory of a seat's holder, if it has or had one.
    pub(super) fn memory_of(&self, seat: usize) -> Option<&Memory> {
        let seat = self.seats.get(seat).filter(|_| self.held().contains(seat));
        seat.map(|seat| &seat.memory)
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Option<Call>>> {
        // Each change is one store: a panic leaves nothing half-done.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether the memory of a node is what it says, and fits where another one's was.
    pub(super) fn check(
        &self,
        node: usize,
        memory: &OwnedFd,
        region_bytes: usize,
    ) -> Result<(), FabricError> {
        if region_bytes != self.memory.region().len() {
            let what = "its region has another length, which a fabric with seats cannot have";
            return Err(FabricError::Protocol { peer: node, what });
        }
        Memory::check(node, memory, region_bytes)
    }

    /// Gives a seat to somebody.
    pub(super) fn seat(&self, seat: usize, peer: &Peer) -> Result<(), FabricError> {
        let _calls = self.calls();
        self.take_seat(seat, peer)
    }

    /// As [`Self::seat`], with the lock.
    fn take_seat(&self, seat: usize, peer: &Peer) -> Result<(), FabricError> {
        let bit = NodeSet::EMPTY.with(seat).bits();
        let place = &self.seats[seat];
        place.memory.replace(&peer.memory)?;
        place.incarnation.store(peer.incarnation, Ordering::Relaxed);
        // Release: whoever sees the holder sees its memory.
        self.held.fetch_or(bit, Ordering::Release);
        self.down.fetch_and(!bit, Ordering::Release);
        Ok(())
    }

    /// Whether this incarnation has a seat, with the lock.
    fn is_holder(&self, seat: usize, incarnation: u64) -> bool {
        let holder = self.seats[seat].incarnation.load(Ordering::Relaxed);
        self.held().contains(seat) && holder == incarnation
    }

    /// Seats that have no holder, as far as this node knows, and for which nobody has called.
    pub(super) fn vacant(&self) -> NodeSet {
        let calls = self.calls();
        let taken = self.held().minus(self.down()).with(self.rank);
        let is_vacant = |&seat: &usize| calls[seat].is_none() && !taken.contains(seat);
        (0..self.seats()).filter(is_vacant).collect()
    }

    /// A newcomer has called for a seat. False if another one has, that came later.
    pub(super) fn note_call(&self, seat: usize, call: Call) -> bool {
        let mut calls = self.calls();
        let incarnation = call.peer.incarnation;
        let is_later = |known: &Call| known.peer.incarnation < incarnation;
        if !calls[seat].as_ref().is_none_or(is_later) {
            return false;
        }
        calls[seat] = Some(call);
        self.recount(&calls);
        true
    }

    /// The line to somebody has ended.
    pub(super) fn note_end(&self, seat: usize, incarnation: u64) {
        let mut calls = self.calls();
        let caller = calls[seat].as_ref();
        if caller.is_some_and(|caller| caller.peer.incarnation == incarnation) {
            calls[seat] = None;
        }
        if self.is_holder(seat, incarnation) {
            let seat = NodeSet::EMPTY.with(seat).bits();
            self.down.fetch_or(seat, Ordering::Release);
        }
        self.recount(&calls);
    }

    fn recount(&self, calls: &[Option<Call>]) {
        let taken = self.held().minus(self.down());
        let can_come = |&seat: &usize| calls[seat].is_some() && !taken.contains(seat);
        let callers: NodeSet = (0..calls.len()).filter(can_come).collect();
        self.callers.store(callers.bits(), Ordering::Release);
    }

    /// Newcomers that can be admitted.
    pub(super) fn callers(&self) -> NodeSet {
        NodeSet::from_bits(self.callers.load(Ordering::Acquire))
    }

    /// Gives a seat to the newcomer that has called for it, and answers with its incarnation. One
    /// whose memory cannot be mapped is hung up on: it may call again.
    pub(super) fn admit(&self, seat: usize) -> Result<u64, FabricError> {
        let mut calls = self.calls();
        let is_free = self.callers().contains(seat);
        let caller = calls.get_mut(seat).filter(|_| is_free);
        let caller = caller.and_then(Option::take);
        let Call { peer, line } = caller.ok_or(FabricError::NoCaller(seat))?;
        let seated = self.take_seat(seat, &peer);
        self.recount(&calls);
        if let Err(error) = &seated {
            tracing::warn!(seat, %error, "a newcomer cannot be admitted");
            // It may have gone already.
            let _ = line.shutdown(Shutdown::Both);
        }
        seated.map(|()| peer.incarnation)
    }
}

/// Tells hellos apart without their bytes (FNV-1a).
pub(super) fn number_of(hello: &[u8]) -> u64 {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    hello.iter().fold(0xcbf2_9ce4_8422_2325, add)
}
