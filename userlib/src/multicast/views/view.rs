// SPDX-License-Identifier: MIT OR Apache-2.0

//! A view: who is in the group.

use super::Newcomer;
use crate::fabric::NodeSet;

/// The members of a group from one change to the next. All members that install the view
/// of a number install the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct View {
    /// 1 for the first, and one more for each that follows.
    pub number: u64,
    /// Its members, by rank.
    pub members: NodeSet,
    /// Members of the view before that have left.
    pub left: NodeSet,
    /// Members of the view before that have failed, or were taken for failed.
    pub failed: NodeSet,
    /// Who has joined with this view, if anybody has.
    pub joined: Option<Newcomer>,
}

impl View {
    /// The first one.
    pub(in super::super) fn first(members: NodeSet) -> Self {
        Self {
            number: 1,
            members,
            left: NodeSet::EMPTY,
            failed: NodeSet::EMPTY,
            joined: None,
        }
    }

    /// None yet: that of a newcomer.
    pub(super) fn none() -> Self {
        Self {
            number: 0,
            ..Self::first(NodeSet::EMPTY)
        }
    }

    /// The one that follows.
    pub(super) fn next(&self, members: NodeSet, left: NodeSet, joined: Option<Newcomer>) -> Self {
        Self {
            number: self.number + 1,
            members,
            left,
            failed: self.members.minus(members).minus(left),
            joined,
        }
    }

    /// Which of two tables is this view's.
    pub(super) fn parity(&self) -> usize {
        usize::from(self.number % 2 == 1)
    }
}
