// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that peers write at any time, and how to touch it all the same.
//!
//! A Rust reference would promise that nobody else writes; here everybody may.
//! So every access is atomic. Rust also wants all atomic accesses to a byte to be
//! of one size, whatever threads copy there at the same time: so the aligned words
//! of a region are always accessed as words, part of one by compare and swap, and
//! the bytes before its first and behind its last word always as bytes. A copy of
//! more than one word is not atomic as a whole; what makes sense of it is the
//! protocol on top.

use crate::error::Error;
use nix::errno::Errno;
use nix::sys::mman::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};

const WORD: usize = size_of::<u64>();

/// Bytes that others write too.
///
/// # Invariants
///
/// `len` bytes at `base` are mapped, readable and writable, while it exists, and
/// Rust code touches them only by atomic operations: those in whole aligned words of
/// the range by operations on these words, the others by operations on single bytes.
pub(crate) struct SharedBytes {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: all access is atomic, and the invariant names no thread.
unsafe impl Send for SharedBytes {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedBytes {}

impl SharedBytes {
    /// # Safety
    ///
    /// The type's invariant holds of these bytes.
    pub(crate) unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        // INVARIANT: the caller promises it.
        Self { base, len }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// The range, if it is within.
    #[inline]
    pub(crate) fn check(&self, range: Range<usize>) -> Result<Range<usize>, Error> {
        if range.start <= range.end && range.end <= self.len {
            Ok(range)
        } else {
            Err(Error::OutOfBounds {
                start: range.start,
                end: range.end,
                len: self.len,
            })
        }
    }

    /// The aligned word at this offset.
    pub(crate) fn word(&self, offset: usize) -> Result<&AtomicU64, Error> {
        self.check(offset..offset.saturating_add(WORD))?;
        if (self.base.addr().get() + offset) % WORD != 0 {
            return Err(Error::Misaligned(offset));
        }
        Ok(self.word_at(offset))
    }

    pub(crate) fn copy_in(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        let parts = self.parts(offset..offset.saturating_add(from.len()))?;
        let (before, rest) = from.split_at(parts.before);
        let (head, rest) = rest.split_at(parts.head);
        let (words, rest) = rest.split_at(parts.words * WORD);
        let (tail, behind) = rest.split_at(parts.tail);
        let mut at = self.put_bytes(offset, before);
        at = self.put_part(at, head);
        for word in words.chunks_exact(WORD) {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(word);
            self.word_at(at)
                .store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            at += WORD;
        }
        at = self.put_part(at, tail);
        self.put_bytes(at, behind);
        Ok(())
    }

    pub(crate) fn copy_out(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        let parts = self.parts(offset..offset.saturating_add(to.len()))?;
        let (before, rest) = to.split_at_mut(parts.before);
        let (head, rest) = rest.split_at_mut(parts.head);
        let (words, rest) = rest.split_at_mut(parts.words * WORD);
        let (tail, behind) = rest.split_at_mut(parts.tail);
        let mut at = self.get_bytes(offset, before);
        at = self.get_part(at, head);
        for word in words.chunks_exact_mut(WORD) {
            word.copy_from_slice(&self.word_at(at).load(Ordering::Relaxed).to_ne_bytes());
            at += WORD;
        }
        at = self.get_part(at, tail);
        self.get_bytes(at, behind);
        Ok(())
    }

    /// How a range is made up of bytes and words, if it is within.
    fn parts(&self, range: Range<usize>) -> Result<Parts, Error> {
        let range = self.check(range)?;
        let words = self.whole_words();
        let clamp = |at: usize| at.clamp(words.start, words.end);
        let (start, end) = (clamp(range.start), clamp(range.end));
        let head = (end - start).min((WORD - (start - words.start) % WORD) % WORD);
        let whole = end - start - head;
        Ok(Parts {
            before: start.min(range.end).saturating_sub(range.start),
            head,
            words: whole / WORD,
            tail: whole % WORD,
        })
    }

    /// Offsets of the aligned words that are wholly within.
    fn whole_words(&self) -> Range<usize> {
        let past = self.base.addr().get() % WORD;
        let start = self.len.min((WORD - past) % WORD);
        start..start + (self.len - start) / WORD * WORD
    }

