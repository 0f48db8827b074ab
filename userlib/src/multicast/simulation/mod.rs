// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups in a simulation: the real members, stepped, over a fabric that a seed drives.
//!
//! A run sends messages, steps members and lets posts arrive in any order, makes one node
//! crash in the middle of its posts, leave, or lose its link to another, lets newcomers take
//! seats that are empty, and judges what all have delivered in the end. What it does follows from its seed alone.

mod draw;
mod judge;
mod member;
#[cfg(test)]
mod model;
mod newcomers;
mod plan;
mod run;
mod shape;
mod shrink;
mod states;
mod subgroups;
#[cfg(test)]
mod tests;
mod views;

pub use judge::Oracle;
pub use plan::{Fault, Plan};
pub use run::run;
pub use shape::{Members, Senders, Shape};
pub use shrink::shrink;

use super::{Ending, View};
use std::fmt;

/// A message that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// The subgroup.
    pub subgroup: usize,
    /// Its sender. Members are numbered: the founders by their seats, then newcomers as they
    /// came.
    pub sender: usize,
    /// Its number among its sender's of the subgroup, from 0 on.
    pub number: u64,
    /// Its number in the sequence of all.
    pub sequence: u64,
}

/// An event that a member saw, in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::large_enum_variant,
    reason = "models copy what members have seen, and that is little"
)]
pub enum Seen {
    /// It delivered a message.
    Delivered(Message),
    /// It was given this message with the application's state, or a subgroup's.
    Restored(Message),
    /// It was given the state of a subgroup, whose messages follow.
    Given(usize),
    /// It was told that a node has left.
    Left(usize),
    /// It was told that a node has failed.
    Failed(usize),
    /// It installed a view.
    Installed(View),
    /// It was told that it is out.
    Stopped(Ending),
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages that were sent.
    pub sent: u64,
    /// Deliveries, of all members.
    pub delivered: u64,
    /// Views that some member has installed, without the first.
    pub views: u64,
    /// Newcomers that have installed a view.
    pub joins: u64,
    /// Subgroups' states that were given to who entered.
    pub states: u64,
}

/// An oracle failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which.
    pub oracle: Oracle,
    /// What it saw.
    pub what: String,
    /// The run.
    pub plan: Plan,
    /// What each member saw.
    pub seen: Vec<Vec<Seen>>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}: {}", self.oracle, self.what)?;
        writeln!(f, "{:?}", self.plan)?;
        for (member, seen) in self.seen.iter().enumerate() {
            writeln!(f, "member {member}: {seen:?}")?;
        }
        Ok(())
    }
}
