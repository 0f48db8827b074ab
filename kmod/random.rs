// SPDX-License-Identifier: GPL-2.0

//! The kernel's random numbers, for keys that must not be guessed, and hashes with
//! such a key.

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

/// The kernel's HalfSipHash or SipHash-1-3 with a key of its own. Which values fall
/// together, or what a value's hash is, nobody can choose or tell without the key.
///
/// A product with a secret would not do: numbers that follow each other would fall
/// together for one secret in fifty.
pub(crate) struct KeyedHash(bindings::hsiphash_key_t);

impl KeyedHash {
    /// With a new random key.
    pub(crate) fn new() -> Self {
        Self(bindings::hsiphash_key_t {
            key: [random_u64() as usize, random_u64() as usize],
        })
    }

    /// The hash of four words.
    pub(crate) fn of(&self, [a, b, c, d]: [u32; 4]) -> u32 {
        // SAFETY: the key is valid for reads.
        unsafe { bindings::hsiphash_4u32(a, b, c, d, &self.0) }
    }

    /// One of `count` places for four words; 0 if there is none.
    pub(crate) fn place(&self, words: [u32; 4], count: usize) -> usize {
        (self.of(words) as usize).checked_rem(count).unwrap_or(0)
    }
}
