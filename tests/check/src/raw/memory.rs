// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that the module and peers write.

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

use nix::errno::Errno;
use nix::libc::c_void;
use nix::sys::mman::{
    mmap, mmap_anonymous, mprotect, mremap, munmap, MRemapFlags, MapFlags, ProtFlags,
};
use weft_core::uapi::Pod;

/// A mapping of our own that Rust has no reference into, so that the module and
/// peers may do with it what they like.
pub struct Memory {
    base: NonNull<c_void>,
    len: NonZeroUsize,
}

// SAFETY: it is an address; access to what is there is atomic.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `len` bytes.
    pub fn map(len: usize) -> Result<Self, Errno> {
        let len = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new private mapping where there is none.
        let base = unsafe { mmap_anonymous(None, len, prot, MapFlags::MAP_PRIVATE) }?;
        Ok(Self { base, len })
    }

    /// Maps `len` bytes that no multiple of `block` is in the middle of: one key of the
    /// RDMA device covers them.
    pub fn map_in_block(len: usize, block: u64) -> Result<Self, Errno> {
        let mut others = Vec::new();
        loop {
            let memory = Self::map(len)?;
            let (first, last) = (memory.addr(), memory.addr() + (len as u64 - 1));
            if first / block == last / block {
                return Ok(memory);
            }
            // Held meanwhile, so that the next one is elsewhere.
            others.push(memory);
        }
    }

    /// Maps `len` bytes of the device.
    pub fn of_device(
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Self, Errno> {
        let len = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        // SAFETY: a new mapping where there is none.
        let base = unsafe { mmap(None, len, prot, flags, fd, offset as i64) }?;
        Ok(Self { base, len })
    }

    /// Its address.
    pub fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    /// Changes the protection of a part. What is not readable may not be loaded,
    /// what is not writable not be stored.
    pub fn protect(&self, at: usize, len: usize, prot: ProtFlags) -> Result<(), Errno> {
        assert!(at + len <= self.len.get());
        // SAFETY: within the mapping.
        let part = unsafe { self.base.byte_add(at) };
        // SAFETY: it is ours, and nothing of Rust's lies in it.
        unsafe { mprotect(part, len, prot) }
    }

    /// Unmaps what lies behind `len` bytes, whole pages. The hole is another's
    /// from then on, and `len` bytes are ours.
    pub fn truncate(&mut self, len: usize) -> Result<(), Errno> {
        let (kept, old) = (NonZeroUsize::new(len).ok_or(Errno::EINVAL)?, self.len.get());
        assert!(len < old);
        // SAFETY: within the mapping.
        let tail = unsafe { self.base.byte_add(len) };
        // SAFETY: it is ours, and nothing of Rust's lies in it.
        unsafe { munmap(tail, old - len) }?;
        self.len = kept;
        Ok(())
    }

    /// Maps other memory, zeroes, to the same addresses.
    pub fn renew(&self) -> Result<(), Errno> {
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED;
        // SAFETY: in place of our own mapping, which only atomics touch.
        unsafe {
            mmap_anonymous(
                NonZeroUsize::new(self.addr() as usize),
                self.len,
                prot,
                flags,
            )
        }
        .map(drop)
    }

    /// Asks for more at its end.
    pub fn grow(&mut self, len: usize) -> Result<(), Errno> {
        let more = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        let flags = MRemapFlags::MREMAP_MAYMOVE;
        // SAFETY: it is ours, nothing of Rust's lies in it, and nobody borrows it.
        self.base = unsafe { mremap(self.base, self.len.get(), len, flags, None) }?;
        self.len = more;
        Ok(())
    }

    /// Moves the mapping to other addresses.
    pub fn relocate(&mut self) -> Result<(), Errno> {
        let (len, flags) = (self.len.get(), MRemapFlags::MREMAP_MAYMOVE);
        // Taken, so that it cannot stay where it is.
        let there = Self::map(len)?;
        let flags = flags | MRemapFlags::MREMAP_FIXED;
        // SAFETY: it is ours, nothing of Rust's lies in it, and nobody borrows it; what is
        // where it goes is ours too.
        self.base = unsafe { mremap(self.base, len, len, flags, Some(there.base)) }?;
        // It is part of this mapping now.
        std::mem::forget(there);
        Ok(())
    }

    /// The byte at an offset.
    pub fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.len.get());
        // SAFETY: within the mapping.
        let byte = unsafe { self.base.cast::<u8>().add(at) };
        // SAFETY: mapped as long as `self`, and only atomics touch it.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }
    }

    /// The word at an offset.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at % 8 == 0 && at + 8 <= self.len.get());
        // SAFETY: within the mapping.
        let word = unsafe { self.base.byte_add(at) };
        // SAFETY: aligned, mapped as long as `self`, and only atomics touch it.
        unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) }
    }

    /// The half word at an offset.
    pub fn half(&self, at: usize) -> &AtomicU32 {
        assert!(at % 4 == 0 && at + 4 <= self.len.get());
        // SAFETY: within the mapping.
        let half = unsafe { self.base.byte_add(at) };
        // SAFETY: aligned, mapped as long as `self`, and only atomics touch it.
        unsafe { AtomicU32::from_ptr(half.cast().as_ptr()) }
    }

    /// Puts a struct there.
    pub fn put<T: Pod>(&self, at: usize, value: &T) {
        for (i, word) in value.as_bytes().chunks_exact(8).enumerate() {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            let word = u64::from_ne_bytes(bytes);
            self.word(at + 8 * i).store(word, Ordering::Relaxed);
        }
    }

    /// Takes a struct from there.
    pub fn get<T: Pod>(&self, at: usize) -> T {
        let mut value = T::zeroed();
        for (i, word) in value.as_bytes_mut().chunks_exact_mut(8).enumerate() {
            let bytes = self.word(at + 8 * i).load(Ordering::Relaxed);
            word.copy_from_slice(&bytes.to_ne_bytes());
        }
        value
    }

    /// Fills a part.
    pub fn fill(&self, at: usize, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            self.byte(at + i).store(*byte, Ordering::Relaxed);
        }
    }

    /// Copies a part out.
    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        (at..at + len)
            .map(|i| self.byte(i).load(Ordering::Relaxed))
            .collect()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody refers to any more.
        let _ = unsafe { munmap(self.base, self.len.get()) };
    }
}
