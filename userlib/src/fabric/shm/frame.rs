// SPDX-License-Identifier: MIT OR Apache-2.0

//! The frame that opens a connection between two nodes: some words, and with them the node's
//! memory as a descriptor.

use super::rendezvous::Failure;
use crate::fabric::{FabricError, MAX_HELLO_BYTES};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, MsgFlags};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
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
        let mut space = cmsg_space!([RawFd; 1]);
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
        let whole = heard.bytes == Self::BYTES && !heard.flags.contains(MsgFlags::MSG_CTRUNC);
        let mut brought = descriptors(&space);
        // Not of our release, or a stranger: as if it had not called.
        let frame = Self::from_bytes(&bytes).filter(|_| whole);
        Ok((frame.ok_or(Failure::Gone)?, brought.pop()))
    }
}

/// The descriptors in a buffer for control messages, which was zero before one was received. If
/// one brings more than there is room for, the kernel has made some of them all the same.
fn descriptors(control: &[u8]) -> Vec<OwnedFd> {
    const HEADER_BYTES: usize = size_of::<libc::cmsghdr>();
    let Some(header) = control.first_chunk::<HEADER_BYTES>() else {
        return Vec::new();
    };
    // SAFETY: the bytes are those of a header, whose fields may be any, or zero.
    let header = unsafe { std::mem::transmute::<[u8; HEADER_BYTES], libc::cmsghdr>(*header) };
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return Vec::new();
    }
    let data = control.get(HEADER_BYTES..header.cmsg_len);
    let fds = data.unwrap_or_default().chunks_exact(size_of::<RawFd>());
    fds.filter_map(|fd| fd.first_chunk().map(|fd| RawFd::from_ne_bytes(*fd)))
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
        .collect()
}

/// A memory's descriptor that a frame has to have brought.
pub(super) fn brought(memory: Option<OwnedFd>) -> Result<OwnedFd, Failure> {
    memory.ok_or(Failure::Gone)
}

/// From the failure of a system call on a line.
pub(super) fn other(call: &'static str, error: &std::io::Error) -> Failure {
    Failure::Other(FabricError::io(call, error))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::Duration;

    /// Sends a frame and so many ends of a pipe, and looks whether it was received. When all is
    /// dropped no end of the pipe is left.
    fn is_received_with(ends: usize) -> bool {
        let (ours, theirs) = UnixStream::pair().expect("a line");
        let (end, mut other_end) = UnixStream::pair().expect("a pipe");
        let mut bytes = [0; Frame::BYTES];
        bytes[..8].copy_from_slice(&Kind::Call.magic().to_le_bytes());
        let fds = vec![end.as_raw_fd(); ends];
        let rights = [ControlMessage::ScmRights(&fds)];
        let parts = [IoSlice::new(&bytes)];
        let sent = sendmsg::<()>(theirs.as_raw_fd(), &parts, &rights, MsgFlags::empty(), None);
        assert_eq!(sent, Ok(Frame::BYTES));
        drop(end);
        let heard = Frame::receive(&ours);
        let is_received = matches!(&heard, Ok((_, memory)) if memory.is_some());
        drop(heard);
        let set = other_end.set_read_timeout(Some(Duration::from_secs(10)));
        set.expect("a time");
        assert_eq!(other_end.read(&mut [0]).expect("its end"), 0, "{ends}");
        is_received
    }

    #[test]
    fn of_a_frame_with_too_many_descriptors_none_is_kept() {
        assert!(is_received_with(1));
        for ends in [3, 4, 100] {
            assert!(!is_received_with(ends), "{ends}");
        }
    }
}
