// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMC groups in a simulation: the real engine, stepped, over a fabric that a seed drives.
//!
//! Nodes create groups one behind the other, several at a time, in the same cells; roots send
//! messages, and applications keep, drop and refuse memory. A node may crash at any post, be
//! closed, leave in the middle, lose its link to another, or be taken for dead though it
//! runs; another one may come into its seat, and groups follow the views that a group with views
//! would have. Oracles look at each piece of memory: who has it, what is in it, and whether it
//! comes back. What a run does follows from its seed alone.

mod app;
mod judge;
mod member;
mod plan;
mod run;
mod shrink;
#[cfg(all(test, not(loom)))]
mod tests;
mod views;

pub use judge::Oracle;
pub use plan::{Fault, Plan};
pub use run::run;
pub use shrink::shrink;

use std::fmt;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages that roots were told are sent.
    pub sent: u64,
    /// Messages that others received.
    pub received: u64,
    /// Those of them that nodes received which had come into others' seats.
    pub received_later: u64,
    /// Buffers that came back because a group had ended.
    pub returned: u64,
    /// Groups' ends of which a member that was in one was told.
    pub ended: u64,
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
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}: {}", self.oracle, self.what)?;
        writeln!(f, "{:#?}", self.plan)
    }
}
