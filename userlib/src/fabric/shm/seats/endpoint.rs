// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node among seats whose holders change.

use super::super::copy_all;
use super::inner::Inner;
use crate::fabric::thread::Thread;
use crate::fabric::{Endpoint, FabricError, NodeSet, Region, Write};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// A node among the others.
#[derive(Debug)]
pub(super) struct SeatsEndpoint {
    /// Dropped, and joined, before the rest goes.
    _attendant: Thread,
    inner: Arc<Inner>,
}

impl SeatsEndpoint {
    pub(super) fn new(attendant: Thread, inner: Arc<Inner>) -> Self {
        Self {
            _attendant: attendant,
            inner,
        }
    }

    fn live_peer(&self, peer: usize) -> Result<&Region, FabricError> {
        let memory = self.inner.memory_of(peer);
        let memory = memory.ok_or(FabricError::NoSuchPeer {
            peer,
            nodes: self.inner.seats(),
        })?;
        if self.down().contains(peer) {
            return Err(FabricError::PeerDown(peer));
        }
        Ok(memory.region())
    }
}

// SAFETY: posts and reads are copies between mappings that live as long as the endpoint. A
// seat gets another holder when the line of the one before has ended, behind which that one
// has no mapping of this node's memory, so it is cut off.
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
        copy_all(self.region(), self.live_peer(peer)?, writes)?;
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
        copy_all(self.live_peer(peer)?, self.region(), &[back])
    }

    fn fence(&self, peer: usize) -> Result<(), FabricError> {
        self.live_peer(peer)?;
        Ok(())
    }

    fn poll(&self) {}

    fn down(&self) -> NodeSet {
        self.inner.down()
    }

    fn severed(&self) -> NodeSet {
        // A line ends behind all mappings of its node.
        self.down()
    }

    fn sight_of(&self, peer: usize) -> Option<Region> {
        let memory = self.inner.memory_of(peer)?;
        Some(memory.region().clone())
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
        if let Some(memory) = self.inner.memory_of(node) {
            memory.bell().ring();
        }
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
