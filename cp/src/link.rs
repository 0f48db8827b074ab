// SPDX-License-Identifier: MIT OR Apache-2.0

//! What both sides need of RDMC: nodes, groups, and memory for messages.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use weft::rdmc::{Buffer, Builder, End, EndReason, GroupConfig, Memory, Node};

use crate::place::{Party, Place};
use crate::wire::MAX_REPORT_BYTES;

/// Messages of the stream that are sent and not yet written everywhere.
pub const WINDOW: u64 = 4;
/// Shortest message that `--chunk` can ask for.
pub const MIN_CHUNK_BYTES: usize = 4096;
/// Longest message that `--chunk` can ask for.
pub const MAX_CHUNK_BYTES: usize = 256 << 20;
/// The blocks that messages of the stream are cut into.
const BLOCK_BYTES: usize = 1 << 20;
const PAGE: usize = 4096;

/// Meets the others. There is memory for so many messages of the stream, and so
/// many reports.
pub fn join(party: &Party, rank: usize, messages: usize, reports: usize) -> Result<Node> {
    let place = Place::new(party, rank)?;
    let met = builder(place, party, messages, reports).join();
    met.context("cannot meet the others (the sender is node 0, receiver K is node K)")
}

/// Whether a node like that of [`join`] can be made where it has nobody to meet. If not, it is
/// not for the others that it cannot meet them.
pub fn works_alone(party: &Party, rank: usize, messages: usize, reports: usize) -> bool {
    let made = Place::new(&party.alone(rank), 0).map(|place| {
        let made = builder(place, party, messages, reports).join();
        made.is_ok()
    });
    made.unwrap_or(false)
}

fn builder(place: Place, party: &Party, messages: usize, reports: usize) -> Builder<Place> {
    // Groups take some of it, over a network, for the blocks that come first:
    // as many groups of reports as there are receivers, and the stream's.
    let landings = BLOCK_BYTES + party.receivers * MAX_REPORT_BYTES;
    let memory = messages * party.chunk.next_multiple_of(PAGE) + reports * MAX_REPORT_BYTES;
    Node::builder(place)
        .memory(memory + landings)
        .groups(party.receivers + 1)
        .timeout(party.patience)
}

/// The group of the stream.
pub fn stream_group(receivers: usize) -> GroupConfig {
    GroupConfig::new(0, 0..=receivers).block_bytes(BLOCK_BYTES)
}

/// The group of a receiver's reports.
pub fn report_group(receiver: usize) -> GroupConfig {
    // Ranks are less than 64.
    GroupConfig::new(receiver as u32, [receiver, 0]).block_bytes(MAX_REPORT_BYTES)
}

/// Buffers that are used again and again.
///
/// They, and not the node, are what callbacks hold: a callback with a handle to
/// the node would keep the node from ending.
#[derive(Clone, Debug)]
pub struct Pool {
    buffers: Arc<Mutex<Vec<Buffer>>>,
    memory: Memory,
}

impl Pool {
    /// So many, of so many bytes.
    pub fn new(node: &Node, count: usize, bytes: usize) -> Result<Self> {
        let buffers = (0..count).map(|_| node.allocate(bytes));
        let buffers = buffers.collect::<Result<_, _>>()?;
        Ok(Self {
            buffers: Arc::new(Mutex::new(buffers)),
            memory: node.memory(),
        })
    }

    /// One that nobody uses, if there is one.
    pub fn take(&self) -> Option<Buffer> {
        let buffers = self.buffers.lock();
        buffers.unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// One that is used no more.
    pub fn give(&self, buffer: Buffer) {
        let buffers = self.buffers.lock();
        buffers.unwrap_or_else(PoisonError::into_inner).push(buffer);
        self.memory.wake();
    }
}

/// A node, as the user calls it.
pub fn node_name(node: usize) -> String {
    match node {
        0 => "the sender".to_owned(),
        _ => format!("receiver {node}"),
    }
}

/// What happened to a node by whose doing a group has ended.
pub fn what_happened(end: End) -> &'static str {
    match end.reason {
        EndReason::Died => "has died",
        EndReason::Left | EndReason::Deserted => "has left",
        EndReason::Refused => "gave no fitting memory for a message",
        EndReason::Corrupt => "wrote what it should not: run the same release everywhere",
        _ => "has ended",
    }
}
