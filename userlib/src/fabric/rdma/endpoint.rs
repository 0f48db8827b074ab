// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connected node, whatever carries its requests.

use super::control::{self, Memory, CONTROL_BYTES};
use super::doors::Door;
use super::health::Health;
use super::line::{Line, Note};
use super::meeting::{self, Met};
use super::watch::Watch;
use super::{Gone, Transport, MAX_PIECE_BYTES};
use crate::fabric::{Connected, Endpoint, FabricError, Meeting, NodeSet, Region, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Writes that are handed to the transport at a time.
const CHUNK: usize = 32;

/// What a node brings to [`connect`].
pub(in crate::fabric) struct Own<'a> {
    pub(in crate::fabric) rank: usize,
    pub(in crate::fabric) hello: &'a [u8],
    pub(in crate::fabric) memory: Memory,
}

/// Makes the endpoint of a node that has met all others and whose transport is
/// connected to them. Returns when theirs are, too.
pub(in crate::fabric) fn connect<T: Transport>(
    own: Own<'_>,
    mut met: Vec<Met>,
    transport: T,
    end: Instant,
) -> Result<Connected, FabricError> {
    meeting::all_ready(&mut met, end)?;
    let nodes = met.len() + 1;
    let mut hellos = vec![Vec::new(); nodes];
    hellos[own.rank] = own.hello.to_vec();
    let mut peers: Vec<Option<Peer>> = (0..nodes).map(|_| None).collect();
    for peer in met {
        hellos[peer.rank] = peer.hello;
        peers[peer.rank] = Some(Peer {
            region_bytes: peer.region_bytes,
            line: Line::new(peer.line)?,
            door: Door::default(),
            rings: Mutex::new(0),
        });
    }
    let inner = Arc::new(Inner {
        rank: own.rank,
        memory: own.memory,
        peers,
        transport,
        posted: AtomicU64::new(0),
        severed: AtomicU64::new(0),
    });
    let endpoint = RdmaEndpoint {
        _watch: Watch::start(Arc::clone(&inner))?,
        inner,
    };
    Ok(Connected {
        endpoint: Arc::new(endpoint),
        hellos,
        meeting: Meeting::of_all(nodes),
    })
}

#[derive(Debug)]
struct Peer {
    region_bytes: usize,
    line: Line,
    door: Door,
    /// How often it was rung by message. Locked while that is done.
    rings: Mutex<u64>,
}

/// What the listening thread shares with the endpoint.
#[derive(Debug)]
pub(super) struct Inner<T> {
    rank: usize,
    memory: Memory,
    /// By rank; none at the own one.
    peers: Vec<Option<Peer>>,
    transport: T,
    posted: AtomicU64,
    /// The peers that are cut off.
    severed: AtomicU64,
}

impl<T: Transport> Inner<T> {
    pub(super) fn health(&self) -> &Health {
        self.transport.health()
    }

    /// Cuts off the peers that are down, where the transport can, and answers which are.
    fn severed(&self) -> NodeSet {
        let severed = NodeSet::from_bits(self.severed.load(Ordering::Acquire));
        let due = self.health().down().minus(severed);
        let cut: NodeSet = due
            .iter()
            .filter(|&peer| self.transport.sever(peer))
            .collect();
        self.severed.fetch_or(cut.bits(), Ordering::AcqRel);
        severed.union(cut)
    }

    /// The lines, with the ranks of the peers at their other ends.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        let ranked = self.peers.iter().enumerate();
        ranked.filter_map(|(rank, peer)| Some((rank, &peer.as_ref()?.line)))
    }

    /// A peer says that it sleeps.
    pub(super) fn fell_asleep(&self, rank: usize) {
        if let Some(Some(peer)) = self.peers.get(rank) {
            if peer.door.fell_asleep() {
                self.ring_by_message(rank, peer);
            }
        }
    }

    /// Whether a peer's ring has arrived, and so all that it posted before.
    pub(super) fn has_rung(&self, rank: usize, count: u64) -> bool {
        let word = self.memory.all.word(control::rung_by(rank));
        word.is_ok_and(|word| word.load(Ordering::Acquire) >= count)
    }

    /// A peer has rung.
    pub(super) fn rang(&self, rank: usize) {
        if let Some(Some(peer)) = self.peers.get(rank) {
            peer.door.rang();
        }
        self.health().bell.ring();
    }

    /// Rings a peer that sleeps: a count goes behind the data, so that the
    /// listener there knows that the data has come; a note tells it to look.
    fn ring_by_message(&self, rank: usize, peer: &Peer) {
        let mut rings = peer.rings.lock().unwrap_or_else(PoisonError::into_inner);
        *rings += 1;
        let Ok(word) = self.memory.all.word(control::rings_at(rank)) else {
            return;
        };
        word.store(*rings, Ordering::Release);
        let write = Write {
            local: control::rings_at(rank),
            remote: control::rung_by(self.rank),
            len: size_of::<u64>(),
        };
        if self.transport.post(rank, &[write]).is_ok() {
            self.tell(rank, peer, Note::Rings(*rings));
        }
    }

    fn tell(&self, rank: usize, peer: &Peer, note: Note) {
        if peer.line.tell(note).is_err() {
            self.health().mark_down(rank, "its line has ended");
        }
    }

    /// Tells the peers that would otherwise not ring.
    fn announce_sleep(&self) {
        for (rank, peer) in self.peers.iter().enumerate() {
            if let Some(peer) = peer {
                if !self.health().is_down(rank) && peer.door.announce() {
                    self.tell(rank, peer, Note::Sleeps);
                }
            }
        }
    }

    fn peer(&self, rank: usize) -> Result<&Peer, FabricError> {
        let known = self.peers.get(rank).and_then(Option::as_ref);
        known.ok_or(FabricError::NoSuchPeer {
            peer: rank,
            nodes: self.peers.len(),
        })
    }

    fn live_peer(&self, rank: usize) -> Result<&Peer, FabricError> {
        let peer = self.peer(rank)?;
        if self.health().is_down(rank) {
            return Err(FabricError::PeerDown(rank));
        }
        Ok(peer)
    }

    /// Whether both ranges are within their regions.
    fn check(&self, peer: &Peer, write: &Write) -> Result<(), FabricError> {
        self.memory.region.range(write.local, write.len)?;
        let (offset, len, region_bytes) = (write.remote, write.len, peer.region_bytes);
        match offset.checked_add(len) {
            Some(end) if end <= region_bytes => Ok(()),
            _ => Err(FabricError::BadRange {
                offset,
                len,
                region_bytes,
            }),
        }
    }

    /// Posts writes that were checked, in pieces that the transport takes.
    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), Gone> {
        let mut chunk = [Write {
            local: 0,
            remote: 0,
            len: 0,
        }; CHUNK];
        let mut filled = 0;
        for piece in writes.iter().flat_map(pieces) {
            chunk[filled] = piece;
            filled += 1;
            if filled == CHUNK {
                self.transport.post(peer, &chunk)?;
                filled = 0;
            }
        }
        match filled {
            0 => Ok(()),
            _ => self.transport.post(peer, &chunk[..filled]),
        }
    }
}

