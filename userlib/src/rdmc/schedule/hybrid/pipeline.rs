// SPDX-License-Identifier: MIT OR Apache-2.0

//! A binomial pipeline of racks.
//!
//! A leader has to send in each step of the outer pipeline, so the two levels
//! take turns: even steps belong to the outer one, of the leaders, odd steps
//! to the inner ones. Blocks come to a leader out of order; it sends them on
//! within its rack in the order in which they come, which each member of the
//! rack can compute.

use super::super::binomial_pipeline::BinomialPipeline;
use super::super::{Part, Transfer};
use super::Racks;
use std::ops::Range;

/// A member's part in a pipeline of racks.
///
/// # Invariants
///
/// There are at least two racks.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct HybridPipeline {
    racks: Racks,
    rack: usize,
    place: usize,
    /// The leader's part between the racks, whose peers are racks.
    outer: BinomialPipeline,
    /// The member's part within its rack, whose blocks count in the order in
    /// which they come to the leader.
    inner: BinomialPipeline,
    /// Outer steps before the inner pipeline begins.
    lag: usize,
    /// Steps of the whole multicast.
    steps: usize,
}

impl HybridPipeline {
    pub(in super::super) fn new(rank: usize, racks: Racks, blocks: usize) -> Self {
        let (rack, place) = racks.place(rank);
        let outer = BinomialPipeline::new(rack, racks.count(), blocks);
        Self {
            racks,
            rack,
            place,
            outer,
            inner: BinomialPipeline::new(place, racks.members(rack), blocks),
            lag: lag(rack, racks, blocks),
            // Rack 1 is as large and as late as any of those between it and
            // the last one.
            steps: [0, 1, racks.count() - 1]
                .iter()
                .map(|&rack| inner_end(rack, racks, blocks))
                .fold(2 * outer.steps() - 1, usize::max),
        }
    }

    /// The inner step that a step is, if it is one of this rack.
    fn inner_step(&self, step: usize) -> Option<usize> {
        (step / 2).checked_sub(self.lag)
    }

    /// A transfer within the rack, with ranks and numbers of the whole.
    fn within(&self, transfer: Transfer) -> Option<Transfer> {
        let block = match self.rack {
            0 => transfer.block,
            _ => {
                let came = self.outer.arrival(transfer.block);
                self.outer.receive(came)?.block
            }
        };
        Some(self.racks.within(self.rack, Transfer { block, ..transfer }))
    }

    /// A transfer between leaders.
    fn between(&self, transfer: Transfer) -> Transfer {
        Transfer {
            peer: self.racks.leader(transfer.peer),
            ..transfer
        }
    }
}

/// Outer steps before the inner pipeline of a rack begins, so many that no
/// block is due before it has come.
fn lag(rack: usize, racks: Racks, blocks: usize) -> usize {
    if rack == 0 {
        return 0;
    }
    let outer = BinomialPipeline::new(rack, racks.count(), blocks);
    // From the second block on one comes in each step.
    outer.arrival(0).max(outer.arrival(1) - 1)
}

/// Behind the last step of a rack's inner pipeline.
fn inner_end(rack: usize, racks: Racks, blocks: usize) -> usize {
    let inner = BinomialPipeline::new(0, racks.members(rack), blocks);
    match inner.steps() {
        0 => 0,
        steps => 2 * (lag(rack, racks, blocks) + steps),
    }
}

impl Part for HybridPipeline {
    fn steps(&self) -> usize {
        self.steps
    }

    fn send(&self, step: usize) -> Option<Transfer> {
        if step % 2 == 1 {
            return self.within(self.inner.send(self.inner_step(step)?)?);
        }
        let leader = self.place == 0;
        leader
            .then(|| self.outer.send(step / 2))?
            .map(|transfer| self.between(transfer))
    }

    fn receive(&self, step: usize) -> Option<Transfer> {
        if step % 2 == 1 {
            return self.within(self.inner.receive(self.inner_step(step)?)?);
        }
        let leader = self.place == 0;
        leader
            .then(|| self.outer.receive(step / 2))?
            .map(|transfer| self.between(transfer))
    }

    fn receiving(&self) -> Range<usize> {
        if self.place == 0 {
            let outer = self.outer.receiving();
            return 2 * outer.start..(2 * outer.end).saturating_sub(1);
        }
        let (inner, lag) = (self.inner.receiving(), self.lag);
        2 * (lag + inner.start) + 1..2 * (lag + inner.end)
    }
}
