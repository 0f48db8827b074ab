// SPDX-License-Identifier: MIT OR Apache-2.0

//! Seats of the simulated fabric: nodes that come when others have gone.
//!
//! A newcomer has memory of its own, and another incarnation than who had its seat before.
//! What that one has posted may still be under way; what was under way to it is lost with its
//! memory. Nodes know each other by incarnation: what is posted to one that has gone reaches
//! nobody.
//!
//! A call takes three steps, at three times: the node answers, the newcomer hears that and can
//! post from then on, and the node hears that it can, and may admit it. Either of the two that
//! takes the other one for down ends the call.

use super::{Node, Sim, SimNode, State};
use crate::fabric::{FabricError, NodeSet, MAX_NODES};
use std::sync::Arc;

/// Whose seat it is, and whom that one knows.
#[derive(Debug, Hash)]
pub(super) struct Seat {
    /// 0, if it is empty.
    incarnation: u64,
    /// Whom it is connected with, by seat.
    met: [u64; MAX_NODES],
    /// Who has called for a seat.
    calls: [u64; MAX_NODES],
    /// How far this one's own calls are.
    progress: [Progress; MAX_NODES],
}

/// How far a newcomer's call of a seat is, with the incarnation that it has called there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Progress {
    /// Not begun, or over.
    None,
    /// The node has answered, and the newcomer has not heard it.
    Answered(u64),
    /// The newcomer has heard it, which that one does not know.
    Heard(u64),
}

impl Default for Seat {
    fn default() -> Self {
        Self {
            incarnation: 0,
            met: [0; MAX_NODES],
            calls: [0; MAX_NODES],
            progress: [Progress::None; MAX_NODES],
        }
    }
}

impl Seat {
    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The incarnation in a seat that this one is connected with, or was last.
    pub(super) fn whom_it_met(&self, seat: usize) -> Option<u64> {
        self.met.get(seat).copied()
    }

    pub(super) fn is_of(&self, incarnation: u64) -> bool {
        self.incarnation == incarnation
    }
}

impl Node {
    /// A founder, which knows all others, or an empty seat.
    pub(super) fn of(seat: usize, founders: usize) -> Self {
        let incarnation = |seat: usize| if seat < founders { seat as u64 + 1 } else { 0 };
        Self {
            seat: Seat {
                incarnation: incarnation(seat),
                met: std::array::from_fn(incarnation),
                ..Seat::default()
            },
            ..Self::default()
        }
    }
}

impl Sim {
    /// Gives a seat to a newcomer. Who had it before, if anybody, has gone: its endpoint is
    /// dropped, or it has crashed.
    pub fn newcomer(&self, seat: usize) -> SimNode {
        let mut state = self.world.lock();
        for node in 0..state.nodes.len() {
            state.lose_all(node, seat);
        }
        state.incarnations += 1;
        let incarnation = state.incarnations;
        state.nodes[seat] = Node::default();
        state.nodes[seat].seat.incarnation = incarnation;
        SimNode {
            world: Arc::clone(&self.world),
            rank: seat,
            incarnation,
        }
    }

    /// Whether a newcomer's call of a node is not over yet, and both run.
    #[must_use]
    pub fn can_call(&self, newcomer: usize, node: usize) -> bool {
        let state = self.world.lock();
        let own = &state.nodes[newcomer].seat;
        let seat = &state.nodes[node].seat;
        let knows = [seat.met[newcomer], seat.calls[newcomer]];
        let is_over = own.progress[node] == Progress::None && knows.contains(&own.incarnation);
        !state.nodes[newcomer].crashed && !state.nodes[node].crashed && !is_over
    }

    /// A newcomer's call of a node comes a step further. After the last one that node may admit
    /// it.
    pub fn call(&self, newcomer: usize, node: usize) {
        let mut state = self.world.lock();
        let [own, other] = [newcomer, node].map(|seat| state.nodes[seat].seat.incarnation);
        let next = match state.nodes[newcomer].seat.progress[node] {
            Progress::Answered(known) if known == other => {
                let caller = &mut state.nodes[newcomer];
                caller.seat.met[node] = other;
                // Somebody else may have had the seat when it called the first time.
                caller.down = caller.down.minus(NodeSet::EMPTY.with(node));
                Progress::Heard(other)
            }
            Progress::Heard(known) if known == other => {
                state.nodes[node].seat.calls[newcomer] = own;
                Progress::None
            }
            // The first step, or that of another call, because somebody else has the seat now.
            _ => Progress::Answered(other),
        };
        state.nodes[newcomer].seat.progress[node] = next;
    }

    /// The incarnation that has a seat; 0, if it was never taken.
    #[must_use]
    pub fn incarnation(&self, seat: usize) -> u64 {
        self.world.lock().nodes[seat].seat.incarnation
    }

    /// As [`Self::notice`], of who had the seat as this incarnation.
    pub fn notice_of(&self, node: usize, down: usize, incarnation: u64) {
        {
            let mut state = self.world.lock();
            state.end_calls(node, down, incarnation);
            let seat = &mut state.nodes[node].seat;
            if seat.calls[down] == incarnation {
                seat.calls[down] = 0;
            }
            if seat.met[down] != incarnation {
                return;
            }
        }
        self.notice(node, down);
    }
}

impl State {
    /// Ends the calls that are under way between a node and an incarnation.
    fn end_calls(&mut self, node: usize, other: usize, incarnation: u64) {
        let called = self.nodes[node].seat.progress[other];
        if [
            Progress::Answered(incarnation),
            Progress::Heard(incarnation),
        ]
        .contains(&called)
        {
            self.nodes[node].seat.progress[other] = Progress::None;
        }
        if self.nodes[other].seat.incarnation == incarnation {
            self.nodes[other].seat.progress[node] = Progress::None;
        }
    }

    /// Whether a node knows who has the seat of another one.
    pub(super) fn has_met(&self, node: usize, peer: usize) -> bool {
        self.nodes[node].seat.met[peer] == self.nodes[peer].seat.incarnation
    }

    /// Those who have called a node and can be admitted.
    pub(super) fn callers(&self, node: usize) -> NodeSet {
        let calls = &self.nodes[node].seat.calls;
        let seats = 0..self.nodes.len();
        let can_come = |&seat: &usize| calls[seat] != 0 && self.are_severed(node, seat);
        seats.filter(can_come).collect()
    }

    pub(super) fn admit(&mut self, node: usize, seat: usize) -> Result<u64, FabricError> {
        if !self.callers(node).contains(seat) {
            return Err(FabricError::NoCaller(seat));
        }
        let node = &mut self.nodes[node];
        let incarnation = std::mem::take(&mut node.seat.calls[seat]);
        node.seat.met[seat] = incarnation;
        node.down = node.down.minus(NodeSet::EMPTY.with(seat));
        node.suspected = node.suspected.minus(NodeSet::EMPTY.with(seat));
        Ok(incarnation)
    }
}
