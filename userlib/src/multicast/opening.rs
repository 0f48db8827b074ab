// SPDX-License-Identifier: MIT OR Apache-2.0

//! How a subgroup begins: at the group's start, or in a view.

use super::config::Spec;
use super::layout::Places;
use crate::fabric::NodeSet;
use crate::smc::Era;
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
    /// In which its rounds are counted.
    pub(super) era: Era,
    /// In a view: where the table of its rings is. Else messages are delivered from their
    /// senders' memory from the beginning, where that can be seen.
    pub(super) rings: Option<usize>,
    /// The others look into this member's ring from the beginning, where they can.
    pub(super) shown: bool,
}

/// A sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SenderAt {
    pub(super) node: usize,
    /// Which of the subgroup's rings is its own.
    pub(super) ring: usize,
    /// Where in the ring its next record is.
    pub(super) start: usize,
    /// With which of its messages it goes over to the ring's other side.
    pub(super) over: Option<u64>,
}

impl Opening {
    /// All members and senders of a subgroup, from the beginning.
    pub(super) fn of(spec: &Spec, places: &Places) -> Self {
        Self {
            members: spec.members.iter().copied().collect(),
            senders: senders(spec, |_| true, |_| (0, None)),
            table: places.table,
            sequence: 0,
            slot: 0,
            era: Era::default(),
            rings: None,
            shown: true,
        }
    }
}

/// The senders of a subgroup that are there, and where each goes on: the start, and with which
/// message it goes over to the other side.
pub(super) fn senders(
    spec: &Spec,
    is_there: impl Fn(usize) -> bool,
    at: impl Fn(usize) -> (usize, Option<u64>),
) -> Arc<[SenderAt]> {
    let all = spec.senders.iter().enumerate();
    let there = all.filter(|&(_, &node)| is_there(node));
    there
        .map(|(ring, &node)| {
            let (start, over) = at(node);
            SenderAt {
                node,
                ring,
                start,
                over,
            }
        })
        .collect()
}
