// SPDX-License-Identifier: GPL-2.0

//! Control messages: short messages from node to node, for the nodes themselves. They are
//! read in process context, in the order of their arrival.

use kernel::alloc::KVec;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::Destination;
use weft_core::uapi::MAX_INLINE;

use crate::net::Endpoint;
use crate::sync::{new_lock, new_periodic, BhLock, Periodic, Routine};

/// Control messages that wait to be read; a sender of more is told to try again.
const MESSAGES: usize = 64;
/// Of those, control messages from one address: a node that writes without end delays another's
/// control message by the reading of so many.
const MESSAGES_PER_SOURCE: usize = 8;
/// Control messages that are read before other work of the queue has its turn.
const MESSAGES_AT_ONCE: usize = 16;
/// Most bytes of a control message: what a request carries inline.
pub(crate) const CONTROL_MESSAGE_BYTES: usize = MAX_INLINE as usize;

/// A control message.
#[derive(Clone, Copy)]
pub(crate) struct ControlMessage {
    /// The sender.
    pub(crate) from: Endpoint,
    /// The sender's DC target.
    pub(crate) node: Destination,
    bytes: [u8; CONTROL_MESSAGE_BYTES],
    len: usize,
}

impl ControlMessage {
    /// A control message of `len` bytes, which `fill` writes. `None`: that is too long for
    /// one, or there are not so many.
    pub(super) fn read(
        from: Endpoint,
        node: Destination,
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<Self> {
        let mut bytes = [0; CONTROL_MESSAGE_BYTES];
        let len = len as usize;
        fill(bytes.get_mut(..len)?).then_some(Self {
            from,
            node,
            bytes,
            len,
        })
    }

    /// Its payload.
    pub(crate) fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// Reads control messages.
pub(crate) trait Reader: Send + Sync + 'static {
    /// One has come. Process context.
    fn read(&self, message: &ControlMessage);
}

/// Control messages that were not read yet, in the order of their arrival.
struct Waiting {
    messages: KVec<ControlMessage>,
    /// Present from [`Inbox::open`] to [`Inbox::close`].
    reader: Option<Arc<dyn Reader>>,
}

/// A node's control messages.
#[pin_data]
pub(crate) struct Inbox {
    #[pin]
    waiting: BhLock<Waiting>,
    #[pin]
    work: Periodic<Self>,
}

impl Inbox {
    /// An empty one.
    pub(super) fn new() -> Result<Pin<KBox<Self>>> {
        let messages = KVec::with_capacity(MESSAGES, GFP_KERNEL)?;
        let waiting = Waiting {
            messages,
            reader: None,
        };
        KBox::pin_init(
            pin_init!(Self {
                waiting <- new_lock!(waiting, "weft_inbox"),
                work <- new_periodic!("weft_inbox_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets control messages in, for `reader`, which is kept until [`Inbox::close`].
    pub(crate) fn open(&self, reader: Arc<dyn Reader>) {
        let former = self.waiting.lock().reader.replace(reader);
        drop(former);
    }

    /// Waits until nobody reads any more, and lets nothing be read again.
    pub(super) fn close(&self) {
        self.work.stop();
        let reader = self.waiting.lock().reader.take();
        drop(reader);
    }

    /// Takes a control message in; `false`: there is no room, or nobody to read it.
    pub(super) fn put(&self, message: ControlMessage) -> bool {
        let taken = self.waiting.lock().put(message);
        if taken {
            self.work.schedule(0);
        }
        taken
    }

    /// The control message that has waited longest, and its reader.
    fn next(&self) -> Option<(ControlMessage, Arc<dyn Reader>)> {
        let mut waiting = self.waiting.lock();
        let reader = waiting.reader.clone()?;
        let message = waiting.messages.remove(0).ok()?;
        Some((message, reader))
    }
}

impl Waiting {
    fn put(&mut self, message: ControlMessage) -> bool {
        let from = message.from.addr;
        let others = self.messages.iter().filter(|other| other.from.addr == from);
        self.reader.is_some()
            && others.count() < MESSAGES_PER_SOURCE
            && self.messages.push_within_capacity(message).is_ok()
    }
}

// SAFETY: the offset is the field's own; `SoftDc::stop` closes the inbox.
unsafe impl Routine for Inbox {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        for _ in 0..MESSAGES_AT_ONCE {
            let Some((message, reader)) = self.next() else {
                return;
            };
            reader.read(&message);
        }
        // The rest in its turn behind other work.
        self.work.schedule(0);
    }
}
