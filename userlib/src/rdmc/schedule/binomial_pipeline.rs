// SPDX-License-Identifier: MIT OR Apache-2.0

//! Binomial pipeline: a node's part of what its vertex does (rdmc App. A).
//! The construction is explained in [`super::hypercube`].

use super::hypercube::Hypercube;
use super::{bits, Part, Transfer};
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
pub(super) struct BinomialPipeline {
    rank: usize,
    blocks: usize,
    cube: Hypercube,
}

impl BinomialPipeline {
    pub(super) fn new(rank: usize, members: usize, blocks: usize) -> Self {
        Self {
            rank,
            blocks,
            cube: Hypercube::new(members, blocks),
        }
    }

    /// The step in which a receiver's block comes that has `index` others
    /// before it.
    ///
    /// After its first block, a node gets one in each step from that in which
    /// all nodes of its kind have their first.
    pub(super) fn arrival(&self, index: usize) -> usize {
        let dimensions = self.cube.dimensions();
        let vertex = self.cube.vertex(self.rank);
        let first = match vertex == self.rank {
            true => vertex.checked_ilog2().map_or(0, bits),
            false => dimensions,
        };
        match index.checked_sub(1) {
            None => first,
            Some(rest) => dimensions + usize::from(self.cube.second(vertex).is_some()) + rest,
        }
    }
}

impl Part for BinomialPipeline {
    fn steps(&self) -> usize {
        self.cube.steps()
    }

    fn send(&self, step: usize) -> Option<Transfer> {
        if step >= self.steps() {
            return None;
        }
        let cube = &self.cube;
        let vertex = cube.vertex(self.rank);
        let relayer = cube.relayer(vertex, step);
        if self.rank != relayer {
            let block = cube.handed(vertex, step)?;
            return Some(Transfer {
                peer: relayer,
                block,
            });
        }
        let to = cube.neighbour(vertex, step);
        let (peer, block) = match cube.incoming(to, step) {
            Some(block) => (cube.taker(to, step), block),
            None => (cube.taker(vertex, step), cube.handed_back(vertex, step)?),
        };
        Some(Transfer { peer, block })
    }

    fn receive(&self, step: usize) -> Option<Transfer> {
        if step >= self.steps() {
            return None;
        }
        let cube = &self.cube;
        let vertex = cube.vertex(self.rank);
        let taker = cube.taker(vertex, step);
        if self.rank != taker {
            let block = cube.handed(vertex, step)?;
            return Some(Transfer { peer: taker, block });
        }
        let from = cube.neighbour(vertex, step);
        let (peer, block) = match cube.incoming(vertex, step) {
            Some(block) => (cube.relayer(from, step), block),
            None => (cube.relayer(vertex, step), cube.handed_back(vertex, step)?),
        };
        Some(Transfer { peer, block })
    }

    fn receiving(&self) -> Range<usize> {
        match self.rank {
            0 => 0..0,
            _ => self.arrival(0)..self.arrival(self.blocks - 1) + 1,
        }
    }
}
