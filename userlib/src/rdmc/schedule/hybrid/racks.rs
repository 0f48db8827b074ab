// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which ranks are in which rack.

use super::super::{ScheduleError, Transfer};

/// Racks of as many consecutive ranks each, but for the last one.
///
/// # Invariants
///
/// `1 <= rack_members <= members`.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Racks {
    members: usize,
    rack_members: usize,
}

impl Racks {
    /// `members` is at least 1.
    pub(in super::super) fn new(
        members: usize,
        rack_members: usize,
    ) -> Result<Self, ScheduleError> {
        if rack_members == 0 {
            return Err(ScheduleError::EmptyRack);
        }
        Ok(Self {
            members,
            rack_members: rack_members.min(members),
        })
    }

    /// Members of all racks.
    pub(in super::super) fn all_members(&self) -> usize {
        self.members
    }

    /// Number of racks.
    pub(in super::super) fn count(&self) -> usize {
        self.members.div_ceil(self.rack_members)
    }

    /// The rack of a rank, and its place there: 0 for the leader.
    pub(super) fn place(&self, rank: usize) -> (usize, usize) {
        (rank / self.rack_members, rank % self.rack_members)
    }

    /// Rank of a rack's leader.
    pub(super) fn leader(&self, rack: usize) -> usize {
        rack * self.rack_members
    }

    /// Members of a rack.
    pub(in super::super) fn members(&self, rack: usize) -> usize {
        (self.members - self.leader(rack)).min(self.rack_members)
    }

    /// A transfer within a rack, with the peer's rank instead of its place.
    pub(super) fn within(&self, rack: usize, transfer: Transfer) -> Transfer {
        Transfer {
            peer: self.leader(rack) + transfer.peer,
            ..transfer
        }
    }
}
