// SPDX-License-Identifier: MIT OR Apache-2.0

//! The transfer: one copy from the writer's region into the receiver's.
//!
//! Small aligned writes are control state, which others load while it is being
//! stored: they go word by word, each a release store, so that the second
//! promise of [`crate::fabric`] holds. Everything else is payload, which
//! nobody looks at before a later small write says so: it goes as one `memcpy`,
//! and past the caches if it is long: see [`super::stream`].

use super::stream;
use crate::fabric::WORD_ATOMIC_BYTES;
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Copies `len` bytes between regions. A release store after it publishes it.
///
/// # Safety
///
/// Both ranges are mapped, readable and writable, and do not overlap. If the
/// copy is longer than [`WORD_ATOMIC_BYTES`] or not aligned to words, nobody
/// writes either range at the same time, and nobody reads `to` before a store
/// that follows this call.
pub(super) unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    let aligned = (from.addr().get() | to.addr().get() | len) % WORD == 0;
    if aligned && len <= WORD_ATOMIC_BYTES {
        for at in (0..len).step_by(WORD) {
            // SAFETY: within the source range, aligned, touched by atomics only.
            let source = unsafe { AtomicU64::from_ptr(from.add(at).as_ptr().cast()) };
            // SAFETY: within the target range, aligned, touched by atomics only.
            let target = unsafe { AtomicU64::from_ptr(to.add(at).as_ptr().cast()) };
            target.store(source.load(Ordering::Relaxed), Ordering::Release);
        }
    } else {
        // SAFETY: the caller's promise.
        unsafe { stream::copy(from, to, len) };
        // Later stores of any order stay behind the payload.
        fence(Ordering::Release);
    }
}
