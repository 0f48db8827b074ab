// SPDX-License-Identifier: GPL-2.0

//! Memory regions as the RDMA device knows them.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};

use kernel::error::{from_err_ptr, to_result};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi;

use crate::bindings;
use crate::rdma::{DmaWords, Pd};

/// `ib_access_flags` for the access flags of a region.
fn ib_access(access: u32) -> i32 {
    let pairs = [
        (
            uapi::ACCESS_LOCAL_WRITE,
            bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE,
        ),
        (
            uapi::ACCESS_REMOTE_WRITE,
            bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE,
        ),
        (
            uapi::ACCESS_REMOTE_READ,
            bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
        ),
        (
            uapi::ACCESS_REMOTE_ATOMIC,
            bindings::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC,
        ),
    ];
    let flags = pairs.iter().filter(|(ours, _)| access & ours != 0);
    flags.fold(0, |flags, (_, theirs)| flags | *theirs as i32)
}

/// User memory that is registered with a device, pinned and charged by ib_core.
/// It can be released before it is dropped, when the device goes.
///
/// # Invariants
///
/// `raw` is valid, or null once it was released.
pub(crate) struct UserMr {
    raw: AtomicPtr<bindings::ib_mr>,
    lkey: u32,
    rkey: u32,
}

impl UserMr {
    /// Registers `len` bytes at `addr` of the caller's memory. Peers know them by
    /// the same addresses.
    ///
    /// # Errors
    ///
    /// `ENOMEM` (over `RLIMIT_MEMLOCK`, or no memory), `EFAULT`, and those of the
    /// driver.
    pub(crate) fn register(pd: &Pd, addr: u64, len: u64, access: u32) -> Result<Self> {
        // SAFETY: the domain is valid; the memory is the caller's own, which
        // ib_core pins or refuses.
        let raw = from_err_ptr(unsafe {
            bindings::ib_reg_user_mr(pd.as_ptr(), addr, len, addr, ib_access(access))
        })
        .map_err(|error| if error == EPERM { ENOMEM } else { error })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: the region is valid, and its keys do not change.
        let (lkey, rkey) = unsafe { ((*raw.as_ptr()).lkey, (*raw.as_ptr()).rkey) };
        // INVARIANT: just made.
        Ok(Self {
            raw: AtomicPtr::new(raw.as_ptr()),
            lkey,
            rkey,
        })
    }

    /// Its key for requests of this node; `None` once it was released.
    pub(crate) fn lkey(&self) -> Option<u32> {
        (!self.raw.load(Ordering::Acquire).is_null()).then_some(self.lkey)
    }

    /// Its key for peers' requests.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Takes it from the device. No request may use it any more. Process context,
    /// while the device is there; later calls do nothing.
    pub(crate) fn release(&self) {
        let raw = self.raw.swap(core::ptr::null_mut(), Ordering::AcqRel);
        if !raw.is_null() {
            // SAFETY: valid, ours, and by the swap nobody else's.
            let err = unsafe { bindings::ib_dereg_mr_user(raw, core::ptr::null_mut()) };
            if err != 0 {
                pr_err!("a memory region could not be deregistered: {err}\n");
            }
        }
    }
}

impl Drop for UserMr {
    fn drop(&mut self) {
        self.release();
    }
}

/// A table that peers may READ, registered with a device. Its key is valid once
/// a queue pair of the domain has carried out the request that
/// [`crate::rdma::Qp::register`] posts.
///
/// # Invariants
///
/// `raw` is valid, of the domain `_pd`, and maps `words`.
pub(crate) struct TableMr {
    raw: NonNull<bindings::ib_mr>,
    _pd: Arc<Pd>,
}

// SAFETY: ib_core's objects may be used from any thread.
unsafe impl Send for TableMr {}
// SAFETY: as above.
unsafe impl Sync for TableMr {}

impl TableMr {
    /// A region for the words; to be dropped before they are, and after the last
    /// queue pair through which they are read.
    pub(crate) fn new(pd: Arc<Pd>, words: &DmaWords) -> Result<Self> {
        let pages = words.bytes().div_ceil(PAGE_SIZE) + 1;
        // SAFETY: the domain is valid.
        let raw = from_err_ptr(unsafe {
            bindings::ib_alloc_mr(
                pd.as_ptr(),
                bindings::ib_mr_type_IB_MR_TYPE_MEM_REG,
                pages as u32,
            )
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // INVARIANT: made in the domain; mapped below, or dropped.
        let this = Self { raw, _pd: pd };
        // SAFETY: the region is valid; the words stay mapped, as the caller
        // promises by the order in which it drops.
        to_result(unsafe {
            bindings::weft_ib_map_mr(raw.as_ptr(), words.addr(), words.bytes() as u32)
        })?;
        Ok(this)
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_mr {
        self.raw.as_ptr()
    }

    /// The key by which peers will read it.
    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: valid by the invariant; the key does not change.
        unsafe { (*self.as_ptr()).rkey }
    }

    /// The address by which they will.
    pub(crate) fn addr(&self) -> u64 {
        // SAFETY: valid by the invariant; set when the words were mapped.
        unsafe { (*self.as_ptr()).iova }
    }
}

impl Drop for TableMr {
    fn drop(&mut self) {
        // SAFETY: valid by the invariant, ours, and no longer used.
        unsafe { bindings::ib_dereg_mr_user(self.as_ptr(), core::ptr::null_mut()) };
    }
}
