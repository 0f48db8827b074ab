// SPDX-License-Identifier: GPL-2.0

//! Boxes of what is too large for the stack.

use kernel::alloc::{Flags, KVBox};
use kernel::prelude::*;

/// A box with a copy of a value, made from memory to memory.
///
/// # Safety
///
/// The value is plain data: a copy of its bytes is a value too.
pub(crate) unsafe fn copy_of<T>(value: &'static T, flags: Flags) -> Result<KVBox<T>> {
    const { assert!(!core::mem::needs_drop::<T>()) };
    let mut place = KVBox::<T>::new_uninit(flags)?;
    // SAFETY: both are valid for one `T`.
    unsafe { core::ptr::copy_nonoverlapping(value, place.as_mut_ptr(), 1) };
    // SAFETY: initialised just above, by the caller's promise.
    Ok(unsafe { place.assume_init() })
}
