// SPDX-License-Identifier: MIT OR Apache-2.0

//! How nodes of one host find one another: abstract Unix sockets.
//!
//! Node `i` listens as `weft/<uid>/<name>/<i>`, connects to all below it and
//! accepts all above. Over each connection go a frame with the node's memory
//! as a descriptor, and its hello; then a byte that says that the node has met
//! everybody. An abstract name is no file: it goes with the process, and so
//! does the connection, whose end is how a death is noticed.

use super::frame::{brought, other, Frame, Kind};
use crate::deadline::end_of;
use crate::fabric::{FabricError, NodeSet};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{connect, getsockopt, socket, AddressFamily, SockFlag, SockType, UnixAddr};
use nix::unistd::getuid;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// That the sender has met the other.
const MET: u8 = b'M';
pub(super) const RETRY: Duration = Duration::from_millis(1);
/// How long one who has called may take to say who it is.
const STRANGER_PATIENCE: Duration = Duration::from_secs(1);

/// What a node says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    pub(super) kind: Kind,
    pub(super) name: &'a str,
    pub(super) rank: usize,
    pub(super) nodes: usize,
    pub(super) region_bytes: usize,
    pub(super) memory: &'a OwnedFd,
    pub(super) hello: &'a [u8],
}

/// A peer that was met.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) rank: usize,
    pub(super) region_bytes: usize,
    pub(super) memory: OwnedFd,
    pub(super) hello: Vec<u8>,
    /// Silent from now on; it hangs up when the peer ends.
    pub(super) line: UnixStream,
}

/// Meets all other nodes, or says who is missing at the end of the time. The listener is for
/// those who come later.
pub(super) fn meet(
    node: &Node<'_>,
    timeout: Duration,
) -> Result<(Vec<Met>, UnixListener), FabricError> {
    let end = end_of(timeout);
    let listener = listen(node.name, node.rank)?;
    let mut met: Vec<Met> = Vec::with_capacity(node.nodes);
    for rank in 0..node.rank {
        match call(node, rank, end) {
            Ok(peer) => met.push(peer),
            Err(failure) => return Err(explain(failure, node, &met)),
        }
    }
    while met.len() + 1 < node.nodes {
        match answer(node, &listener, end, &met) {
            Ok(peer) => met.push(peer),
            Err(failure) => return Err(explain(failure, node, &met)),
        }
    }
    // Nobody goes on before all have met all: else a node that ends at once
    // would leave the others waiting for it here.
    for peer in &met {
        tell_met(&peer.line).map_err(|_| FabricError::PeerDown(peer.rank))?;
    }
    for peer in &met {
        let mut byte = [0];
        read_by(&peer.line, &mut byte, end).map_err(|failure| match failure {
            Failure::Late => FabricError::Timeout {
                missing: NodeSet::EMPTY.with(peer.rank),
            },
            Failure::Gone | Failure::Other(_) => FabricError::PeerDown(peer.rank),
        })?;
    }
    met.sort_by_key(|peer| peer.rank);
    Ok((met, listener))
}

/// Says that this node has met the peer.
pub(super) fn tell_met(mut line: &UnixStream) -> std::io::Result<()> {
    line.write_all(&[MET])
}

/// Whether a peer says so, on a line on which there is something to read.
pub(super) fn has_met(mut line: &UnixStream) -> bool {
    let mut byte = [0];
    line.read_exact(&mut byte).is_ok() && byte == [MET]
}

/// Why one meeting failed.
pub(super) enum Failure {
    Late,
    Gone,
    Other(FabricError),
}

fn explain(failure: Failure, node: &Node<'_>, met: &[Met]) -> FabricError {
    let here: NodeSet = met.iter().map(|peer| peer.rank).collect();
    match failure {
        Failure::Other(error) => error,
        Failure::Late | Failure::Gone => FabricError::Timeout {
            missing: (0..node.nodes)
                .filter(|&rank| rank != node.rank && !here.contains(rank))
                .collect(),
        },
    }
}

pub(super) fn abstract_name(name: &str, rank: usize) -> String {
    format!("weft/{}/{name}/{rank}", getuid())
}

pub(super) fn address(name: &str, rank: usize) -> Result<SocketAddr, FabricError> {
    SocketAddr::from_abstract_name(abstract_name(name, rank))
        .map_err(|error| FabricError::io("socket", &error))
}

/// Takes a rank, which nobody else can have meanwhile.
pub(super) fn listen(name: &str, rank: usize) -> Result<UnixListener, FabricError> {
    let listener = UnixListener::bind_addr(&address(name, rank)?);
    let listener = listener.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => FabricError::RankTaken {
            name: name.to_owned(),
            rank,
        },
        _ => FabricError::io("bind", &error),
    })?;
    let quiet = listener.set_nonblocking(true);
    quiet.map_err(|error| FabricError::io("fcntl", &error))?;
    Ok(listener)
}

