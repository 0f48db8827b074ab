// SPDX-License-Identifier: GPL-2.0

//! The kernel's random numbers, for keys that must not be guessed.

use crate::bindings;

fn fill(bytes: &mut [u8]) {
    // SAFETY: the slice is valid for writes of its length.
    unsafe { bindings::get_random_bytes(bytes.as_mut_ptr().cast(), bytes.len()) };
}

/// 32 random bits.
pub(crate) fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// 64 random bits.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_ne_bytes(bytes)
}
