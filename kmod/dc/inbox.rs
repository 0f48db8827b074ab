// SPDX-License-Identifier: GPL-2.0

//! Letters: short messages from node to node, for the nodes themselves. They are
//! read in process context, in the order of their arrival.

use kernel::alloc::KVec;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::Destination;
use weft_core::uapi::MAX_INLINE;

use crate::net::Endpoint;
use crate::sync::{new_lock, new_periodic, BhLock, Periodic, Routine};

/// Letters that wait to be read; a sender of more is told to try again.
const LETTERS: usize = 64;
/// Of those, letters from one address: a node that writes without end delays another's
/// letter by the reading of so many.
const LETTERS_PER_SOURCE: usize = 8;
/// Letters that are read before other work of the queue has its turn.
const LETTERS_AT_ONCE: usize = 16;
/// Most bytes of a letter: what a request carries inline.
pub(crate) const LETTER_BYTES: usize = MAX_INLINE as usize;

/// A letter.
#[derive(Clone, Copy)]
pub(crate) struct Letter {
    /// The sender.
    pub(crate) from: Endpoint,
    /// The sender's DC target.
    pub(crate) node: Destination,
    bytes: [u8; LETTER_BYTES],
    len: usize,
}

impl Letter {
    /// A letter of `len` bytes, which `fill` writes. `None`: that is too long for
    /// one, or there are not so many.
    pub(super) fn read(
        from: Endpoint,
        node: Destination,
        len: u32,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> Option<Self> {
        let mut bytes = [0; LETTER_BYTES];
        let len = len as usize;
        fill(bytes.get_mut(..len)?).then_some(Self {
            from,
            node,
            bytes,
            len,
        })
    }

    /// What it says.
    pub(crate) fn text(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// Reads letters.
pub(crate) trait Reader: Send + Sync + 'static {
    /// One has come. Process context.
    fn read(&self, letter: &Letter);
}

/// Letters that were not read yet, in the order of their arrival.
struct Waiting {
    letters: KVec<Letter>,
    /// Present from [`Inbox::open`] to [`Inbox::close`].
    reader: Option<Arc<dyn Reader>>,
}

/// A node's letters.
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
        let letters = KVec::with_capacity(LETTERS, GFP_KERNEL)?;
        let waiting = Waiting {
            letters,
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

    /// Lets letters in, for `reader`, which is kept until [`Inbox::close`].
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

    /// Takes a letter in; `false`: there is no room, or nobody to read it.
    pub(super) fn put(&self, letter: Letter) -> bool {
        let taken = self.waiting.lock().put(letter);
        if taken {
            self.work.schedule(0);
        }
        taken
    }

    /// The letter that has waited longest, and its reader.
    fn next(&self) -> Option<(Letter, Arc<dyn Reader>)> {
        let mut waiting = self.waiting.lock();
        let reader = waiting.reader.clone()?;
        let letter = waiting.letters.remove(0).ok()?;
        Some((letter, reader))
    }
}

impl Waiting {
    fn put(&mut self, letter: Letter) -> bool {
        let from = letter.from.addr;
        let others = self.letters.iter().filter(|other| other.from.addr == from);
        self.reader.is_some()
            && others.count() < LETTERS_PER_SOURCE
            && self.letters.push_within_capacity(letter).is_ok()
    }
}

// SAFETY: the offset is the field's own; `SoftDc::stop` closes the inbox.
unsafe impl Routine for Inbox {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        for _ in 0..LETTERS_AT_ONCE {
            let Some((letter, reader)) = self.next() else {
                return;
            };
            reader.read(&letter);
        }
        // The rest in its turn behind other work.
        self.work.schedule(0);
    }
}
