// SPDX-License-Identifier: GPL-2.0

//! Letters: short messages from node to node, for the nodes themselves. They are
//! read in process context, in the order of their arrival.

use kernel::alloc::KVec;
use kernel::prelude::*;
use weft_core::dc::wire::Destination;
use weft_core::uapi::MAX_INLINE;

use crate::net::Endpoint;
use crate::sync::{new_lock, new_periodic, BhLock, Once, Periodic, Routine};

/// Letters that wait to be read; a sender of more is told to try again.
const LETTERS: usize = 64;
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
pub(crate) trait Reader: Sync {
    /// One has come. Process context.
    fn read(&self, letter: &Letter);
}

/// Who reads, without its type.
///
/// # Invariants
///
/// `call` takes `reader`, which is valid until the inbox is closed.
struct Handler {
    reader: *const (),
    call: unsafe fn(*const (), &Letter),
}

// SAFETY: a reader is `Sync`.
unsafe impl Send for Handler {}
// SAFETY: as above.
unsafe impl Sync for Handler {}

/// A node's letters.
#[pin_data]
pub(crate) struct Inbox {
    #[pin]
    letters: BhLock<KVec<Letter>>,
    handler: Once<Handler>,
    #[pin]
    work: Periodic<Self>,
}

impl Inbox {
    /// An empty one.
    pub(super) fn new() -> Result<Pin<KBox<Self>>> {
        let letters = KVec::with_capacity(LETTERS, GFP_KERNEL)?;
        KBox::pin_init(
            pin_init!(Self {
                letters <- new_lock!(letters, "weft_inbox"),
                handler: Once::new(),
                work <- new_periodic!("weft_inbox_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets letters in, for `reader`.
    ///
    /// # Safety
    ///
    /// `reader` is valid until [`Inbox::close`] has returned.
    pub(crate) unsafe fn open<T: Reader>(&self, reader: *const T) {
        /// # Safety
        ///
        /// `reader` is a valid `T`.
        unsafe fn call<T: Reader>(reader: *const (), letter: &Letter) {
            // SAFETY: the caller's promise.
            unsafe { &*reader.cast::<T>() }.read(letter);
        }
        // INVARIANT: the caller's promise, and the types agree.
        self.handler.set(Handler {
            reader: reader.cast(),
            call: call::<T>,
        });
    }

    /// Waits until nobody reads any more, and lets nothing be read again.
    pub(super) fn close(&self) {
        self.work.stop();
    }

    /// Takes a letter in; `false`: there is no room, or nobody to read it.
    pub(super) fn put(&self, letter: Letter) -> bool {
        let taken = self.handler.get().is_some()
            && self.letters.lock().push_within_capacity(letter).is_ok();
        if taken {
            self.work.schedule(0);
        }
        taken
    }

    fn next(&self) -> Option<Letter> {
        let mut letters = self.letters.lock();
        let first = letters.first().copied();
        if first.is_some() {
            let _ = letters.remove(0);
        }
        first
    }
}

// SAFETY: the offset is the field's own; `SoftDc::stop` closes the inbox.
unsafe impl Routine for Inbox {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        let Some(handler) = self.handler.get() else {
            return;
        };
        while let Some(letter) = self.next() {
            // SAFETY: by the invariant: `close` waits for this call.
            unsafe { (handler.call)(handler.reader, &letter) };
        }
    }
}
