// SPDX-License-Identifier: GPL-2.0

//! A node's streams by their number, which is what a response carries.

use kernel::alloc::KVBox;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::dc::{Requester, Stream};
use crate::net::Bearer;
use crate::sync::{new_lock, BhLock};

/// Streams that a node may have.
const MAX_STREAMS: usize = 16_384;

type Slot<B, R> = Option<Arc<Stream<B, R>>>;
type Slots<B, R> = [BhLock<Slot<B, R>>; MAX_STREAMS];

/// Numbers that are free, and how far the table is filled.
struct Free {
    numbers: KVVec<u16>,
    /// All slots from here on have never been used.
    used_to: usize,
}

/// The table.
pub(crate) struct StreamTable<B: Bearer, R: Requester> {
    slots: Pin<KVBox<Slots<B, R>>>,
    free: Pin<KBox<BhLock<Free>>>,
}

impl<B: Bearer, R: Requester> StreamTable<B, R> {
    /// An empty table.
    pub(crate) fn new() -> Result<Self> {
        let slots = KVBox::pin_init(
            pin_init::pin_init_array_from_fn(|_| new_lock!(None, "weft_stream_slot")),
            GFP_KERNEL,
        )?;
        // Room for every number, so that giving one back never allocates.
        let numbers = KVVec::with_capacity(MAX_STREAMS, GFP_KERNEL)?;
        let free = KBox::pin_init(
            new_lock!(
                Free {
                    numbers,
                    used_to: 0
                },
                "weft_stream_free"
            ),
            GFP_KERNEL,
        )?;
        Ok(Self { slots, free })
    }

    /// Takes the stream in that `make` makes for a free number.
    pub(crate) fn insert(
        &self,
        make: impl FnOnce(u32) -> Result<Arc<Stream<B, R>>>,
    ) -> Result<Arc<Stream<B, R>>> {
        let number = {
            let mut free = self.free.lock();
            match free.numbers.pop() {
                Some(number) => number,
                None if free.used_to < MAX_STREAMS => {
                    free.used_to += 1;
                    (free.used_to - 1) as u16
                }
                None => return Err(ENOSPC),
            }
        };
        match make(u32::from(number)) {
            Ok(stream) => {
                *self.slots[usize::from(number)].lock() = Some(stream.clone());
                Ok(stream)
            }
            Err(error) => {
                self.give_back(number);
                Err(error)
            }
        }
    }

    fn give_back(&self, number: u16) {
        // There is room for every number, so that this cannot fail.
        let _ = self.free.lock().numbers.push_within_capacity(number);
    }

    /// The stream of this number.
    pub(crate) fn find(&self, number: u32) -> Slot<B, R> {
        self.slots.get(number as usize)?.lock().clone()
    }

    /// Takes the stream of this number out.
    pub(crate) fn remove(&self, number: u32) {
        let Some(slot) = self.slots.get(number as usize) else {
            return;
        };
        let stream = slot.lock().take();
        if stream.is_some() {
            self.give_back(number as u16);
        }
    }

    /// Calls `f` for every stream, without a lock held.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Stream<B, R>)) {
        let used_to = self.free.lock().used_to;
        for slot in self.slots.iter().take(used_to) {
            let stream = slot.lock().clone();
            if let Some(stream) = stream {
                f(&stream);
            }
        }
    }

    /// Takes every stream out and calls `f` for it.
    pub(crate) fn drain(&self, mut f: impl FnMut(&Stream<B, R>)) {
        for (number, slot) in self.slots.iter().enumerate() {
            let stream = slot.lock().take();
            if let Some(stream) = stream {
                self.give_back(number as u16);
                f(&stream);
            }
        }
    }
}
