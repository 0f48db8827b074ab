// SPDX-License-Identifier: MIT OR Apache-2.0

//! What can go wrong with a node or a group, said so that the reader knows
//! what to do.

use super::event::End;
use super::memory::Buffer;
use crate::fabric::{FabricError, NodeSet, MAX_REGION_BYTES};

/// A node or a group could not be made or used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The fabric says so.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// No polling thread could be started.
    #[error("no polling thread: {0}")]
    Thread(String),
    /// The node cannot have such memory.
    #[error("a node with {groups} groups and {bytes} bytes for messages: 1 to {max} groups, at least a page, and less than {MAX_REGION_BYTES} bytes in all", max = super::MAX_GROUPS)]
    BadNode {
        /// Groups at a time.
        groups: usize,
        /// Bytes for messages.
        bytes: usize,
    },
    /// Nodes were built differently.
    #[error("node {0} was built for another number of groups, or for something else than RDMC: give all nodes the same")]
    NodesDiffer(usize),
    /// There is no room for a buffer of this length.
    #[error("no room for {bytes} bytes, {free} are free, perhaps in pieces: drop buffers, or give the node more memory")]
    NoMemory {
        /// What was asked for.
        bytes: usize,
        /// What is free.
        free: usize,
    },
    /// The settings cannot be a group's.
    #[error("group {group}: {what}")]
    BadGroup {
        /// The group.
        group: u32,
        /// What is wrong.
        what: &'static str,
    },
    /// The number was used before, or too many groups ago.
    #[error("group {0}: its number, or one that takes the same place behind it, was used before: numbers grow")]
    NumberUsed(u32),
    /// Others did not create the group in time, or the one before it in the same
    /// place has not ended everywhere.
    #[error("group {group}: {missing:?} did not come in time: all members create it, with the same settings, at the same time")]
    Timeout {
        /// The group.
        group: u32,
        /// Who is missing.
        missing: NodeSet,
    },
    /// Members' settings differ.
    #[error("group {group}: node {node} has other settings: give all members the same")]
    Mismatch {
        /// The group.
        group: u32,
        /// Who has others.
        node: usize,
    },
    /// Waiting for the polling thread on the polling thread.
    #[error("this waits for the thread that it is called on: a callback cannot create a group or wait for one")]
    InCallback,
    /// The group has ended.
    #[error("group {group} has ended: {end}")]
    Ended {
        /// The group.
        group: u32,
        /// Why.
        end: End,
    },
    /// Not all that was sent is done.
    #[error("group {group}: {left} messages were not done in time")]
    Unfinished {
        /// The group.
        group: u32,
        /// Messages that were not.
        left: u64,
    },
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendReason {
    /// Only the first member sends.
    #[error("only the group's root sends")]
    NotRoot,
    /// There is nothing in it.
    #[error("a message has at least one byte")]
    Empty,
    /// The buffer ends before the message.
    #[error("the message is longer than its buffer")]
    TooLong,
    /// Too many blocks.
    #[error(
        "the message has more than {} blocks: use longer blocks",
        super::schedule::MAX_BLOCKS
    )]
    TooManyBlocks,
    /// The buffer is another node's.
    #[error("the buffer is of another node")]
    ForeignBuffer,
    /// A [`ViewGroup`](super::ViewGroup) takes its root's messages by their numbers.
    #[error("message {0} comes next: a group that has ended says which are to be sent again")]
    NotNext(u64),
    /// Too many wait already.
    #[error("{} messages wait already", super::MAX_QUEUED)]
    QueueFull,
    /// The group has ended.
    #[error("the group has ended: {0}")]
    Ended(End),
}

/// A message that was not taken, with its buffer.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct SendError {
    /// Why.
    pub reason: SendReason,
    /// The caller's again.
    pub buffer: Buffer,
}
