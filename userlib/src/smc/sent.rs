// SPDX-License-Identifier: MIT OR Apache-2.0

//! How far a sender has got, in one word of its row.
//!
//! Rounds and messages have to be seen together: who knew more rounds than
//! messages would take a message for a null. So the word holds the low halves
//! of both, and each reader widens them by what it knew before; it never lags
//! by 2^31, because windows are shorter.

/// Rounds that a sender has gone through, and how many of them were messages.
/// The others were nulls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sent {
    /// Rounds.
    pub rounds: u64,
    /// Messages among them.
    pub messages: u64,
}

impl Sent {
    /// The word of the row.
    #[must_use]
    pub fn to_word(self) -> u64 {
        (u64::from(low(self.rounds)) << 32) | u64::from(low(self.messages))
    }

    /// What a word says, given what was known before.
    #[must_use]
    pub fn widen(self, word: u64) -> Self {
        Self {
            rounds: widen(self.rounds, high(word)),
            messages: widen(self.messages, low(word)),
        }
    }
}

fn widen(known: u64, seen: u32) -> u64 {
    known.wrapping_add(u64::from(seen.wrapping_sub(low(known))))
}

pub(super) fn low(word: u64) -> u32 {
    u32::try_from(word & 0xFFFF_FFFF).unwrap_or(0)
}

pub(super) fn high(word: u64) -> u32 {
    u32::try_from(word >> 32).unwrap_or(0)
}
