// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node's memory: one memfd, which every peer maps.
//!
//! The kernel frees it with the last mapping, whichever way its holders end.
//! The first page is the fabric's own (the doorbell), the region follows.

use super::bell::Bell;
use crate::fabric::{FabricError, Region};
use nix::fcntl::{fcntl, FcntlArg, SealFlag};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// The fabric's own bytes before the region.
const CONTROL_BYTES: usize = 4096;

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
        Self::map(fd, region_bytes)
    }

    fn map(fd: impl AsFd, region_bytes: usize) -> Result<Self, FabricError> {
        let len = file_bytes(region_bytes)?;
        let size = NonZeroUsize::new(len).ok_or(FabricError::BadRegion(region_bytes))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, fd, 0) };
        let base = mapped.map_err(|errno| FabricError::system("mmap", errno))?;
        // INVARIANT: just mapped; the callers have seen that the file is long
        // enough and sealed.
        let mapping = Arc::new(Mapping { base, len });
        // SAFETY: the control page is within the mapping.
        let start = unsafe { base.cast::<u8>().add(CONTROL_BYTES) };
        // SAFETY: the region's bytes follow the control page, are mapped while
        // `mapping` lives, and a page is aligned to 64. Nobody makes references
        // to them but `Region`.
        let region = unsafe { Region::new(start, region_bytes, Arc::clone(&mapping) as _) };
        Ok(Self { mapping, region })
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
