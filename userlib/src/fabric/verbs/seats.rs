// SPDX-License-Identifier: MIT OR Apache-2.0

//! Nodes over plain queue pairs that may come later than others.

use super::linker::{Choices, Port};
use super::KIND;
use crate::deadline::end_of;
use crate::fabric::rdma::place::Place;
use crate::fabric::rdma::seats::Role;
use crate::fabric::{Connected, Fabric, FabricError, Newcomer, Words};
use std::net::SocketAddr;
use std::time::Duration;

/// A node of a fabric over verbs with seats, before it meets the others: for groups with views
/// ([`Builder::with_views`](crate::multicast::Builder::with_views)), and for
/// [RDMC nodes](crate::rdmc::Node) beside them.
#[derive(Debug)]
pub struct VerbsSeats {
    role: Role,
    choices: Choices,
}

impl VerbsSeats {
    /// Node `rank` of `founders`, which meet at the first of these addresses: there is one for
    /// each seat, and all nodes have the same list. Whoever has a seat listens at its address
    /// (TCP); the RDMA device is the one whose port has the same IP address.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::SameAddress`].
    pub fn founder(
        rank: usize,
        founders: usize,
        addrs: &[SocketAddr],
    ) -> Result<Self, FabricError> {
        let place = Place::among(rank, founders, addrs)?;
        Ok(Self::with(Role::Founder(place)))
    }

    /// Takes the lowest empty seat whose address is of this host, where others have met at these
    /// addresses. Waits for them, and for a seat, until the time is over.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::SameAddress`]; [`FabricError::Timeout`] if nobody
    /// is there, [`FabricError::NoSeat`] if none is empty that this host could have.
    pub fn newcomer(addrs: &[SocketAddr], timeout: Duration) -> Result<Self, FabricError> {
        Ok(Self::with(Role::newcomer(addrs, KIND, timeout)?))
    }

    /// As [`Self::newcomer`], in the seat that this node has taken in another fabric, and with the
    /// same incarnation: so that the two name it alike. Both have the same seats, and whoever
    /// comes takes one in the same of the two first.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::SameAddress`], [`FabricError::NotHere`];
    /// [`FabricError::RankTaken`] if another one has the seat until the time is over.
    pub fn newcomer_as(
        addrs: &[SocketAddr],
        newcomer: Newcomer,
        timeout: Duration,
    ) -> Result<Self, FabricError> {
        Ok(Self::with(Role::newcomer_as(addrs, newcomer, timeout)?))
    }

    fn with(role: Role) -> Self {
        Self {
            role,
            choices: Choices::default(),
        }
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
unsafe impl Fabric for VerbsSeats {
    fn rank(&self) -> usize {
        self.role.place().rank
    }

    fn nodes(&self) -> usize {
        self.role.place().seats()
    }

    fn has_seats(&self) -> bool {
        true
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        let end = end_of(timeout);
        let port = Port {
            addr: self.role.place().own(),
            choices: self.choices,
        };
        let opened = port.open(region_bytes, self.nodes(), end)?;
        self.role.connect(KIND, hello, opened, end)
    }
}