    /// Stores bytes one by one; answers with the offset behind them.
    fn put_bytes(&self, offset: usize, from: &[u8]) -> usize {
        for (at, byte) in (offset..).zip(from) {
            self.byte_at(at).store(*byte, Ordering::Relaxed);
        }
        offset + from.len()
    }

    fn get_bytes(&self, offset: usize, to: &mut [u8]) -> usize {
        for (at, byte) in (offset..).zip(&mut *to) {
            *byte = self.byte_at(at).load(Ordering::Relaxed);
        }
        offset + to.len()
    }

    /// Stores bytes within one word; answers with the offset behind them.
    fn put_part(&self, offset: usize, from: &[u8]) -> usize {
        let past = self.past_word(offset);
        let (mut mask, mut bytes) = ([0; WORD], [0; WORD]);
        mask[past..past + from.len()].fill(u8::MAX);
        bytes[past..past + from.len()].copy_from_slice(from);
        let (mask, bytes) = (u64::from_ne_bytes(mask), u64::from_ne_bytes(bytes));
        if mask != 0 {
            let put = |word: u64| Some(word & !mask | bytes);
            let word = self.word_at(offset - past);
            // It always puts, so there is no error.
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, put);
        }
        offset + from.len()
    }

    fn get_part(&self, offset: usize, to: &mut [u8]) -> usize {
        if !to.is_empty() {
            let past = self.past_word(offset);
            let word = self.word_at(offset - past).load(Ordering::Relaxed);
            to.copy_from_slice(&word.to_ne_bytes()[past..past + to.len()]);
        }
        offset + to.len()
    }

    /// Bytes from the aligned word before an offset.
    fn past_word(&self, offset: usize) -> usize {
        (self.base.addr().get() + offset) % WORD
    }

    /// `offset` was checked to be within.
    fn byte_at(&self, offset: usize) -> &AtomicU8 {
        debug_assert!(offset < self.len);
        // SAFETY: within the mapping, by the invariant and the check.
        let byte = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: mapped while `self` exists, and only atomics touch it.
        unsafe { AtomicU8::from_ptr(byte) }
    }

    /// The eight bytes at `offset` were checked to be within, and aligned.
    fn word_at(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + WORD <= self.len);
        // SAFETY: within the mapping, by the invariant and the check.
        let word = unsafe { self.base.as_ptr().add(offset) };
        #[expect(
            clippy::cast_ptr_alignment,
            reason = "the caller checked the alignment"
        )]
        let word = word.cast::<u64>();
        // SAFETY: mapped while `self` exists, aligned, only atomics touch it.
        unsafe { AtomicU64::from_ptr(word) }
    }
}

/// A range consists of these, in this order.
struct Parts {
    /// Bytes before the first whole word of all.
    before: usize,
    /// Bytes at the end of a word.
    head: usize,
    /// Whole words.
    words: usize,
    /// Bytes at the begin of a word.
    tail: usize,
    // The rest: bytes behind the last whole word of all.
}

/// A mapping, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Pages {
    base: NonNull<u8>,
    len: NonZeroUsize,
}

// SAFETY: it owns the mapping, which belongs to no thread.
unsafe impl Send for Pages {}
// SAFETY: it offers nothing but the address.
unsafe impl Sync for Pages {}

impl Pages {
    /// At least `len` zeroed bytes of our own.
    pub(crate) fn map(len: NonZeroUsize) -> Result<Self, Error> {
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice
        // changes nothing that exists.
        let base = unsafe { mmap_anonymous(None, len, prot, MapFlags::MAP_PRIVATE) };
        let base = base.map_err(|_| Error::OutOfMemory)?.cast();
        Ok(Self { base, len })
    }

