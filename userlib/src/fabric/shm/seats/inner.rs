// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a node knows of the seats: who holds them, and who has called for one.
//!
//! Lock order: `calls`, then one of `peers`. Who posts takes a peer's lock for reading, which
//! nobody holds for writing but for the moment in which a seat gets another holder.

use super::super::memory::Memory;
use crate::fabric::{FabricError, NodeSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Who has a seat, or has called for it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) incarnation: u64,
    pub(super) memory: Memory,
}

impl Peer {
    pub(super) fn founder(memory: Memory) -> Self {
        Self {
            incarnation: 0,
            memory,
        }
    }
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
    /// Holders of seats; none at the own one.
    peers: Vec<RwLock<Option<Peer>>>,
    /// Newcomers that have called.
    calls: Mutex<Vec<Option<Peer>>>,
    /// Those of them that can be admitted.
    callers: AtomicU64,
    down: AtomicU64,
    /// Newcomers may call.
    settled: AtomicBool,
    pub(super) posted: AtomicU64,
}

impl Inner {
    pub(super) fn new(
        name: &str,
        rank: usize,
        seats: usize,
        memory: Memory,
        fd: OwnedFd,
        hello: &[u8],
    ) -> Self {
        Self {
            name: name.to_owned(),
            rank,
            incarnation: 0,
            memory,
            fd,
            settings: number_of(hello),
            hello: hello.to_vec(),
            peers: (0..seats).map(|_| RwLock::default()).collect(),
            calls: Mutex::new((0..seats).map(|_| None).collect()),
            callers: AtomicU64::new(0),
            down: AtomicU64::new(0),
            settled: AtomicBool::new(false),
            posted: AtomicU64::new(0),
        }
    }

    pub(super) fn seats(&self) -> usize {
        self.peers.len()
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

    fn calls(&self) -> MutexGuard<'_, Vec<Option<Peer>>> {
        // Each change is one store: a panic leaves nothing half-done.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `look` see who has a seat, as far as this node knows. Poisoning means nothing: a
    /// holder is replaced by one store.
    pub(super) fn with_peer<R>(&self, seat: usize, look: impl FnOnce(Option<&Peer>) -> R) -> R {
        let peer = self.peers.get(seat);
        let peer = peer.map(|peer| peer.read().unwrap_or_else(PoisonError::into_inner));
        look(peer.as_ref().and_then(|peer| peer.as_ref()))
    }

    /// Gives a seat to somebody.
    pub(super) fn seat(&self, seat: usize, peer: Peer) {
        let mut place = self.peers[seat]
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let before = place.replace(peer);
        let others = !NodeSet::EMPTY.with(seat).bits();
        self.down.fetch_and(others, Ordering::Release);
        drop(place);
        // Unmapped without the lock.
        drop(before);
    }

    /// Seats that have no holder, as far as this node knows, and for which nobody has called.
    pub(super) fn vacant(&self) -> NodeSet {
        let calls = self.calls();
        let down = self.down();
        let is_vacant = |&seat: &usize| {
            let is_held = self.with_peer(seat, |peer| peer.is_some()) && !down.contains(seat);
            seat != self.rank && calls[seat].is_none() && !is_held
        };
        (0..self.seats()).filter(is_vacant).collect()
    }

    /// A newcomer has called for a seat. False if another one has, that came later.
    pub(super) fn note_call(&self, seat: usize, peer: Peer) -> bool {
        let mut calls = self.calls();
        let is_later = |known: &Peer| known.incarnation < peer.incarnation;
        if !calls[seat].as_ref().is_none_or(is_later) {
            return false;
        }
        calls[seat] = Some(peer);
        self.recount(&calls);
        true
    }

    /// The line to somebody has ended.
    pub(super) fn note_end(&self, seat: usize, incarnation: u64) {
        let mut calls = self.calls();
        let is_it = |peer: Option<&Peer>| peer.is_some_and(|peer| peer.incarnation == incarnation);
        if is_it(calls[seat].as_ref()) {
            calls[seat] = None;
        }
        if self.with_peer(seat, is_it) {
            let seat = NodeSet::EMPTY.with(seat).bits();
            self.down.fetch_or(seat, Ordering::Release);
        }
        self.recount(&calls);
    }

    fn recount(&self, calls: &[Option<Peer>]) {
        let down = self.down();
        let can_come = |&seat: &usize| {
            calls[seat].is_some()
                && (down.contains(seat) || self.with_peer(seat, |peer| peer.is_none()))
        };
        let callers: NodeSet = (0..calls.len()).filter(can_come).collect();
        self.callers.store(callers.bits(), Ordering::Release);
    }

    /// Newcomers that can be admitted.
    pub(super) fn callers(&self) -> NodeSet {
        NodeSet::from_bits(self.callers.load(Ordering::Acquire))
    }

    /// Gives a seat to the newcomer that has called for it, and answers with its incarnation.
    pub(super) fn admit(&self, seat: usize) -> Result<u64, FabricError> {
        let mut calls = self.calls();
        let is_free = self.callers().contains(seat);
        let caller = calls.get_mut(seat).filter(|_| is_free);
        let caller = caller.and_then(Option::take);
        let caller = caller.ok_or(FabricError::NoCaller(seat))?;
        let incarnation = caller.incarnation;
        self.seat(seat, caller);
        self.recount(&calls);
        Ok(incarnation)
    }
}

/// Tells hellos apart without their bytes (FNV-1a).
fn number_of(hello: &[u8]) -> u64 {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    hello.iter().fold(0xcbf2_9ce4_8422_2325, add)
}
