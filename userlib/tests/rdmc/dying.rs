// SPDX-License-Identifier: MIT OR Apache-2.0

//! A fabric whose process kills itself before a certain post.

use nix::sys::signal::{raise, Signal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use weft::fabric::{Connected, Endpoint, Fabric, FabricError, NodeSet, Region, Write};

pub struct Dying<F> {
    fabric: F,
    /// Posts that are still done.
    posts: Option<u64>,
}

impl<F> Dying<F> {
    pub fn new(fabric: F, posts: Option<u64>) -> Self {
        Self { fabric, posts }
    }
}

// SAFETY: the endpoint is that of another fabric, but for its posts.
unsafe impl<F: Fabric> Fabric for Dying<F> {
    fn rank(&self) -> usize {
        self.fabric.rank()
    }

    fn nodes(&self) -> usize {
        self.fabric.nodes()
    }

    fn has_seats(&self) -> bool {
        self.fabric.has_seats()
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        // SAFETY: the caller's promise.
        let met = unsafe { self.fabric.connect(region_bytes, hello, timeout) }?;
        Ok(Connected {
            endpoint: Arc::new(DyingEndpoint {
                inner: met.endpoint,
                left: AtomicU64::new(self.posts.unwrap_or(u64::MAX)),
            }),
            hellos: met.hellos,
            meeting: met.meeting,
        })
    }
}

#[derive(Debug)]
struct DyingEndpoint {
    inner: Arc<dyn Endpoint>,
    left: AtomicU64,
}

// SAFETY: another endpoint does it all, until the process dies.
unsafe impl Endpoint for DyingEndpoint {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn nodes(&self) -> usize {
        self.inner.nodes()
    }

    fn region(&self) -> &Region {
        self.inner.region()
    }

    fn region_of(&self, peer: usize) -> Option<&Region> {
        self.inner.region_of(peer)
    }

    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), FabricError> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            raise(Signal::SIGKILL).expect("it dies");
        }
        self.inner.post(peer, writes)
    }

    fn read(
        &self,
        peer: usize,
        local: usize,
        remote: usize,
        len: usize,
    ) -> Result<(), FabricError> {
        self.inner.read(peer, local, remote, len)
    }

    fn fence(&self, peer: usize) -> Result<(), FabricError> {
        self.inner.fence(peer)
    }

    fn poll(&self) {
        self.inner.poll();
    }

    fn callers(&self) -> NodeSet {
        self.inner.callers()
    }

    fn admit(&self, seat: usize) -> Result<u64, FabricError> {
        self.inner.admit(seat)
    }

    fn evict(&self, peer: usize) {
        self.inner.evict(peer);
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn down(&self) -> NodeSet {
        self.inner.down()
    }

    fn severed(&self) -> NodeSet {
        self.inner.severed()
    }

    fn ring(&self, node: usize) {
        self.inner.ring(node);
    }

    fn sleep(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        self.inner.sleep(timeout, ready);
    }

    fn posted(&self) -> u64 {
        self.inner.posted()
    }
}
