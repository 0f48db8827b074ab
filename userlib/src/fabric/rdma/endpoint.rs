// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connected node, whatever carries its requests.

use super::control::{self, CONTROL_BYTES};
use super::inner::{Inner, Peer};
use super::line::Line;
use super::meeting::{self, meet};
use super::seats::{Opened, Reception};
use super::speech::Node;
use super::watch;
use super::{Gone, Linker, Transport, MAX_PIECE_BYTES};
use crate::fabric::thread::Thread;
use crate::fabric::{Connected, Endpoint, FabricError, Meeting, NodeSet, Region, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes that are handed to the transport at a time.
const CHUNK: usize = 32;

/// Makes the endpoint of a node: meets the other founders and connects to them. Returns when
/// theirs are, too. Where there are seats for others, they are received from then on.
pub(super) fn connect<L: Linker>(
    node: Node,
    opened: Opened<L>,
    end: Instant,
) -> Result<Connected, FabricError> {
    let Opened {
        memory,
        linker,
        transport,
    } = opened;
    let (rank, seats, founders) = (node.place.rank, node.place.seats(), node.place.founders);
    let inner = Inner::new(rank, seats, memory, transport)?;
    let mut hellos = vec![Vec::new(); seats];
    hellos[rank].clone_from(&node.hello);
    let listener = meet_all(&node, &inner, &linker, &mut hellos, end)?;
    inner.settle();
    let inner = Arc::new(inner);
    let reception = match founders < seats {
        true => Some(Reception::new(node, linker, listener, Arc::clone(&inner)).start()?),
        false => None,
    };
    let meeting = Meeting::Founders((0..founders).collect());
    start(inner, reception, hellos, meeting)
}

/// Meets the other founders and connects to them. Answers with what later ones can call.
fn meet_all<L: Linker>(
    node: &Node,
    inner: &Inner<L::Transport>,
    linker: &L,
    hellos: &mut [Vec<u8>],
    end: Instant,
) -> Result<TcpListener, FabricError> {
    let mut offers: Vec<_> = (0..hellos.len()).map(|_| None).collect();
    for rank in node.place.founders() {
        offers[rank] = Some(linker.offer()?);
    }
    let card = |peer: usize| {
        let offer = offers.get(peer).and_then(Option::as_ref);
        offer.map(|offer| linker.card(offer)).unwrap_or_default()
    };
    let (mut met, listener) = meet(node, &card, end)?;
    let mut links = Vec::with_capacity(met.len());
    for peer in &met {
        if let Some(offer) = offers[peer.rank].take() {
            links.push(linker.link(peer.rank, offer, &peer.card)?);
        }
    }
    meeting::all_ready(&mut met, end)?;
    for (peer, link) in met.into_iter().zip(links) {
        hellos[peer.rank] = peer.hello;
        let known = Peer::new(0, peer.region_bytes, Line::new(peer.line)?);
        inner.seat(peer.rank, Arc::new(known), link);
    }
    Ok(listener)
}

/// Makes the endpoint of a node that is connected to others.
pub(super) fn start<T: Transport>(
    inner: Arc<Inner<T>>,
    reception: Option<Thread>,
    hellos: Vec<Vec<u8>>,
    meeting: Meeting,
) -> Result<Connected, FabricError> {
    let endpoint = RdmaEndpoint {
        reception,
        _watch: watch::start(Arc::clone(&inner))?,
        inner,
    };
    Ok(Connected {
        endpoint: Arc::new(endpoint),
        hellos,
        meeting,
    })
}

impl<T: Transport> Inner<T> {
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
    /// The thread that receives newcomers, where there are seats. Both threads are dropped, and
    /// joined, before the rest goes.
    reception: Option<Thread>,
    _watch: Thread,
    inner: Arc<Inner<T>>,
}

// SAFETY: the memory is registered for as long as the endpoint lives, and transports post what
// they are given.
unsafe impl<T: Transport> Endpoint for RdmaEndpoint<T> {
    fn rank(&self) -> usize {
        self.inner.rank
    }

    fn nodes(&self) -> usize {
        self.inner.seats()
    }

    fn region(&self) -> &Region {
        &self.inner.memory.region
    }

    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), FabricError> {
        let to = self.inner.live_peer(peer)?;
        for write in writes {
            self.inner.check(&to, write)?;
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
        self.inner.check(&from, &all)?;
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

    fn callers(&self) -> NodeSet {
        self.inner.callers()
    }

    fn admit(&self, seat: usize) -> Result<u64, FabricError> {
        self.inner.admit(seat)
    }

    fn evict(&self, peer: usize) {
        self.inner.evict(peer);
        if self.reception.is_none() {
            // No other thread cuts off who is down.
            self.inner.severed();
        }
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn ring(&self, node: usize) {
        if node == self.inner.rank {
            self.inner.health().bell.ring();
        } else if let Ok(peer) = self.inner.live_peer(node) {
            if peer.door.ring() {
                self.inner.ring_by_message(node, &peer);
            }
        }
    }

    fn sleep(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        let before = (self.down(), self.callers());
        self.inner.health().bell.sleep(timeout, &mut || {
            self.inner.announce_sleep();
            ready() || (self.down(), self.callers()) != before
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
