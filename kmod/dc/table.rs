// SPDX-License-Identifier: GPL-2.0

//! A node's streams by their number, which is what a response carries.
//!
//! The table grows by segments, which stay until the node goes. So a softirq finds
//! a slot without a lock, and takes only the slot's own. Users have limits of their
//! own ([`crate::quota`]), and their memory is charged to them: the table's own
//! limit is past what all of them can pay for.
//!
//! A bit for each stream says whether the tick has to look at it, so that a tick costs what
//! the busy streams cost, however many there are.
//!
//! Lock order, outermost first: `growing`, `free`. A slot's lock is held alone.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVBox;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};

use crate::dc::{Requester, Stream};
use crate::net::Bearer;
use crate::sync::{new_lock, reschedule_if_needed, BhLock, Once};

/// Slots of a segment.
const SEGMENT: usize = 1024;
/// Segments that there may be.
const SEGMENTS: usize = 4096;
/// Slots that only the node's own control messages may take: more than it has
/// peers that it keeps RC queue pairs to, or that ask for one at a time.
const RESERVED: usize = 16 * SEGMENT;
/// No slot.
const NONE: u32 = u32::MAX;
/// Slots whose bits share a word.
const WORD: usize = u64::BITS as usize;

/// A stream's place.
#[pin_data]
struct Slot<B: Bearer, R: Requester> {
    #[pin]
    stream: BhLock<Option<Arc<Stream<B, R>>>>,
    /// The next free slot, of one that is free. Written with `free` locked.
    next_free: AtomicU32,
}

/// Slots, and which of them have a stream that the tick looks at.
#[pin_data]
struct Segment<B: Bearer, R: Requester> {
    /// A bit for each slot. It changes with the lock of the slot's stream held.
    watched: [AtomicU64; SEGMENT / WORD],
    #[pin]
    slots: [Slot<B, R>; SEGMENT],
}

/// The place of a segment, which is empty until the segment is needed.
type SegmentPlace<B, R> = Once<Pin<KVBox<Segment<B, R>>>>;

/// Slots that are free, and how far the table is filled.
///
/// # Invariants
///
/// From `first` on, by their `next_free`, are all slots below `used_to` that no
/// stream has or is being made for. All slots below `used_to` are in segments that
/// there are.
struct Free {
    first: u32,
    used_to: usize,
}

/// The table.
pub(crate) struct StreamTable<B: Bearer, R: Requester> {
    segments: KVBox<[SegmentPlace<B, R>; SEGMENTS]>,
    locks: Pin<KBox<Locks>>,
}

#[pin_data]
struct Locks {
    #[pin]
    free: BhLock<Free>,
    /// Held while a segment is added.
    #[pin]
    growing: Mutex<()>,
}

