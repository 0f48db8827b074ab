// SPDX-License-Identifier: MIT OR Apache-2.0

//! The fabric's own page at the beginning of a node's memory.
//!
//! For each peer it has a word that the peer writes when it rings, the word
//! that this is written from at the ringer, and one that a fence reads into.

use crate::fabric::{FabricError, Region, MAX_NODES, MAX_REGION_BYTES};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes before the region: a page, so that the region starts at one.
pub(in crate::fabric) const CONTROL_BYTES: usize = 4096;

const WORD: usize = size_of::<u64>();

/// Where the node's count of rings is, at the one that it rings.
pub(super) const fn rung_by(rank: usize) -> usize {
    rank * WORD
}

/// Where a node keeps its count of rings at a peer, to write it from.
pub(super) const fn rings_at(peer: usize) -> usize {
    (MAX_NODES + peer) * WORD
}

/// Where fences of a peer read into.
pub(super) const fn fence_of(peer: usize) -> usize {
    (2 * MAX_NODES + peer) * WORD
}

const _: () = assert!(fence_of(MAX_NODES) <= CONTROL_BYTES);

/// A node's memory: the control page and the region.
#[derive(Clone, Debug)]
pub(in crate::fabric) struct Memory {
    /// All of it.
    pub(in crate::fabric) all: Region,
    /// What the user sees.
    pub(super) region: Region,
}

impl Memory {
    /// Bytes to allocate for a region of this length.
    pub(in crate::fabric) fn bytes(region_bytes: usize) -> Result<usize, FabricError> {
        if !(1..=MAX_REGION_BYTES).contains(&region_bytes) {
            return Err(FabricError::BadRegion(region_bytes));
        }
        Ok(CONTROL_BYTES + region_bytes)
    }

    /// Divides memory into the control page and the region.
    ///
    /// # Safety
    ///
    /// At `base`, which is aligned to a page, are the bytes that
    /// [`Self::bytes`] says for `region_bytes`: mapped, readable, writable for
    /// as long as `owner` lives, and with no Rust reference to them but those
    /// to atomics.
    pub(in crate::fabric) unsafe fn new(
        base: NonNull<u8>,
        region_bytes: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let bytes = CONTROL_BYTES + region_bytes;
        // SAFETY: the caller's promise.
        let all = unsafe { Region::new(base, bytes, Arc::clone(&owner)) };
        // SAFETY: the region follows the control page.
        let first = unsafe { base.add(CONTROL_BYTES) };
        // SAFETY: the caller's promise; a page further is aligned too.
        let region = unsafe { Region::new(first, region_bytes, owner) };
        Self { all, region }
    }
}
