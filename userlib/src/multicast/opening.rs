// SPDX-License-Identifier: MIT OR Apache-2.0

//! How a subgroup begins: at the group's start, or in a view.

use super::config::Spec;
use super::layout::Places;
use crate::fabric::NodeSet;
use std::sync::Arc;

/// Who takes part in a subgroup, and where its sequence and its rings go on.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) members: NodeSet,
    /// In the order of their turns.
    pub(super) senders: Arc<[SenderAt]>,
    /// Where the table of its rows is.
    pub(super) table: usize,
    /// Messages and nulls that were delivered before.
    pub(super) sequence: u64,
    /// The first of this member's slots whose message has not been delivered.
    pub(super) slot: u64,
    /// Messages are delivered from their senders' memory, where that can be seen.
    pub(super) in_place: bool,
}

/// A sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SenderAt {
    pub(super) node: usize,
    /// Which of the subgroup's rings is its own.
    pub(super) ring: usize,
    /// Where in the ring its next record is.
    pub(super) start: usize,
}

impl Opening {
    /// All members and senders of a subgroup, from the beginning.
    pub(super) fn of(spec: &Spec, places: &Places) -> Self {
        Self {
            members: spec.members.iter().copied().collect(),
            senders: senders(spec, |_| true, |_| 0),
            table: places.table,
            sequence: 0,
            slot: 0,
            in_place: true,
        }
    }
}

/// The senders of a subgroup that are there, and where each goes on.
pub(super) fn senders(
    spec: &Spec,
    is_there: impl Fn(usize) -> bool,
    start: impl Fn(usize) -> usize,
) -> Arc<[SenderAt]> {
    let all = spec.senders.iter().enumerate();
    let there = all.filter(|&(_, &node)| is_there(node));
    there
        .map(|(ring, &node)| SenderAt {
            node,
            ring,
            start: start(node),
        })
        .collect()
}
