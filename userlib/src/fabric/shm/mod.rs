// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared memory: processes or threads of one host. The embedded default,
//! with no root and no RDMA.
//!
//! Each node's region is a memfd that all peers map. A write is a copy from
//! the own region into the peer's, done when the post returns; so there are no
//! completions to reap, and a fence has nothing to wait for. Nothing is left
//! behind, whichever way the processes end.

mod bell;
mod copy;
mod frame;
mod memory;
mod rendezvous;
mod seats;
mod stream;
#[cfg(test)]
mod tests;
mod watch;

use super::thread::Thread;
use super::{
    Connected, Endpoint, Fabric, FabricError, Meeting, NodeSet, Region, Write, MAX_HELLO_BYTES,
    MAX_NODES,
};
use frame::Kind;
use memory::Memory;
use rendezvous::{Met, Node};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use seats::ShmSeats;

/// Longest name of a meeting: it has to fit into a socket's address.
pub const MAX_NAME_BYTES: usize = 64;

/// A node of a shared-memory fabric, before it meets the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shm {
    name: String,
    rank: usize,
    nodes: usize,
}

impl Shm {
    /// Node `rank` of `nodes`, which meet under a name. Processes of one user
    /// with the same name find one another.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`], [`FabricError::BadName`].
    pub fn new(name: &str, rank: usize, nodes: usize) -> Result<Self, FabricError> {
        check(name, rank, nodes)?;
        Ok(Self {
            name: name.to_owned(),
            rank,
            nodes,
        })
    }

    /// All nodes of a fabric within this process, for one thread each. They
    /// meet under a name that nobody else has.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRank`] if there are too few or too many.
    pub fn threads(nodes: usize) -> Result<Vec<Self>, FabricError> {
        let name = fresh_name();
        if nodes == 0 {
            return Err(FabricError::BadRank { rank: 0, nodes });
        }
        (0..nodes)
            .map(|rank| Self::new(&name, rank, nodes))
            .collect()
    }
}

/// A name that nobody else has.
fn fresh_name() -> String {
    static MEETINGS: AtomicU64 = AtomicU64::new(0);
    let meeting = MEETINGS.fetch_add(1, Ordering::Relaxed);
    let born = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| age.as_nanos());
    format!("threads-{}-{meeting}-{born:x}", std::process::id())
}

fn check(name: &str, rank: usize, nodes: usize) -> Result<(), FabricError> {
    if !(1..=MAX_NODES).contains(&nodes) || rank >= nodes {
        return Err(FabricError::BadRank { rank, nodes });
    }
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(FabricError::BadName(name.to_owned()));
    }
    Ok(())
}

// SAFETY: the endpoint is that of below.
unsafe impl Fabric for Shm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn has_sight(&self) -> bool {
        true
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        if hello.len() > MAX_HELLO_BYTES {
            return Err(FabricError::BadHello(hello.len()));
        }
        let (own, fd) = Memory::create(region_bytes)?;
        let node = Node {
            kind: Kind::Meeting,
            name: &self.name,
            rank: self.rank,
            nodes: self.nodes,
            region_bytes,
            memory: &fd,
            hello,
        };
        let (met, _) = rendezvous::meet(&node, timeout)?;
        let mut hellos = vec![Vec::new(); self.nodes];
        hellos[self.rank] = hello.to_vec();
        let mut peers: Vec<Option<Memory>> = (0..self.nodes).map(|_| None).collect();
        let mut lines = Vec::with_capacity(met.len());
        for Met {
            rank,
            region_bytes,
            memory,
            hello,
            line,
        } in met
        {
            peers[rank] = Some(Memory::of_peer(rank, &memory, region_bytes)?);
            hellos[rank] = hello;
            lines.push((rank, line));
        }
        let shared = Arc::new(Shared {
            memory: own,
            down: AtomicU64::new(0),
        });
        let endpoint = ShmEndpoint {
            rank: self.rank,
            peers,
            posted: AtomicU64::new(0),
            _watch: watch::start(Arc::clone(&shared), lines)?,
            shared,
        };
        Ok(Connected {
            endpoint: Arc::new(endpoint),
            hellos,
            meeting: Meeting::of_all(self.nodes),
        })
    }
}

