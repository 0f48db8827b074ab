// SPDX-License-Identifier: MIT OR Apache-2.0

//! Binomial tree: in each round, everybody who has the message sends all of
//! it to somebody who has not (rdmc §4.3, Figure 3 left).

use super::{bits, rounds, Part, Transfer};
use std::ops::Range;

/// In round t, of as many steps as there are blocks, each rank r < 2^t sends
/// to rank r + 2^t.
#[derive(Clone, Copy, Debug)]
pub(super) struct BinomialTree {
    rank: usize,
    members: usize,
    blocks: usize,
}

impl BinomialTree {
    pub(super) fn new(rank: usize, members: usize, blocks: usize) -> Self {
        Self {
            rank,
            members,
            blocks,
        }
    }
}

impl Part for BinomialTree {
    fn steps(&self) -> usize {
        rounds(self.members) * self.blocks
    }

    fn send(&self, step: usize) -> Option<Transfer> {
        if step >= self.steps() {
            return None;
        }
        let half = 1 << (step / self.blocks);
        let peer = self.rank + half;
        (self.rank < half && peer < self.members).then(|| Transfer {
            peer,
            block: step % self.blocks,
        })
    }

    fn receive(&self, step: usize) -> Option<Transfer> {
        let half = 1 << self.rank.checked_ilog2()?;
        self.receiving().contains(&step).then(|| Transfer {
            peer: self.rank - half,
            block: step % self.blocks,
        })
    }

    fn receiving(&self) -> Range<usize> {
        match self.rank.checked_ilog2().map(bits) {
            None => 0..0,
            Some(round) => round * self.blocks..(round + 1) * self.blocks,
        }
    }
}
