// SPDX-License-Identifier: MIT OR Apache-2.0

//! A group's settings, and what follows from them for a message.

use super::error::Error;
use super::schedule::{self, Algorithm, Schedule, ScheduleError, MAX_BLOCKS};
use crate::fabric::NodeSet;
use crate::multicast::View;
use std::hash::{Hash, Hasher};

/// Longest block.
pub const MAX_BLOCK_BYTES: usize = 1 << 30;
/// Bytes of a block, unless a group is told otherwise: 1 MiB.
pub const DEFAULT_BLOCK_BYTES: usize = 1 << 20;
/// Longest message of which all members take all from the root at once, where
/// [`Choice::Auto`] may choose.
const AT_ONCE: usize = 1 << 20;

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Choice {
    /// As suits a message's size: a short one in one block from the root to all, a
    /// longer one by the binomial pipeline.
    Auto,
    /// Always so.
    Always(Algorithm),
}

/// A group's settings. All members give the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupConfig {
    pub(super) number: u32,
    pub(super) members: Vec<usize>,
    /// Of each member; 0 of one that was there from the beginning, none of one that is in no
    /// view.
    incarnations: Vec<Option<u64>>,
    pub(super) choice: Choice,
    pub(super) block_bytes: usize,
}

/// How one message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) algorithm: Algorithm,
    pub(super) block_bytes: usize,
    pub(super) blocks: usize,
}

impl Plan {
    /// One member's part.
    pub(super) fn schedule(self, index: usize, members: usize) -> Result<Schedule, ScheduleError> {
        Schedule::new(self.algorithm, index, members, self.blocks)
    }
}

impl GroupConfig {
    /// Group `number` of these nodes; the first is the root, which sends. Later
    /// groups have higher numbers. By default blocks are of [`DEFAULT_BLOCK_BYTES`] and
    /// the algorithm is chosen by a message's size.
    #[must_use]
    pub fn new(number: u32, members: impl IntoIterator<Item = usize>) -> Self {
        let members: Vec<usize> = members.into_iter().collect();
        Self {
            number,
            incarnations: vec![Some(0); members.len()],
            members,
            choice: Choice::Auto,
            block_bytes: DEFAULT_BLOCK_BYTES,
        }
    }

    /// As [`Self::new`], of those who have these seats in a view: whoever has one of them
    /// before or afterwards is another node. The settings are the same only with the same
    /// incarnations.
    #[must_use]
    pub fn in_view(number: u32, view: &View, members: impl IntoIterator<Item = usize>) -> Self {
        let config = Self::new(number, members);
        let incarnations = config.members.iter().map(|&seat| view.incarnation(seat));
        Self {
            incarnations: incarnations.collect(),
            ..config
        }
    }

    /// Sets the algorithm.
    #[must_use]
    pub fn algorithm(mut self, choice: Choice) -> Self {
        self.choice = choice;
        self
    }

    /// Sets the bytes of a block, all but the last one (rdmc §4.2).
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Checks all that one node can check.
    pub(super) fn check(&self, rank: usize, nodes: usize) -> Result<(), Error> {
        let bad = |what| {
            Err(Error::BadGroup {
                group: self.number,
                what,
            })
        };
        if !self.members.contains(&rank) {
            return bad("this node is no member: only members create it");
        }
        if self.members.iter().any(|&node| node >= nodes) {
            return bad("it names a node that there is not: ranks are below their number");
        }
        if self.incarnations.contains(&None) {
            return bad("it names a seat that nobody has in the view");
        }
        if self.set().iter().count() != self.members.len() {
            return bad("it names a node twice");
        }
        if !(1..=MAX_BLOCK_BYTES).contains(&self.block_bytes) {
            return bad("blocks are of 1 byte to 1 GiB");
        }
        for choice in self.algorithms() {
            if schedule::first_relayer(choice, 0, self.members.len()).is_err() {
                return bad("its algorithm cannot have so many members in a rack");
            }
        }
        Ok(())
    }

    /// All algorithms that its messages may travel by.
    pub(super) fn algorithms(&self) -> impl Iterator<Item = Algorithm> {
        let (first, second) = match self.choice {
            Choice::Always(algorithm) => (algorithm, None),
            Choice::Auto => (Algorithm::Sequential, Some(Algorithm::BinomialPipeline)),
        };
        std::iter::once(first).chain(second)
    }

    /// How a message of this size travels; none if it has too many blocks.
    pub(super) fn plan(&self, size: usize) -> Option<Plan> {
        let algorithm = match self.choice {
            Choice::Always(algorithm) => algorithm,
            Choice::Auto if size <= self.block_bytes.min(AT_ONCE) => Algorithm::Sequential,
            Choice::Auto => Algorithm::BinomialPipeline,
        };
        let blocks = size.div_ceil(self.block_bytes);
        (1..=MAX_BLOCKS).contains(&blocks).then_some(Plan {
            algorithm,
            block_bytes: self.block_bytes,
            blocks,
        })
    }

    /// Whom a member may get first blocks from, by their index among the members.
    pub(super) fn first_relayers(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        self.algorithms().filter_map(move |algorithm| {
            schedule::first_relayer(algorithm, index, self.members.len()).ok()?
        })
    }

    /// The members, with their incarnations.
    pub(super) fn all_members(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let incarnations = self.incarnations.iter().map(|of| of.unwrap_or(0));
        self.members.iter().copied().zip(incarnations)
    }

    pub(super) fn set(&self) -> NodeSet {
        self.members.iter().copied().collect()
    }

    /// The same at all members that have the same settings.
    pub(super) fn digest(&self) -> u64 {
        // Of one release, on hosts of one kind: the default hasher has no key.
        let mut hasher = std::hash::DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}
