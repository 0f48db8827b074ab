// SPDX-License-Identifier: MIT OR Apache-2.0

//! What groups tell their applications. It is kept until the engine is free
//! again: who is told that a message is sent may send the next one at once.

use super::super::event::{End, Event, Message};
use super::shared::GroupShared;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

type Tell = Box<dyn FnMut(Event) + Send>;
type TellOver = Box<dyn FnMut(Over) + Send>;

/// A group has ended at all its members that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdmc) struct Over {
    pub(in crate::rdmc) end: End,
    /// Messages that all of them have, those of the root's earlier groups counted.
    pub(in crate::rdmc) received: u64,
}

/// Where a group's notices go. Only the polling thread calls.
pub(in crate::rdmc) struct Listener {
    pub(super) shared: Arc<GroupShared>,
    tell: Mutex<Tell>,
    /// If somebody wants to know.
    tell_over: Mutex<Option<TellOver>>,
}

/// Something that has happened to a group.
pub(super) enum Notice {
    Event(Event),
    /// It has ended, of which there need not be an event.
    Ended(End),
    Over(Over),
}

impl Listener {
    pub(in crate::rdmc) fn new(
        shared: Arc<GroupShared>,
        tell: Tell,
        tell_over: Option<TellOver>,
    ) -> Self {
        Self {
            shared,
            tell: Mutex::new(tell),
            tell_over: Mutex::new(tell_over),
        }
    }

    fn hear(&self, notice: Notice) {
        let mut event = match notice {
            Notice::Ended(end) => return self.shared.has_ended(end),
            Notice::Over(over) => return self.hear_over(over),
            Notice::Event(event) => event,
        };
        let completed = match &mut event {
            Event::Sent(Message { number, .. }) | Event::Received(Message { number, .. }) => {
                let completed = *number;
                *number += self.shared.before();
                Some(completed)
            }
            _ => None,
        };
        let mut tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner);
        tell(event);
        if let Some(completed) = completed {
            self.shared.has_completed(completed);
        }
    }

    fn hear_over(&self, over: Over) {
        let tell = self.tell_over.lock();
        let tell = tell.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut tell) = tell {
            tell(over);
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
