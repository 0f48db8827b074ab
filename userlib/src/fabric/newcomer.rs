// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node that comes when others have met.

use super::{MAX_INCARNATION, MAX_NODES};

/// A node that has come to others who had met before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Newcomer {
    /// Its rank: the seat that it has taken.
    pub seat: usize,
    /// Tells it apart from all others that have had the seat, or will have it.
    pub incarnation: u64,
}

impl Newcomer {
    pub(crate) fn new(seat: usize, incarnation: u64) -> Self {
        Self { seat, incarnation }
    }

    /// As a word of a row; never 0.
    pub(crate) fn word(self) -> u64 {
        (self.incarnation.min(MAX_INCARNATION) << SEAT_BITS) | self.seat as u64
    }

    /// From a word of a row.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let seat = usize::try_from(word % MAX_NODES as u64).ok()?;
        (word != 0).then_some(Self::new(seat, word >> SEAT_BITS))
    }
}

const SEAT_BITS: u32 = MAX_NODES.trailing_zeros();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_is_a_word_and_back() {
        for (seat, incarnation) in [(0, 1), (MAX_NODES - 1, MAX_INCARNATION), (7, 1 << 40)] {
            let newcomer = Newcomer::new(seat, incarnation);
            assert_eq!(Newcomer::from_word(newcomer.word()), Some(newcomer));
        }
        assert_eq!(Newcomer::from_word(0), None);
    }
}
