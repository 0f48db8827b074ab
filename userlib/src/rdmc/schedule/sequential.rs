// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sequential send: the whole message to one member after the other (rdmc
//! §4.3). The baseline: the root's NIC does all the work.

use super::{Part, Transfer};
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub(super) struct Sequential {
    rank: usize,
    members: usize,
    blocks: usize,
}

impl Sequential {
    pub(super) fn new(rank: usize, members: usize, blocks: usize) -> Self {
        Self {
            rank,
            members,
            blocks,
        }
    }
}

impl Part for Sequential {
    fn steps(&self) -> usize {
        (self.members - 1) * self.blocks
    }

    fn send(&self, step: usize) -> Option<Transfer> {
        (self.rank == 0 && step < self.steps()).then(|| Transfer {
            peer: 1 + step / self.blocks,
            block: step % self.blocks,
        })
    }

    fn receive(&self, step: usize) -> Option<Transfer> {
        self.receiving().contains(&step).then(|| Transfer {
            peer: 0,
            block: step % self.blocks,
        })
    }

    fn receiving(&self) -> Range<usize> {
        match self.rank {
            0 => 0..0,
            rank => (rank - 1) * self.blocks..rank * self.blocks,
        }
    }

    fn sending(&self) -> Range<usize> {
        match self.rank {
            0 => 0..self.steps(),
            _ => 0..0,
        }
    }
}
