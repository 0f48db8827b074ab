// SPDX-License-Identifier: MIT OR Apache-2.0

//! The members of a subgroup in a view: a function of the view says them, as Derecho's layouts
//! do (spindle §II.A), or all are.

use super::config::Spec;
use super::handle::{GroupId, SubgroupHandle};
use super::views::View;
use crate::fabric::NodeSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The application's function from a view to the members of a subgroup.
pub(super) type MembersOf = Box<dyn Fn(&View) -> Membership + Send>;

/// The members of a subgroup in a view, by rank, and those of them who send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Membership {
    /// Those who deliver.
    pub members: NodeSet,
    /// Those of them who send.
    pub senders: NodeSet,
}

impl Membership {
    /// These members, all of whom send.
    #[must_use]
    pub fn all_send(members: NodeSet) -> Self {
        Self {
            members,
            senders: members,
        }
    }

    /// With those who have the subgroup's state as members, if none of them is one.
    pub(super) fn keeping(mut self, have_state: NodeSet) -> Self {
        if self.members.and(have_state).is_empty() {
            self.members = self.members.union(have_state);
        }
        self
    }

    /// The membership of a subgroup in a view: what its function says, but for those who cannot
    /// be members or senders; all members of the view, if it has no function.
    pub(super) fn of(spec: &Spec, members_of: Option<&MembersOf>, view: &View) -> Self {
        let said = match members_of {
            Some(of) => of(&view.of_those_who_stay()),
            None => Self::all_send(view.members),
        };
        let members = said.members.and(view.members);
        let may_send: NodeSet = spec.senders.iter().copied().collect();
        Self {
            members,
            senders: said.senders.and(members).and(may_send),
        }
    }
}

/// A subgroup in a view ([`View::subgroup`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SubgroupView {
    /// Members of the view that are in the subgroup, by rank.
    pub members: NodeSet,
    /// Those of them who send.
    pub senders: NodeSet,
    /// Members of the view, in the subgroup or not any more, that were in it in the view before:
    /// each has delivered all that comes before [`Self::sequence`], since it has entered the
    /// subgroup or behind the state that it was given then. If there are none, nobody in the view
    /// has what was delivered in the subgroup before: it begins with this view, or its state is
    /// lost.
    pub before: NodeSet,
    /// The sequence number at which the view begins ([`Message::sequence`]): those of its
    /// members who were not in the subgroup before are delivered every message from here on.
    /// If all who were in it in the view before have gone, numbers go on where that view had
    /// begun: what only they have delivered is lost, and its numbers are given again.
    ///
    /// [`Message::sequence`]: super::Message::sequence
    pub sequence: u64,
}

/// All subgroups of a group in a view.
#[derive(Clone, Default)]
pub(super) struct SubgroupViews(Option<(GroupId, Arc<[SubgroupView]>)>);

impl SubgroupViews {
    pub(super) fn new(group: GroupId, subgroups: impl Iterator<Item = SubgroupView>) -> Self {
        Self(Some((group, subgroups.collect())))
    }

    pub(super) fn of(&self, subgroup: SubgroupHandle) -> Option<SubgroupView> {
        let (group, subgroups) = self.0.as_ref()?;
        subgroups.get(group.index(subgroup)?).copied()
    }

    /// The one that was added as this one.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn at(&self, index: usize) -> SubgroupView {
        self.list()[index]
    }

    fn list(&self) -> &[SubgroupView] {
        self.0.as_ref().map_or(&[], |(_, subgroups)| subgroups)
    }

    /// A number that differs, but for one time in 2^64, if members or senders do.
    pub(super) fn fingerprint(&self) -> u64 {
        let words = self.list().iter();
        let words = words.flat_map(|subgroup| [subgroup.members.bits(), subgroup.senders.bits()]);
        // FNV-1a, by words: all nodes compute the same.
        words.fold(0xcbf2_9ce4_8422_2325, |hash, word| {
            let hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            hash ^ (hash >> 29)
        })
    }
}

impl fmt::Debug for SubgroupViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list().fmt(f)
    }
}

/// Two members of a group have the same views, though each has handles of its own.
impl PartialEq for SubgroupViews {
    fn eq(&self, other: &Self) -> bool {
        self.list() == other.list()
    }
}

impl Eq for SubgroupViews {}

impl Hash for SubgroupViews {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.list().hash(state);
    }
}
