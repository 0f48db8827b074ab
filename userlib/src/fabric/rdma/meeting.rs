// SPDX-License-Identifier: MIT OR Apache-2.0

//! How nodes of a network find one another: each has a TCP address, and all
//! know the list.
//!
//! Node `i` listens on the address at `i`, connects to all below it and accepts
//! all above. Over each connection goes a frame with the node's card for that
//! peer (where its memory and its queue pair are) and its hello. When a node has
//! connected its queue pairs it says so to everybody, and goes on when everybody
//! has: so nobody writes to a node that is not ready.
//!
//! Whoever reaches the port could take part, as with rdma_cm: the addresses
//! belong on a network that is trusted.

mod frame;
#[cfg(test)]
mod tests;

use crate::fabric::{FabricError, NodeSet, MAX_HELLO_BYTES, MAX_NODES, MAX_REGION_BYTES};
use frame::{Frame, MAX_CARD_BYTES};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const READY: u8 = b'M';
const RETRY: Duration = Duration::from_millis(10);
/// How long a host may take to answer, before it is tried again.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// How long one who has called may take to say who it is.
const STRANGER_PATIENCE: Duration = Duration::from_secs(1);

/// Which node of which addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fabric) struct Place {
    pub(in crate::fabric) rank: usize,
    pub(in crate::fabric) addrs: Vec<SocketAddr>,
}

impl Place {
    /// The node at `rank` of a list of all nodes' addresses.
    pub(in crate::fabric) fn new(rank: usize, addrs: &[SocketAddr]) -> Result<Self, FabricError> {
        let nodes = addrs.len();
        if !(1..=MAX_NODES).contains(&nodes) || rank >= nodes {
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
        })
    }

    /// The node's own address.
    pub(in crate::fabric) fn own(&self) -> SocketAddr {
        self.addrs[self.rank]
    }

    pub(in crate::fabric) fn nodes(&self) -> usize {
        self.addrs.len()
    }

    /// The other ranks.
    pub(in crate::fabric) fn peers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.nodes()).filter(|&rank| rank != self.rank)
    }
}

/// What a node says of itself.
pub(in crate::fabric) struct Node<'a> {
    pub(in crate::fabric) place: &'a Place,
    /// Which fabric it is.
    pub(in crate::fabric) kind: u8,
    pub(in crate::fabric) region_bytes: usize,
    pub(in crate::fabric) hello: &'a [u8],
    /// The card for a peer, at most [`MAX_CARD_BYTES`].
    pub(in crate::fabric) card: &'a dyn Fn(usize) -> Vec<u8>,
}

/// A peer that was met.
#[derive(Debug)]
pub(in crate::fabric) struct Met {
    pub(in crate::fabric) rank: usize,
    pub(in crate::fabric) region_bytes: usize,
    pub(in crate::fabric) card: Vec<u8>,
    pub(in crate::fabric) hello: Vec<u8>,
    pub(in crate::fabric) line: TcpStream,
}

/// When so much time is over; in a year, if it is more than that.
pub(in crate::fabric) fn end_of(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(Duration::from_secs(365 * 24 * 3600))
}

/// Meets all other nodes, or says who is missing at the end of the time.
/// Answers in the order of ranks.
pub(in crate::fabric) fn meet(node: &Node<'_>, end: Instant) -> Result<Vec<Met>, FabricError> {
    if node.hello.len() > MAX_HELLO_BYTES {
        return Err(FabricError::BadHello(node.hello.len()));
    }
    let listener = listen(node.place)?;
    let mut met: Vec<Met> = Vec::with_capacity(node.place.nodes());
    for rank in 0..node.place.rank {
        match call(node, rank, end) {
            Ok(peer) => met.push(peer),
            Err(failure) => return Err(explain(failure, node.place, &met)),
        }
    }
    while met.len() + 1 < node.place.nodes() {
        match answer(node, &listener, end, &met) {
            Ok(peer) => met.push(peer),
            Err(failure) => return Err(explain(failure, node.place, &met)),
        }
    }
    met.sort_by_key(|peer| peer.rank);
    Ok(met)
}

/// Tells everybody that this node is ready, and waits until everybody is.
pub(super) fn all_ready(met: &mut [Met], end: Instant) -> Result<(), FabricError> {
    for peer in &mut *met {
        let told = peer.line.write_all(&[READY]);
        told.map_err(|_| FabricError::PeerDown(peer.rank))?;
    }
    for peer in met {
        let mut byte = [0];
        read_by(&mut peer.line, &mut byte, end).map_err(|failure| match failure {
            Failure::Late => FabricError::Timeout {
                missing: NodeSet::EMPTY.with(peer.rank),
            },
            Failure::Gone | Failure::Other(_) => FabricError::PeerDown(peer.rank),
        })?;
        if byte != [READY] {
            return Err(FabricError::Protocol {
                peer: peer.rank,
                what: "it did not say that it is ready",
            });
        }
    }
    Ok(())
}

/// Why one meeting failed.
enum Failure {
    Late,
    Gone,
    Other(FabricError),
}

fn explain(failure: Failure, place: &Place, met: &[Met]) -> FabricError {
    match failure {
        Failure::Other(error) => error,
        Failure::Late | Failure::Gone => FabricError::Timeout {
            missing: place
                .peers()
                .filter(|&rank| met.iter().all(|peer| peer.rank != rank))
                .collect(),
        },
    }
}

