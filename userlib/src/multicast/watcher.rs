// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who has left and who has failed.
//!
//! Who leaves says so in its row, behind all that it has sent. From then on
//! its turns are nulls and nobody waits for it, at every member after the same
//! message: leaving takes no agreement and delays nobody. Its reading may hold
//! senders up for a while longer ([`super::stay`]). A node that goes without a
//! word has failed: its subgroups agree on their end ([`super::member`]), deliver up to it,
//! and only then is the application told.

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
    /// It has died, or wrote what no member writes. Subgroups that it is a member of deliver
    /// nothing more, and [`super::Group::ending`] says what their members can rely on. If
    /// it is this node, the others have gone on without it. In a group with views the others
    /// go on: it is told of with the view that it is not in any more.
    Failed(usize),
    /// In a group with views: this node is out, and nothing is delivered to it any more.
    Stopped(Ending),
}

/// How a subgroup has ended of which a member has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ending {
    /// A majority has agreed on what counts of the sequence, and this node has delivered
    /// it: no less than anybody, also of those who have failed, has delivered.
    Agreed = 1,
    /// The others have gone on without this node, which may have delivered less.
    Excluded = 2,
    /// Too few are left to know what the others have delivered. An unordered subgroup, whose
    /// members agree on nothing, always ends so.
    Minority = 3,
}

impl Ending {
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Agreed, Self::Excluded, Self::Minority]
            .into_iter()
            .find(|&ending| ending as u8 == number)
    }
}

pub(super) type EventUpcall = Box<dyn FnMut(Event) + Send>;

/// The predicate that watches the other nodes.
pub(super) struct Watcher {
    pub(super) endpoint: Arc<dyn Endpoint>,
    pub(super) presence: Arc<Presence>,
    pub(super) status: Arc<Status>,
    pub(super) subgroups: Vec<Arc<Shared>>,
    pub(super) upcall: Option<EventUpcall>,
    /// Nodes of which the application has heard that they have left or failed.
    pub(super) told: NodeSet,
    /// Those of which it has heard that they have failed.
    pub(super) told_failed: NodeSet,
}

impl Watcher {
    pub(super) fn step(&mut self) -> Outcome {
        // Deaths first: who left before it went has said so by then.
        let down = self.endpoint.down();
        self.status.note_polling_thread();
        let mut fired = false;
        let own = self.endpoint.rank();
        for node in (0..self.endpoint.nodes()).filter(|&node| node != own) {
            if !self.told.contains(node) && self.presence.of(node).left.is_raised() {
                self.status.add_left(node);
                tracing::debug!(node, "left");
                fired = true;
                self.tell(node, Event::Left(node));
            } else if self.told.contains(node) {
                fired |= self.see_off(node, down);
            } else if down.contains(node) && !self.status.failed().contains(node) {
                self.status.add_failed(node);
                fired = true;
                self.wake();
            }
        }
        (self.tell_failed() || fired).into()
    }

    /// Tells of those who have failed, once nothing is delivered any more where they were
    /// members.
    fn tell_failed(&mut self) -> bool {
        let mut fired = false;
        for node in self.status.failed().minus(self.told_failed).iter() {
            let mut theirs = self
                .subgroups
                .iter()
                .filter(|shared| shared.members.contains(node));
            if theirs.all(|shared| shared.is_over()) {
                self.told_failed = self.told_failed.with(node);
                tracing::warn!(node, "failed");
                fired = true;
                self.tell(node, Event::Failed(node));
            }
        }
        fired
    }

    fn tell(&mut self, node: usize, event: Event) {
        self.told = self.told.with(node);
        self.wake();
        if let Some(upcall) = &mut self.upcall {
            upcall(event);
        }
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
