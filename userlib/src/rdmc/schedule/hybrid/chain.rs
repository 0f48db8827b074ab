// SPDX-License-Identifier: MIT OR Apache-2.0

//! A chain of racks.
//!
//! A leader that sent each block twice, within its rack and to the next one,
//! would halve the speed. But in step s of a rack's own pipeline, of d
//! dimensions, vertex 2^(s mod d) has nobody to send to: its neighbour is the
//! root, which has all blocks. The block of its turn is s - d; that it relays
//! to the next rack's leader. So each rack runs d + 1 steps behind the one
//! before it, at full speed, and blocks come to the leader in order.
//!
//! The last block is relayed by the leader: in that step the nodes of shared
//! vertices exchange blocks.

use super::super::binomial_pipeline::BinomialPipeline;
use super::super::hypercube::Hypercube;
use super::super::{rounds, Part, Transfer};
use super::Racks;
use std::ops::Range;

/// A member's part in a chain of racks.
///
/// # Invariants
///
/// There are at least two racks, and all but the last one have at least two
/// members.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct HybridChain {
    racks: Racks,
    rack: usize,
    place: usize,
    blocks: usize,
    inner: BinomialPipeline,
    /// Of any rack but the last one: of those that relay.
    relaying: Hypercube,
    /// The step in which this rack's own pipeline begins.
    start: usize,
}

impl HybridChain {
    pub(in super::super) fn new(rank: usize, racks: Racks, blocks: usize) -> Self {
        let (rack, place) = racks.place(rank);
        let relaying = Hypercube::new(racks.members(0), blocks);
        Self {
            racks,
            rack,
            place,
            blocks,
            inner: BinomialPipeline::new(place, racks.members(rack), blocks),
            relaying,
            start: start(rack, relaying),
        }
    }

    /// Place in its rack of the member that relays a block to the next one, in
    /// step `block + d` of its own pipeline.
    fn relayer(&self, block: usize) -> usize {
        // Of several blocks, not of one: who sends a rack its first block must
        // not depend on their number.
        if block > 0 && block + 1 == self.blocks {
            return 0;
        }
        let dimensions = self.relaying.dimensions();
        self.relaying
            .relayer(1 << (block % dimensions), block + dimensions)
    }

    /// What this member relays to the next rack in a step of its own rack.
    fn relayed(&self, step: usize) -> Option<Transfer> {
        let next = self.rack + 1;
        let block = step.checked_sub(self.relaying.dimensions())?;
        if next == self.racks.count() || block >= self.blocks {
            return None;
        }
        (self.relayer(block) == self.place).then(|| Transfer {
            peer: self.racks.leader(next),
            block,
        })
    }
}

/// The step in which a rack's own pipeline begins.
fn start(rack: usize, relaying: Hypercube) -> usize {
    rack * (relaying.dimensions() + 1)
}

impl Part for HybridChain {
    fn steps(&self) -> usize {
        // A last rack of one member counts too: its leader receives, up to the
        // step before that in which it could send.
        let last = self.racks.count() - 1;
        start(last, self.relaying) + rounds(self.racks.members(last)) + self.blocks - 1
    }

    fn send(&self, step: usize) -> Option<Transfer> {
        let step = step.checked_sub(self.start)?;
        match self.inner.send(step) {
            Some(transfer) => Some(self.racks.within(self.rack, transfer)),
            None => self.relayed(step),
        }
    }

    fn receive(&self, step: usize) -> Option<Transfer> {
        if self.place > 0 {
            let transfer = self.inner.receive(step.checked_sub(self.start)?)?;
            return Some(self.racks.within(self.rack, transfer));
        }
        let from = self.rack.checked_sub(1)?;
        // The block comes in the step before that in which it goes on.
        let block = step.checked_sub(self.start - 1)?;
        (block < self.blocks).then(|| Transfer {
            peer: self.racks.leader(from) + self.relayer(block),
            block,
        })
    }

    fn receiving(&self) -> Range<usize> {
        if self.place > 0 {
            let inner = self.inner.receiving();
            return self.start + inner.start..self.start + inner.end;
        }
        match self.rack {
            0 => 0..0,
            _ => self.start - 1..self.start - 1 + self.blocks,
        }
    }
}
