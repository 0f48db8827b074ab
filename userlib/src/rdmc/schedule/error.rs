// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a schedule cannot be made of.

use super::{MAX_BLOCKS, MAX_MEMBERS};

/// A number is outside of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No members, or too many.
    #[error("{members} members: a group has 1 to {MAX_MEMBERS}")]
    Members {
        /// Members asked for.
        members: usize,
    },
    /// The rank is not in the group.
    #[error("rank {rank} is not in a group of {members}: ranks begin at 0")]
    Rank {
        /// Rank asked for.
        rank: usize,
        /// Members of the group.
        members: usize,
    },
    /// No blocks, or too many.
    #[error("{blocks} blocks: a message has 1 to {MAX_BLOCKS}; use longer blocks for more bytes")]
    Blocks {
        /// Blocks asked for.
        blocks: usize,
    },
    /// A rack has no members.
    #[error("a rack has at least one member")]
    EmptyRack,
}
