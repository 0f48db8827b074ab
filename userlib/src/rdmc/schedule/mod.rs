// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who sends which block to whom, and when (rdmc §4.3, App. A).
//!
//! A [`Schedule`] is one member's part of a multicast from rank 0, the root,
//! to all other ranks. It is divided into steps. In each step a member sends
//! at most one block and receives at most one. What it sends in a step it has
//! had since before that step. Each block reaches each member exactly once.
//!
//! Steps order the transfers of one member; they are not a clock. A member
//! may go on to its next step as soon as its own transfers allow it (rdmc
//! App. A, item 2).
//!
//! A member computes only its own part, from the algorithm, its rank, and the
//! numbers of members and blocks. An answer takes constant time and no memory:
//! there is no table of steps.
//!
//! | algorithm | steps for n members, k blocks |
//! |---|---|
//! | sequential | (n - 1) k |
//! | chain | n - 2 + k |
//! | binomial tree | ceil(log2 n) k |
//! | binomial pipeline | ceil(log2 n) + k - 1 |
//!
//! The pipeline's count is the least that is possible for any n: the root
//! needs k steps to send k blocks, and the last one needs ceil(log2 n) steps
//! to reach everybody. The hybrids' are at [`Between`].
//!
//! ```
//! use weft::rdmc::schedule::{Algorithm, Schedule};
//!
//! # fn main() -> Result<(), weft::rdmc::schedule::ScheduleError> {
//! let third = Schedule::new(Algorithm::BinomialPipeline, 2, 4, 10)?;
//! assert_eq!(third.steps(), 11);
//! assert_eq!(third.receives().count(), 10);
//! for (step, transfer) in third.sends() {
//!     println!("{step}: block {} to {}", transfer.block, transfer.peer);
//! }
//! # Ok(())
//! # }
//! ```

mod binomial_pipeline;
mod binomial_tree;
mod chain;
mod error;
mod hybrid;
mod hypercube;
mod sequential;
#[cfg(all(test, not(loom)))]
mod tests;

pub use error::ScheduleError;

use binomial_pipeline::BinomialPipeline;
use binomial_tree::BinomialTree;
use chain::Chain;
use hybrid::{HybridChain, HybridPipeline, Racks};
use sequential::Sequential;
use std::fmt::Debug;
use std::ops::Range;

/// Most members of a group, the root included.
pub const MAX_MEMBERS: usize = 1 << 10;
/// Most blocks of a message.
pub const MAX_BLOCKS: usize = 1 << 20;

/// How blocks travel from the root to all other members (rdmc §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The root sends the whole message to one member after the other.
    Sequential,
    /// Each member relays each block to the next rank.
    Chain,
    /// Whoever has the whole message sends it to somebody who has none of it.
    BinomialTree,
    /// Blocks spread along the edges of a hypercube (rdmc App. A).
    BinomialPipeline,
    /// Two levels: between racks, and a binomial pipeline within each (rdmc
    /// §4.3.1). Each block enters each rack once.
    Hybrid {
        /// How blocks travel from rack to rack.
        between: Between,
        /// Members of a rack, at least 1. Ranks are ordered by rack: each rack
        /// is this many consecutive ranks, the last one what is left. The
        /// first rank of a rack is its leader, to which all blocks come that
        /// enter the rack.
        rack_members: usize,
    },
}

/// How blocks travel from rack to rack (rdmc §4.3.1).
///
/// With r racks of m members and k blocks, a chain takes at most
/// (r - 1) (floor(log2 m) + 1) + ceil(log2 m) + k - 1 steps, a pipeline
/// 2 (ceil(log2 r) + ceil(log2 m) + k - 1): a chain is better for many blocks,
/// a pipeline for many racks. With a single rack, or racks of one member, there
/// is one level, and its algorithm's count of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Between {
    /// Each rack relays each block to the next one. In each step another
    /// member does it, one that has nothing to send within the rack.
    Chain,
    /// The leaders run a binomial pipeline, in even steps; in odd steps each
    /// of them is the root of its rack's pipeline.
    BinomialPipeline,
}

/// One block between this member and another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Rank of the other member.
    pub peer: usize,
    /// Number of the block in the message, from 0.
    pub block: usize,
}

/// A member's own part of a multicast.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    part: Parts,
}

impl Schedule {
    /// The part of the member `rank` in a multicast of `blocks` blocks to
    /// `members` members, rank 0 being the root.
    ///
    /// # Errors
    ///
    /// [`ScheduleError`], if a number is not within its limits.
    pub fn new(
        algorithm: Algorithm,
        rank: usize,
        members: usize,
        blocks: usize,
    ) -> Result<Self, ScheduleError> {
        check(rank, members, blocks)?;
        let part = match algorithm {
            Algorithm::Sequential => Parts::Sequential(Sequential::new(rank, members, blocks)),
            Algorithm::Chain => Parts::Chain(Chain::new(rank, members, blocks)),
            Algorithm::BinomialTree => {
                Parts::BinomialTree(BinomialTree::new(rank, members, blocks))
            }
            Algorithm::BinomialPipeline => {
                Parts::BinomialPipeline(BinomialPipeline::new(rank, members, blocks))
            }
            Algorithm::Hybrid {
                between,
                rack_members,
            } => hybrid(between, rank, Racks::new(members, rack_members)?, blocks),
        };
        Ok(Self { part })
    }

