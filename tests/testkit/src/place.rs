// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fabrics on the nodes of the machine: over RDMA, node `rank` of a fabric is on
//! RDMA node `rank mod 2`, in its network namespace. Over shared memory they are
//! wherever this runs.

use std::fmt;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{anyhow, Context as _, Error, Result};
use clap::ValueEnum;
use nix::errno::Errno;
use nix::sched::{setns, CloneFlags};
use weft::fabric::shm::Shm;
use weft::fabric::verbs::Verbs;
use weft::fabric::weft::Weft;
use weft::fabric::{Connected, Fabric, FabricError, Words};

/// RDMA nodes that are used.
const RDMA_NODES: usize = 2;
/// Where nodes meet: a port for each of each meeting.
const FIRST_PORT: u16 = 17_700;
const PORTS_PER_MEETING: u16 = 16;
/// After so many the first one is over.
const MEETINGS: u16 = 2048;

/// A fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Shared memory.
    Shm,
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
            Self::Shm | Self::Verbs | Self::Weft => rounds,
            Self::VerbsSingle | Self::WeftSingle => rounds / 20,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shm",
            Self::Verbs => "verbs",
            Self::VerbsSingle => "verbs-single",
            Self::Weft => "weft",
            Self::WeftSingle => "weft-single",
        })
    }
}

/// Where the nodes of one fabric meet, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    port: u16,
    /// The process that called it: other runs have other names.
    caller: u32,
}

impl Meeting {
    /// A new one.
    #[must_use]
    pub fn call() -> Self {
        static CALLED: AtomicU16 = AtomicU16::new(0);
        let number = CALLED.fetch_add(1, Ordering::Relaxed) % MEETINGS;
        Self {
            port: FIRST_PORT + number * PORTS_PER_MEETING,
            caller: std::process::id(),
        }
    }
}

impl fmt::Display for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.port, self.caller)
    }
}

impl FromStr for Meeting {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (port, caller) = text
            .split_once('-')
            .ok_or_else(|| anyhow!("no meeting: {text:?}"))?;
        Ok(Self {
            port: port.parse()?,
            caller: caller.parse()?,
        })
    }
}

/// A node of a fabric that is yet to meet the others.
#[derive(Clone, Debug)]
pub struct Placed {
    kind: Kind,
    rank: usize,
    nodes: usize,
    meeting: Meeting,
}

impl Placed {
    /// A node of a fabric.
    #[must_use]
    pub fn new(kind: Kind, rank: usize, nodes: usize, meeting: Meeting) -> Self {
        Self {
            kind,
            rank,
            nodes,
            meeting,
        }
    }

    /// All nodes of a new fabric.
    #[must_use]
    pub fn all(kind: Kind, nodes: usize) -> Vec<Self> {
        let meeting = Meeting::call();
        (0..nodes)
            .map(|rank| Self::new(kind, rank, nodes, meeting))
            .collect()
    }

    fn addrs(&self) -> Vec<SocketAddr> {
        let addr = |rank: usize| {
            let node = Ipv4Addr::new(10, 77, 0, 1 + (rank % RDMA_NODES) as u8);
            SocketAddr::from((node, self.meeting.port + rank as u16))
        };
        (0..self.nodes).map(addr).collect()
    }
}

// SAFETY: the endpoint is that of a fabric of the library.
unsafe impl Fabric for Placed {
    fn rank(&self) -> usize {
        self.rank
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        if self.kind == Kind::Shm {
            let name = format!("weft-tests-{}", self.meeting);
            let node = Shm::new(&name, self.rank, self.nodes)?;
            // SAFETY: the caller's promise.
            return unsafe { node.connect(region_bytes, hello, timeout) };
        }
        let addrs = self.addrs();
        enter(self.rank).map_err(|error| FabricError::Rdma {
            addr: addrs[self.rank],
            reason: format!("{error:#}"),
        })?;
        let words = match self.kind {
            Kind::VerbsSingle | Kind::WeftSingle => Words::Single,
            _ => Words::Auto,
        };
        if matches!(self.kind, Kind::Weft | Kind::WeftSingle) {
            let node = Weft::new(self.rank, &addrs)?.words(words);
            // SAFETY: the caller's promise.
            unsafe { node.connect(region_bytes, hello, timeout) }
        } else {
            let node = Verbs::new(self.rank, &addrs)?.words(words);
            // SAFETY: the caller's promise.
            unsafe { node.connect(region_bytes, hello, timeout) }
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
