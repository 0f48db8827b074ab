// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is in a ring: records, each a head word and the message's bytes.
//!
//! The head says how long the message is and which round of its sender it
//! belongs to; a round that no record names is a null. Rounds begin anew with
//! each view, in which a message that was not delivered is given another one;
//! so the head says in which [`Era`] that is, for a reader who does not know of
//! the view yet. All of a slot belongs to
//! its record, so that nothing of it has to be said later, when others may
//! have its bytes: if the slot is longer than the message, the record says so.
//! Where the ring wraps, a head sends the reader to its start.

use super::MESSAGE_ALIGN;

/// Bytes of a head.
pub(super) const HEAD_BYTES: usize = 8;

const SKIP: u32 = 1 << 31;
const GAP: u32 = 1 << 30;
const VOID: u32 = 1 << 29;
const LEN: u32 = VOID - 1;

/// Bytes of a record with a message of this length.
pub(super) const fn bytes(len: usize) -> usize {
    HEAD_BYTES + len.next_multiple_of(MESSAGE_ALIGN)
}

/// A view in which rounds are counted, told apart from others by the low bits of its number. They
/// repeat after 256 views: only a message that was delivered in none of these could then be taken
/// for one of the first of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Era(u32);

impl Era {
    const BITS: u32 = 8;

    /// The era of a view.
    #[must_use]
    pub fn of_view(number: u64) -> Self {
        Self(super::sent::low(number << (u32::BITS - Self::BITS)))
    }

    /// A round as a head has it. Low bits are enough: of rounds that are not delivered there
    /// are at most as many as all senders have slots.
    pub(super) fn round(self, round: u64) -> u32 {
        self.0 | (super::sent::low(round) & (u32::MAX >> Self::BITS))
    }
}

/// A head word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// A message follows.
    Message(Message),
    /// The ring wraps: the next record is at its start.
    Wrap,
}

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its bytes.
    pub(super) len: u32,
    /// Its round ([`Era::round`]).
    pub(super) round: u32,
    /// Whether the slot is longer than the message: then a word behind the
    /// message says where it ends.
    pub(super) gap: bool,
    /// Whether the slot was given up: the round is a null that takes a slot.
    pub(super) void: bool,
}

impl Head {
    pub(super) fn to_word(self) -> u64 {
        match self {
            Self::Message(Message {
                len,
                round,
                gap,
                void,
            }) => {
                let gap = if gap { GAP } else { 0 };
                let void = if void { VOID } else { 0 };
                (u64::from(round) << 32) | u64::from(len & LEN | gap | void)
            }
            Self::Wrap => u64::from(SKIP),
        }
    }

    pub(super) fn from_word(word: u64) -> Self {
        let low = super::sent::low(word);
        if low & SKIP != 0 {
            return Self::Wrap;
        }
        Self::Message(Message {
            len: low & LEN,
            round: super::sent::high(word),
            gap: low & GAP != 0,
            void: low & VOID != 0,
        })
    }
}
