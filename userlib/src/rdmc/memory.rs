// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory for messages, in the region that the fabric has registered: taking
//! some costs no registration (rdmc §4.1).

use super::error::Error;
use super::words::PAGE;
use crate::fabric::{Endpoint, Region};
use range_alloc::RangeAllocator;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The part of a node's region that buffers are taken from.
#[derive(Debug)]
pub(super) struct Arena {
    region: Region,
    /// Bytes, in pages.
    free: Mutex<RangeAllocator<usize>>,
    /// Counts the times at which there may be memory where there was none.
    changes: AtomicU64,
    /// For its doorbell; buffers do not keep the node connected.
    endpoint: Weak<dyn Endpoint>,
}

impl Arena {
    /// All of a node's region from a page on.
    pub(super) fn new(endpoint: &Arc<dyn Endpoint>, start: usize) -> Arc<Self> {
        let region = endpoint.region().clone();
        let end = (region.len() / PAGE * PAGE).max(start);
        Arc::new(Self {
            region,
            free: Mutex::new(RangeAllocator::new(start..end)),
            changes: AtomicU64::new(0),
            endpoint: Arc::downgrade(endpoint),
        })
    }

    /// Whether all of a range is in buffers.
    #[cfg(any(test, feature = "sim"))]
    pub(super) fn is_allocated(&self, range: &Range<usize>) -> bool {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let is_within = |used: &Range<usize>| used.start <= range.start && range.end <= used.end;
        let within = free.allocated_ranges().any(|used| is_within(&used));
        within
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Has the polling thread ask for memory again where it got none.
    fn has_changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        if let Some(endpoint) = self.endpoint.upgrade() {
            endpoint.ring(endpoint.rank());
        }
    }

    pub(super) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Buffer, Error> {
        let pages = bytes.max(1).checked_next_multiple_of(PAGE);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let range = pages.and_then(|pages| free.allocate_range(pages).ok());
        let range = range.ok_or_else(|| Error::NoMemory {
            bytes,
            free: free.total_available(),
        })?;
        drop(free);
        Ok(Buffer {
            start: self.region.range(range.start, range.len())?,
            range,
            len: bytes,
            arena: Arc::clone(self),
        })
    }

    /// Bytes that are free, perhaps in pieces.
    pub(super) fn available(&self) -> usize {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.total_available()
    }
}

/// A node's memory for messages, for callbacks: it does not keep the node, which
/// keeps them.
#[derive(Clone, Debug)]
pub struct Memory(pub(super) Arc<Arena>);

impl Memory {
    /// Memory for a message of so many bytes. What it holds is undefined.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`].
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, Error> {
        self.0.allocate(bytes)
    }

    /// Bytes that are free, perhaps in pieces.
    #[must_use]
    pub fn available(&self) -> usize {
        self.0.available()
    }

    /// Has groups ask again whose `memory` had none for a message. When a buffer
    /// is dropped they do by themselves; this is for those who keep theirs.
    pub fn wake(&self) {
        self.0.has_changed();
    }
}

/// Memory for a message, at one place for as long as it lives; freed on drop.
///
/// # Invariants
///
/// `range` is allocated in the arena, and `start` is where it is mapped. While
/// the buffer is not with the engine, no member writes there. `range` is empty only
/// while a buffer is given up.
pub struct Buffer {
    arena: Arc<Arena>,
    range: Range<usize>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that belongs to the buffer; the arena keeps it mapped.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Its place in the node's region.
    pub(super) fn offset(&self) -> usize {
        self.range.start
    }

    /// Gives it up: nobody gets this memory any more, because it is not known who writes it.
    pub(super) fn retire(mut self) {
        // INVARIANT: nobody has the buffer any more.
        self.range = 0..0;
    }

    pub(super) fn is_of(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(&self.arena, arena)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped there by the invariant, and nobody
        // writes them while the application has the buffer.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_ref() }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and the borrow is exclusive.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.len).as_mut() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.range.is_empty() {
            return;
        }
        let mut free = self
            .arena
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        free.free_range(self.range.clone());
        drop(free);
        self.arena.has_changed();
    }
}
