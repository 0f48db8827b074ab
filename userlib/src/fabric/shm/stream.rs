// SPDX-License-Identifier: MIT OR Apache-2.0

//! Long copies, past the caches.
//!
//! A processor that stores to memory that it has not cached fetches it first. For
//! data that does not stay in a cache anyway, that is a third of all traffic of a
//! copy, and memory is what several nodes of one machine run out of first. The C
//! library's `memcpy` avoids it only for copies of about the size of the last
//! cache; it does not know that this one is a part of a larger object.

use std::ptr::NonNull;

/// From so many bytes on a copy goes past the caches: several of them, and what
/// they are copied from, are more than a core's own caches hold.
const LONG_BYTES: usize = 256 << 10;

/// Copies bytes, as [`NonNull::copy_to_nonoverlapping`].
///
/// # Safety
///
/// Both ranges are mapped, readable and writable, and do not overlap.
pub(super) unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= LONG_BYTES {
        // SAFETY: the caller's promise.
        return unsafe { long(from, to, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { from.copy_to_nonoverlapping(to, len) };
}

/// Copies bytes past the caches. They are there when it returns, as those of any
/// other store.
///
/// # Safety
///
/// As for [`copy`].
#[cfg(target_arch = "x86_64")]
unsafe fn long(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LANE: usize = size_of::<__m128i>();
    const LINE: usize = 4 * LANE;
    // Streamed stores are of whole lines.
    let head = to.align_offset(LINE).min(len);
    let lines = (len - head) / LINE;
    let tail = head + lines * LINE;
    // SAFETY: within the caller's ranges.
    unsafe { from.copy_to_nonoverlapping(to, head) };
    for at in (head..tail).step_by(LINE) {
        // SAFETY: within the caller's range.
        let source = unsafe { from.add(at).cast::<__m128i>() };
        // SAFETY: within the caller's range.
        let target = unsafe { to.add(at).cast::<__m128i>() };
        for lane in 0..LINE / LANE {
            // SAFETY: a line is within the range; any alignment will do.
            let value = unsafe { _mm_loadu_si128(source.add(lane).as_ptr()) };
            // SAFETY: a line is within the range, and it is aligned.
            unsafe { _mm_stream_si128(target.add(lane).as_ptr(), value) };
        }
    }
    // SAFETY: within the caller's ranges.
    unsafe {
        from.add(tail)
            .copy_to_nonoverlapping(to.add(tail), len - tail)
    };
    // Streamed stores are in no order with others before this.
    // SAFETY: all processors of this kind have it.
    unsafe { _mm_sfence() };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn long_copies_of_any_alignment_are_whole_and_touch_nothing_else() {
        let source: Vec<u8> = (0..LONG_BYTES + 256).map(|at| (at % 251) as u8).collect();
        for (from, to, more) in [(0, 0, 0), (1, 0, 1), (0, 1, 63), (17, 33, 64), (3, 5, 130)] {
            let len = LONG_BYTES + more;
            let mut target = vec![255; len + 100];
            let start = NonNull::from(&source[from..from + len]).cast();
            let place = NonNull::from(&mut target[to..to + len]).cast();
            // SAFETY: both ranges are as long, of different vectors, and not in
            // use meanwhile.
            unsafe { copy(start, place, len) };
            assert!(target[..to].iter().all(|&byte| byte == 255));
            assert_eq!(target[to..to + len], source[from..from + len]);
            assert!(target[to + len..].iter().all(|&byte| byte == 255));
        }
    }
}
