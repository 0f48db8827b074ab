// SPDX-License-Identifier: GPL-2.0

//! A process's mapping of rings.
//!
//! A mapping holds the memory that it maps, so that its pages count against
//! `RLIMIT_MEMLOCK` until the last mapping is gone, whatever becomes of the rings. The
//! kernel copies a mapping when a part of it is unmapped and when it is moved; it tells
//! of each copy (`open`) and of each end (`close`). It also holds the file, and so the
//! module, until after `close`.

use core::mem::ManuallyDrop;

use kernel::bindings as c;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::arena::Block;
use crate::bindings;

/// A table that C reads and nobody writes.
struct VmOps(c::vm_operations_struct);

// SAFETY: never written.
unsafe impl Sync for VmOps {}

static VM_OPS: VmOps = {
    // SAFETY: all its fields may be NULL.
    let zero: c::vm_operations_struct = unsafe { core::mem::MaybeUninit::zeroed().assume_init() };
    VmOps(c::vm_operations_struct {
        open: Some(open),
        close: Some(close),
        ..zero
    })
};

/// Maps a block.
///
/// # Errors
///
/// `EINVAL`: not all of it, or not shared.
///
/// # Safety
///
/// `vma` is what C's `mmap` operation was called with.
pub(super) unsafe fn map(vma: *mut c::vm_area_struct, block: &Arc<Block>) -> Result {
    let (base, bytes) = (block.base().as_ptr(), block.bytes() as usize);
    // SAFETY: the caller's promise; the memory is so long.
    to_result(unsafe { bindings::weft_rings_map(vma.cast(), base.cast(), bytes) })?;
    // Last: after an error C calls neither of the two.
    // SAFETY: the caller's promise; nobody else has the new mapping yet.
    unsafe {
        (*vma).vm_private_data = Arc::into_raw(block.clone()).cast_mut().cast();
        (*vma).vm_ops = &raw const VM_OPS.0;
    }
    Ok(())
}

/// The mapping was copied.
///
/// # Safety
///
/// Called by C, for a copy of a mapping that [`map`] made.
unsafe extern "C" fn open(vma: *mut c::vm_area_struct) {
    // SAFETY: `map` put it there, and the mapping that was copied holds it. That one's
    // reference stays its own.
    let original =
        unsafe { ManuallyDrop::new(Arc::<Block>::from_raw((*vma).vm_private_data.cast())) };
    // The copy's reference; `close` gives it back.
    let _ = Arc::into_raw(Arc::clone(&original));
}

/// The mapping goes; the process cannot reach its pages any more.
///
/// # Safety
///
/// Called by C, once, for a mapping that [`map`] or [`open`] has seen.
unsafe extern "C" fn close(vma: *mut c::vm_area_struct) {
    // SAFETY: the mapping's own reference, made by `map` or `open`, which nobody uses
    // after this.
    drop(unsafe { Arc::<Block>::from_raw((*vma).vm_private_data.cast()) });
}
