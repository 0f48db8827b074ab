// SPDX-License-Identifier: GPL-2.0

//! Rings: memory that a process maps and that softirqs reach too.
//!
//! The user may write anything anywhere in it, at any time. So nothing here is
//! read twice, nothing that is read here is trusted, and what the module has to
//! rely on it keeps elsewhere ([`crate::queues`]).

mod arena;
mod frees;
mod mapping;

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

use kernel::bindings as c;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi::{Pod, RecvWr, RingHeader, RingsCreate, SendWr, Wc};

use crate::dc::Way;
use crate::mem::UserPages;
use arena::Lent;

pub(crate) use arena::Arena;
pub(crate) use frees::FlushOnUnload;

/// The rings.
///
/// # Invariants
///
/// Each ring lies within the memory, from its offset, a multiple of its entry's
/// size, on; the numbers of entries are powers of two, or zero.
pub(crate) struct Rings {
    memory: Lent,
    sq_entries: u32,
    cq_entries: u32,
    rq_entries: u32,
    sq_offset: u32,
    cq_offset: u32,
    rq_offset: u32,
    /// Where memory begins that is no ring, at a page, up to the end.
    rest_offset: u32,
    /// The tail of the completion ring, where the user cannot write it.
    cq_tail: AtomicU32,
}

// SAFETY: all accesses are volatile or atomic moves of words, as memory that a
// user writes meanwhile needs anyway.
unsafe impl Sync for Rings {}

/// A copy of an entry, word by word, each read once.
///
/// # Safety
///
/// `from` is valid for reads of a `T`, whose size and alignment are those of words.
unsafe fn copy_in<T: Pod>(from: *const u64) -> T {
    const { assert!(size_of::<T>() % 8 == 0 && align_of::<T>() <= 8) };
    let mut value = T::zeroed();
    let to = value.as_bytes_mut().as_mut_ptr().cast::<u64>();
    for word in 0..size_of::<T>() / 8 {
        // SAFETY: within the value that the caller promises.
        let read = unsafe { from.add(word).read_volatile() };
        // SAFETY: within `value`; it may not be aligned for words.
        unsafe { to.add(word).write_unaligned(read) };
    }
    value
}

impl Rings {
    /// Rings for so many requests, completions and receive buffers, all within their
    /// limits; where that is none there is no ring.
    ///
    /// # Errors
    ///
    /// Those of [`Arena::lend`].
    pub(crate) fn new(arena: &Arc<Arena>, request: &RingsCreate) -> Result<Self> {
        let entries = |wanted: u32| match wanted {
            0 => 0,
            some => some.next_power_of_two(),
        };
        let sq_entries = entries(request.max_send_wr);
        let cq_entries = entries(request.max_wc);
        let rq_entries = entries(request.max_recv_wr);
        let sq_offset =
            (size_of::<RingHeader>() as u32).next_multiple_of(size_of::<SendWr>() as u32);
        let cq_offset = sq_offset + sq_entries * size_of::<SendWr>() as u32;
        let rq_offset = (cq_offset + cq_entries * size_of::<Wc>() as u32)
            .next_multiple_of(size_of::<RecvWr>() as u32);
        let end = rq_offset + rq_entries * size_of::<RecvWr>() as u32;
        let rest_offset = end.next_multiple_of(PAGE_SIZE as u32);
        let bytes = rest_offset + request.memory_bytes.next_multiple_of(PAGE_SIZE as u32);
        // INVARIANT: sizes and offsets as computed above.
        let this = Self {
            memory: match request.memory_bytes {
                0 => Arena::lend(arena, bytes)?,
                _ => Arena::lend_new(arena, bytes)?,
            },
            sq_entries,
            cq_entries,
            rq_entries,
            sq_offset,
            cq_offset,
            rq_offset,
            rest_offset,
            cq_tail: AtomicU32::new(0),
        };
        this.clear_indices();
        Ok(this)
    }

    /// The memory may have been that of other rings.
    fn clear_indices(&self) {
        for offset in (0..size_of::<RingHeader>()).step_by(size_of::<u32>()) {
            self.index(offset).store(0, Ordering::Relaxed);
        }
    }

    /// Tells the user what it maps.
    pub(crate) fn describe(&self, request: &mut RingsCreate) {
        request.ring_bytes = self.memory.bytes();
        request.map_offset = self.memory.map_offset();
        request.sq_entries = self.sq_entries;
        request.cq_entries = self.cq_entries;
        request.rq_entries = self.rq_entries;
        request.sq_offset = self.sq_offset;
        request.cq_offset = self.cq_offset;
        request.rq_offset = self.rq_offset;
        request.memory_offset = self.rest_offset;
    }

