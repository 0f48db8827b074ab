// SPDX-License-Identifier: MIT OR Apache-2.0

//! Random numbers from a seed that is printed, so that a run can be repeated.

/// A random sequence (xorshift64*), so that a run can be repeated.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn of_run(salt: u64) -> Self {
        let seed = std::env::var("WEFT_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) * 7919 + salt);
        println!("WEFT_SEED={seed}");
        Self(seed | 1)
    }

    pub fn fork(&mut self, salt: u64) -> Self {
        Self((self.next() ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 32) % limit
    }
}
