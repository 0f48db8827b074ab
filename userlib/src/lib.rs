// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weft: replicated tables and atomic multicast for the workers that link it.
//!
//! A [`Group`] is a set of nodes that met over a [`fabric`]; in each of its
//! subgroups every member delivers the same messages in the same order. Over
//! shared memory it needs no root and no RDMA:
//!
//! ```
//! use std::sync::mpsc;
//! use std::time::Duration;
//! use weft::{fabric::shm::Shm, Group, Subgroup};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // One node of one; others would call this with the same name, and their
//! // rank of the same number of nodes.
//! let name = format!("doc-{}", std::process::id());
//! let (delivered, messages) = mpsc::channel();
//! let mut builder = Group::builder(Shm::new(&name, 0, 1)?);
//! let chat = builder.subgroup(Subgroup::new("chat").window(16).max_message(256));
//! let group = builder
//!     .deliver(chat, move |batch| {
//!         for message in batch {
//!             delivered.send((message.sender, message.bytes.to_vec())).ok();
//!         }
//!     })
//!     .join()?;
//! group.sender(chat)?.send(|slot| slot.put(b"hello"))?;
//! assert_eq!(messages.recv()?, (0, b"hello".to_vec()));
//! group.leave(Duration::from_secs(1))?;
//! # Ok(())
//! # }
//! ```

mod deadline;
pub mod fabric;
mod futex;
mod gate;
mod line;
pub mod multicast;
pub mod predicates;
pub mod rdmc;
pub mod smc;
pub mod sst;
mod sync;

pub use multicast::{
    Batch, Deliveries, Ending, Error, Event, Group, Membership, Message, Metrics, Newcomer,
    Options, SendError, Sender, Slot, Subgroup, SubgroupHandle, View,
};
