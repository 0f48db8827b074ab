// SPDX-License-Identifier: MIT OR Apache-2.0

//! The nodes' memory: words of this process.

use crate::fabric::{FabricError, Region, MAX_REGION_BYTES};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

pub(super) const WORD: usize = size_of::<u64>();
const LINE_WORDS: usize = 8;

/// As aligned as a region has to be. The words are reached by the region alone.
#[derive(Default)]
#[repr(align(64))]
struct Line {
    _words: [AtomicU64; LINE_WORDS],
}

/// Zeros.
pub(super) fn region(bytes: usize) -> Result<Region, FabricError> {
    if !(1..=MAX_REGION_BYTES).contains(&bytes) {
        return Err(FabricError::BadRegion(bytes));
    }
    let lines = bytes.div_ceil(size_of::<Line>());
    let lines: Arc<[Line]> = (0..lines).map(|_| Line::default()).collect();
    let base = NonNull::from(&*lines).cast();
    // SAFETY: the lines live as long as what is handed over with them, are at least as
    // many bytes, and aligned to 64; they are atomics.
    Ok(unsafe { Region::new(base, bytes, Arc::new(lines)) })
}

/// Copies a range, word by word where both ends allow it. Ranges outside of the regions
/// are left out: who posts has checked them.
pub(super) fn copy(from: &Region, local: usize, to: &Region, remote: usize, len: usize) {
    let mut done = 0;
    while done < len {
        let (source, target) = (local + done, remote + done);
        let is_word = source % WORD == 0 && target % WORD == 0 && done + WORD <= len;
        match (is_word, from.word(source), to.word(target)) {
            (true, Ok(source), Ok(target)) => {
                target.store(source.load(Ordering::Acquire), Ordering::Release);
                done += WORD;
            }
            _ => {
                copy_byte(from, source, to, target);
                done += 1;
            }
        }
    }
}

fn copy_byte(from: &Region, source: usize, to: &Region, target: usize) {
    let (Ok(source), Ok(target)) = (from.range(source, 1), to.range(target, 1)) else {
        return;
    };
    // SAFETY: a byte within the region, which is mapped while it is borrowed; whoever
    // copies bytes here does it on the one thread that drives the simulation.
    let source = unsafe { AtomicU8::from_ptr(source.as_ptr()) };
    // SAFETY: likewise.
    let target = unsafe { AtomicU8::from_ptr(target.as_ptr()) };
    target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// The words of a range, as they are now; none if it is not made of words.
pub(super) fn words(region: &Region, offset: usize, len: usize) -> Option<Vec<u64>> {
    if offset % WORD != 0 || len % WORD != 0 {
        return None;
    }
    let word = |at| {
        Some(
            region
                .word(offset + at * WORD)
                .ok()?
                .load(Ordering::Acquire),
        )
    };
    (0..len / WORD).map(word).collect()
}