fn listen(place: &Place) -> Result<TcpListener, FabricError> {
    let listener = TcpListener::bind(place.own()).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => FabricError::RankTaken {
            name: place.own().to_string(),
            rank: place.rank,
        },
        ErrorKind::AddrNotAvailable => FabricError::NotHere(place.own()),
        _ => FabricError::io("bind", &error),
    })?;
    let quiet = listener.set_nonblocking(true);
    quiet.map_err(|error| FabricError::io("fcntl", &error))?;
    Ok(listener)
}

/// Connects to a lower rank, which may not have started yet.
fn call(node: &Node<'_>, rank: usize, end: Instant) -> Result<Met, Failure> {
    loop {
        let left = end.saturating_duration_since(Instant::now()).max(RETRY);
        let addr = node.place.addrs[rank];
        if let Ok(line) = TcpStream::connect_timeout(&addr, left.min(CONNECT_PATIENCE)) {
            match introduce(node, line, end, Some(rank)) {
                // It ended half-way: perhaps it starts again.
                Err(Failure::Gone) => {}
                outcome => return outcome,
            }
        }
        if Instant::now() >= end {
            return Err(Failure::Late);
        }
        std::thread::sleep(RETRY);
    }
}

/// Accepts one higher rank. Strangers are hung up on.
fn answer(
    node: &Node<'_>,
    listener: &TcpListener,
    end: Instant,
    met: &[Met],
) -> Result<Met, Failure> {
    loop {
        wait_readable(listener, end)?;
        let Ok((line, _)) = listener.accept() else {
            continue;
        };
        let quiet = line.set_nonblocking(false);
        quiet.map_err(|error| Failure::Other(FabricError::io("fcntl", &error)))?;
        let patience = end.min(Instant::now() + STRANGER_PATIENCE);
        match introduce(node, line, patience, None) {
            Ok(peer)
                if peer.rank > node.place.rank
                    && met.iter().all(|other| other.rank != peer.rank) =>
            {
                return Ok(peer)
            }
            Ok(_) | Err(Failure::Gone | Failure::Late) => {}
            Err(failure) => return Err(failure),
        }
    }
}

fn wait_readable(fd: impl AsFd, end: Instant) -> Result<(), Failure> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Failure::Late);
    }
    let timeout = PollTimeout::try_from(left.min(Duration::from_secs(1)) + RETRY)
        .unwrap_or(PollTimeout::from(1000_u16));
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(Failure::Other(FabricError::system("poll", errno))),
    }
}

/// Tells the peer who we are, and hears who it is. Who called (`called`: whom)
/// speaks first, so that a stranger learns nothing from whoever listens.
fn introduce(
    node: &Node<'_>,
    mut line: TcpStream,
    end: Instant,
    called: Option<usize>,
) -> Result<Met, Failure> {
    if let Some(rank) = called {
        tell(node, &mut line, rank)?;
    }
    let mut frame = [0; Frame::BYTES];
    read_by(&mut line, &mut frame, end)?;
    // Not of our release, or a stranger: as if it had not called.
    let frame = Frame::from_bytes(&frame).ok_or(Failure::Gone)?;
    if let Err(refusal) = judge(node, &frame, called) {
        // It is one of us, and should learn it too.
        if called.is_none() {
            say(node, &mut line, &[], &[])?;
        }
        return Err(Failure::Other(refusal));
    }
    let mut card = vec![0; frame.card_bytes];
    read_by(&mut line, &mut card, end)?;
    let mut hello = vec![0; frame.hello_bytes];
    read_by(&mut line, &mut hello, end)?;
    if called.is_none() {
        tell(node, &mut line, frame.rank)?;
    }
    Ok(Met {
        rank: frame.rank,
        region_bytes: frame.region_bytes,
        card,
        hello,
        line,
    })
}

/// Whether the other side can be a node of the same fabric.
fn judge(node: &Node<'_>, frame: &Frame, called: Option<usize>) -> Result<(), FabricError> {
    let peer = frame.rank;
    let odd = |what| Err(FabricError::Protocol { peer, what });
    if frame.nodes != node.place.nodes() {
        return Err(FabricError::NodesDiffer {
            peer,
            theirs: frame.nodes,
            ours: node.place.nodes(),
        });
    }
    if frame.kind != node.kind {
        return odd("it uses another fabric");
    }
    if called.is_some_and(|rank| rank != peer) || peer == node.place.rank || peer >= frame.nodes {
        return odd("its rank is not that of its address: give all nodes the same list");
    }
    if frame.region_bytes > MAX_REGION_BYTES {
        return odd("its region is too long");
    }
    Ok(())
}

fn tell(node: &Node<'_>, line: &mut TcpStream, to: usize) -> Result<(), Failure> {
    say(node, line, &(node.card)(to), node.hello)
}

fn say(node: &Node<'_>, line: &mut TcpStream, card: &[u8], hello: &[u8]) -> Result<(), Failure> {
    debug_assert!(card.len() <= MAX_CARD_BYTES);
    let frame = Frame {
        kind: node.kind,
        rank: node.place.rank,
        nodes: node.place.nodes(),
        region_bytes: node.region_bytes,
        card_bytes: card.len(),
        hello_bytes: hello.len(),
    };
    let all = [&frame.to_bytes(), card, hello].concat();
    line.write_all(&all).map_err(|_| Failure::Gone)
}

fn read_by(line: &mut TcpStream, mut bytes: &mut [u8], end: Instant) -> Result<(), Failure> {
    while !bytes.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Late);
        }
        let set = line.set_read_timeout(Some(left.max(RETRY)));
        set.map_err(|error| Failure::Other(FabricError::io("setsockopt", &error)))?;
        match line.read(bytes) {
            Ok(0) => return Err(Failure::Gone),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => return Err(Failure::Gone),
            },
        }
    }
    Ok(())
}
