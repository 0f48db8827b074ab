// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that peers write at any time, and how to touch it all the same.
//!
//! A Rust reference would promise that nobody else writes; here everybody may.
//! So every access is atomic: words of 8 bytes where the address allows it,
//! single bytes at the edges. A copy of more than one word is not atomic as a
//! whole; what makes sense of it is the protocol on top.

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
/// `len` bytes at `base` are mapped, readable and writable, while it exists,
/// and Rust code touches them only by atomic operations.
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
        self.check(offset..offset.saturating_add(from.len()))?;
        let (head, rest) = from.split_at(self.to_alignment(offset, from.len()));
        let words = rest.chunks_exact(WORD);
        let tail = words.remainder();
        let mut at = self.put_bytes(offset, head);
        for word in words {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(word);
            self.word_at(at)
                .store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            at += WORD;
        }
        self.put_bytes(at, tail);
        Ok(())
    }

    pub(crate) fn copy_out(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        self.check(offset..offset.saturating_add(to.len()))?;
        let (head, rest) = to.split_at_mut(self.to_alignment(offset, to.len()));
        let mut at = self.get_bytes(offset, head);
        let mut words = rest.chunks_exact_mut(WORD);
        for word in &mut words {
            word.copy_from_slice(&self.word_at(at).load(Ordering::Relaxed).to_ne_bytes());
            at += WORD;
        }
        self.get_bytes(at, words.into_remainder());
        Ok(())
    }

    /// Bytes from an offset to the next aligned word, but no more than `len`.
    fn to_alignment(&self, offset: usize, len: usize) -> usize {
        let past = (self.base.addr().get() + offset) % WORD;
        len.min((WORD - past) % WORD)
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
