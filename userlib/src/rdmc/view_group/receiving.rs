// SPDX-License-Identifier: MIT OR Apache-2.0

//! A receiver's part: it asks the application for memory, and keeps repeated messages to itself.

use super::super::event::{Event, Incoming, Message};
use super::super::memory::{Buffer, Memory};
use super::ViewEvent;
use std::sync::{Mutex, PoisonError};

/// A member, by seat and incarnation.
type Root = Option<(usize, u64)>;
type Ask = Box<dyn FnMut(Incoming) -> Option<Buffer> + Send>;

/// The messages of the groups' roots, on the polling thread.
pub(super) struct Receiving {
    memory: Memory,
    /// The application's memory for what comes.
    ask: Mutex<Ask>,
    received: Mutex<Received>,
}

/// Up to which message all have come, and of which root.
#[derive(Default)]
struct Received {
    root: Root,
    messages: u64,
}

impl Received {
    fn has(&self, root: Root, number: u64) -> bool {
        self.root == root && number <= self.messages
    }
}

impl Receiving {
    pub(super) fn new(memory: Memory, ask: Ask) -> Self {
        Self {
            memory,
            ask: Mutex::new(ask),
            received: Mutex::default(),
        }
    }

    /// Memory for a message. What has come before has to be relayed again, all the same.
    pub(super) fn memory(&self, root: Root, incoming: Incoming) -> Option<Buffer> {
        let received = self.received.lock();
        let received = received.unwrap_or_else(PoisonError::into_inner);
        if received.has(root, incoming.number) {
            return self.memory.allocate(incoming.size).ok();
        }
        drop(received);
        let mut ask = self.ask.lock().unwrap_or_else(PoisonError::into_inner);
        ask(incoming)
    }

    /// Turns an event into one for the application. An end is told later, when all have ended.
    pub(super) fn news(&self, root: Root, event: Event) -> Option<ViewEvent> {
        match event {
            Event::Received(message) => {
                let is_new = self.note(root, &message);
                is_new.then_some(ViewEvent::Received(message))
            }
            Event::Sent(message) => Some(ViewEvent::Sent(message)),
            Event::Returned(buffer) => Some(ViewEvent::Returned(buffer)),
            Event::Ended(_) => None,
        }
    }

    /// A message has come; says whether it has not before.
    fn note(&self, root: Root, message: &Message) -> bool {
        let received = self.received.lock();
        let mut received = received.unwrap_or_else(PoisonError::into_inner);
        let is_new = !received.has(root, message.number);
        if is_new {
            *received = Received {
                root,
                messages: message.number,
            };
        }
        is_new
    }
}
