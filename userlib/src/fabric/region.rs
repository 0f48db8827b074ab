// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that peers write at any time.
//!
//! A Rust reference to its bytes would promise that nobody else writes. So
//! control state is touched by atomic words only, and payloads through raw
//! pointers whose holder says which counter keeps the others away.

use super::FabricError;
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

const WORD: usize = size_of::<u64>();

/// A range of mapped memory that peers may write.
///
/// # Invariants
///
/// `len` bytes at `base` are mapped, readable and writable, for as long as
/// `owner` lives, and `base` is aligned to 64.
#[derive(Clone)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    /// Keeps the mapping.
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the memory outlives the region by its invariant, wherever it is; all
// access through it is atomic or says itself why it may.
unsafe impl Send for Region {}
// SAFETY: as for `Send`.
unsafe impl Sync for Region {}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Region {
    /// A region for a fabric to hand out.
    ///
    /// # Safety
    ///
    /// The type's invariant holds, and no Rust reference to the bytes exists
    /// but those to atomics.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        // INVARIANT: the caller promises it.
        Self { base, len, owner }
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none. No fabric makes such a region.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte's address, for a fabric that names memory by it.
    #[must_use]
    pub fn addr(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// The first byte of a range, which is within the region. What may be done
    /// with it is for the protocol to say that owns the range.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRange`].
    pub fn range(&self, offset: usize, len: usize) -> Result<NonNull<u8>, FabricError> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(FabricError::BadRange {
                offset,
                len,
                region_bytes: self.len,
            });
        }
        // SAFETY: the offset is within the mapping, by the invariant and the
        // check above.
        Ok(unsafe { self.base.add(offset) })
    }

    /// The word at an offset.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRange`], [`FabricError::Misaligned`].
    pub fn word(&self, offset: usize) -> Result<&AtomicU64, FabricError> {
        let place = self.range(offset, WORD)?;
        if offset % WORD != 0 {
            return Err(FabricError::Misaligned(offset));
        }
        // SAFETY: mapped for as long as `self`, by the invariant; aligned,
        // because base and offset are. Peers and threads that write it store
        // whole words.
        Ok(unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) })
    }

    /// Keeps the mapping alive independently of the region.
    #[must_use]
    pub fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        Arc::clone(&self.owner)
    }
}
