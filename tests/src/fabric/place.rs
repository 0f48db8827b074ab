// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fabrics on the nodes of the machine: node `rank` of a fabric is on RDMA node
//! `rank mod 2`, in its network namespace.

use std::fmt;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use nix::errno::Errno;
use nix::sched::{setns, CloneFlags};
use weft::fabric::verbs::Verbs;
use weft::fabric::weft::Weft;
use weft::fabric::{Connected, Fabric, FabricError, Words};

/// RDMA nodes that are used.
const RDMA_NODES: usize = 2;
/// Where nodes meet: a port for each of each meeting.
const FIRST_PORT: u16 = 17_700;
const PORTS_PER_MEETING: u16 = 16;

/// A fabric over RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Plain queue pairs.
    Verbs,
    /// The same, words one by one.
    VerbsSingle,
    /// Virtual queue pairs.
    Weft,
    /// The same, words one by one.
    WeftSingle,
}

impl Kind {
    /// The share of the usual rounds that shows as much: words one by one over
    /// soft-RoCE are 32 requests that wait for answers, where there was one.
    pub fn fewer(self, rounds: u64) -> u64 {
        match self {
            Self::Verbs | Self::Weft => rounds,
            Self::VerbsSingle | Self::WeftSingle => rounds / 20,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Verbs => "verbs",
            Self::VerbsSingle => "verbs-single",
            Self::Weft => "weft",
            Self::WeftSingle => "weft-single",
        })
    }
}

/// A node of a fabric that is yet to meet the others.
#[derive(Clone, Debug)]
pub struct Placed {
    kind: Kind,
    rank: usize,
    addrs: Vec<SocketAddr>,
}

impl Placed {
    /// A node of a fabric whose nodes meet at ports from `port` on.
    pub fn new(kind: Kind, rank: usize, nodes: usize, port: u16) -> Self {
        let addr = |rank: usize| {
            let node = Ipv4Addr::new(10, 77, 0, 1 + (rank % RDMA_NODES) as u8);
            SocketAddr::from((node, port + rank as u16))
        };
        Self {
            kind,
            rank,
            addrs: (0..nodes).map(addr).collect(),
        }
    }

    /// All nodes of a new fabric.
    pub fn all(kind: Kind, nodes: usize) -> Vec<Self> {
        let port = new_ports();
        (0..nodes)
            .map(|rank| Self::new(kind, rank, nodes, port))
            .collect()
    }
}

/// The first port of a meeting that has not been before.
pub fn new_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(FIRST_PORT);
    NEXT.fetch_add(PORTS_PER_MEETING, Ordering::Relaxed)
}

impl Fabric for Placed {
    fn rank(&self) -> usize {
        self.rank
    }

    fn nodes(&self) -> usize {
        self.addrs.len()
    }

    fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        enter(self.rank).map_err(|error| FabricError::Rdma {
            addr: self.addrs[self.rank],
            reason: format!("{error:#}"),
        })?;
        let words = match self.kind {
            Kind::Verbs | Kind::Weft => Words::Auto,
            Kind::VerbsSingle | Kind::WeftSingle => Words::Single,
        };
        match self.kind {
            Kind::Verbs | Kind::VerbsSingle => {
                let node = Verbs::new(self.rank, &self.addrs)?.words(words);
                node.connect(region_bytes, hello, timeout)
            }
            Kind::Weft | Kind::WeftSingle => {
                let node = Weft::new(self.rank, &self.addrs)?.words(words);
                node.connect(region_bytes, hello, timeout)
            }
        }
    }
}

/// Moves this thread into the network namespace of a rank's RDMA node.
fn enter(rank: usize) -> Result<()> {
    let node = rank % RDMA_NODES;
    if node == 0 {
        return Ok(());
    }
    let path = format!("/run/netns/n{node}");
    let namespace = File::open(&path)
        .with_context(|| format!("{path}: run on the nodes that `scripts/vm run` makes"))?;
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(|errno: Errno| errno.into())
}