    /// Steps of the whole multicast, until the last member has the last block.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.part().steps()
    }

    /// What this member sends in a step, from 0. It has the block since before
    /// that step. Nothing from [`Schedule::steps`] on.
    #[must_use]
    pub fn send(&self, step: usize) -> Option<Transfer> {
        self.part().send(step)
    }

    /// What this member receives in a step, from 0. Nothing from
    /// [`Schedule::steps`] on.
    #[must_use]
    pub fn receive(&self, step: usize) -> Option<Transfer> {
        self.part().receive(step)
    }

    /// All that this member sends, each with its step, in order.
    pub fn sends(&self) -> impl Iterator<Item = (usize, Transfer)> + '_ {
        let part = self.part();
        part.sending()
            .filter_map(move |step| Some((step, part.send(step)?)))
    }

    /// All that this member receives, each with its step, in order.
    pub fn receives(&self) -> impl Iterator<Item = (usize, Transfer)> + '_ {
        let part = self.part();
        part.receiving()
            .filter_map(move |step| Some((step, part.receive(step)?)))
    }

    /// The block that this member receives first, and from whom; none at the
    /// root.
    ///
    /// The number of blocks decides which block it is but not who sends it
    /// ([`first_relayer`]).
    #[must_use]
    pub fn first_block(&self) -> Option<Transfer> {
        self.receives().next().map(|(_, transfer)| transfer)
    }

    fn part(&self) -> &dyn Part {
        match &self.part {
            Parts::Sequential(part) => part,
            Parts::Chain(part) => part,
            Parts::BinomialTree(part) => part,
            Parts::BinomialPipeline(part) => part,
            Parts::HybridChain(part) => part,
            Parts::HybridPipeline(part) => part,
        }
    }
}

/// Rank of the member that sends `rank` its first block, whatever the number
/// of blocks; none for the root.
///
/// So a member can post its first receive before it knows how long the message
/// is (rdmc §4.2; App. A, item 3).
///
/// # Errors
///
/// [`ScheduleError`], if a number is not within its limits.
pub fn first_relayer(
    algorithm: Algorithm,
    rank: usize,
    members: usize,
) -> Result<Option<usize>, ScheduleError> {
    let schedule = Schedule::new(algorithm, rank, members, 1)?;
    Ok(schedule.first_block().map(|transfer| transfer.peer))
}

/// What each algorithm answers for one member.
trait Part: Debug {
    /// Steps of the whole multicast.
    fn steps(&self) -> usize;

    /// What the member sends in this step.
    fn send(&self, step: usize) -> Option<Transfer>;

    /// What the member receives in this step.
    fn receive(&self, step: usize) -> Option<Transfer>;

    /// From the step of the first receipt to behind that of the last one.
    fn receiving(&self) -> Range<usize>;

    /// Steps outside of which the member sends nothing.
    fn sending(&self) -> Range<usize> {
        self.receiving().start..self.steps()
    }
}

/// The part in one of the algorithms.
#[derive(Clone, Copy, Debug)]
enum Parts {
    Sequential(Sequential),
    Chain(Chain),
    BinomialTree(BinomialTree),
    BinomialPipeline(BinomialPipeline),
    HybridChain(HybridChain),
    HybridPipeline(HybridPipeline),
}

fn check(rank: usize, members: usize, blocks: usize) -> Result<(), ScheduleError> {
    if !(1..=MAX_MEMBERS).contains(&members) {
        return Err(ScheduleError::Members { members });
    }
    if rank >= members {
        return Err(ScheduleError::Rank { rank, members });
    }
    if !(1..=MAX_BLOCKS).contains(&blocks) {
        return Err(ScheduleError::Blocks { blocks });
    }
    Ok(())
}

/// The part in a hybrid. With one level there is nothing to combine.
fn hybrid(between: Between, rank: usize, racks: Racks, blocks: usize) -> Parts {
    let members = racks.all_members();
    match (between, racks.count(), racks.members(0)) {
        (_, 1, _) | (Between::BinomialPipeline, _, 1) => {
            Parts::BinomialPipeline(BinomialPipeline::new(rank, members, blocks))
        }
        (Between::Chain, _, 1) => Parts::Chain(Chain::new(rank, members, blocks)),
        (Between::Chain, ..) => Parts::HybridChain(HybridChain::new(rank, racks, blocks)),
        (Between::BinomialPipeline, ..) => {
            Parts::HybridPipeline(HybridPipeline::new(rank, racks, blocks))
        }
    }
}

/// Hops of the fastest spread from one member to all: ceil(log2 members).
fn rounds(members: usize) -> usize {
    bits(members.next_power_of_two().trailing_zeros())
}

fn bits(count: u32) -> usize {
    // At most the bits of a word.
    usize::try_from(count).unwrap_or(usize::MAX)
}
