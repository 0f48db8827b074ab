// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node on the fabric that the command line names.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use weft::fabric::shm::Shm;
#[cfg(feature = "verbs")]
use weft::fabric::verbs::Verbs;
#[cfg(feature = "weft")]
use weft::fabric::weft::Weft;
use weft::fabric::{Connected, Fabric, FabricError};

use crate::args::Kind;

/// The nodes of a transfer, and where they meet.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(any(feature = "weft", feature = "verbs")),
    expect(dead_code, reason = "for networks")
)]
pub struct Party {
    pub fabric: Kind,
    pub receivers: usize,
    /// With shared memory.
    pub name: String,
    /// Without: the sender's address, then the receivers'.
    pub nodes: Vec<SocketAddr>,
    pub device: Option<u32>,
    /// Longest message.
    pub chunk: usize,
    /// How long to wait for the others.
    pub patience: Duration,
}

impl Party {
    /// The party of one node of this one by itself, at a port of its own.
    pub fn alone(&self, rank: usize) -> Self {
        let own = self.nodes.get(rank);
        Self {
            receivers: 0,
            name: format!("{}-{rank}", self.name),
            nodes: own
                .map(|own| SocketAddr::new(own.ip(), 0))
                .into_iter()
                .collect(),
            ..self.clone()
        }
    }
}

/// A node of one of the fabrics.
pub enum Place {
    Shm(Shm),
    #[cfg(feature = "weft")]
    Weft(Weft),
    #[cfg(feature = "verbs")]
    Verbs(Verbs),
}

impl Place {
    /// The node of this rank: 0 is the sender.
    pub fn new(party: &Party, rank: usize) -> Result<Self> {
        Ok(match party.fabric {
            Kind::Shm => {
                // No other program's nodes, whatever they are called.
                let name = format!("cp-{}", party.name);
                Self::Shm(Shm::new(&name, rank, party.receivers + 1)?)
            }
            #[cfg(feature = "weft")]
            Kind::Weft => {
                let node = Weft::new(rank, &party.nodes)?;
                Self::Weft(match party.device {
                    Some(index) => node.device(index),
                    None => node,
                })
            }
            #[cfg(feature = "verbs")]
            Kind::Verbs => Self::Verbs(Verbs::new(rank, &party.nodes)?),
        })
    }
}

// SAFETY: the endpoint is that of a fabric of the library.
unsafe impl Fabric for Place {
    fn rank(&self) -> usize {
        match self {
            Self::Shm(node) => node.rank(),
            #[cfg(feature = "weft")]
            Self::Weft(node) => node.rank(),
            #[cfg(feature = "verbs")]
            Self::Verbs(node) => node.rank(),
        }
    }

    fn nodes(&self) -> usize {
        match self {
            Self::Shm(node) => node.nodes(),
            #[cfg(feature = "weft")]
            Self::Weft(node) => node.nodes(),
            #[cfg(feature = "verbs")]
            Self::Verbs(node) => node.nodes(),
        }
    }

    fn has_sight(&self) -> bool {
        match self {
            Self::Shm(node) => node.has_sight(),
            #[cfg(feature = "weft")]
            Self::Weft(node) => node.has_sight(),
            #[cfg(feature = "verbs")]
            Self::Verbs(node) => node.has_sight(),
        }
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        match self {
            // SAFETY: the caller's promise.
            Self::Shm(node) => unsafe { node.connect(region_bytes, hello, timeout) },
            #[cfg(feature = "weft")]
            // SAFETY: the caller's promise.
            Self::Weft(node) => unsafe { node.connect(region_bytes, hello, timeout) },
            #[cfg(feature = "verbs")]
            // SAFETY: the caller's promise.
            Self::Verbs(node) => unsafe { node.connect(region_bytes, hello, timeout) },
        }
    }
}