/// What the watching thread shares with the endpoint.
#[derive(Debug)]
struct Shared {
    memory: Memory,
    /// A bit for each node that is down.
    down: AtomicU64,
}

/// A connected node.
#[derive(Debug)]
struct ShmEndpoint {
    rank: usize,
    /// The peers' memory, by rank; none at the own one.
    peers: Vec<Option<Memory>>,
    posted: AtomicU64,
    /// Dropped, and joined, before the rest goes.
    _watch: Thread,
    shared: Arc<Shared>,
}

impl ShmEndpoint {
    fn peer(&self, peer: usize) -> Result<&Memory, FabricError> {
        let known = self.peers.get(peer).and_then(Option::as_ref);
        known.ok_or(FabricError::NoSuchPeer {
            peer,
            nodes: self.peers.len(),
        })
    }

    fn live_peer(&self, peer: usize) -> Result<&Memory, FabricError> {
        let memory = self.peer(peer)?;
        if self.down().contains(peer) {
            return Err(FabricError::PeerDown(peer));
        }
        Ok(memory)
    }
}

// SAFETY: posts and reads are copies between mappings that live as long as the endpoint.
unsafe impl Endpoint for ShmEndpoint {
    fn rank(&self) -> usize {
        self.rank
    }

    fn nodes(&self) -> usize {
        self.peers.len()
    }

    fn region(&self) -> &Region {
        self.shared.memory.region()
    }

    fn region_of(&self, peer: usize) -> Option<&Region> {
        self.peer(peer).ok().map(Memory::region)
    }

    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), FabricError> {
        copy_all(self.region(), self.live_peer(peer)?.region(), writes)?;
        self.posted
            .fetch_add(writes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn read(
        &self,
        peer: usize,
        local: usize,
        remote: usize,
        len: usize,
    ) -> Result<(), FabricError> {
        let back = Write {
            local: remote,
            remote: local,
            len,
        };
        copy_all(self.live_peer(peer)?.region(), self.region(), &[back])
    }

    fn fence(&self, peer: usize) -> Result<(), FabricError> {
        self.live_peer(peer)?;
        Ok(())
    }

    fn poll(&self) {}

    fn down(&self) -> NodeSet {
        NodeSet::from_bits(self.shared.down.load(Ordering::Acquire))
    }

    fn severed(&self) -> NodeSet {
        // A line ends with its process, which has no mapping any more then, or behind the
        // last handle of the endpoint, which is all that reaches the mappings.
        self.down()
    }

    fn ring(&self, node: usize) {
        if node == self.rank {
            self.shared.memory.bell().ring();
        } else if let Ok(peer) = self.peer(node) {
            peer.bell().ring();
        }
    }

    fn sleep(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let down = self.down();
        self.shared
            .memory
            .bell()
            .sleep(timeout, &mut || ready() || self.down() != down);
    }

    fn posted(&self) -> u64 {
        self.posted.load(Ordering::Relaxed)
    }

    fn system_calls(&self) -> Option<u64> {
        // A post is a store.
        Some(0)
    }
}

/// Does writes from one node's region to another one's, once all have been seen to be within.
fn copy_all(from: &Region, to: &Region, writes: &[Write]) -> Result<(), FabricError> {
    for write in writes {
        from.range(write.local, write.len)?;
        to.range(write.remote, write.len)?;
    }
    for write in writes {
        let source = from.range(write.local, write.len)?;
        let target = to.range(write.remote, write.len)?;
        // SAFETY: both ranges are within mapped regions of different nodes. Control words are
        // atomic on all sides; payload belongs to the writer until a later small write says
        // otherwise, which is the contract of `Endpoint`.
        unsafe { copy::copy(source, target, write.len) };
    }
    Ok(())
}
