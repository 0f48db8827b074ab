// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whose proposal a row has.
//!
//! Leaders of a view follow each other by seat, so a ballot is the leader's seat. A
//! proposal is several words, and the row of a member that echoes a second leader is
//! written again: a word before them says that they change, one behind them that they
//! stand.

/// The word of a row: zero before there is a proposal, odd while it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ballot(u64);

impl Ballot {
    /// There is no proposal.
    pub(super) const NONE: Self = Self(0);

    /// The proposal of this leader stands.
    pub(super) fn of(leader: usize) -> Self {
        Self(2 * leader as u64 + 2)
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// What the row says before this one's proposal stands.
    pub(super) fn changing(self) -> Self {
        Self(self.0 - self.0.min(1))
    }

    pub(super) fn is_changing(self) -> bool {
        self.0 % 2 == 1
    }

    /// Whether the row has a proposal.
    pub(super) fn stands(self) -> bool {
        self != Self::NONE && !self.is_changing()
    }
}
