// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A device lists so many pages in one registration and no more, so a region has one
//! for each *block* of its addresses. Blocks are of one size on a device, a power of
//! two, and begin at its multiples: who knows an address and the size knows the block.

/// The size of a device's blocks.
///
/// # Invariants
///
/// Between [`BlockSize::LEAST`] and [`BlockSize::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize(u8);

impl BlockSize {
    /// log2 of the bytes of the smallest: 64 KiB.
    pub const LEAST: u8 = 16;
    /// log2 of the bytes of the largest: 1 GiB.
    pub const MOST: u8 = 30;

    /// Blocks of `2^shift` bytes. `None`: there are no such ones.
    #[must_use]
    pub const fn new(shift: u8) -> Option<Self> {
        if Self::LEAST <= shift && shift <= Self::MOST {
            // INVARIANT: just checked.
            Some(Self(shift))
        } else {
            None
        }
    }

    /// The largest of a device that lists so many pages of `2^page_shift` bytes.
    /// `None`: too few for any.
    #[must_use]
    pub const fn of_device(pages: u32, page_shift: u8) -> Option<Self> {
        let Some(log2) = pages.checked_ilog2() else {
            return None;
        };
        let shift = log2 as u8 + page_shift;
        Self::new(if shift > Self::MOST {
            Self::MOST
        } else {
            shift
        })
    }

    /// log2 of the bytes.
    #[must_use]
    pub const fn shift(self) -> u8 {
        self.0
    }

    /// The number of an address's block.
    #[inline]
    #[must_use]
    pub const fn block_of(self, addr: u64) -> u64 {
        addr >> self.0
    }

    /// Bytes from an address to the end of its block.
    #[inline]
    #[must_use]
    pub const fn left(self, addr: u64) -> u64 {
        (1 << self.0) - (addr & ((1 << self.0) - 1))
    }

    /// Whether so many bytes at `addr` are in one block.
    #[inline]
    #[must_use]
    pub const fn holds(self, addr: u64, len: u32) -> bool {
        len as u64 <= self.left(addr)
    }

    /// The parts of `len` bytes at `addr` that are in one block each: their addresses
    /// and bytes. A range that wraps ends at the last address.
    pub fn parts(self, addr: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
        let (mut addr, mut left) = (addr, len);
        core::iter::from_fn(move || {
            let part = (addr, self.left(addr).min(left));
            let is_there = left != 0;
            left -= part.1;
            match addr.checked_add(part.1) {
                Some(next) => addr = next,
                None => left = 0,
            }
            is_there.then_some(part)
        })
    }

    /// How many those are.
    #[must_use]
    pub const fn count(self, addr: u64, len: u64) -> u64 {
        match len.checked_sub(1) {
            Some(last) => self.block_of(addr.saturating_add(last)) - self.block_of(addr) + 1,
            None => 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_has_as_many_pages_as_the_device_lists_or_fewer() {
        let shift = |pages| BlockSize::of_device(pages, 12).map(BlockSize::shift);
        assert_eq!(shift(512), Some(21));
        assert_eq!(shift(511), Some(20));
        assert_eq!(shift(16), Some(16));
        assert_eq!(shift(15), None);
        assert_eq!(shift(0), None);
        assert_eq!(shift(u32::MAX), Some(BlockSize::MOST));
        assert_eq!(BlockSize::new(15), None);
        assert_eq!(BlockSize::new(31), None);
    }

    proptest! {
        #[test]
        fn the_parts_are_the_range(
            addr in prop_oneof![any::<u64>(), (0u64..1 << 20).prop_map(|low| u64::MAX - low)],
            len in 0u64..1 << 24,
            shift in 16u8..=30,
        ) {
            let size = BlockSize::new(shift).unwrap();
            let len = len.min(u64::MAX - addr);
            let parts: Vec<_> = size.parts(addr, len).collect();
            prop_assert_eq!(parts.len() as u64, size.count(addr, len));
            let mut at = addr;
            for (from, bytes) in parts {
                prop_assert_eq!(from, at);
                prop_assert!(bytes != 0);
                prop_assert!(size.holds(from, bytes as u32));
                prop_assert_eq!(size.block_of(from), size.block_of(from + (bytes - 1)));
                at += bytes;
            }
            prop_assert_eq!(at, addr + len);
        }

        #[test]
        fn a_range_is_in_one_block_if_its_ends_are(addr in any::<u64>(), len in 1u32..1 << 22) {
            let size = BlockSize::new(21).unwrap();
            let last = addr.saturating_add(u64::from(len) - 1);
            let is_one = size.block_of(addr) == size.block_of(last) && last - addr == u64::from(len) - 1;
            prop_assert_eq!(size.holds(addr, len), is_one);
        }
    }
}
