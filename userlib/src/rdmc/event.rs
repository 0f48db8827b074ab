// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a group tells its application, on the node's polling thread.

use super::memory::Buffer;
use std::fmt;

/// A message that comes; the answer is the memory for it (rdmc §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its number in the group, from 1.
    pub number: u64,
    /// Its bytes.
    pub size: usize,
}

/// A message that has arrived, or was sent.
#[derive(Debug)]
pub struct Message {
    /// Its number in the group, from 1.
    pub number: u64,
    /// Its bytes, at the beginning of the buffer.
    pub size: usize,
    /// The memory, the application's again.
    pub buffer: Buffer,
}

impl Message {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.size]
    }
}

/// Why a group has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndReason {
    /// The node has left, and all messages up to then were done.
    Left = 1,
    /// The node has left in the middle of a message.
    Deserted = 2,
    /// The node has died.
    Died = 3,
    /// The node gave memory for a message that was too short, or another node's.
    Refused = 4,
    /// The node wrote what no member writes.
    Corrupt = 5,
}

impl EndReason {
    /// What members tell one another by its number.
    pub(super) fn from_number(number: u64) -> Option<Self> {
        let all = [
            Self::Left,
            Self::Deserted,
            Self::Died,
            Self::Refused,
            Self::Corrupt,
        ];
        all.into_iter().find(|reason| *reason as u64 == number)
    }
}

/// How a group has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Whose doing it is.
    pub node: usize,
    /// What happened to it.
    pub reason: EndReason,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.reason {
            EndReason::Left => "has left",
            EndReason::Deserted => "has left in the middle of a message",
            EndReason::Died => "has died",
            EndReason::Refused => "gave no fitting memory for a message",
            EndReason::Corrupt => "wrote what no member writes",
        };
        write!(f, "node {} {what}", self.node)
    }
}

/// Something that happened in a group.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message is here, whole, and relayed as far as that is this node's part.
    Received(Message),
    /// A message was given to all whom this node, the root, gives it to, and they
    /// have it. Others may still be getting it from them.
    Sent(Message),
    /// The group has ended; nothing follows but [`Self::Returned`]. At most once.
    Ended(End),
    /// Memory of a message that was not done when the group ended, at the root or at a
    /// receiver, whose bytes mean nothing: as soon as no member reads or writes it any
    /// more. Of one that was taken for dead that is known when it says farewell or the
    /// fabric has cut it off ([`Endpoint::severed`](crate::fabric::Endpoint::severed)).
    /// If the node ends before, the memory does not come back, and nobody gets it.
    Returned(Buffer),
}
