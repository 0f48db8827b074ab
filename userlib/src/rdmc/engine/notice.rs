// SPDX-License-Identifier: MIT OR Apache-2.0

//! What groups tell their applications. It is kept until the engine is free
//! again: who is told that a message is sent may send the next one at once.

use super::super::event::{End, Event, Message};
use super::shared::GroupShared;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

type Tell = Box<dyn FnMut(Event) + Send>;

/// Where a group's notices go. Only the polling thread calls.
pub(in crate::rdmc) struct Listener {
    pub(super) shared: Arc<GroupShared>,
    tell: Mutex<Tell>,
}

/// Something that has happened to a group.
pub(super) enum Notice {
    Event(Event),
    /// It has ended, of which there need not be an event.
    Ended(End),
}

impl Listener {
    pub(in crate::rdmc) fn new(shared: Arc<GroupShared>, tell: Tell) -> Self {
        Self {
            shared,
            tell: Mutex::new(tell),
        }
    }

    fn hear(&self, notice: Notice) {
        let event = match notice {
            Notice::Ended(end) => return self.shared.has_ended(end),
            Notice::Event(event) => event,
        };
        let completed = match &event {
            Event::Sent(Message { number, .. }) | Event::Received(Message { number, .. }) => {
                Some(*number)
            }
            _ => None,
        };
        let mut tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner);
        tell(event);
        if let Some(completed) = completed {
            self.shared.has_completed(completed);
        }
    }
}

/// Notices on their way, in order.
#[derive(Default)]
pub(super) struct Outbox(VecDeque<(Arc<Listener>, Notice)>);

impl Outbox {
    pub(super) fn put(&mut self, listener: &Arc<Listener>, notice: Notice) {
        self.0.push_back((Arc::clone(listener), notice));
    }

    /// Calls the applications, the engine being free. If one of them panics, what
    /// comes behind stays here.
    pub(super) fn deliver(&mut self) {
        while let Some((listener, notice)) = self.0.pop_front() {
            listener.hear(notice);
        }
    }

    /// Tells whoever waits that a group has ended, and calls nobody.
    pub(super) fn deliver_ends(&mut self) {
        for (listener, notice) in self.0.drain(..) {
            if let Notice::Ended(_) = notice {
                listener.hear(notice);
            }
        }
    }
}
