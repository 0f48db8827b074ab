// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node's memory: one memfd, which every peer maps.
//!
//! The kernel frees it with the last mapping, whichever way its holders end.
//! The first page is the fabric's own (the doorbell), the region follows.

use super::bell::Bell;
use crate::fabric::{FabricError, Region};
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// The fabric's own bytes before the region.
const CONTROL_BYTES: usize = 4096;
const ACCESS: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

/// A mapping of `len` bytes.
///
/// # Invariants
///
/// `len` bytes at `base` are mapped shared, readable and writable, until drop,
/// and the file behind cannot shrink.
#[derive(Debug)]
struct Mapping {
    base: NonNull<c_void>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by the invariant, and whoever could still touch it
        // holds the mapping, so that this does not run.
        let unmapped = unsafe { munmap(self.base, self.len) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

/// A node's memory as this process sees it, its own or a peer's.
#[derive(Debug)]
pub(super) struct Memory {
    mapping: Arc<Mapping>,
    region: Region,
}

impl Memory {
    /// Makes a node's own memory, and the descriptor that peers map.
    pub(super) fn create(region_bytes: usize) -> Result<(Self, OwnedFd), FabricError> {
        let system = FabricError::system;
        let fd = memfd_create(
            c"weft-region",
            MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING,
        )
        .map_err(|errno| system("memfd_create", errno))?;
        let len = file_bytes(region_bytes)?;
        let file_len = i64::try_from(len).map_err(|_| FabricError::BadRegion(region_bytes))?;
        ftruncate(&fd, file_len).map_err(|errno| system("ftruncate", errno))?;
        // A file that could shrink would turn a peer's store into SIGBUS.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).map_err(|errno| system("fcntl", errno))?;
        Ok((Self::map(&fd, region_bytes)?, fd))
    }

    /// Maps a peer's memory, if it is what the peer says.
    pub(super) fn of_peer(
        peer: usize,
        fd: &OwnedFd,
        region_bytes: usize,
    ) -> Result<Self, FabricError> {
        Self::check(peer, fd, region_bytes)?;
        Self::map(fd, region_bytes)
    }

    /// Looks whether a peer's memory is what the peer says.
    pub(super) fn check(peer: usize, fd: &OwnedFd, region_bytes: usize) -> Result<(), FabricError> {
        let odd = |what| FabricError::Protocol { peer, what };
        let seals = fcntl(fd, FcntlArg::F_GET_SEALS)
            .map_err(|errno| FabricError::system("fcntl", errno))?;
        if !SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_SHRINK) {
            return Err(odd("its memory may shrink"));
        }
        let stat = fstat(fd).map_err(|errno| FabricError::system("fstat", errno))?;
        let len = usize::try_from(stat.st_size).map_err(|_| odd("its memory has no length"))?;
        if len < file_bytes(region_bytes)? {
            return Err(odd("its memory is shorter than it says"));
        }
        Ok(())
    }

    /// Room for the memory of a peer that is not there yet: bytes of this process alone.
    pub(super) fn vacant(region_bytes: usize) -> Result<Self, FabricError> {
        let len = file_bytes(region_bytes)?;
        let size = NonZeroUsize::new(len).ok_or(FabricError::BadRegion(region_bytes))?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { mmap_anonymous(None, size, ACCESS, flags) };
        let base = mapped.map_err(|errno| FabricError::system("mmap", errno))?;
        // INVARIANT: just mapped, and behind it is no file.
        Ok(Self::of_mapping(Mapping { base, len }, region_bytes))
    }

    /// Maps a peer's memory in the place of what was here. It was checked, for a region of the
    /// same length.
    ///
    /// # Errors
    ///
    /// What the system says: then there are bytes of this process alone.
    pub(super) fn replace(&self, fd: &OwnedFd) -> Result<(), FabricError> {
        let Mapping { base, len } = *self.mapping;
        let (at, size) = (
            NonZeroUsize::new(base.as_ptr().addr()),
            NonZeroUsize::new(len),
        );
        let size = size.ok_or(FabricError::BadRegion(len))?;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        // SAFETY: the range is that of our own mapping. To all who touch it meanwhile the
        // bytes are the old ones or the new ones: they are reached by atomics and raw
        // pointers, whose values nobody relies on before the seat's holder is known.
        let Err(errno) = (unsafe { mmap(at, size, ACCESS, flags, fd, 0) }) else {
            // INVARIANT: the file is as long and sealed, by the caller's check.
            return Ok(());
        };
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED;
        // SAFETY: as above; what was there may be gone.
        if unsafe { mmap_anonymous(at, size, ACCESS, flags) }.is_err() {
            // Other threads may touch what is not mapped any more.
            std::process::abort();
        }
        Err(FabricError::system("mmap", errno))
    }

    fn map(fd: impl AsFd, region_bytes: usize) -> Result<Self, FabricError> {
        let len = file_bytes(region_bytes)?;
        let size = NonZeroUsize::new(len).ok_or(FabricError::BadRegion(region_bytes))?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { mmap(None, size, ACCESS, MapFlags::MAP_SHARED, fd, 0) };
        let base = mapped.map_err(|errno| FabricError::system("mmap", errno))?;
        // INVARIANT: just mapped; the callers have seen that the file is long
        // enough and sealed.
        Ok(Self::of_mapping(Mapping { base, len }, region_bytes))
    }

    /// The region behind the control page of a mapping, which is long enough for it.
    fn of_mapping(mapping: Mapping, region_bytes: usize) -> Self {
        let mapping = Arc::new(mapping);
        // SAFETY: the control page is within the mapping.
        let start = unsafe { mapping.base.cast::<u8>().add(CONTROL_BYTES) };
        // SAFETY: the region's bytes follow the control page, are mapped while
        // `mapping` lives, and a page is aligned to 64. Nobody makes references
        // to them but `Region`.
        let region = unsafe { Region::new(start, region_bytes, Arc::clone(&mapping) as _) };
        Self { mapping, region }
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// The node's doorbell.
    pub(super) fn bell(&self) -> Bell<'_> {
        // SAFETY: the control page is mapped while `self` holds the mapping,
        // its first word is aligned, and all access to it is atomic.
        Bell::new(unsafe { self.mapping.base.cast().as_ref() })
    }
}

/// Bytes of the file with a region of this length.
fn file_bytes(region_bytes: usize) -> Result<usize, FabricError> {
    if !(1..=crate::fabric::MAX_REGION_BYTES).contains(&region_bytes) {
        return Err(FabricError::BadRegion(region_bytes));
    }
    Ok((CONTROL_BYTES + region_bytes).next_multiple_of(CONTROL_BYTES))
}
