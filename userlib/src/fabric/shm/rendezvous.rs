// SPDX-License-Identifier: MIT OR Apache-2.0

//! How nodes of one host find one another: abstract Unix sockets.
//!
//! Node `i` listens as `weft/<uid>/<name>/<i>`, connects to all below it and
//! accepts all above. Over each connection go a frame with the node's memory
//! as a descriptor, and its hello; then a byte that says that the node has met
//! everybody. An abstract name is no file: it goes with the process, and so
//! does the connection, whose end is how a death is noticed.

use crate::fabric::{FabricError, NodeSet, MAX_HELLO_BYTES};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    getsockopt, recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags,
};
use nix::unistd::getuid;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

const MAGIC: u64 = u64::from_le_bytes(*b"weftshm1");
const MET: u8 = b'M';
const RETRY: Duration = Duration::from_millis(1);

/// What a node says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
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

/// The frame that opens a connection: five words.
struct Frame {
    rank: usize,
    nodes: usize,
    region_bytes: usize,
    hello_bytes: usize,
}

impl Frame {
    const BYTES: usize = 40;

    fn to_bytes(&self) -> [u8; Self::BYTES] {
        let words = [
            MAGIC,
            self.rank as u64,
            self.nodes as u64,
            self.region_bytes as u64,
            self.hello_bytes as u64,
        ];
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
            u64::from_le_bytes(word)
        };
        let size = |at| usize::try_from(word(at)).ok();
        let frame = Self {
            rank: size(1)?,
            nodes: size(2)?,
            region_bytes: size(3)?,
            hello_bytes: size(4)?,
        };
        (word(0) == MAGIC && frame.hello_bytes <= MAX_HELLO_BYTES).then_some(frame)
    }
}

/// Meets all other nodes, or says who is missing at the end of the time.
pub(super) fn meet(node: &Node<'_>, timeout: Duration) -> Result<Vec<Met>, FabricError> {
    let end = Instant::now() + timeout;
    let listener = listen(node)?;
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
    for peer in &mut met {
        let told = peer.line.write_all(&[MET]);
        told.map_err(|_| FabricError::PeerDown(peer.rank))?;
    }
    for peer in &mut met {
        let mut byte = [0];
        read_by(&mut peer.line, &mut byte, end).map_err(|failure| match failure {
            Failure::Late => FabricError::Timeout {
                missing: NodeSet::EMPTY.with(peer.rank),
            },
            Failure::Gone | Failure::Other(_) => FabricError::PeerDown(peer.rank),
        })?;
    }
    met.sort_by_key(|peer| peer.rank);
    Ok(met)
}

/// Why one meeting failed.
enum Failure {
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

pub(super) fn address(name: &str, rank: usize) -> Result<SocketAddr, FabricError> {
    SocketAddr::from_abstract_name(format!("weft/{}/{name}/{rank}", getuid()))
        .map_err(|error| FabricError::io("socket", &error))
}

fn listen(node: &Node<'_>) -> Result<UnixListener, FabricError> {
    let listener = UnixListener::bind_addr(&address(node.name, node.rank)?);
    let listener = listener.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => FabricError::RankTaken {
            name: node.name.to_owned(),
            rank: node.rank,
        },
        _ => FabricError::io("bind", &error),
    })?;
    let quiet = listener.set_nonblocking(true);
    quiet.map_err(|error| FabricError::io("fcntl", &error))?;
    Ok(listener)
}

/// Connects to a lower rank, which may not have started yet.
fn call(node: &Node<'_>, rank: usize, end: Instant) -> Result<Met, Failure> {
    let address = address(node.name, rank).map_err(Failure::Other)?;
    loop {
        if let Ok(line) = UnixStream::connect_addr(&address) {
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
        if !getsockopt(&line, PeerCredentials).is_ok_and(|who| who.uid() == getuid().as_raw()) {
            continue;
        }
        match introduce(node, line, end, false) {
            Ok(peer)
                if peer.rank > node.rank && met.iter().all(|other| other.rank != peer.rank) =>
            {
                return Ok(peer)
            }
            Ok(_) | Err(Failure::Gone) => {}
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
    let (frame, memory) = hear(&mut line, end)?;
    let mut hello = vec![0; frame.hello_bytes];
    read_by(&mut line, &mut hello, end)?;
    if !first {
        tell(node, &mut line)?;
    }
    if frame.nodes != node.nodes {
        return Err(Failure::Other(FabricError::NodesDiffer {
            peer: frame.rank,
            theirs: frame.nodes,
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
        rank: node.rank,
        nodes: node.nodes,
        region_bytes: node.region_bytes,
        hello_bytes: node.hello.len(),
    }
    .to_bytes();
    let fds = [node.memory.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let parts = [IoSlice::new(&frame)];
    let sent = sendmsg::<()>(
        line.as_raw_fd(),
        &parts,
        &rights,
        MsgFlags::MSG_NOSIGNAL,
        None,
    );
    if sent != Ok(Frame::BYTES) {
        return Err(Failure::Gone);
    }
    line.write_all(node.hello).map_err(|_| Failure::Gone)
}

fn hear(line: &mut UnixStream, end: Instant) -> Result<(Frame, OwnedFd), Failure> {
    let left = end.saturating_duration_since(Instant::now()).max(RETRY);
    let set = line.set_read_timeout(Some(left));
    set.map_err(|error| Failure::Other(FabricError::io("setsockopt", &error)))?;
    let mut bytes = [0; Frame::BYTES];
    let mut space = cmsg_space!([std::os::fd::RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let heard = recvmsg::<()>(
        line.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    );
    let heard = heard.map_err(|errno| match errno {
        Errno::EAGAIN => Failure::Late,
        _ => Failure::Gone,
    })?;
    let whole = heard.bytes == Frame::BYTES;
    let mut memory = None;
    for message in heard.cmsgs().map_err(|_| Failure::Gone)? {
        if let ControlMessageOwned::ScmRights(fds) = message {
            for fd in fds {
                // SAFETY: the kernel has just made this descriptor for us, and
                // nobody else knows it.
                memory = Some(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
    let frame = Frame::from_bytes(&bytes).filter(|_| whole);
    match (frame, memory) {
        (Some(frame), Some(memory)) => Ok((frame, memory)),
        // Not of our release, or a stranger: as if it had not called.
        _ => Err(Failure::Gone),
    }
}

fn read_by(line: &mut UnixStream, bytes: &mut [u8], end: Instant) -> Result<(), Failure> {
    let left = end.saturating_duration_since(Instant::now()).max(RETRY);
    let set = line.set_read_timeout(Some(left));
    set.map_err(|error| Failure::Other(FabricError::io("setsockopt", &error)))?;
    line.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Late,
        _ => Failure::Gone,
    })
}
