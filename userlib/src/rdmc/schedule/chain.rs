// SPDX-License-Identifier: MIT OR Apache-2.0

//! Chain send: a bucket brigade along the ranks (rdmc §4.3). Bandwidth is
//! well used; the last ranks wait long for their first block.

use super::{Part, Transfer};
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    rank: usize,
    members: usize,
    blocks: usize,
}

impl Chain {
    pub(super) fn new(rank: usize, members: usize, blocks: usize) -> Self {
        Self {
            rank,
            members,
            blocks,
        }
    }
}

impl Part for Chain {
    fn steps(&self) -> usize {
        match self.members {
            1 => 0,
            members => members - 2 + self.blocks,
        }
    }

    fn send(&self, step: usize) -> Option<Transfer> {
        // Rank r relays in the step behind the one in which it receives.
        let block = step.checked_sub(self.rank)?;
        let peer = self.rank + 1;
        (block < self.blocks && peer < self.members).then_some(Transfer { peer, block })
    }

    fn receive(&self, step: usize) -> Option<Transfer> {
        let peer = self.rank.checked_sub(1)?;
        let block = step.checked_sub(peer)?;
        (block < self.blocks).then_some(Transfer { peer, block })
    }

    fn receiving(&self) -> Range<usize> {
        match self.rank {
            0 => 0..0,
            rank => rank - 1..rank - 1 + self.blocks,
        }
    }

    fn sending(&self) -> Range<usize> {
        self.rank..self.rank + self.blocks
    }
}
