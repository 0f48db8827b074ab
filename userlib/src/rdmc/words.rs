// SPDX-License-Identifier: MIT OR Apache-2.0

//! What two members of a group tell each other, word by word.
//!
//! Each node has, for each place of a group and each other node, a *cell* of
//! words that only that node writes. Cells are used again by later groups;
//! words that would be mistaken for a later group's carry its *tag*, and with
//! another tag they count as never written.

use super::event::{End, EndReason};

/// Words of a cell. The first eight, a cache line, change as messages travel.
pub(super) const CELL_WORDS: usize = 16;
/// Bytes of a cell.
pub(super) const CELL_BYTES: usize = CELL_WORDS * size_of::<u64>();
/// Bytes that offsets of buffers are multiples of.
pub(super) const PAGE: usize = 4096;
/// Tags there are, zero left out.
pub(super) const TAGS: u64 = (1 << 16) - 1;

const COUNT_BITS: u32 = 48;
const MESSAGE_BITS: u32 = 26;
const SIZE_BITS: u32 = 40;
/// Bits of the count in a farewell.
const BYE_BITS: u32 = 36;

/// The places of the words in a cell, as the writer means them.
///
/// | word | tag | bits | written | read |
/// |---|---|---|---|---|
/// | `Sent` | yes | 48 | behind each block, and behind `First` and `FirstAt` | in each step |
/// | `First` | no | number 24, size 40 | before `Sent` | when `Sent` has grown between messages |
/// | `FirstAt` | no | 64 | with `First` | with `First` |
/// | `Place` | yes | pages 22, number 26 | when there is memory | before a block but a first |
/// | `Done` | yes | 48 | when all blocks are there | before a first block, at a message's end |
/// | `Taken` | yes | 48 | when blocks were seen, unless all share memory | before each block |
/// | `Bye` | yes | reason 4, node 8, count 36 | last | in each step |
/// | `Hello` | no | 33 | behind the last row's | until it is there, then for a later group's |
/// | `Settings`, `Landing`, `Before` | no | 64 | before `Hello` | behind `Hello` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Blocks that I have given you.
    Sent = 0,
    /// Of the message whose first block is the last of these: its number and size.
    First = 1,
    /// Where that block is in my region, if you can look into it.
    FirstAt = 2,
    /// Where in my region the message is that I am ready for.
    Place = 3,
    /// Messages of which I have all blocks.
    Done = 4,
    /// Blocks of yours that I have seen.
    Taken = 5,
    /// I have left, and why.
    Bye = 6,
    /// The group's number, plus one.
    Hello = 8,
    /// A hash of its settings.
    Settings = 9,
    /// Where in my region first blocks arrive.
    Landing = 10,
    /// Messages that the root has sent in earlier groups, behind which this one's count.
    Before = 11,
}

impl Word {
    /// Its offset in the cell.
    pub(super) const fn offset(self) -> usize {
        self as usize * size_of::<u64>()
    }
}

/// Marks the words of one group among those that use the same cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(u16);

impl Tag {
    /// Of the group that is the `nth` to use its place.
    pub(super) fn of(nth: u64) -> Self {
        Self((nth % TAGS) as u16 + 1)
    }

    /// A count of this group.
    pub(super) fn count(self, count: u64) -> u64 {
        (u64::from(self.0) << COUNT_BITS) | (count & low(COUNT_BITS))
    }

    /// The count that a word holds, 0 if it is another group's.
    pub(super) fn read_count(self, word: u64) -> u64 {
        if self.marks(word) {
            word & low(COUNT_BITS)
        } else {
            0
        }
    }

    /// The place of a message: a multiple of [`PAGE`].
    pub(super) fn place(self, message: u64, offset: usize) -> u64 {
        let pages = (offset / PAGE) as u64;
        self.count((pages << MESSAGE_BITS) | (message & low(MESSAGE_BITS)))
    }

    /// The place of this message, if the word tells it.
    pub(super) fn read_place(self, word: u64, message: u64) -> Option<usize> {
        let place = word & low(COUNT_BITS);
        let is_it = self.marks(word) && place & low(MESSAGE_BITS) == message & low(MESSAGE_BITS);
        let pages = usize::try_from(place >> MESSAGE_BITS).ok()?;
        is_it.then_some(pages * PAGE)
    }

