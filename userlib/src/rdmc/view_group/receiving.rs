// SPDX-License-Identifier: MIT OR Apache-2.0

//! A receiver's part: it asks the application for memory, and keeps repeated messages to itself.

use super::super::event::{Event, Incoming, Message};
use super::super::memory::{Buffer, Memory};
use super::ViewEvent;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// A member, by seat and incarnation.
type Root = (usize, u64);
type Ask = Box<dyn FnMut(Incoming) -> Option<Buffer> + Send>;

/// The messages of the groups' roots, on the polling thread.
pub(super) struct Receiving {
    memory: Memory,
    /// The application's memory for what comes.
    ask: Mutex<Ask>,
    received: Mutex<Received>,
}

/// Up to which message all have come, of the root in each seat.
///
/// Roots may alternate, and the group of one may still finish while that of another goes on. There
/// are at most as many entries as a fabric has seats ([`MAX_NODES`](crate::fabric::MAX_NODES)).
#[derive(Debug, Default)]
struct Received(BTreeMap<usize, UpTo>);

/// The messages of one incarnation.
#[derive(Clone, Copy, Debug)]
struct UpTo {
    incarnation: u64,
    messages: u64,
}

impl Received {
    fn has(&self, root: Root, number: u64) -> bool {
        let (seat, incarnation) = root;
        let of_seat = self.0.get(&seat);
        of_seat.is_some_and(|of| of.incarnation == incarnation && number <= of.messages)
    }

    /// A message has come; says whether it has not before. A new incarnation begins its seat anew.
    fn note(&mut self, root: Root, messages: u64) -> bool {
        let is_new = !self.has(root, messages);
        if is_new {
            let (seat, incarnation) = root;
            let up_to = UpTo {
                incarnation,
                messages,
            };
            self.0.insert(seat, up_to);
        }
        is_new
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
        received.note(root, message.number)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fabric::sim::Sim;
    use crate::rdmc::Node;

    /// A node that receives by itself, and what it has received.
    struct Alone {
        receiving: Receiving,
        memory: Memory,
        _node: Node,
    }

    impl Alone {
        fn new() -> Self {
            let (_, mut nodes) = Sim::new(1, 0, false);
            let node = nodes.pop().expect("there is one");
            let (node, _) = Node::builder(node).join_stepped().expect("it meets nobody");
            let memory = node.memory();
            Self {
                receiving: Receiving::new(memory.clone(), Box::new(|_| None)),
                memory,
                _node: node,
            }
        }

        /// A message comes; says whether the application receives it.
        fn receives(&self, root: Root, number: u64) -> bool {
            let buffer = self.memory.allocate(1).expect("there is memory");
            let size = buffer.len();
            let message = Message {
                number,
                size,
                buffer,
            };
            let news = self.receiving.news(root, Event::Received(message));
            matches!(news, Some(ViewEvent::Received(_)))
        }

        /// Whether there is memory for a message for which the application has none.
        fn has_memory(&self, root: Root, number: u64) -> bool {
            let incoming = Incoming { number, size: 1 };
            self.receiving.memory(root, incoming).is_some()
        }
    }

    #[test]
    fn what_a_root_sends_again_is_received_once_though_another_was_root_meanwhile() {
        let alone = Alone::new();
        let (a, b) = ((1, 0), (0, 7));
        assert!(alone.receives(a, 1));
        assert!(alone.receives(b, 1));
        assert!(!alone.receives(a, 1));
        assert!(!alone.receives(b, 1));
        assert!(alone.receives(a, 2));
        assert!(alone.has_memory(b, 1) && !alone.has_memory(b, 2));
    }

    #[test]
    fn a_new_incarnation_begins_its_own_seat_anew_and_no_other() {
        let alone = Alone::new();
        assert!(alone.receives((1, 0), 1));
        assert!(alone.receives((2, 0), 1));
        assert!(alone.receives((1, 5), 1));
        assert!(!alone.receives((1, 5), 1));
        assert!(!alone.receives((2, 0), 1));
    }
}