/// A write between regions as pieces between memories.
fn pieces(write: &Write) -> impl Iterator<Item = Write> + use<> {
    let Write { local, remote, len } = *write;
    (0..len).step_by(MAX_PIECE_BYTES).map(move |at| Write {
        local: CONTROL_BYTES + local + at,
        remote: CONTROL_BYTES + remote + at,
        len: (len - at).min(MAX_PIECE_BYTES),
    })
}

/// A connected node.
#[derive(Debug)]
struct RdmaEndpoint<T: Transport> {
    /// Dropped, and joined, before the rest goes.
    _watch: Watch,
    inner: Arc<Inner<T>>,
}

// SAFETY: the memory is registered for as long as the endpoint lives, and transports post what
// they are given.
unsafe impl<T: Transport> Endpoint for RdmaEndpoint<T> {
    fn rank(&self) -> usize {
        self.inner.rank
    }

    fn nodes(&self) -> usize {
        self.inner.peers.len()
    }

    fn region(&self) -> &Region {
        &self.inner.memory.region
    }

    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), FabricError> {
        let to = self.inner.live_peer(peer)?;
        for write in writes {
            self.inner.check(to, write)?;
        }
        let posted = self.inner.post(peer, writes);
        posted.map_err(|Gone| FabricError::PeerDown(peer))?;
        let count = writes.len() as u64;
        self.inner.posted.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    fn together(&self, posts: &mut dyn FnMut()) {
        self.inner.transport.together(posts);
    }

    fn read(
        &self,
        peer: usize,
        local: usize,
        remote: usize,
        len: usize,
    ) -> Result<(), FabricError> {
        let from = self.inner.live_peer(peer)?;
        let all = Write { local, remote, len };
        self.inner.check(from, &all)?;
        pieces(&all)
            .try_for_each(|piece| self.inner.transport.read(peer, piece))
            .map_err(|Gone| FabricError::PeerDown(peer))
    }

    fn fence(&self, peer: usize) -> Result<(), FabricError> {
        self.inner.live_peer(peer)?;
        // A completed write is with the peer's device, which may acknowledge it before
        // it is in memory (IBTA vol. 1, chapter 9). A READ is carried out after the
        // writes before it (9.5), and on PCI Express a device's read does not pass its
        // own earlier writes, relaxed or not: they are in the peer's memory when it is
        // answered.
        let look = Write {
            local: control::fence_of(peer),
            remote: control::rung_by(self.inner.rank),
            len: size_of::<u64>(),
        };
        let answer = self.inner.transport.read(peer, look);
        answer.map_err(|Gone| FabricError::PeerDown(peer))
    }

    fn poll(&self) {
        self.inner.transport.poll();
    }

    fn down(&self) -> NodeSet {
        self.inner.health().down()
    }

    fn severed(&self) -> NodeSet {
        self.inner.severed()
    }

    fn ring(&self, node: usize) {
        if node == self.inner.rank {
            self.inner.health().bell.ring();
        } else if let Ok(peer) = self.inner.live_peer(node) {
            if peer.door.ring() {
                self.inner.ring_by_message(node, peer);
            }
        }
    }

    fn sleep(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let down = self.down();
        self.inner.health().bell.sleep(timeout, &mut || {
            self.inner.announce_sleep();
            ready() || self.down() != down
        });
    }

    fn posted(&self) -> u64 {
        self.inner.posted.load(Ordering::Relaxed)
    }

    fn system_calls(&self) -> Option<u64> {
        self.inner.transport.system_calls()
    }
}

impl<T: Transport> Drop for RdmaEndpoint<T> {
    /// What was posted still arrives, as it does where posting is writing.
    fn drop(&mut self) {
        for peer in 0..self.nodes() {
            // Only one that is down is not fenced, and it needs nothing.
            let _ = self.fence(peer);
        }
    }
}
