// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that a NIC may read and write.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;

use crate::error::made;
use crate::{sys, Error, Pd, Result};

/// Zeroed, page-aligned memory that programs and NICs share, as 64-bit atomics.
///
/// # Invariants
///
/// `first` is the start of a private mapping of `bytes` bytes, readable and
/// writable, that lives until this is dropped.
#[derive(Debug)]
pub struct Pages {
    first: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only
// reached through atomics.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

/// Mappings, and so allocations here, come in multiples of this many bytes.
const PAGE_BYTES: usize = 4096;

impl Pages {
    /// Maps at least `bytes` bytes, all zero.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], or `ENOMEM` from `mmap`.
    pub fn zeroed(bytes: usize) -> Result<Arc<Self>> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or(Error::TooLarge(bytes))?;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice
        // touches no memory of the program.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(Error::last("mmap"));
        }
        // INVARIANT: `mmap` made exactly this mapping.
        Ok(Arc::new(Self {
            first: made("mmap", mapped.cast())?,
            bytes,
        }))
    }

    /// The memory.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, `bytes` long and initialised
        // (zero), and lives as long as `self` (invariant). Others write it, by
        // DMA or from other threads, which is what atomics allow.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.bytes / size_of::<u64>()) }
    }

    /// Length in bytes, a multiple of the page size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Address of the first byte, as peers name it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.first.as_ptr() as u64
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours (invariant) and nobody borrows it.
        // Registrations hold an `Arc` of it, so no NIC reaches it any more.
        unsafe { libc::munmap(self.first.as_ptr().cast(), self.bytes) };
    }
}

/// Who may do what with registered memory besides local reads. None has
/// `IBV_ACCESS_RELAXED_ORDERING` or `IBV_ACCESS_UNORDERED`: programs poll the memory, and
/// have to see one WRITE after the other (`ibv_reg_mr(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The local NIC writes: receives land here, READs too.
    LocalWrite,
    /// Peers READ. Nobody's NIC writes.
    RemoteRead,
    /// The local NIC writes, peers READ and WRITE.
    All,
    /// The same, and peers do atomic operations.
    AllAndAtomic,
}

impl Access {
    fn flags(self) -> sys::ibv_access_flags {
        match self {
            Self::LocalWrite => sys::IBV_ACCESS_LOCAL_WRITE,
            Self::RemoteRead => sys::IBV_ACCESS_REMOTE_READ,
            Self::All => {
                sys::IBV_ACCESS_LOCAL_WRITE
                    | sys::IBV_ACCESS_REMOTE_WRITE
                    | sys::IBV_ACCESS_REMOTE_READ
            }
            Self::AllAndAtomic => Self::All.flags() | sys::IBV_ACCESS_REMOTE_ATOMIC,
        }
    }
}

/// Registered memory. Dropping it deregisters; the memory stays until its last
/// owner is gone.
#[derive(Debug)]
pub struct Mr {
    raw: NonNull<sys::ibv_mr>,
    pages: Arc<Pages>,
    _pd: Pd,
}

// SAFETY: libibverbs is thread safe.
unsafe impl Send for Mr {}
// SAFETY: as above; shared use only reads what registration fixed.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers all of `pages`. (`ibv_reg_mr`)
    ///
    /// # Errors
    ///
    /// `ENOMEM` when `RLIMIT_MEMLOCK` or the device's own limit is reached.
    pub fn register(pd: &Pd, pages: &Arc<Pages>, access: Access) -> Result<Self> {
        let flags = c_int::try_from(access.flags()).unwrap_or(c_int::MAX);
        // SAFETY: the mapping is valid for its length (invariant of `Pages`),
        // and `pages` is kept below until after deregistration.
        let raw =
            unsafe { sys::ibv_reg_mr(pd.raw(), pages.first.as_ptr().cast(), pages.bytes, flags) };
        Ok(Self {
            raw: made("ibv_reg_mr", raw)?,
            pages: pages.clone(),
            _pd: pd.clone(),
        })
    }

    /// The memory.
    #[must_use]
    pub fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    /// The key for local use.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        // SAFETY: the registration exists until `self` is dropped.
        unsafe { self.raw.as_ref() }.lkey
    }

    /// The key for peers.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        // SAFETY: as in `lkey`.
        unsafe { self.raw.as_ref() }.rkey
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: made in `register`, destroyed once. The NIC cannot reach the
        // memory when this returns; the fields then let the memory go.
        unsafe { sys::ibv_dereg_mr(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn pages_are_zero_aligned_and_whole() {
        let pages = Pages::zeroed(5000).unwrap();
        assert_eq!(pages.bytes(), 8192);
        assert_eq!(pages.addr() % 4096, 0);
        assert_eq!(pages.words().len(), 1024);
        assert!(pages
            .words()
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn more_than_an_address_space_is_refused() {
        assert!(matches!(Pages::zeroed(usize::MAX), Err(Error::TooLarge(_))));
    }
}
