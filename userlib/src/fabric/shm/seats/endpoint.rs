// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node among seats whose holders change.
//!
//! Lock order: `calls`, then one of `peers`. Who posts takes a peer's lock for reading, which
//! nobody holds for writing but for the moment in which a seat gets another holder.

use super::super::copy_all;
use super::super::memory::Memory;
use super::attendant::Attendant;
use crate::fabric::{Endpoint, FabricError, NodeSet, Region, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

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
    /// Holders of seats; none at the own one.
    peers: Vec<RwLock<Option<Peer>>>,
    /// Newcomers that have called.
    calls: Mutex<Vec<Option<Peer>>>,
    /// Those of them that can be admitted.
    callers: AtomicU64,
    down: AtomicU64,
    /// Newcomers may call.
    settled: AtomicBool,
    posted: AtomicU64,
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

    fn callers(&self) -> NodeSet {
        NodeSet::from_bits(self.callers.load(Ordering::Acquire))
    }
}

/// A node among the others.
#[derive(Debug)]
pub(super) struct SeatsEndpoint {
    /// Dropped, and joined, before the rest goes.
    _attendant: Attendant,
    inner: Arc<Inner>,
}

impl SeatsEndpoint {
    pub(super) fn new(attendant: Attendant, inner: Arc<Inner>) -> Self {
        Self {
            _attendant: attendant,
            inner,
        }
    }

    /// Lets `act` touch the memory of a peer that is there.
    fn with_live_peer<R>(
        &self,
        peer: usize,
        act: impl FnOnce(&Region) -> Result<R, FabricError>,
    ) -> Result<R, FabricError> {
        self.inner.with_peer(peer, |known| {
            let known = known.ok_or(FabricError::NoSuchPeer {
                peer,
                nodes: self.inner.seats(),
            })?;
            if self.down().contains(peer) {
                return Err(FabricError::PeerDown(peer));
            }
            act(known.memory.region())
        })
    }
}

// SAFETY: posts and reads are copies between mappings that are there while a peer's lock is
// held. A seat gets another holder when the line of the one before has ended, behind which that
// one has no mapping of this node's memory, so it is cut off.
unsafe impl Endpoint for SeatsEndpoint {
    fn rank(&self) -> usize {
        self.inner.rank
    }

    fn nodes(&self) -> usize {
        self.inner.seats()
    }

    fn region(&self) -> &Region {
        self.inner.memory.region()
    }

    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), FabricError> {
        self.with_live_peer(peer, |to| copy_all(self.region(), to, writes))?;
        let count = writes.len() as u64;
        self.inner.posted.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn read(
        &self,
        peer: usize,
        local: usize,
        remote: usize,
        len: usize,
    ) -> Result<(), FabricError> {
        let back = Write {
            local: remote,
            remote: local,
            len,
        };
        self.with_live_peer(peer, |from| copy_all(from, self.region(), &[back]))
    }

    fn fence(&self, peer: usize) -> Result<(), FabricError> {
        self.with_live_peer(peer, |_| Ok(()))
    }

    fn poll(&self) {}

    fn down(&self) -> NodeSet {
        self.inner.down()
    }

    fn severed(&self) -> NodeSet {
        // A line ends behind all mappings of its node.
        self.down()
    }

    fn callers(&self) -> NodeSet {
        self.inner.callers()
    }

    fn admit(&self, seat: usize) -> Result<u64, FabricError> {
        let mut calls = self.inner.calls();
        let is_free = self.inner.callers().contains(seat);
        let caller = calls.get_mut(seat).filter(|_| is_free);
        let caller = caller.and_then(Option::take);
        let caller = caller.ok_or(FabricError::NoCaller(seat))?;
        let incarnation = caller.incarnation;
        self.inner.seat(seat, caller);
        self.inner.recount(&calls);
        Ok(incarnation)
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn ring(&self, node: usize) {
        if node == self.inner.rank {
            return self.inner.memory.bell().ring();
        }
        self.inner.with_peer(node, |peer| {
            if let Some(peer) = peer {
                peer.memory.bell().ring();
            }
        });
    }

    fn sleep(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let before = (self.down(), self.callers());
        self.inner.memory.bell().sleep(timeout, &mut || {
            ready() || (self.down(), self.callers()) != before
        });
    }

    fn posted(&self) -> u64 {
        self.inner.posted.load(Ordering::Relaxed)
    }

    fn system_calls(&self) -> Option<u64> {
        // A post is a store.
        Some(0)
    }
}