    pub(super) fn bye(self, bye: Bye) -> u64 {
        let End { node, reason } = bye.end;
        let (reason, node) = ((reason as u64) << 44, (node as u64 & 0xFF) << BYE_BITS);
        self.count(reason | node | (bye.messages & low(BYE_BITS)))
    }

    /// The farewell, if it is this group's. The reader has done with so many messages: of the
    /// numbers that it can mean, the one next to that is right.
    pub(super) fn read_bye(self, word: u64, completed: u64) -> Option<Bye> {
        let reason = EndReason::from_number((word >> 44) & 0xF)?;
        let node = usize::try_from((word >> BYE_BITS) & 0xFF).ok()?;
        self.marks(word).then_some(Bye {
            end: End { node, reason },
            messages: widen(completed, word),
        })
    }

    fn marks(self, word: u64) -> bool {
        word >> COUNT_BITS == u64::from(self.0)
    }
}

/// A member's last word in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bye {
    pub(super) end: End,
    /// Messages that it has done with.
    pub(super) messages: u64,
}

/// A message's number and size in one word.
pub(super) fn first(message: u64, size: usize) -> u64 {
    (message << SIZE_BITS) | (size as u64 & low(SIZE_BITS))
}

/// The size, if the word is of this message.
pub(super) fn read_first(word: u64, message: u64) -> Option<usize> {
    let is_it = word >> SIZE_BITS == message & low(u64::BITS - SIZE_BITS);
    usize::try_from(word & low(SIZE_BITS))
        .ok()
        .filter(|_| is_it)
}

/// The number with the low bits of a farewell that is next to a known one.
fn widen(known: u64, word: u64) -> u64 {
    let ahead = word.wrapping_sub(known) & low(BYE_BITS);
    match ahead < 1 << (BYE_BITS - 1) {
        true => known.saturating_add(ahead),
        false => known.saturating_sub((1 << BYE_BITS) - ahead),
    }
}

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::fabric::MAX_REGION_BYTES;
    use proptest::prelude::*;

    #[test]
    fn another_groups_words_say_nothing() {
        let (old, new) = (Tag::of(4), Tag::of(5));
        assert_eq!(new.read_count(old.count(7)), 0);
        assert_eq!(new.read_count(0), 0);
        assert_eq!(new.read_place(old.place(1, PAGE), 1), None);
        let end = End {
            node: 3,
            reason: EndReason::Left,
        };
        let bye = Bye { end, messages: 9 };
        assert_eq!(new.read_bye(old.bye(bye), 9), None);
        assert_eq!(new.read_bye(0, 9), None);
        assert_eq!(new.read_bye(new.bye(bye), 9), Some(bye));
    }

    #[test]
    fn a_farewell_counts_beyond_its_bits() {
        let end = End {
            node: 63,
            reason: EndReason::Left,
        };
        let tag = Tag::of(1);
        for messages in (0..4).chain((1 << 36) - 3..(1 << 36) + 3) {
            let bye = Bye { end, messages };
            for completed in messages.saturating_sub(5)..messages + 5 {
                assert_eq!(tag.read_bye(tag.bye(bye), completed), Some(bye));
            }
        }
    }

    #[test]
    fn no_tag_is_that_of_untouched_memory() {
        for nth in [0, 1, TAGS - 1, TAGS] {
            assert_ne!(Tag::of(nth).count(0), 0);
        }
    }

    proptest! {
        #[test]
        fn what_is_told_is_read(
            nth in 0..TAGS,
            count in 0..1_u64 << COUNT_BITS,
            message in 1..1_u64 << 36,
            page in 0..MAX_REGION_BYTES / PAGE,
            size in 1..=MAX_REGION_BYTES,
            node in 0..64_usize,
        ) {
            let tag = Tag::of(nth);
            prop_assert_eq!(tag.read_count(tag.count(count)), count);
            let place = tag.place(message, page * PAGE);
            prop_assert_eq!(tag.read_place(place, message), Some(page * PAGE));
            prop_assert_eq!(tag.read_place(place, message + 1), None);
            prop_assert_eq!(read_first(first(message, size), message), Some(size));
            prop_assert_eq!(read_first(first(message, size), message + 1), None);
            let end = End { node, reason: EndReason::Died };
            let bye = Bye { end, messages: message };
            prop_assert_eq!(tag.read_bye(tag.bye(bye), message), Some(bye));
        }
    }
}
