// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which node of which addresses.

use crate::fabric::{FabricError, MAX_NODES};
use nix::setsockopt_impl;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SetStruct;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

/// How many seconds one who has called may be silent before whoever listens is woken
/// nevertheless (tcp(7)).
#[derive(Clone, Copy)]
struct DeferAccept;

setsockopt_impl!(
    DeferAccept,
    libc::IPPROTO_TCP,
    libc::TCP_DEFER_ACCEPT,
    u32,
    SetStruct<u32>
);

const SILENCE_S: u32 = 1;

/// A rank of a list of addresses. Of a fabric with seats each seat has one, and the nodes of
/// the first ones found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fabric) struct Place {
    pub(in crate::fabric) rank: usize,
    pub(in crate::fabric) addrs: Vec<SocketAddr>,
    /// Nodes that meet at the beginning.
    pub(super) founders: usize,
}

impl Place {
    /// The node at `rank` of a list of all nodes' addresses.
    pub(in crate::fabric) fn new(rank: usize, addrs: &[SocketAddr]) -> Result<Self, FabricError> {
        Self::among(rank, addrs.len(), addrs)
    }

    /// The founder at `rank`, of so many, where each seat has an address.
    pub(in crate::fabric) fn among(
        rank: usize,
        founders: usize,
        addrs: &[SocketAddr],
    ) -> Result<Self, FabricError> {
        let nodes = addrs.len();
        let is_count = (1..=nodes).contains(&founders) && nodes <= MAX_NODES;
        if !is_count || rank >= founders {
            let nodes = founders.min(nodes);
            return Err(FabricError::BadRank { rank, nodes });
        }
        for (at, addr) in addrs.iter().enumerate() {
            if addrs[..at].contains(addr) {
                return Err(FabricError::SameAddress(*addr));
            }
        }
        Ok(Self {
            rank,
            addrs: addrs.to_vec(),
            founders,
        })
    }

    /// The node's own address.
    pub(in crate::fabric) fn own(&self) -> SocketAddr {
        self.addrs[self.rank]
    }

    /// All ranks that there are.
    pub(in crate::fabric) fn seats(&self) -> usize {
        self.addrs.len()
    }

    /// The other founders.
    pub(super) fn founders(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.founders).filter(|&rank| rank != self.rank)
    }

    /// The other ranks.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.seats()).filter(|&rank| rank != self.rank)
    }

    /// Listens at the own address, which one process can do at a time.
    ///
    /// # Errors
    ///
    /// [`FabricError::RankTaken`], [`FabricError::NotHere`].
    pub(super) fn listen(&self) -> Result<TcpListener, FabricError> {
        let listener = TcpListener::bind(self.own()).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => FabricError::RankTaken {
                name: self.own().to_string(),
                rank: self.rank,
            },
            ErrorKind::AddrNotAvailable => FabricError::NotHere(self.own()),
            _ => FabricError::io("bind", &error),
        })?;
        let quiet = listener.set_nonblocking(true);
        quiet.map_err(|error| FabricError::io("fcntl", &error))?;
        // A caller speaks first. Until then nobody is woken, or waits for one who is silent.
        let set = setsockopt(&listener, DeferAccept, &SILENCE_S);
        set.map_err(|errno| FabricError::system("setsockopt", errno))?;
        Ok(listener)
    }
}
