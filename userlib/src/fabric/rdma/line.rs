// SPDX-License-Identifier: MIT OR Apache-2.0

//! A line to a peer after the meeting: few, short notes about sleep, and its
//! end.

use super::meeting::say_ready;
use crate::fabric::FabricError;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{
    KeepAlive, Linger, TcpKeepCount, TcpKeepIdle, TcpKeepInterval, TcpUserTimeout,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// A host that has gone without a word is noticed after this many seconds of
/// silence and as many probes, one a second.
const KEEP_IDLE_S: u32 = 2;
const KEEP_PROBES: u32 = 3;
/// The same for notes that nobody acknowledges.
const USER_TIMEOUT_MS: u32 = 5000;

const NOTE_BYTES: usize = 9;
const SLEEPS: u8 = b'S';
const RINGS: u8 = b'R';

/// What nodes tell each other. At most one of each kind is on its way, so that
/// a line's buffer always has room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// The sender goes to sleep: ring it when there is something.
    Sleeps,
    /// The sender rings, as soon as this count is in the control page.
    Rings(u64),
}

impl Note {
    fn to_bytes(self) -> [u8; NOTE_BYTES] {
        let (kind, count) = match self {
            Self::Sleeps => (SLEEPS, 0),
            Self::Rings(count) => (RINGS, count),
        };
        let mut bytes = [kind; NOTE_BYTES];
        bytes[1..].copy_from_slice(&count.to_le_bytes());
        bytes
    }

    fn from_bytes([kind, count @ ..]: [u8; NOTE_BYTES]) -> Option<Self> {
        match kind {
            SLEEPS => Some(Self::Sleeps),
            RINGS => Some(Self::Rings(u64::from_le_bytes(count))),
            _ => None,
        }
    }
}

/// The line's end, or something on it that is no note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HungUp;

/// Has a line end when the host at the other end is gone.
pub(super) fn keep_alive(stream: &TcpStream) -> Result<(), FabricError> {
    let set = |answer| FabricError::system("setsockopt", answer);
    setsockopt(stream, KeepAlive, &true).map_err(set)?;
    setsockopt(stream, TcpKeepIdle, &KEEP_IDLE_S).map_err(set)?;
    setsockopt(stream, TcpKeepInterval, &1).map_err(set)?;
    setsockopt(stream, TcpKeepCount, &KEEP_PROBES).map_err(set)?;
    setsockopt(stream, TcpUserTimeout, &USER_TIMEOUT_MS).map_err(set)
}

/// Whether a line connects to itself: nobody has listened at the address, and the kernel has
/// drawn its port for this end (RFC 9293, 3.5: a simultaneous open). It is nobody's line, and
/// leaves the port to the node that the address is for as soon as it is dropped.
pub(super) fn is_to_itself(stream: &TcpStream) -> bool {
    let is_so = matches!(
        (stream.local_addr(), stream.peer_addr()),
        (Ok(own), Ok(other)) if own == other
    );
    if is_so {
        let at_once = libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        // Else the port is free a minute later, and that node tries again until then.
        let _ = setsockopt(stream, Linger, &at_once);
    }
    is_so
}

/// A line that never blocks.
#[derive(Debug)]
pub(super) struct Line(TcpStream);

impl Line {
    pub(super) fn new(stream: TcpStream) -> Result<Self, FabricError> {
        let io = FabricError::io;
        stream
            .set_nonblocking(true)
            .map_err(|error| io("fcntl", &error))?;
        stream
            .set_nodelay(true)
            .map_err(|error| io("setsockopt", &error))?;
        keep_alive(&stream)?;
        Ok(Self(stream))
    }

    /// Ends the line, at both ends.
    pub(super) fn hang_up(&self) {
        // It may have ended already.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    /// Says that this node is ready, before all notes.
    pub(super) fn say_ready(&self) -> Result<(), HungUp> {
        say_ready(&mut &self.0).map_err(|_| HungUp)
    }

    /// Sends a note.
    pub(super) fn tell(&self, note: Note) -> Result<(), HungUp> {
        let sent = (&self.0).write(&note.to_bytes());
        match sent {
            Ok(NOTE_BYTES) => Ok(()),
            _ => Err(HungUp),
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The notes that come in by a line, put together from what has arrived.
#[derive(Debug, Default)]
pub(super) struct Notes {
    bytes: [u8; NOTE_BYTES],
    filled: usize,
}

impl Notes {
    /// The next note, if all of one is there.
    pub(super) fn next(&mut self, line: &Line) -> Result<Option<Note>, HungUp> {
        self.next_of(&mut &line.0)
    }

    fn next_of(&mut self, from: &mut impl Read) -> Result<Option<Note>, HungUp> {
        loop {
            match from.read(&mut self.bytes[self.filled..]) {
                Ok(0) => return Err(HungUp),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(_) => return Err(HungUp),
            }
            if self.filled == NOTE_BYTES {
                self.filled = 0;
                return Note::from_bytes(self.bytes).map(Some).ok_or(HungUp);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out its pieces one read at a time, with nothing in between.
    struct Pieces(Vec<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            match self.0.first_mut() {
                None => Ok(0),
                Some(piece) if piece.is_empty() => {
                    self.0.remove(0);
                    Err(ErrorKind::WouldBlock.into())
                }
                Some(piece) => {
                    let count = piece.len().min(to.len());
                    to[..count].copy_from_slice(&piece[..count]);
                    piece.drain(..count);
                    Ok(count)
                }
            }
        }
    }

    #[test]
    fn notes_come_whole_however_they_were_cut() {
        let bytes = [Note::Rings(0x0102_0304).to_bytes(), Note::Sleeps.to_bytes()].concat();
        for cut in 1..bytes.len() {
            let mut from = Pieces(vec![bytes[..cut].to_vec(), bytes[cut..].to_vec()]);
            let mut notes = Notes::default();
            let mut heard = Vec::new();
            while let Ok(note) = notes.next_of(&mut from) {
                heard.extend(note);
            }
            assert_eq!(heard, [Note::Rings(0x0102_0304), Note::Sleeps], "cut {cut}");
        }
    }

    #[test]
    fn noise_is_the_end_of_a_line() {
        let mut from = Pieces(vec![vec![7; NOTE_BYTES]]);
        assert_eq!(Notes::default().next_of(&mut from), Err(HungUp));
    }
}