impl<B: Bearer, R: Requester> StreamTable<B, R> {
    /// An empty table.
    pub(crate) fn new() -> Result<Self> {
        let segments = KVBox::init(pin_init::init_array_from_fn(|_| Once::new()), GFP_KERNEL)?;
        // INVARIANT: there are no slots.
        let free = Free {
            first: NONE,
            used_to: 0,
        };
        let locks = KBox::pin_init(
            pin_init!(Locks {
                free <- new_lock!(free, "weft_stream_free"),
                growing <- kernel::new_mutex!((), "weft_stream_growing"),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self { segments, locks })
    }

    fn slot(&self, number: usize) -> Option<&Slot<B, R>> {
        let segment = self.segments.get(number / SEGMENT)?.get()?;
        segment.slots.get(number % SEGMENT)
    }

    /// The word with the bit that says whether a stream is watched, and the bit.
    fn watched(&self, number: u32) -> Option<(&AtomicU64, u64)> {
        let number = number as usize;
        let segment = self.segments.get(number / SEGMENT)?.get()?;
        let word = segment.watched.get(number % SEGMENT / WORD)?;
        Some((word, 1 << (number % WORD)))
    }

    /// Takes the stream in that `make` makes for a free number. `is_nodes`: it is
    /// for the node's own control messages. Process context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of `make`.
    pub(crate) fn insert(
        &self,
        is_nodes: bool,
        make: impl FnOnce(u32) -> Result<Arc<Stream<B, R>>>,
    ) -> Result<Arc<Stream<B, R>>> {
        let number = self.take_number(is_nodes)?;
        let made = make(number).inspect_err(|_| self.give_back(number))?;
        if let Some(slot) = self.slot(number as usize) {
            *slot.stream.lock() = Some(made.clone());
        }
        Ok(made)
    }

    fn take_number(&self, is_nodes: bool) -> Result<u32> {
        let reserved = if is_nodes { 0 } else { RESERVED };
        loop {
            {
                let mut free = self.locks.free.lock();
                if let Some(slot) = self.slot(free.first as usize) {
                    let number = free.first;
                    // INVARIANT: a stream is being made for it.
                    free.first = slot.next_free.load(Ordering::Relaxed);
                    return Ok(number);
                }
                if free.used_to >= SEGMENT * SEGMENTS - reserved {
                    return Err(ENOMEM);
                }
                if self.slot(free.used_to).is_some() {
                    // INVARIANT: as above; its segment is there.
                    free.used_to += 1;
                    return Ok((free.used_to - 1) as u32);
                }
            }
            // Each turn adds a segment, or another thread has.
            self.grow()?;
        }
    }

    /// Adds a segment if all slots that there are were used. It is charged to who
    /// needs it first.
    fn grow(&self) -> Result {
        let _growing = self.locks.growing.lock();
        let used_to = self.locks.free.lock().used_to;
        let place = self.segments.get(used_to / SEGMENT).ok_or(ENOMEM)?;
        if place.get().is_none() {
            let make_slot = |_| {
                pin_init!(Slot {
                    stream <- new_lock!(None, "weft_stream_slot"),
                    next_free: AtomicU32::new(NONE),
                })
            };
            let segment = pin_init!(Segment {
                watched: [const { AtomicU64::new(0) }; SEGMENT / WORD],
                slots <- pin_init::pin_init_array_from_fn(make_slot),
            });
            place.set(KVBox::pin_init(segment, GFP_KERNEL_ACCOUNT)?);
        }
        Ok(())
    }

    fn give_back(&self, number: u32) {
        let mut free = self.locks.free.lock();
        if let Some(slot) = self.slot(number as usize) {
            // INVARIANT: no stream has it any more.
            slot.next_free.store(free.first, Ordering::Relaxed);
            free.first = number;
        }
    }

    /// The stream of this number.
    pub(crate) fn find(&self, number: u32) -> Option<Arc<Stream<B, R>>> {
        self.slot(number as usize)?.stream.lock().clone()
    }

    /// Takes the stream of this number out.
    pub(crate) fn remove(&self, number: u32) -> Option<Arc<Stream<B, R>>> {
        let stream = self.slot(number as usize)?.stream.lock().take()?;
        self.give_back(number);
        Some(stream)
    }

    /// [`Self::for_each_watched`] finds the stream of this number from now on. The stream's
    /// lock is held.
    pub(crate) fn watch(&self, number: u32) {
        if let Some((word, bit)) = self.watched(number) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// It no longer does. The stream's lock is held.
    pub(crate) fn unwatch(&self, number: u32) {
        if let Some((word, bit)) = self.watched(number) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Calls `f` for every stream that is watched, without a lock held. Process context:
    /// gives the CPU to others now and then.
    pub(crate) fn for_each_watched(&self, mut f: impl FnMut(&Stream<B, R>)) {
        // They are added in their order.
        let segments = self.segments.iter().map_while(Once::get);
        let words = segments.flat_map(|segment| segment.watched.iter());
        for (at, word) in words.enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            if bits == 0 {
                continue;
            }
            while bits != 0 {
                let number = at * WORD + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(stream) = self.find(number as u32) {
                    f(&stream);
                }
            }
            // SAFETY: process context, and no lock is held.
            unsafe { reschedule_if_needed(false) };
        }
    }

    /// Takes every stream out and calls `f` for it.
    pub(crate) fn drain(&self, mut f: impl FnMut(&Stream<B, R>)) {
        let used_to = self.locks.free.lock().used_to;
        for number in 0..used_to {
            if let Some(stream) = self.remove(number as u32) {
                f(&stream);
            }
        }
    }
}