    /// The memory that is no ring.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn rest(&self, writable: bool) -> Result<UserPages> {
        self.memory.pages_from(self.rest_offset, writable)
    }

    /// Whether they are mapped from there.
    pub(crate) fn are_at(&self, map_offset: u64) -> bool {
        self.memory.map_offset() == map_offset
    }

    /// Maps the rings.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not all of them, or not shared.
    ///
    /// # Safety
    ///
    /// `vma` is what C's `mmap` operation was called with.
    pub(crate) unsafe fn map(&self, vma: *mut c::vm_area_struct) -> Result {
        // SAFETY: the caller's promise.
        unsafe { self.memory.map(vma) }
    }

    /// Requests that fit into their ring.
    pub(crate) fn sq_entries(&self) -> u32 {
        self.sq_entries
    }

    /// Completions that fit into theirs.
    pub(crate) fn cq_entries(&self) -> u32 {
        self.cq_entries
    }

    /// Receive buffers that fit into theirs; 0: there is none.
    pub(crate) fn rq_entries(&self) -> u32 {
        self.rq_entries
    }

    /// A copy of the request at an index. There has to be such a ring.
    pub(crate) fn send_wr(&self, index: u32) -> SendWr {
        // SAFETY: an entry of the ring, by the invariant and the mask; callers know that
        // there is one.
        unsafe { copy_in(self.entry::<SendWr>(self.sq_offset, self.sq_entries, index)) }
    }

    /// The VQP and the peer that the request at an index names, as a hint: the user may
    /// change them. There has to be such a ring.
    #[inline]
    pub(crate) fn way(&self, index: u32) -> Way {
        const { assert!(offset_of!(SendWr, vqp) % 8 == 0 && offset_of!(SendWr, peer) % 8 == 4) };
        let entry = self.entry::<SendWr>(self.sq_offset, self.sq_entries, index);
        // SAFETY: a word within the entry, of which there is one as above.
        let word = unsafe { entry.add(offset_of!(SendWr, vqp) / 8).read_volatile() };
        let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
        Way {
            vqp: u32::from_ne_bytes([a, b, c, d]),
            peer: u32::from_ne_bytes([e, f, g, h]),
        }
    }

    /// A copy of the receive buffer at an index. There has to be such a ring.
    pub(crate) fn recv_wr(&self, index: u32) -> RecvWr {
        // SAFETY: as above.
        unsafe { copy_in(self.entry::<RecvWr>(self.rq_offset, self.rq_entries, index)) }
    }

    /// Writes a completion to its place, and then moves the tail past it. There has to be
    /// such a ring.
    pub(crate) fn push(&self, index: u32, wc: &Wc) {
        let to = self.entry::<Wc>(self.cq_offset, self.cq_entries, index);
        let words = wc.as_bytes().chunks_exact(8).enumerate();
        for (at, word) in words {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            // SAFETY: within the entry, by the invariant and the mask.
            unsafe { to.add(at).write_volatile(u64::from_ne_bytes(bytes)) };
        }
        let tail = index.wrapping_add(1);
        self.index(offset_of!(RingHeader, cq_tail))
            .store(tail, Ordering::Release);
        self.cq_tail.store(tail, Ordering::Release);
    }

    /// Completions that were written.
    #[inline]
    pub(crate) fn cq_tail(&self) -> u32 {
        self.cq_tail.load(Ordering::Acquire)
    }

    /// Completions that the user says that it has not taken; nonsense if it lies.
    #[inline]
    pub(crate) fn unreaped(&self) -> u32 {
        self.cq_tail().wrapping_sub(self.cq_head())
    }

    /// The place of an entry. Masks make any index one of the ring's.
    fn entry<T: Pod>(&self, offset: u32, entries: u32, index: u32) -> *mut u64 {
        let at = offset as usize + (index & entries.wrapping_sub(1)) as usize * size_of::<T>();
        // SAFETY: within the memory, by the invariant.
        unsafe { self.memory.base().add(at).cast() }
    }

    fn index(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `offset` is a field's within the header, which lies within the
        // memory.
        let at = unsafe { self.memory.base().add(offset).cast::<u32>() };
        // SAFETY: aligned, valid as long as `self`, and used as an atomic alone.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// Says which requests were copied.
    pub(crate) fn set_sq_head(&self, head: u32) {
        self.index(offset_of!(RingHeader, sq_head))
            .store(head, Ordering::Release);
    }

    /// Says which receive buffers were copied.
    pub(crate) fn set_rq_head(&self, head: u32) {
        self.index(offset_of!(RingHeader, rq_head))
            .store(head, Ordering::Release);
    }

    /// Which completions the user says that it has taken.
    pub(crate) fn cq_head(&self) -> u32 {
        self.index(offset_of!(RingHeader, cq_head))
            .load(Ordering::Acquire)
    }

    /// Which receive buffers the user says that it has posted.
    pub(crate) fn rq_tail(&self) -> u32 {
        self.index(offset_of!(RingHeader, rq_tail))
            .load(Ordering::Acquire)
    }
}
