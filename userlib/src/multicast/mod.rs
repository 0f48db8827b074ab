// SPDX-License-Identifier: MIT OR Apache-2.0

//! Atomic multicast with Spindle's optimisations (spindle §II, §III).
//!
//! Members of a subgroup deliver the same messages in the same order: in
//! rounds, in each one message of each sender, after every member has received
//! it. A sender that has nothing to say in a round says so with a null, which
//! costs a counter and no message. There is no leader and no lock; state goes
//! through the shared table ([`crate::sst`]), messages through rings
//! ([`crate::smc`]), and one polling thread ([`crate::predicates`]) serves all
//! subgroups.
//!
//! A group is fixed, and ends with the first member that fails; or it has views
//! ([`Builder::with_views`]) and goes on without those who leave or fail, and with those who
//! join.

mod builder;
mod config;
mod deliverer;
mod deliveries;
mod error;
mod group;
mod handle;
mod layout;
mod member;
mod membership;
mod metrics;
mod opening;
mod options;
mod rows;
mod sender;
mod shared;
#[cfg(any(test, feature = "sim"))]
pub mod simulation;
mod stay;
#[cfg(test)]
mod tests;
mod views;
mod watcher;

pub use crate::fabric::Newcomer;
pub use builder::Builder;
pub use config::{Order, Subgroup, MAX_NAME_BYTES, MAX_SUBGROUPS};
pub use deliverer::{Batch, Message};
pub use deliveries::{Deliveries, Received};
pub use error::{ConfigError, Error, SendError};
pub use group::Group;
pub use handle::SubgroupHandle;
pub use membership::{Membership, SubgroupView};
pub use metrics::{Batches, Metrics, BATCH_BUCKETS};
pub use options::Options;
pub use sender::{Sender, Slot};
pub use views::View;
pub use watcher::{Ending, Event};
