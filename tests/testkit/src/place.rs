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
use weft::fabric::conformance;
use weft::fabric::shm::{Shm, ShmSeats};
use weft::fabric::verbs::{Verbs, VerbsSeats};
use weft::fabric::weft::{Weft, WeftSeats};
use weft::fabric::{Connected, Fabric, FabricError, Newcomer, Words};

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
    /// Plain queue pairs whose requests carry 64 bytes themselves and no more.
    VerbsInline64,
    /// Plain queue pairs that are asked for room for more bytes than any device has.
    VerbsInlineAll,
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
            Self::Shm | Self::Verbs | Self::VerbsInline64 | Self::VerbsInlineAll | Self::Weft => {
                rounds
            }
            Self::VerbsSingle | Self::WeftSingle => rounds / 20,
        }
    }

    fn words(self) -> Words {
        match self {
            Self::VerbsSingle | Self::WeftSingle => Words::Single,
            Self::Shm | Self::Verbs | Self::VerbsInline64 | Self::VerbsInlineAll | Self::Weft => {
                Words::Auto
            }
        }
    }

    /// Bytes that requests over verbs are to carry themselves, if not as many as usual.
    fn max_inline(self) -> Option<usize> {
        match self {
            Self::VerbsInline64 => Some(64),
            Self::VerbsInlineAll => Some(1 << 24),
            _ => None,
        }
    }

    /// The RDMA node that a rank is on; the first one, where there are none.
    #[must_use]
    pub fn node_of(self, rank: usize) -> usize {
        match self {
            Self::Shm => 0,
            _ => rank % RDMA_NODES,
        }
    }

    /// Moves this thread, and those that it starts, to the RDMA node of a rank.
    fn enter(self, rank: usize, addrs: &[SocketAddr]) -> Result<(), FabricError> {
        match self {
            Self::Shm => Ok(()),
            _ => enter(self.node_of(rank)).map_err(|error| FabricError::Rdma {
                addr: addrs[rank],
                reason: format!("{error:#}"),
            }),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shm => "shm",
            Self::Verbs => "verbs",
            Self::VerbsSingle => "verbs-single",
            Self::VerbsInline64 => "verbs-inline64",
            Self::VerbsInlineAll => "verbs-inline-all",
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

impl Meeting {
    /// The address of each rank.
    fn addrs(self, nodes: usize) -> Vec<SocketAddr> {
        let addr = |rank: usize| {
            let node = Ipv4Addr::new(10, 77, 0, 1 + (rank % RDMA_NODES) as u8);
            SocketAddr::from((node, self.port + rank as u16))
        };
        (0..nodes).map(addr).collect()
    }

    /// The name under which nodes meet that share memory.
    fn name(self) -> String {
        format!("weft-tests-{self}")
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
}

// SAFETY: the endpoint is that of a fabric of the library.
unsafe impl Fabric for Placed {
    fn rank(&self) -> usize {
        self.rank
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn has_sight(&self) -> bool {
        self.kind == Kind::Shm
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        if self.kind == Kind::Shm {
            let node = Shm::new(&self.meeting.name(), self.rank, self.nodes)?;
            // SAFETY: the caller's promise.
            return unsafe { node.connect(region_bytes, hello, timeout) };
        }
        let addrs = self.meeting.addrs(self.nodes);
        self.kind.enter(self.rank, &addrs)?;
        let words = self.kind.words();
        if matches!(self.kind, Kind::Weft | Kind::WeftSingle) {
            let node = Weft::new(self.rank, &addrs)?.words(words);
            // SAFETY: the caller's promise.
            unsafe { node.connect(region_bytes, hello, timeout) }
        } else {
            let mut node = Verbs::new(self.rank, &addrs)?.words(words);
            if let Some(bytes) = self.kind.max_inline() {
                node = node.max_inline(bytes);
            }
            // SAFETY: the caller's promise.
            unsafe { node.connect(region_bytes, hello, timeout) }
        }
    }
}

/// A fabric with seats, which are on the RDMA nodes in turn.
#[derive(Clone, Copy, Debug)]
pub struct Seats {
    kind: Kind,
    meeting: Meeting,
}

impl Seats {
    /// One over such a fabric.
    #[must_use]
    pub fn new(kind: Kind, meeting: Meeting) -> Self {
        Self { kind, meeting }
    }

    /// A founder. Moves this thread to the RDMA node of its rank.
    pub fn founder(self, rank: usize, founders: usize, seats: usize) -> Result<Seat, FabricError> {
        let addrs = self.meeting.addrs(seats);
        self.kind.enter(rank, &addrs)?;
        let words = self.kind.words();
        Ok(match self.kind {
            Kind::Shm => {
                let name = self.meeting.name();
                Seat::Shm(ShmSeats::founder(&name, rank, founders, seats)?)
            }
            Kind::Weft | Kind::WeftSingle => {
                Seat::Weft(WeftSeats::founder(rank, founders, &addrs)?.words(words))
            }
            Kind::Verbs | Kind::VerbsSingle | Kind::VerbsInline64 | Kind::VerbsInlineAll => {
                Seat::Verbs(VerbsSeats::founder(rank, founders, &addrs)?.words(words))
            }
        })
    }

    /// One that takes an empty seat of an RDMA node, to which this thread moves.
    pub fn newcomer(
        self,
        node: usize,
        seats: usize,
        timeout: Duration,
    ) -> Result<Seat, FabricError> {
        let addrs = self.meeting.addrs(seats);
        self.kind.enter(node, &addrs)?;
        let words = self.kind.words();
        Ok(match self.kind {
            Kind::Shm => {
                let name = self.meeting.name();
                Seat::Shm(ShmSeats::newcomer(&name, seats, timeout)?)
            }
            Kind::Weft | Kind::WeftSingle => {
                Seat::Weft(WeftSeats::newcomer(&addrs, timeout)?.words(words))
            }
            Kind::Verbs | Kind::VerbsSingle | Kind::VerbsInline64 | Kind::VerbsInlineAll => {
                Seat::Verbs(VerbsSeats::newcomer(&addrs, timeout)?.words(words))
            }
        })
    }

    /// One that has taken a seat of another fabric with as many, on this thread's RDMA node.
    pub fn newcomer_as(
        self,
        newcomer: Newcomer,
        seats: usize,
        timeout: Duration,
    ) -> Result<Seat, FabricError> {
        let addrs = self.meeting.addrs(seats);
        let words = self.kind.words();
        Ok(match self.kind {
            Kind::Shm => {
                let name = self.meeting.name();
                Seat::Shm(ShmSeats::newcomer_as(&name, seats, newcomer, timeout)?)
            }
            Kind::Weft | Kind::WeftSingle => {
                Seat::Weft(WeftSeats::newcomer_as(&addrs, newcomer, timeout)?.words(words))
            }
            Kind::Verbs | Kind::VerbsSingle | Kind::VerbsInline64 | Kind::VerbsInlineAll => {
                Seat::Verbs(VerbsSeats::newcomer_as(&addrs, newcomer, timeout)?.words(words))
            }
        })
    }
}

/// For the suite: its newcomers are on the first RDMA node.
impl conformance::Seats for Seats {
    type Node = Seat;

    fn founder(&self, rank: usize, founders: usize, seats: usize) -> Result<Seat, FabricError> {
        (*self).founder(rank, founders, seats)
    }

    fn newcomer(&self, seats: usize, patience: Duration) -> Result<Seat, FabricError> {
        (*self).newcomer(0, seats, patience)
    }
}

/// A node of such a fabric that is yet to meet the others.
#[derive(Debug)]
pub enum Seat {
    /// Over shared memory.
    Shm(ShmSeats),
    /// Over VQPs.
    Weft(WeftSeats),
    /// Over plain queue pairs.
    Verbs(VerbsSeats),
}

// SAFETY: the endpoint is that of a fabric of the library.
unsafe impl Fabric for Seat {
    fn rank(&self) -> usize {
        match self {
            Self::Shm(node) => node.rank(),
            Self::Weft(node) => node.rank(),
            Self::Verbs(node) => node.rank(),
        }
    }

    fn nodes(&self) -> usize {
        match self {
            Self::Shm(node) => node.nodes(),
            Self::Weft(node) => node.nodes(),
            Self::Verbs(node) => node.nodes(),
        }
    }

    fn has_seats(&self) -> bool {
        true
    }

    fn has_sight(&self) -> bool {
        matches!(self, Self::Shm(_))
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Shm(node) => node.connect(region_bytes, hello, timeout),
                Self::Weft(node) => node.connect(region_bytes, hello, timeout),
                Self::Verbs(node) => node.connect(region_bytes, hello, timeout),
            }
        }
    }
}

/// Moves this thread into the network namespace of an RDMA node.
fn enter(node: usize) -> Result<()> {
    if node == 0 {
        return Ok(());
    }
    let path = format!("/run/netns/n{node}");
    let namespace = File::open(&path)
        .with_context(|| format!("{path}: run on the nodes that `scripts/vm run` makes"))?;
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(|errno: Errno| errno.into())
}
