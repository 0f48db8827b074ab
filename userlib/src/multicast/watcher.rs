// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who has left and who has failed.
//!
//! Who leaves says so in its row, behind all that it has sent. From then on
//! its turns are nulls and nobody waits for it, at every member after the same
//! message: leaving takes no agreement and delays nobody. Its reading may hold
//! senders up for a while longer ([`super::stay`]). Who goes without a
//! word has failed: what it had received cannot be known any more, so its
//! subgroups deliver no more, and say so.

use super::shared::{Shared, Status};
use super::stay::Presence;
use crate::fabric::{Endpoint, NodeSet};
use crate::predicates::Outcome;
use std::sync::Arc;

/// Something that happened to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It has left.
    Left(usize),
    /// It has died, or wrote what no member writes. Subgroups that it is a
    /// member of deliver nothing more.
    Failed(usize),
}

pub(super) type EventUpcall = Box<dyn FnMut(Event) + Send>;

/// The predicate that watches the other nodes.
pub(super) struct Watcher {
    pub(super) endpoint: Arc<dyn Endpoint>,
    pub(super) presence: Arc<Presence>,
    pub(super) status: Arc<Status>,
    pub(super) subgroups: Vec<Arc<Shared>>,
    pub(super) upcall: Option<EventUpcall>,
    /// Of whom was told.
    pub(super) told: NodeSet,
}

impl Watcher {
    pub(super) fn step(&mut self) -> Outcome {
        // Deaths first: who left before it went has said so by then.
        let down = self.endpoint.down();
        let mut fired = false;
        let own = self.endpoint.rank();
        for node in (0..self.endpoint.nodes()).filter(|&node| node != own) {
            if self.told.contains(node) {
                fired |= self.see_off(node, down);
                continue;
            }
            let event = if self.presence.of(node).left.is_raised() {
                self.status.add_left(node);
                tracing::debug!(node, "left");
                Event::Left(node)
            } else if down.contains(node) || self.status.failed().contains(node) {
                self.status.add_failed(node);
                tracing::warn!(node, "failed");
                Event::Failed(node)
            } else {
                continue;
            };
            self.told = self.told.with(node);
            fired = true;
            self.wake();
            if let Some(upcall) = &mut self.upcall {
                upcall(event);
            }
        }
        fired.into()
    }

    /// Waits for one who has left to read no more, or to be down.
    fn see_off(&self, node: usize, down: NodeSet) -> bool {
        let leaving = self.status.left().minus(self.status.gone());
        if !leaving.contains(node) {
            return false;
        }
        let gone = down.contains(node) || self.presence.of(node).gone.is_raised();
        if gone {
            self.status.add_gone(node);
            self.wake();
        }
        gone
    }

    fn wake(&self) {
        for subgroup in &self.subgroups {
            subgroup.wake_all();
        }
    }
}

impl Drop for Watcher {
    /// The polling thread has ended, so nothing is sent after this.
    fn drop(&mut self) {
        self.presence.leave();
    }
}
