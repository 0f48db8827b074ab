// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMC: multicast of large objects as many point-to-point transfers (rdmc §4).
//!
//! A [`Node`] has memory for messages, registered once, and one thread that
//! moves them. A [`Group`] of nodes has a root, its first member, which sends; all
//! others receive each message, whole and in order, into memory that they choose.
//! A message is cut into blocks. A [`schedule`] says which member hands which
//! block to which other member, and when; a member goes through its part as fast
//! as its own transfers allow.
//!
//! A block is written into the receiver's memory at its final place, once the
//! receiver has said where that is. The first one of a message says how long the
//! message is, and so it comes before: into memory that each member keeps for
//! first blocks, or where nodes can look into one another's memory, by a look.
//!
//! A member that has no memory for a message for a while holds up its group, and
//! no other. If one dies or leaves, the group ends, with one event at every other
//! member; other groups go on. Memory of the message that was in transfer comes back
//! as soon as no member touches it any more. The rest can have a group of their own.
//!
//! Over a fabric with seats nodes come later, and take the seats of others that have gone. They
//! follow the views of a [`multicast::Group`](crate::multicast::Group) with the same seats
//! ([`Node::follow`]), and groups are made of a view's members ([`GroupConfig::in_view`]). A
//! [`ViewGroup`] is the group of each view, one after the other: what not all have received when
//! a member fails its root sends again in the next one, and each receives it once. The example
//! `large_state` gives a newcomer the application's state.
//!
//! ```
//! use std::{sync::mpsc, thread, time::Duration};
//! use weft::fabric::shm::Shm;
//! use weft::rdmc::{Event, GroupConfig, Node};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let wait = Duration::from_secs(10);
//! let mut nodes = Shm::threads(2)?.into_iter();
//! let (root, other) = (nodes.next().unwrap(), nodes.next().unwrap());
//! let receiver = thread::spawn(move || {
//!     let node = Node::builder(other).join().unwrap();
//!     let (tell, told) = mpsc::channel();
//!     let memory = node.memory();
//!     let memory = move |m: weft::rdmc::Incoming| memory.allocate(m.size).ok();
//!     let event = move |event| drop(tell.send(event));
//!     let _group = node.create_group(&GroupConfig::new(1, [0, 1]), wait, memory, event).unwrap();
//!     match told.recv().unwrap() {
//!         Event::Received(message) => message.bytes().to_vec(),
//!         other => panic!("{other:?}"),
//!     }
//! });
//! let node = Node::builder(root).join()?;
//! let group = node.create_group(&GroupConfig::new(1, [0, 1]), wait, |_| None, |_| {})?;
//! let mut image = node.allocate(5)?;
//! image.copy_from_slice(b"image");
//! group.send(image, 5)?;
//! group.flush(wait)?;
//! assert_eq!(receiver.join().unwrap(), b"image");
//! # Ok(())
//! # }
//! ```

mod config;
mod engine;
mod error;
mod event;
mod group;
mod layout;
mod memory;
mod node;
pub mod schedule;
#[cfg(any(test, feature = "sim"))]
pub mod simulation;
mod view_group;
mod words;

pub use config::{Choice, GroupConfig, DEFAULT_BLOCK_BYTES, MAX_BLOCK_BYTES};
pub use error::{Error, SendError, SendReason};
pub use event::{End, EndReason, Event, Incoming, Message};
pub use group::Group;
pub use memory::{Buffer, Memory};
pub use node::{Builder, Node};
pub use view_group::{ViewEvent, ViewGroup};

/// Most groups that a node is in at a time.
pub const MAX_GROUPS: usize = 1024;
/// Most messages of a group that wait or are on their way.
pub const MAX_QUEUED: u64 = 1024;
