// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of a group that has ended, which its members may still read or write.
//!
//! A member does so no more once it has said farewell, behind which it posts nothing in the
//! group, or once the fabric has cut it off. That it is taken for down is not enough: it may
//! run, and what it has posted may still arrive. Memory of which that is not certain for
//! each member stays here, and is nobody else's.

use super::super::event::Event;
use super::super::memory::Buffer;
use super::link::{Hello, Link};
use super::notice::{Listener, Notice, Outbox};
use super::Node;
use std::sync::Arc;

pub(super) struct Remains {
    /// To those of whom it is not certain yet.
    pub(super) links: Vec<Link>,
    pub(super) hello: Hello,
    /// Of the message that was in transfer.
    pub(super) transfer: Option<Buffer>,
    /// Where first blocks arrive: also those of a member that this one has not heard of yet.
    pub(super) landing: Option<Buffer>,
    pub(super) listener: Arc<Listener>,
}

impl Remains {
    /// Gives all memory back if nobody touches it any more, and says whether that is so.
    pub(super) fn settle(&mut self, node: &Node, outbox: &mut Outbox) -> bool {
        let severed = node.endpoint.severed();
        let hello = self.hello;
        let may_touch = |link: &Link| {
            let has_ended = link.has_ended(hello) && link.is_drained(node);
            !has_ended && !severed.contains(link.node)
        };
        let has_memory = self.transfer.is_some() || self.landing.is_some();
        self.links.retain(|link| has_memory && may_touch(link));
        if !self.links.is_empty() {
            return false;
        }
        if let Some(buffer) = self.transfer.take() {
            outbox.put(&self.listener, Notice::Event(Event::Returned(buffer)));
        }
        true
    }

    /// A seat's node is cut off, and another one takes the seat.
    pub(super) fn lose(&mut self, seat: usize) {
        self.links.retain(|link| link.node != seat);
    }

    /// Names the places of the words that it goes by.
    pub(super) fn listens_to(&self, mut place: impl FnMut(usize)) {
        self.links
            .iter()
            .for_each(|link| link.listens_to(&mut place));
    }

    /// The node ends, and nobody will look any more: the memory is nobody's from now on.
    pub(super) fn retire(self) {
        self.transfer.into_iter().for_each(Buffer::retire);
        self.landing.into_iter().for_each(Buffer::retire);
    }
}
