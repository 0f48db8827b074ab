// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles, by which an application names the subgroups of its group.

use std::sync::atomic::{AtomicU64, Ordering};

/// A subgroup of a group: [`super::Builder::subgroup`] gives it, and the builder, the group and
/// its views take it. With a handle that another builder has given they answer with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubgroupHandle {
    group: GroupId,
    index: usize,
}

/// Tells the groups of a process apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupId(u64);

impl GroupId {
    /// A number that no other group of this process has.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The handle of the subgroup that was added as this one.
    pub(super) fn handle(self, index: usize) -> SubgroupHandle {
        SubgroupHandle { group: self, index }
    }

    /// The subgroup's number among this group's; none if the handle is of another group.
    pub(super) fn index(self, handle: SubgroupHandle) -> Option<usize> {
        (handle.group == self).then_some(handle.index)
    }
}