    /// What a device has at an offset, shared with it.
    pub(crate) fn of_device(
        fd: BorrowedFd<'_>,
        offset: u64,
        len: NonZeroUsize,
    ) -> Result<Self, Errno> {
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
        // SAFETY: a new mapping at an address of the kernel's choice changes
        // nothing that exists.
        let base = unsafe { mmap(None, len, prot, MapFlags::MAP_SHARED, fd, offset) }?.cast();
        Ok(Self { base, len })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.get()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, and whoever owned `self` used the bytes
        // no longer than it.
        let unmapped = unsafe { munmap(self.base.cast(), self.len.get()) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn with_bytes(len: usize, skip: usize, test: impl FnOnce(SharedBytes)) {
        let pages = Pages::map(NonZeroUsize::new(len + skip).unwrap()).unwrap();
        // SAFETY: within the mapping.
        let base = unsafe { pages.base().add(skip) };
        // SAFETY: mapped until the end of this function, and nobody else's.
        test(unsafe { SharedBytes::new(base, len) });
    }

    #[test]
    fn what_is_copied_in_comes_out_at_every_alignment() {
        for skip in 0..9 {
            for offset in 0..9 {
                for len in 0..40 {
                    with_bytes(64, skip, |bytes| {
                        let data: Vec<u8> = (1..=len).collect();
                        bytes.copy_in(offset, &data).unwrap();
                        let mut all = [0; 64];
                        bytes.copy_out(0, &mut all).unwrap();
                        let mut expected = [0; 64];
                        expected[offset..offset + data.len()].copy_from_slice(&data);
                        assert_eq!(all, expected, "skip {skip} offset {offset} len {len}");
                        let mut part = vec![0; data.len()];
                        bytes.copy_out(offset, &mut part).unwrap();
                        assert_eq!(part, data);
                    });
                }
            }
        }
    }

    #[test]
    fn threads_that_write_parts_of_one_word_lose_nothing() {
        with_bytes(WORD, 0, |bytes| {
            thread::scope(|scope| {
                for at in 0..WORD {
                    let bytes = &bytes;
                    scope.spawn(move || {
                        for round in 0..=u8::MAX {
                            bytes.copy_in(at, &[round]).unwrap();
                            let mut seen = [0];
                            bytes.copy_out(at, &mut seen).unwrap();
                            assert_eq!(seen, [round], "another's bytes at {at}");
                        }
                    });
                }
            });
        });
    }

    /// The region, not the copy, decides which of its bytes are accessed one by one.
    #[test]
    fn a_byte_is_always_in_the_same_part() {
        for (skip, len) in (0..9).flat_map(|skip| (1..40).map(move |len| (skip, len))) {
            with_bytes(len, skip, |bytes| {
                let words = bytes.whole_words();
                for (start, end) in (0..=len).flat_map(|end| (0..=end).map(move |at| (at, end))) {
                    let parts = bytes.parts(start..end).unwrap();
                    let inside = parts.head + parts.words * WORD + parts.tail;
                    let count =
                        |range: Range<usize>| (start..end).filter(|at| range.contains(at)).count();
                    assert_eq!(
                        inside,
                        count(words.clone()),
                        "skip {skip} len {len} {start}..{end}"
                    );
                    assert_eq!(parts.before, count(0..words.start));
                    assert!(parts.head < WORD && parts.tail < WORD);
                }
            });
        }
    }

    #[test]
    fn an_access_out_of_bounds_is_refused() {
        with_bytes(16, 0, |bytes| {
            let error = |start, end| {
                Err(Error::OutOfBounds {
                    start,
                    end,
                    len: 16,
                })
            };
            assert_eq!(bytes.copy_in(9, &[0; 8]), error(9, 17));
            assert_eq!(bytes.copy_out(17, &mut []), error(17, 17));
            assert_eq!(
                bytes.copy_out(usize::MAX, &mut [0]),
                error(usize::MAX, usize::MAX)
            );
            assert_eq!(bytes.word(16).map(drop), error(16, 24));
            assert_eq!(bytes.copy_in(16, &[]), Ok(()));
        });
    }

    #[test]
    fn a_word_needs_an_aligned_address() {
        with_bytes(16, 0, |bytes| {
            assert_eq!(bytes.word(4).map(drop), Err(Error::Misaligned(4)));
            assert!(bytes.word(8).is_ok());
        });
        with_bytes(16, 4, |bytes| {
            assert!(bytes.word(4).is_ok());
            assert_eq!(bytes.word(8).map(drop), Err(Error::Misaligned(8)));
        });
    }
}
