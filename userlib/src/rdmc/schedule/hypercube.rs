// SPDX-License-Identifier: MIT OR Apache-2.0

//! The hypercube below the binomial pipeline: which vertex sends which block
//! in which step, and which of its nodes does it (rdmc App. A).
//!
//! # Vertices
//!
//! With d = floor(log2 members) there are 2^d vertices; the root is alone at
//! vertex 0. In step s each vertex v deals only with its neighbour across
//! dimension s mod d, v xor 2^(s mod d).
//!
//! In step w the root starts wave w, which carries block w, or the last block
//! when there is no other. In each step s from w + 1 to w + d, every vertex
//! that has the wave sends it across dimension s mod d; then all vertices have
//! it. Before step s it has come to those vertices whose bit w mod d is set and
//! whose other set bits are all among w + 1 .. s - 1 (modulo d). So the newest
//! wave of vertex v before step s is that of v's first set bit in the cyclic
//! order from dimension s mod d on, which stands for wave s - d: a rotation and
//! a count of zeros. It is also the highest block that the vertex has, as the
//! paper says. Waves behind the last block's carry nothing new: a vertex that
//! has the last block does not take it again.
//!
//! # Shared vertices
//!
//! Each rank from 2^d on is the second node of one of the vertices 1, 2, ...;
//! there are fewer than 2^d of them, so the root never has to share.
//!
//! A vertex sends the same wave for a *turn*: from the step behind that in
//! which it came, until its dimension is up again; in the last step of the turn
//! the next wave comes. In a turn each node of the vertex has its place: the
//! *relayer*, which alone has the turn's block, sends it to the neighbour; the
//! *taker* receives what comes from there, and hands the relayer the block that
//! only the taker had before that step. So before each step each node has at
//! most one block that the other one lacks, and the turn's block is the
//! relayer's. The next turn's block comes to the taker; so the two change
//! places from turn to turn, beginning with the first node as relayer, and the
//! number of waves that came before tells who is which.
//!
//! A vertex gets nothing between its first block and step d. In step d each
//! one gets something, across dimension 0. So all second nodes get their first
//! block in step d, from the root or from the first node of the neighbour,
//! which is still in its first turn, whatever the number of blocks.
//!
//! After d + blocks - 1 steps all vertices have all blocks. In one more step
//! the nodes of each shared vertex exchange what they lack. No turn of the last
//! block ends before that step.

use super::{bits, rounds};

/// The hypercube for a number of members and blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hypercube {
    members: usize,
    /// Number of the last block.
    last: usize,
    dimensions: usize,
}

impl Hypercube {
    /// `members` and `blocks` are at least 1.
    pub(super) fn new(members: usize, blocks: usize) -> Self {
        Self {
            members,
            last: blocks - 1,
            dimensions: bits(members.ilog2()),
        }
    }

    /// Dimensions: floor(log2 members).
    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Steps until all members have all blocks.
    pub(super) fn steps(&self) -> usize {
        match self.members {
            1 => 0,
            members => rounds(members) + self.last,
        }
    }

    /// The vertex of a member.
    pub(super) fn vertex(&self, rank: usize) -> usize {
        match rank.checked_sub(1 << self.dimensions) {
            None => rank,
            Some(extra) => extra + 1,
        }
    }

    /// Rank of the second node of a vertex, if it is shared. The first one has
    /// the vertex's own number.
    pub(super) fn second(&self, vertex: usize) -> Option<usize> {
        let rank = (1 << self.dimensions) + vertex.checked_sub(1)?;
        (rank < self.members).then_some(rank)
    }

    /// The vertex with which this one deals in a step.
    pub(super) fn neighbour(&self, vertex: usize, step: usize) -> usize {
        vertex ^ (1 << (step % self.dimensions))
    }

    /// Rank of the node that sends for a vertex in a step.
    pub(super) fn relayer(&self, vertex: usize, step: usize) -> usize {
        match self.second(vertex) {
            Some(second) if self.first_relays(vertex, step) == Some(false) => second,
            _ => vertex,
        }
    }

    /// Rank of the node that receives for a vertex in a step.
    pub(super) fn taker(&self, vertex: usize, step: usize) -> usize {
        match self.second(vertex) {
            Some(second) if self.first_relays(vertex, step) == Some(true) => second,
            _ => vertex,
        }
    }

    /// The block that comes to a vertex from its neighbour in a step.
    pub(super) fn incoming(&self, vertex: usize, step: usize) -> Option<usize> {
        if vertex == 0 {
            return None;
        }
        let block = self.block(self.wave(self.neighbour(vertex, step), step)?);
        // In step d a second node gets its first block, and always from there,
        // even if it is the only block and its partner could send it as well.
        let first = step == self.dimensions && self.second(vertex).is_some();
        let known = block == self.last && self.has_last(vertex, step);
        (first || !known).then_some(block)
    }

    /// The block that the taker of a shared vertex hands to the relayer.
    pub(super) fn handed(&self, vertex: usize, step: usize) -> Option<usize> {
        self.second(vertex)?;
        let wave = self.wave(vertex, step)?;
        let before = step.checked_sub(1)?;
        match self.wave(vertex, before)? {
            // It took in what came in the step before.
            same if same == wave => self.incoming(vertex, before),
            // It was the relayer of the turn that ended.
            ended => Some(self.block(ended)),
        }
    }

    /// The block that the relayer of a shared vertex hands to the taker: the
    /// last one, in the last step. With a single block all have it by then.
    pub(super) fn handed_back(&self, vertex: usize, step: usize) -> Option<usize> {
        self.second(vertex)?;
        let all = step + 1 == self.steps() && self.incoming(vertex, step).is_none();
        all.then_some(self.last)
    }

    /// The wave whose turn it is at a vertex in a step, once it has one.
    fn wave(&self, vertex: usize, step: usize) -> Option<usize> {
        match vertex {
            0 => Some(step),
            _ => (step + self.first_bit(vertex, step)).checked_sub(self.dimensions),
        }
    }

    /// Whether the first node of a shared vertex is the relayer of a step's
    /// turn: whether it is an even one, counting from 0. None before all turns.
    fn first_relays(&self, vertex: usize, step: usize) -> Option<bool> {
        let wave = self.wave(vertex, step)?;
        let (rounds, rest) = (wave / self.dimensions, wave % self.dimensions);
        let below = vertex & ((1 << rest) - 1);
        let turn = rounds * bits(vertex.count_ones()) + bits(below.count_ones());
        Some(turn % 2 == 0)
    }

    /// Whether a vertex has the last block before a step: whether all its bits
    /// are of waves that carry it.
    fn has_last(&self, vertex: usize, step: usize) -> bool {
        let waves = step.saturating_sub(self.last).min(self.dimensions);
        self.rotated(vertex, self.last) < 1 << waves
    }

    /// Dimensions from that of a wave to the vertex's next bit, cyclically.
    fn first_bit(&self, vertex: usize, wave: usize) -> usize {
        bits(self.rotated(vertex, wave).trailing_zeros())
    }

    /// The vertex's bits, that of a wave's dimension first.
    fn rotated(&self, vertex: usize, wave: usize) -> usize {
        let by = wave % self.dimensions;
        let all = (1 << self.dimensions) - 1;
        ((vertex >> by) | (vertex << (self.dimensions - by))) & all
    }

    fn block(&self, wave: usize) -> usize {
        wave.min(self.last)
    }
}
