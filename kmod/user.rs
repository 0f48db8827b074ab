// SPDX-License-Identifier: GPL-2.0

//! Copies between the module and its users.
//!
//! Everything of the uapi is made of 64-bit words, and the fast paths copy a few
//! of them: one window into user memory and plain moves cost a third of the
//! general copy, which checks and calls for any length.

use kernel::prelude::*;
use weft_core::uapi::Pod;

use crate::array_vec::Room;
use crate::bindings;

/// Words of any argument, at most.
const WORDS: usize = 18;

/// A system call's argument. It is copied once, whatever it is, and
/// the copy is checked. All calls share one copy routine, so it stays in the instruction
/// cache.
///
/// # Invariants
///
/// The first `len` bytes are initialised.
pub(crate) struct Arg<'a> {
    at: u64,
    len: usize,
    words: &'a Room<u64, WORDS>,
}

impl<'a> Arg<'a> {
    /// Copies what a request says that it carries into `words`. If that cannot be read,
    /// or is more than any request carries, nothing is there.
    #[inline]
    pub(crate) fn of(request: u32, at: u64, words: &'a mut Room<u64, WORDS>) -> Self {
        let len = (request >> 16) as usize & 0x3fff;
        let fits = len % 8 == 0 && len <= size_of_val(words);
        let to = words.as_mut_ptr().cast();
        // SAFETY: there is room for so many words; the callee checks the user's
        // address.
        let is_copied = fits && unsafe { bindings::weft_user_read(to, at, len / 8) };
        // INVARIANT: the callee has written as many words if it says so.
        let len = if is_copied { len } else { 0 };
        Self { at, len, words }
    }

    /// The copy.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    #[inline]
    pub(crate) fn get<T: Pod>(&self) -> Result<&T> {
        const { assert!(size_of::<T>() <= 8 * WORDS && align_of::<T>() <= 8) };
        if self.len != size_of::<T>() {
            return Err(EFAULT);
        }
        // SAFETY: as many bytes are initialised, by the invariant, and any bytes are
        // a `T`; the alignment was looked at above.
        Ok(unsafe { &*self.words.as_ptr().cast() })
    }

    /// Copies a value to where the argument came from.
    ///
    /// # Errors
    ///
    /// `EFAULT`; part of it may have been written.
    pub(crate) fn answer<T: Pod>(&self, value: &T) -> Result {
        const { assert!(size_of::<T>() % 8 == 0) };
        let from = value.as_bytes().as_ptr().cast();
        // SAFETY: there are so many words at `from`; the callee checks the user's
        // address.
        if unsafe { bindings::weft_user_write(self.at, from, size_of::<T>() / 8) } {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }
}
