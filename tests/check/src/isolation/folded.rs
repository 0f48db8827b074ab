// SPDX-License-Identifier: MIT OR Apache-2.0

//! A long range of addresses with little memory behind it.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use anyhow::{Context, Result};
use nix::libc::c_void;
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};
use nix::unistd::ftruncate;
use weft_shim::{Access, Device, MemoryRegion};

/// Bytes of the memory.
const BEHIND: usize = 1 << 20;

/// The same memory again and again.
pub struct Folded {
    base: NonNull<c_void>,
    len: usize,
}

impl Folded {
    /// `len` bytes of addresses, of whole [`BEHIND`].
    pub fn map(len: usize) -> Result<Self> {
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let (all, part) = (NonZeroUsize::new(len), NonZeroUsize::new(BEHIND));
        let (all, part) = all.zip(part).context("no bytes")?;
        let file = memfd_create(c"folded", MFdFlags::MFD_CLOEXEC)?;
        ftruncate(&file, BEHIND as i64)?;
        let (none, flags) = (ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE);
        // SAFETY: a new mapping where there is none.
        let base = unsafe { mmap_anonymous(None, all, none, flags) }?;
        let this = Self { base, len };
        let start = base.as_ptr().expose_provenance();
        for at in (0..len).step_by(BEHIND) {
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
            // SAFETY: within the mapping, which is ours.
            unsafe { mmap(NonZeroUsize::new(start + at), part, prot, flags, &file, 0) }?;
        }
        Ok(this)
    }

    /// A region of all of it.
    pub fn register(&self, device: &Device) -> Result<MemoryRegion> {
        // SAFETY: mapped longer than the region is there; nobody else uses it.
        let region = unsafe { device.register(self.base.cast(), self.len, Access::all()) };
        Ok(region?)
    }
}

impl Drop for Folded {
    fn drop(&mut self) {
        // SAFETY: our mapping, which nobody refers to any more.
        let _ = unsafe { munmap(self.base, self.len) };
    }
}
