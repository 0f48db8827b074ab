// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random numbers from a seed (SplitMix64), so that a failing run is a number.

/// A source of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The source with this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, and nobody adapts it"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: usize) -> usize {
        // Limits are small, so the remainder's bias does not matter.
        (self.next() % limit as u64) as usize
    }

    /// Random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_all() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert_eq!(a.bytes(13), b.bytes(13));
        assert!(a.below(3) < 3);
        assert_ne!(Rng::new(8).next(), Rng::new(7).next());
    }
}
