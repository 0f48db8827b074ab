// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node among seats whose holders change.

use super::super::copy_all;
use super::attendant::Attendant;
use super::inner::Inner;
use crate::fabric::{Endpoint, FabricError, NodeSet, Region, Write};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

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
        self.inner.admit(seat)
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
