// SPDX-License-Identifier: MIT OR Apache-2.0

//! The holders of all seats. A node takes newcomers in, one after the other.
//!
//! A newcomer posts nothing to a node before that one has said that it has taken it in. Until
//! all have who were in its first view, and are in its later ones, it is in no group and takes
//! in nobody: so of two newcomers the one that joined first takes in the other. At a node
//! that all others found at the beginning all of this is over from the first moment on.

use super::super::words::CELL_WORDS;
use super::Node;
use crate::fabric::{Meeting, NodeSet, Write};
use crate::multicast::View;
use std::sync::atomic::Ordering;

const WORD: usize = size_of::<u64>();

/// How far this node is with its own arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// It knows no view yet.
    Begun,
    /// These have to take it in.
    Awaits(NodeSet),
    Over,
}

/// The other nodes.
#[derive(Debug)]
pub(super) struct Peers {
    /// The incarnations of the nodes that met this one, or that it has taken in, by seat; founders
    /// have 0.
    known: Vec<Option<u64>>,
    /// This node's.
    incarnation: u64,
    arrival: Arrival,
    /// The last one that the application has installed.
    view: Option<View>,
}

impl Peers {
    pub(super) fn new(meeting: Meeting, seats: usize) -> Self {
        let (founders, incarnation, arrival) = match meeting {
            Meeting::Founders(met) => (met, 0, Arrival::Over),
            Meeting::Newcomer { incarnation, .. } => (NodeSet::EMPTY, incarnation, Arrival::Begun),
        };
        let known = |seat| founders.contains(seat).then_some(0);
        Self {
            known: (0..seats).map(known).collect(),
            incarnation,
            arrival,
            view: None,
        }
    }

    /// The last view that the application has installed.
    pub(super) fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Whether this node can be in groups.
    pub(super) fn has_arrived(&self) -> bool {
        self.arrival == Arrival::Over
    }

    /// Whether the node of a seat is this incarnation, and can be posted to.
    pub(super) fn is_here(&self, node: &Node, seat: usize, incarnation: u64) -> bool {
        self.incarnation_at(node, seat) == Some(incarnation)
    }

    fn incarnation_at(&self, node: &Node, seat: usize) -> Option<u64> {
        let known = self.known.get(seat).copied().flatten();
        known.or_else(|| {
            let word = node.endpoint.region().word(node.layout.welcome_of(seat));
            word.ok()?.load(Ordering::Acquire).checked_sub(1)
        })
    }

    /// Takes in who has called for a seat whose node is cut off, and says whether somebody
    /// has.
    pub(super) fn admit(&mut self, node: &Node, seat: usize) -> bool {
        let Ok(incarnation) = node.endpoint.admit(seat) else {
            return false;
        };
        tracing::debug!(seat, incarnation, "taken in");
        // Nothing that the node before it wrote is left, and nothing of it comes any more.
        for place in 0..=node.layout.groups {
            let cell = node.layout.heard(place, seat);
            for at in (0..CELL_WORDS).map(|word| cell + word * WORD) {
                if let Ok(word) = node.endpoint.region().word(at) {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
        self.known[seat] = Some(incarnation);
        self.welcome(node, seat);
        true
    }

    /// Says who this node is, and that it has taken the other one in.
    fn welcome(&self, node: &Node, seat: usize) {
        let write = Write {
            local: node.layout.welcome_to(seat),
            remote: node.layout.welcome_of(node.endpoint.rank()),
            len: WORD,
        };
        if let Ok(word) = node.endpoint.region().word(write.local) {
            word.store(self.incarnation + 1, Ordering::Release);
        }
        // One that is down again will be noticed.
        let _ = node.endpoint.post(seat, &[write]);
        node.endpoint.ring(seat);
    }

    /// Looks whether all have taken this node in; says whether that is news.
    pub(super) fn arrive(&mut self, node: &Node) -> bool {
        let (Arrival::Awaits(others), Some(view)) = (self.arrival, &self.view) else {
            return false;
        };
        let has_taken_in = |seat: usize| self.incarnation_at(node, seat) == view.incarnation(seat);
        if !others.iter().all(has_taken_in) {
            return false;
        }
        self.arrival = Arrival::Over;
        node.endpoint.settle();
        true
    }

    /// The application has installed a view: who has failed is cut off. Says whether it is a
    /// later one than that before.
    pub(super) fn install(&mut self, node: &Node, view: &View) -> bool {
        if self
            .view
            .as_ref()
            .is_some_and(|last| last.number >= view.number)
        {
            return false;
        }
        let before = self.view.replace(view.clone());
        let own = NodeSet::EMPTY.with(node.endpoint.rank());
        let Some(before) = before else {
            if self.arrival == Arrival::Begun {
                self.arrival = Arrival::Awaits(view.members.minus(own));
            }
            return true;
        };
        for seat in view.failed.iter() {
            let failed = before.incarnation(seat);
            if failed.is_some() && failed == self.incarnation_at(node, seat) {
                node.endpoint.evict(seat);
            }
        }
        if let Arrival::Awaits(others) = self.arrival {
            let stays = |&seat: &usize| view.incarnation(seat) == before.incarnation(seat);
            self.arrival = Arrival::Awaits(others.iter().filter(stays).collect());
        }
        true
    }

    /// Names the places of the words that this node's arrival goes by.
    pub(super) fn listens_to(&self, node: &Node, place: &mut impl FnMut(usize)) {
        if let Arrival::Awaits(others) = self.arrival {
            for seat in others.iter() {
                place(node.layout.welcome_of(seat));
            }
        }
    }
}
