// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node whose process is killed at a post of its choice: for tests of what others do then.

use crate::fabric::{Connected, Endpoint, Fabric, FabricError, NodeSet, Region, Write};
use nix::sys::signal::{raise, Signal};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Writes that are posted before the process is killed, that one included; if it is not positive,
/// the process lives.
pub type Countdown = Arc<AtomicI64>;

/// A node whose process is killed instead of posting a certain write.
#[derive(Debug)]
pub struct Mortal<F> {
    node: F,
    posts: Countdown,
}

impl<F> Mortal<F> {
    /// The process is killed when `posts`, which may be set later, has been counted down.
    pub fn new(node: F, posts: Countdown) -> Self {
        Self { node, posts }
    }

    /// The process is killed before it posts the write of this number, counted from 0; never, if
    /// there is none.
    pub fn before(node: F, write: Option<u64>) -> Self {
        let posts = write.and_then(|write| i64::try_from(write.saturating_add(1)).ok());
        Self::new(node, Arc::new(AtomicI64::new(posts.unwrap_or(0))))
    }
}

// SAFETY: the endpoint is that of the node.
unsafe impl<F: Fabric> Fabric for Mortal<F> {
    fn rank(&self) -> usize {
        self.node.rank()
    }

    fn nodes(&self) -> usize {
        self.node.nodes()
    }

    fn has_seats(&self) -> bool {
        self.node.has_seats()
    }

    fn has_sight(&self) -> bool {
        self.node.has_sight()
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        // SAFETY: the caller's promise.
        let connected = unsafe { self.node.connect(region_bytes, hello, timeout) }?;
        let endpoint = Arc::new(MortalEndpoint {
            endpoint: connected.endpoint,
            posts: self.posts,
        });
        Ok(Connected {
            endpoint,
            ..connected
        })
    }
}

#[derive(Debug)]
struct MortalEndpoint {
    endpoint: Arc<dyn Endpoint>,
    posts: Countdown,
}

impl MortalEndpoint {
    fn count(&self) {
        if self.posts.load(Ordering::Relaxed) > 0 && self.posts.fetch_sub(1, Ordering::Relaxed) == 1
        {
            let _ = raise(Signal::SIGKILL);
        }
    }
}

// SAFETY: all is done by the endpoint.
unsafe impl Endpoint for MortalEndpoint {
    fn rank(&self) -> usize {
        self.endpoint.rank()
    }

    fn nodes(&self) -> usize {
        self.endpoint.nodes()
    }

    fn region(&self) -> &Region {
        self.endpoint.region()
    }

    fn region_of(&self, peer: usize) -> Option<&Region> {
        self.endpoint.region_of(peer)
    }

    fn sight_of(&self, peer: usize) -> Option<Region> {
        self.endpoint.sight_of(peer)
    }

    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), FabricError> {
        if self.posts.load(Ordering::Relaxed) <= 0 {
            return self.endpoint.post(peer, writes);
        }
        // Each write by itself: a process can be killed between two.
        for write in writes {
            self.count();
            self.endpoint.post(peer, &[*write])?;
        }
        Ok(())
    }

    fn together(&self, posts: &mut dyn FnMut()) {
        self.endpoint.together(posts);
    }

    fn read(&self, peer: usize, at: usize, from: usize, len: usize) -> Result<(), FabricError> {
        self.endpoint.read(peer, at, from, len)
    }

    fn fence(&self, peer: usize) -> Result<(), FabricError> {
        self.endpoint.fence(peer)
    }

    fn poll(&self) {
        self.endpoint.poll();
    }

    fn down(&self) -> NodeSet {
        self.endpoint.down()
    }

    fn callers(&self) -> NodeSet {
        self.endpoint.callers()
    }

    fn admit(&self, seat: usize) -> Result<u64, FabricError> {
        self.endpoint.admit(seat)
    }

    fn evict(&self, peer: usize) {
        self.endpoint.evict(peer);
    }

    fn settle(&self) {
        self.endpoint.settle();
    }

    fn severed(&self) -> NodeSet {
        self.endpoint.severed()
    }

    fn ring(&self, node: usize) {
        self.endpoint.ring(node);
    }

    fn sleep(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        self.endpoint.sleep(timeout, ready);
    }

    fn posted(&self) -> u64 {
        self.endpoint.posted()
    }

    fn system_calls(&self) -> Option<u64> {
        self.endpoint.system_calls()
    }
}
