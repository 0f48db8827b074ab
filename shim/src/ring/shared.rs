// SPDX-License-Identifier: MIT OR Apache-2.0

//! Words of memory that user and kernel both write.
//!
//! A Rust reference to an entry would promise that the kernel leaves it alone, so
//! entries are copied word by word, each word atomically, and order comes from the
//! indices: acquire where the other side's is read, release where ours is written.

use super::lot::Mapping;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use weft_core::uapi::{Pod, RingHeader};

const WORD: usize = size_of::<u64>();

/// One index of the header.
///
/// # Invariants
///
/// `at` is within `pages`, aligned, and no ring's entries overlap it.
#[derive(Debug)]
pub(super) struct Index {
    at: NonNull<u32>,
    _pages: Arc<Mapping>,
}

// SAFETY: all access is atomic, and the mapping belongs to no thread.
unsafe impl Send for Index {}
// SAFETY: as for `Send`.
unsafe impl Sync for Index {}

impl Index {
    /// The index at this offset into the header.
    pub(super) fn new(pages: &Arc<Mapping>, offset: usize) -> Option<Self> {
        let fits = offset.checked_add(size_of::<u32>())? <= size_of::<RingHeader>();
        let there = size_of::<RingHeader>() <= pages.len();
        if !fits || !there || offset % align_of::<u32>() != 0 {
            return None;
        }
        // SAFETY: within the mapping.
        let at = unsafe { pages.base().add(offset) }.cast();
        // INVARIANT: just checked; a mapping begins with a page.
        Some(Self {
            at,
            _pages: Arc::clone(pages),
        })
    }

    /// The other side's: what it wrote before is seen too.
    #[inline]
    pub(super) fn load(&self) -> u32 {
        self.cell().load(Ordering::Acquire)
    }

    /// Ours: what was written or read before is done.
    #[inline]
    pub(super) fn store(&self, index: u32) {
        self.cell().store(index, Ordering::Release);
    }

    #[inline]
    fn cell(&self) -> &AtomicU32 {
        // SAFETY: by the invariant, and only atomics touch it.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr()) }
    }
}

/// The entries of a ring.
///
/// # Invariants
///
/// `mask + 1` is a power of two, and as many `T`s lie at `first`, within `pages`,
/// aligned to a word and behind the header.
#[derive(Debug)]
pub(super) struct Slots<T> {
    first: NonNull<u64>,
    mask: u32,
    _pages: Arc<Mapping>,
    entries: PhantomData<fn(T) -> T>,
}

// SAFETY: all access is atomic, and the mapping belongs to no thread.
unsafe impl<T> Send for Slots<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for Slots<T> {}

impl<T: Pod> Slots<T> {
    const WORDS: usize = {
        assert!(size_of::<T>() % WORD == 0);
        size_of::<T>() / WORD
    };

    /// The ring that the kernel says is there; `None` if it cannot be.
    pub(super) fn new(pages: &Arc<Mapping>, offset: u32, entries: u32) -> Option<Self> {
        let offset = offset as usize;
        let bytes = (entries as usize).checked_mul(size_of::<T>())?;
        let fits = offset >= size_of::<RingHeader>() && offset.checked_add(bytes)? <= pages.len();
        if !entries.is_power_of_two() || !fits || offset % WORD != 0 {
            return None;
        }
        // SAFETY: within the mapping.
        let first = unsafe { pages.base().add(offset) }.cast();
        // INVARIANT: just checked; a mapping begins with a page.
        Some(Self {
            first,
            mask: entries - 1,
            _pages: Arc::clone(pages),
            entries: PhantomData,
        })
    }

    /// How many there are, a power of two.
    #[inline]
    pub(super) fn entries(&self) -> u32 {
        self.mask + 1
    }

    /// Copies an entry in. An index publishes it.
    #[inline]
    pub(super) fn store(&self, index: u32, value: &T) {
        let words = value.as_bytes().chunks_exact(WORD);
        for (cell, word) in self.cells(index).iter().zip(words) {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(word);
            cell.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    /// Copies an entry out, once.
    #[inline]
    pub(super) fn load(&self, index: u32) -> T {
        let mut value = T::zeroed();
        let words = value.as_bytes_mut().chunks_exact_mut(WORD);
        for (cell, word) in self.cells(index).iter().zip(words) {
            word.copy_from_slice(&cell.load(Ordering::Relaxed).to_ne_bytes());
        }
        value
    }

    /// The words of the entry in the place of a free-running index.
    #[inline]
    fn cells(&self, index: u32) -> &[AtomicU64] {
        let place = (index & self.mask) as usize;
        // SAFETY: the place is one of the `mask + 1` that are there.
        let first = unsafe { self.first.add(place * Self::WORDS) };
        // SAFETY: so many words are there, aligned, and only atomics touch them.
        unsafe { std::slice::from_raw_parts(first.as_ptr().cast(), Self::WORDS) }
    }
}
