// SPDX-License-Identifier: MIT OR Apache-2.0

//! The frame that opens a connection between two nodes: some words, and with them the node's
//! memory as a descriptor.

use super::rendezvous::Failure;
use crate::fabric::{FabricError, MAX_HELLO_BYTES};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// What the connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All nodes of a fabric meet.
    Meeting,
    /// The founders of a fabric with seats meet.
    Founding,
    /// Somebody asks a node which seats are empty.
    Question,
    /// The answer, in which `nodes` is a set of seats.
    Vacant,
    /// A newcomer calls a node.
    Call,
    /// The node says who it is. Behind it the newcomer says that it has met the node.
    Answer,
}

impl Kind {
    const ALL: [(Self, [u8; 8]); 6] = [
        (Self::Meeting, *b"weftshm2"),
        (Self::Founding, *b"weftfnd2"),
        (Self::Question, *b"weftask2"),
        (Self::Vacant, *b"weftvac2"),
        (Self::Call, *b"weftcal3"),
        (Self::Answer, *b"weftans2"),
    ];

    fn magic(self) -> u64 {
        let known = Self::ALL.iter().find(|known| known.0 == self);
        known.map_or(0, |known| u64::from_le_bytes(known.1))
    }

    fn of(magic: u64) -> Option<Self> {
        let mut all = Self::ALL.iter();
        let known = all.find(|known| u64::from_le_bytes(known.1) == magic)?;
        Some(known.0)
    }
}

/// Six words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) rank: usize,
    /// Nodes that meet; of a call and its answer a number for the hello.
    pub(super) nodes: u64,
    pub(super) region_bytes: usize,
    pub(super) hello_bytes: usize,
    /// 0 of a founder.
    pub(super) incarnation: u64,
}

impl Frame {
    const BYTES: usize = 48;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let words = [
            self.kind.magic(),
            self.rank as u64,
            self.nodes,
            self.region_bytes as u64,
            self.hello_bytes as u64,
            self.incarnation,
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
            kind: Kind::of(word(0))?,
            rank: size(1)?,
            nodes: word(2),
            region_bytes: size(3)?,
            hello_bytes: size(4)?,
            incarnation: word(5),
        };
        (frame.hello_bytes <= MAX_HELLO_BYTES).then_some(frame)
    }

    /// Sends it, and a descriptor with it.
    pub(super) fn send(&self, line: &UnixStream, memory: Option<&OwnedFd>) -> Result<(), Failure> {
        let bytes = self.to_bytes();
        let parts = [IoSlice::new(&bytes)];
        let fds = memory.map(AsRawFd::as_raw_fd);
        let rights = [ControlMessage::ScmRights(fds.as_slice())];
        let rights = if fds.is_some() { &rights[..] } else { &[] };
        let flags = MsgFlags::MSG_NOSIGNAL;
        let sent = sendmsg::<()>(line.as_raw_fd(), &parts, rights, flags, None);
        match sent {
            Ok(Self::BYTES) => Ok(()),
            _ => Err(Failure::Gone),
        }
    }

    /// Receives one, and the descriptor that comes with it, as the line's own settings say
    /// how long.
    pub(super) fn receive(line: &UnixStream) -> Result<(Self, Option<OwnedFd>), Failure> {
        let mut bytes = [0; Self::BYTES];
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
        let whole = heard.bytes == Self::BYTES;
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
        // Not of our release, or a stranger: as if it had not called.
        let frame = Self::from_bytes(&bytes).filter(|_| whole);
        Ok((frame.ok_or(Failure::Gone)?, memory))
    }
}

/// A memory's descriptor that a frame has to have brought.
pub(super) fn brought(memory: Option<OwnedFd>) -> Result<OwnedFd, Failure> {
    memory.ok_or(Failure::Gone)
}

/// From the failure of a system call on a line.
pub(super) fn other(call: &'static str, error: &std::io::Error) -> Failure {
    Failure::Other(FabricError::io(call, error))
}
