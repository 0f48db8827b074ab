// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plain RC queue pairs through rdma-core: the baseline, and the choice without
//! Weft's module.
//!
//! Each pair of nodes has one queue pair, made with the verbs and connected by
//! what the nodes tell each other over TCP.
//!
//! Words that go one by one ([`Words`]) are ATOMIC WRITEs here, which soft-RoCE
//! has.

mod linker;
mod seats;
mod transport;

pub use seats::VerbsSeats;

use super::rdma::place::Place;
use super::rdma::seats::Role;
use super::{Connected, Fabric, FabricError, Words};
use crate::deadline::end_of;
use linker::{Choices, Port};
use std::net::SocketAddr;
use std::time::Duration;

/// Says that a node uses this fabric.
const KIND: u8 = 1;

/// A node of a fabric over verbs, before it meets the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verbs {
    place: Place,
    choices: Choices,
}

impl Verbs {
    /// The node at `rank` of a list of addresses, one for each node, the same
    /// everywhere. Nodes meet there over TCP; the RDMA device is the one whose
    /// port has the same IP address.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::SameAddress`].
    pub fn new(rank: usize, addrs: &[SocketAddr]) -> Result<Self, FabricError> {
        Ok(Self {
            place: Place::new(rank, addrs)?,
            choices: Choices::default(),
        })
    }

    /// How words get there whole, if the default is not right.
    #[must_use]
    pub fn words(self, words: Words) -> Self {
        let choices = self.choices.words(words);
        Self { choices, ..self }
    }

    /// Most bytes of a write of words that its request carries itself, at least 64, if 256 is
    /// not right. A device that has less room is asked for less. What is longer the device
    /// reads from the region.
    #[must_use]
    pub fn max_inline(self, bytes: usize) -> Self {
        let choices = self.choices.max_inline(bytes);
        Self { choices, ..self }
    }
}

// SAFETY: the endpoint is that of `rdma`, over queue pairs that keep their order.
unsafe impl Fabric for Verbs {
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
            choices: self.choices,
        };
        let opened = port.open(region_bytes, self.place.seats(), end)?;
        Role::Founder(self.place).connect(KIND, hello, opened, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_the_address_says_so() {
        let nowhere = SocketAddr::from(([192, 0, 2, 1], 7000));
        let node = Verbs::new(0, &[nowhere]).expect("a place");
        // SAFETY: nothing is done with it.
        let refusal = unsafe { node.connect(64, &[], Duration::ZERO) };
        assert!(matches!(
            refusal.expect_err("no such device"),
            FabricError::Rdma { addr, .. } if addr == nowhere
        ));
    }
}
