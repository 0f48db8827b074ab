// SPDX-License-Identifier: GPL-2.0

//! Copies between the module and its users.
//!
//! Everything of the uapi is made of 64-bit words, and the fast paths copy a few
//! of them: one window into user memory and plain moves cost a third of the
//! general copy, which checks and calls for any length.

use kernel::prelude::*;
use weft_core::uapi::Pod;

use crate::bindings;

/// Copies a value in. Once: what is checked is the copy.
///
/// # Errors
///
/// `EFAULT`.
pub(crate) fn read<T: Pod>(from: u64) -> Result<T> {
    const { assert!(size_of::<T>() % 8 == 0) };
    let mut value = T::zeroed();
    let to = value.as_bytes_mut().as_mut_ptr().cast();
    // SAFETY: `to` has room for so many words, of any alignment; the callee
    // checks the user's address.
    if unsafe { bindings::weft_user_read(to, from, size_of::<T>() / 8) } {
        Ok(value)
    } else {
        Err(EFAULT)
    }
}

/// Copies a value out.
///
/// # Errors
///
/// `EFAULT`; part of it may have been written.
pub(crate) fn write<T: Pod>(to: u64, value: &T) -> Result {
    const { assert!(size_of::<T>() % 8 == 0) };
    let from = value.as_bytes().as_ptr().cast();
    // SAFETY: there are so many words at `from`; the callee checks the user's
    // address.
    if unsafe { bindings::weft_user_write(to, from, size_of::<T>() / 8) } {
        Ok(())
    } else {
        Err(EFAULT)
    }
}
