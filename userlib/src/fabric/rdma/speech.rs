// SPDX-License-Identifier: MIT OR Apache-2.0

//! How two nodes tell each other who they are: a frame, the sender's card for the other (where
//! its memory and its queue pair are), and its hello.

use super::frame::{Frame, Purpose, MAX_CARD_BYTES};
use super::place::Place;
use crate::fabric::{FabricError, MAX_REGION_BYTES};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

pub(super) const RETRY: Duration = Duration::from_millis(10);
/// How long the other side may take to make room for what this node says.
const WRITE_TIME: Duration = Duration::from_secs(1);

/// What a node says of itself.
#[derive(Clone, Debug)]
pub(in crate::fabric) struct Node {
    pub(in crate::fabric) place: Place,
    /// Which fabric it is.
    pub(in crate::fabric) kind: u8,
    pub(in crate::fabric) region_bytes: usize,
    pub(in crate::fabric) hello: Vec<u8>,
    /// 0 of a founder.
    pub(in crate::fabric) incarnation: u64,
}

/// What a node has said behind its frame.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) card: Vec<u8>,
    pub(super) hello: Vec<u8>,
}

/// Why one conversation failed.
#[derive(Debug)]
pub(super) enum Failure {
    Late,
    Gone,
    Other(FabricError),
}

impl Node {
    /// A frame of this node's, with nothing behind it. `nodes` as [`Frame::nodes`].
    pub(super) fn frame(&self, purpose: Purpose, nodes: u64) -> Frame {
        Frame {
            purpose,
            kind: self.kind,
            rank: self.place.rank,
            nodes,
            region_bytes: self.region_bytes,
            card_bytes: 0,
            hello_bytes: 0,
            incarnation: self.incarnation,
        }
    }

    /// Says a frame alone.
    pub(super) fn say(line: &mut TcpStream, frame: Frame) -> Result<(), Failure> {
        write(line, &frame.to_bytes())
    }

    /// Says who this node is.
    pub(super) fn introduce(
        &self,
        line: &mut TcpStream,
        frame: Frame,
        card: &[u8],
    ) -> Result<(), Failure> {
        debug_assert!(card.len() <= MAX_CARD_BYTES);
        let frame = Frame {
            card_bytes: card.len(),
            hello_bytes: self.hello.len(),
            ..frame
        };
        write(line, &[&frame.to_bytes(), card, &self.hello].concat())
    }

    /// Whether who has sent a frame can be a node of the same fabric, as far as that is for a
    /// frame to say. `nodes` as [`Frame::nodes`].
    pub(super) fn judge(&self, frame: &Frame, nodes: u64) -> Result<(), FabricError> {
        let peer = frame.rank;
        let odd = |what| Err(FabricError::Protocol { peer, what });
        if frame.nodes != nodes {
            let count = |nodes| usize::try_from(nodes).unwrap_or(usize::MAX);
            return Err(FabricError::NodesDiffer {
                peer,
                theirs: count(frame.nodes),
                ours: count(nodes),
            });
        }
        if frame.kind != self.kind {
            return odd("it uses another fabric");
        }
        if peer == self.place.rank || peer >= self.place.seats() {
            return odd("its rank is not that of its address: give all nodes the same list");
        }
        if frame.region_bytes > MAX_REGION_BYTES {
            return odd("its region is too long");
        }
        Ok(())
    }
}

fn write(line: &mut TcpStream, bytes: &[u8]) -> Result<(), Failure> {
    let set = line.set_write_timeout(Some(WRITE_TIME));
    set.map_err(|error| Failure::Other(FabricError::io("setsockopt", &error)))?;
    line.write_all(bytes).map_err(|_| Failure::Gone)
}

/// The frame that comes next. One who does not send one is not of our release, or a stranger:
/// as if it had not called.
pub(super) fn hear_frame(line: &mut TcpStream, end: Instant) -> Result<Frame, Failure> {
    let mut frame = [0; Frame::BYTES];
    read_by(line, &mut frame, end)?;
    Frame::from_bytes(&frame).ok_or(Failure::Gone)
}

/// What follows a frame.
pub(super) fn hear_rest(
    line: &mut TcpStream,
    frame: &Frame,
    end: Instant,
) -> Result<Heard, Failure> {
    let mut card = vec![0; frame.card_bytes];
    read_by(line, &mut card, end)?;
    let mut hello = vec![0; frame.hello_bytes];
    read_by(line, &mut hello, end)?;
    Ok(Heard { card, hello })
}

/// Fills the bytes, until the time is over.
pub(super) fn read_by(
    line: &mut TcpStream,
    mut bytes: &mut [u8],
    end: Instant,
) -> Result<(), Failure> {
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

/// Waits a while until somebody has called, at most until the time is over.
pub(super) fn wait_readable(fd: impl AsFd, end: Instant) -> Result<(), Failure> {
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
