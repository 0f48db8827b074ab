// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMC groups over shared memory: what is sent arrives everywhere, whole and in
//! order, whichever way it travels; what cannot be is an error; who goes ends
//! its groups and no others; and where there are views, they go on.

mod deaths;
mod delivery;
mod ends;
mod errors;
mod overlap;
mod senders;
mod views;

use std::sync::mpsc::{self, Receiver};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use weft::fabric::shm::Shm;
use weft::rdmc::{Error, Event, Group, GroupConfig, Message, Node};

/// Longer than anything takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A group, and what it tells.
struct Member {
    group: Group,
    events: Receiver<Event>,
}

impl Member {
    /// Creates a group whose messages go into new memory.
    fn create(node: &Node, config: &GroupConfig) -> Result<Self, Error> {
        let (tell, events) = mpsc::channel();
        let memory = node.memory();
        let group = node.create_group(
            config,
            PATIENCE,
            move |incoming| memory.allocate(incoming.size).ok(),
            // The test may have ended.
            move |event| drop(tell.send(event)),
        )?;
        Ok(Self { group, events })
    }

    fn next(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("an event")
    }

    fn received(&self) -> Message {
        match self.next() {
            Event::Received(message) => message,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a message of these bytes.
    fn send(&self, node: &Node, bytes: &[u8]) {
        let mut buffer = node.allocate(bytes.len()).expect("memory");
        buffer.copy_from_slice(bytes);
        self.group.send(buffer, bytes.len()).expect("it is taken");
    }

    /// How it has ended; nothing else comes first.
    fn ended(&self) -> weft::rdmc::End {
        match self.next() {
            Event::Ended(end) => end,
            other => panic!("{other:?}"),
        }
    }
}

/// Bytes that no other message has.
fn pattern(message: u64, size: usize) -> Vec<u8> {
    let mut state = message.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Nodes with this much memory, each handed to a thread of its own.
fn nodes<R: Send + 'static>(
    count: usize,
    memory: usize,
    run: impl Fn(Node) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let run = Arc::new(run);
    let fabrics = Shm::threads(count).expect("a fabric");
    let threads: Vec<_> = fabrics
        .into_iter()
        .map(|fabric| {
            let run = Arc::clone(&run);
            thread::spawn(move || {
                let builder = Node::builder(fabric).memory(memory).groups(4);
                run(builder.timeout(PATIENCE).join().expect("a node"))
            })
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().expect("no panic"))
        .collect()
}