/// Opens a line to a rank, if a process of this user listens there and has room for it. One that
/// is stopped has none when enough have called: to wait for that would be to wait for it. Anybody
/// can take an abstract name, and callers send their memory at once.
pub(super) fn dial(name: &str, rank: usize) -> Option<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let line = socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
    let address = UnixAddr::new_abstract(abstract_name(name, rank).as_bytes()).ok()?;
    connect(line.as_raw_fd(), &address).ok()?;
    let line = UnixStream::from(line);
    line.set_nonblocking(false).ok()?;
    is_own_user(&line).then_some(line)
}

/// Connects to a lower rank, which may not have started yet.
fn call(node: &Node<'_>, rank: usize, end: Instant) -> Result<Met, Failure> {
    loop {
        if let Some(line) = dial(node.name, rank) {
            match introduce(node, line, end, true) {
                Ok(peer) if peer.rank == rank => return Ok(peer),
                // It ended half-way: perhaps it starts again.
                Ok(_) | Err(Failure::Gone) => {}
                Err(failure) => return Err(failure),
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
    listener: &UnixListener,
    end: Instant,
    met: &[Met],
) -> Result<Met, Failure> {
    loop {
        wait_readable(listener, end)?;
        let Ok((line, _)) = listener.accept() else {
            continue;
        };
        if !is_own_user(&line) {
            continue;
        }
        let patience = end.min(Instant::now() + STRANGER_PATIENCE);
        match introduce(node, line, patience, false) {
            Ok(peer)
                if peer.rank > node.rank && met.iter().all(|other| other.rank != peer.rank) =>
            {
                return Ok(peer)
            }
            Ok(_) | Err(Failure::Gone | Failure::Late) => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// Whether a process of this user is at the other end: the one that has called, or the one that
/// listens.
pub(super) fn is_own_user(line: &UnixStream) -> bool {
    getsockopt(line, PeerCredentials).is_ok_and(|who| who.uid() == getuid().as_raw())
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

/// Tells the peer who we are, and hears who it is. Who connected speaks first,
/// so that a stranger gets no descriptor from whoever listens.
fn introduce(
    node: &Node<'_>,
    mut line: UnixStream,
    end: Instant,
    first: bool,
) -> Result<Met, Failure> {
    if first {
        tell(node, &mut line)?;
    }
    let (frame, memory) = hear(&line, end)?;
    let memory = brought(memory)?;
    if frame.kind != node.kind {
        return Err(Failure::Gone);
    }
    let mut hello = vec![0; frame.hello_bytes];
    read_by(&line, &mut hello, end)?;
    if !first {
        tell(node, &mut line)?;
    }
    let nodes = usize::try_from(frame.nodes).map_err(|_| Failure::Gone)?;
    if nodes != node.nodes {
        return Err(Failure::Other(FabricError::NodesDiffer {
            peer: frame.rank,
            theirs: nodes,
            ours: node.nodes,
        }));
    }
    if frame.rank >= node.nodes {
        return Err(Failure::Gone);
    }
    Ok(Met {
        rank: frame.rank,
        region_bytes: frame.region_bytes,
        memory,
        hello,
        line,
    })
}

fn tell(node: &Node<'_>, line: &mut UnixStream) -> Result<(), Failure> {
    let frame = Frame {
        kind: node.kind,
        rank: node.rank,
        nodes: node.nodes as u64,
        region_bytes: node.region_bytes,
        hello_bytes: node.hello.len(),
        incarnation: 0,
    };
    frame.send(line, Some(node.memory))?;
    line.write_all(node.hello).map_err(|_| Failure::Gone)
}

/// Waits for a frame until `end`.
pub(super) fn hear(line: &UnixStream, end: Instant) -> Result<(Frame, Option<OwnedFd>), Failure> {
    let left = end.saturating_duration_since(Instant::now()).max(RETRY);
    let set = line.set_read_timeout(Some(left));
    set.map_err(|error| other("setsockopt", &error))?;
    Frame::receive(line)
}

pub(super) fn read_by(
    mut line: &UnixStream,
    bytes: &mut [u8],
    end: Instant,
) -> Result<(), Failure> {
    let left = end.saturating_duration_since(Instant::now()).max(RETRY);
    let set = line.set_read_timeout(Some(left));
    set.map_err(|error| other("setsockopt", &error))?;
    line.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Late,
        _ => Failure::Gone,
    })
}
