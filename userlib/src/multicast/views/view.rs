// SPDX-License-Identifier: MIT OR Apache-2.0

//! A view: who is in the group.

use crate::fabric::{Newcomer, NodeSet, MAX_NODES};
use crate::multicast::handle::SubgroupHandle;
use crate::multicast::membership::{SubgroupView, SubgroupViews};
use std::fmt;

/// The members of a group from one change to the next. All members that install the view
/// of a number install the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// Members that will leave as soon as they have given a subgroup's state to those who are to
    /// have it ([`Builder::subgroup_state`]). Functions that say who is in a subgroup
    /// ([`Builder::members_by_view`]) see a view without them.
    ///
    /// [`Builder::members_by_view`]: crate::multicast::Builder::members_by_view
    /// [`Builder::subgroup_state`]: crate::multicast::Builder::subgroup_state
    pub leaving: NodeSet,
    /// Who has joined with this view, if anybody has.
    pub joined: Option<Newcomer>,
    incarnations: Incarnations,
    pub(in crate::multicast) subgroups: SubgroupViews,
}

/// By seat; 0 where no newcomer is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Incarnations([u64; MAX_NODES]);

impl fmt::Debug for Incarnations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let newcomers = self.0.iter().enumerate().filter(|(_, &of)| of != 0);
        f.debug_map().entries(newcomers).finish()
    }
}

impl View {
    /// Tells a member apart from all others that have had its seat, or will have it: 0 if the
    /// group began with it. None, if nobody has the seat in this view.
    #[must_use]
    pub fn incarnation(&self, seat: usize) -> Option<u64> {
        let incarnation = self.incarnations.0.get(seat).copied();
        incarnation.filter(|_| self.members.contains(seat))
    }

    /// A subgroup in this view. None if the handle is of another group; and while members are
    /// computed from the view, for a function that has them follow from it
    /// ([`Builder::members_by_view`]).
    ///
    /// [`Builder::members_by_view`]: crate::multicast::Builder::members_by_view
    #[must_use]
    pub fn subgroup(&self, subgroup: SubgroupHandle) -> Option<SubgroupView> {
        self.subgroups.of(subgroup)
    }

    /// The first one.
    pub(crate) fn first(members: NodeSet) -> Self {
        Self {
            number: 1,
            members,
            left: NodeSet::EMPTY,
            failed: NodeSet::EMPTY,
            leaving: NodeSet::EMPTY,
            joined: None,
            incarnations: Incarnations([0; MAX_NODES]),
            subgroups: SubgroupViews::default(),
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
    pub(crate) fn next(&self, members: NodeSet, left: NodeSet, joined: Option<Newcomer>) -> Self {
        let of = |seat| self.incarnation(seat).unwrap_or(0);
        Self {
            number: self.number + 1,
            members,
            left,
            failed: self.members.minus(members).minus(left),
            leaving: NodeSet::EMPTY,
            joined,
            incarnations: self.incarnations,
            subgroups: SubgroupViews::default(),
        }
        .with_incarnations(of)
    }

    /// In the form in which functions of the view see it: without those who are about to leave.
    pub(in crate::multicast) fn of_those_who_stay(&self) -> Self {
        Self {
            members: self.members.minus(self.leaving),
            ..self.clone()
        }
    }

    /// With these incarnations of its members, besides who has joined with it.
    pub(super) fn with_incarnations(mut self, of: impl Fn(usize) -> u64) -> Self {
        self.incarnations = Incarnations([0; MAX_NODES]);
        for seat in self.members.iter() {
            self.incarnations.0[seat] = of(seat);
        }
        if let Some(newcomer) = self.joined {
            self.incarnations.0[newcomer.seat] = newcomer.incarnation;
        }
        self
    }

    /// Which of two tables is this view's.
    pub(super) fn parity(&self) -> usize {
        usize::from(self.number % 2 == 1)
    }
}
