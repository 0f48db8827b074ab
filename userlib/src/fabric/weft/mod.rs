// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weft's virtual queue pairs, through `weft-shim`: nodes that connect in
//! microseconds, over connections that the module shares among processes.
//!
//! Each node has one VQP to each peer, and all of them share their queues: what a node
//! posts to all peers in a round goes to the module in one call. Each peer has a key of its own
//! to the node's memory, a memory window, so that one can be cut off. Making and connecting them
//! takes no network hardware; what the nodes tell each other over TCP is where their memory is and
//! which RDMA port they are at.
//!
//! Words that go one by one ([`Words`]) are WRITEs of 8 bytes here, which the
//! module stores with one instruction. (One that it sends by soft-RoCE's RC, as `pool=rc`
//! makes it, is copied by soft-RoCE instead: see [`crate::fabric`].)

mod linker;
mod outgoing;
mod seats;
mod transport;

pub use seats::WeftSeats;

use super::rdma::control::CONTROL_BYTES;
use super::rdma::place::Place;
use super::rdma::seats::Role;
use super::{Connected, Fabric, FabricError, Words};
use crate::deadline::end_of;
use linker::Port;
use std::net::SocketAddr;
use std::time::Duration;
use weft_shim::MAX_MR_BYTES;

/// Says that a node uses this fabric.
const KIND: u8 = 2;
/// Longest region of a node: what the module registers at once, without the
/// fabric's own page.
pub const MAX_WEFT_REGION_BYTES: usize = MAX_MR_BYTES as usize - CONTROL_BYTES;

/// A node of a fabric over Weft, before it meets the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weft {
    place: Place,
    words: Words,
    device: Option<u32>,
}

impl Weft {
    /// The node at `rank` of a list of addresses, one for each node, the same
    /// everywhere. Nodes meet there over TCP. Their data goes by the first RDMA
    /// port of the network namespace that [`Fabric::connect`] is called in.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::SameAddress`].
    pub fn new(rank: usize, addrs: &[SocketAddr]) -> Result<Self, FabricError> {
        Ok(Self {
            place: Place::new(rank, addrs)?,
            words: Words::default(),
            device: None,
        })
    }

    /// Another RDMA port, by the index that `weftctl nodes` shows.
    #[must_use]
    pub fn device(self, index: u32) -> Self {
        let device = Some(index);
        Self { device, ..self }
    }

    /// How words get there whole, if the default is not right.
    #[must_use]
    pub fn words(self, words: Words) -> Self {
        Self { words, ..self }
    }
}

// SAFETY: the endpoint is that of `rdma`, over VQPs that keep their order.
unsafe impl Fabric for Weft {
    fn rank(&self) -> usize {
        self.place.rank
    }

    fn nodes(&self) -> usize {
        self.place.seats()
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        let end = end_of(timeout);
        let port = Port {
            addr: self.place.own(),
            device: self.device,
            words: self.words,
        };
        let opened = port.open(region_bytes, self.place.seats())?;
        Role::Founder(self.place).connect(KIND, hello, opened, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_the_module_would_refuse_is_refused_here() {
        let here = SocketAddr::from(([127, 0, 0, 1], 7000));
        let connect = |bytes| {
            let node = Weft::new(0, &[here]).expect("a place");
            // SAFETY: nothing is done with it.
            unsafe { node.connect(bytes, &[], Duration::ZERO) }.err()
        };
        assert_eq!(connect(0), Some(FabricError::BadRegion(0)));
        let bytes = MAX_WEFT_REGION_BYTES + 1;
        assert!(matches!(
            connect(bytes),
            Some(FabricError::RegionTooLong { .. })
        ));
    }
}
