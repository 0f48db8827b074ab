// SPDX-License-Identifier: MIT OR Apache-2.0

//! What each member sends, drawn from a seed, so that all know what all send.

use weft::rdmc::schedule::{Algorithm, Between};
use weft::rdmc::{Choice, GroupConfig};
use weft_testkit::place::{Kind, Meeting};

use crate::rng::Rng;

/// A run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Load {
    #[arg(long)]
    pub kind: Kind,
    #[arg(long)]
    pub members: usize,
    /// Bytes that all members together receive, at least.
    #[arg(long)]
    pub bytes: u64,
    /// Longest message, in bytes.
    #[arg(long)]
    pub longest: u32,
    /// Bytes of a block.
    #[arg(long)]
    pub block: u32,
    #[arg(long)]
    pub seed: u64,
}

/// A message: a range of the bytes that all know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub start: usize,
    pub size: usize,
}

impl Load {
    /// The arguments of the process of this rank.
    pub fn arguments(&self, rank: usize, meeting: Meeting) -> Vec<String> {
        vec![
            "copier".to_owned(),
            format!("--kind={}", self.kind),
            format!("--members={}", self.members),
            format!("--bytes={}", self.bytes),
            format!("--longest={}", self.longest),
            format!("--block={}", self.block),
            format!("--seed={}", self.seed),
            format!("--rank={rank}"),
            format!("--meeting={meeting}"),
        ]
    }

    /// The group of which this member is the root. Each has another algorithm.
    pub fn group(&self, root: usize) -> GroupConfig {
        let hybrid = |between| Algorithm::Hybrid {
            between,
            rack_members: 2,
        };
        let choices = [
            Choice::Always(Algorithm::BinomialPipeline),
            Choice::Auto,
            Choice::Always(Algorithm::Chain),
            Choice::Always(Algorithm::BinomialTree),
            Choice::Always(Algorithm::Sequential),
            Choice::Always(hybrid(Between::Chain)),
            Choice::Always(hybrid(Between::BinomialPipeline)),
        ];
        let members = (0..self.members).map(|at| (root + at) % self.members);
        GroupConfig::new(root as u32, members)
            .algorithm(choices[root % choices.len()])
            .block_bytes(self.block as usize)
    }

    /// The bytes that messages are ranges of: more than the longest one.
    pub fn bytes(&self) -> Vec<u8> {
        Rng::new(self.seed).bytes(self.longest as usize + (1 << 16))
    }

    /// What a root sends, in order.
    pub fn messages(&self, root: usize) -> impl Iterator<Item = Part> {
        let share = self.bytes / (self.members * (self.members - 1)) as u64;
        let longest = self.longest as usize;
        let mut rng = Rng::new(self.seed ^ (root as u64 + 1).rotate_left(32));
        let mut left = share as usize;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            // Short ones are as frequent as long ones.
            let limit = 1 << rng.below(longest.ilog2() as usize + 1);
            let size = (1 + rng.below(limit.max(2))).min(longest);
            left = left.saturating_sub(size);
            Some(Part {
                start: rng.below(1 << 16),
                size,
            })
        })
    }

    /// Bytes that a member receives. All roots send about as much; a message is
    /// what they may differ by, and so members by what they receive.
    pub fn arriving_at(&self, rank: usize) -> u64 {
        let others = (0..self.members).filter(|&root| root != rank);
        let sizes = others.flat_map(|root| self.messages(root).map(|part| part.size as u64));
        sizes.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_know_what_all_send() {
        let load = Load {
            kind: Kind::Shm,
            members: 3,
            bytes: 60 << 20,
            longest: 1 << 20,
            block: 1 << 16,
            seed: 5,
        };
        let parts: Vec<_> = load.messages(1).collect();
        assert_eq!(parts, load.messages(1).collect::<Vec<_>>());
        assert_ne!(parts, load.messages(2).collect::<Vec<_>>());
        let sent: usize = parts.iter().map(|part| part.size).sum();
        assert!((10 << 20..11 << 20).contains(&sent));
        let end = |part: &Part| part.start + part.size;
        assert!(parts.iter().map(end).max() <= Some(load.bytes().len()));
        assert!(parts.iter().any(|part| part.size < 1000));
        assert!(parts.iter().any(|part| part.size > 500_000));
    }
}
