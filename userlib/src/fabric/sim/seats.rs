// SPDX-License-Identifier: MIT OR Apache-2.0

//! Seats of the simulated fabric: nodes that come when others have gone.
//!
//! A newcomer has memory of its own, and another incarnation than who had its seat before.
//! What that one has posted may still be under way; what was under way to it is lost with its
//! memory. Nodes know each other by incarnation: what is posted to one that has gone reaches
//! nobody.

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
}

impl Default for Seat {
    fn default() -> Self {
        Self {
            incarnation: 0,
            met: [0; MAX_NODES],
            calls: [0; MAX_NODES],
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
                calls: [0; MAX_NODES],
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

    /// Whether a newcomer has not called a node yet, and both run.
    #[must_use]
    pub fn can_call(&self, newcomer: usize, node: usize) -> bool {
        let state = self.world.lock();
        let incarnation = state.nodes[newcomer].seat.incarnation;
        let seat = &state.nodes[node].seat;
        let is_known = [seat.met[newcomer], seat.calls[newcomer]].contains(&incarnation);
        !state.nodes[newcomer].crashed && !state.nodes[node].crashed && !is_known
    }

    /// A newcomer calls a node: the two are connected, if that one admits it.
    pub fn call(&self, newcomer: usize, node: usize) {
        let mut state = self.world.lock();
        let [own, other] = [newcomer, node].map(|seat| state.nodes[seat].seat.incarnation);
        let own_node = &mut state.nodes[newcomer];
        own_node.seat.met[node] = other;
        // Somebody else may have had the seat when it called the first time.
        own_node.down = own_node.down.minus(NodeSet::EMPTY.with(node));
        state.nodes[node].seat.calls[newcomer] = own;
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
