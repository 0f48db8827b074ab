// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sets of nodes, which are words.

use super::MAX_NODES;
use std::fmt;

/// A set of nodes, by rank.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u64);

impl NodeSet {
    /// The set of no node.
    pub const EMPTY: Self = Self(0);

    /// From a word with a bit for each member.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether the node is in the set. No set has ranks of 64 and more.
    #[must_use]
    pub const fn contains(self, rank: usize) -> bool {
        rank < MAX_NODES && (self.0 >> rank) & 1 == 1
    }

    /// The set with one more member. Ranks of 64 and more are left out.
    #[must_use]
    pub const fn with(self, rank: usize) -> Self {
        if rank < MAX_NODES {
            Self(self.0 | (1 << rank))
        } else {
            self
        }
    }

    /// The members that `other` does not have.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The members of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether it has no member.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many members it has.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The word with a bit for each member.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The members, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        // Bit by bit: the polling thread does this several times a round.
        let mut left = self.0;
        std::iter::from_fn(move || {
            let rank = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            usize::try_from(rank).ok()
        })
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(ranks: I) -> Self {
        ranks.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
