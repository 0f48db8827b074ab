// SPDX-License-Identifier: MIT OR Apache-2.0

//! The small-message multicast: a ring of slots for each sender (spindle
//! §II.C), of which only the bytes travel.
//!
//! A sender has `window` slots, each with room for the longest message. An
//! application thread takes a slot, builds its message in place and commits
//! it; the polling thread posts what is committed; a slot is free again when
//! everybody has delivered its message.
//!
//! The paper's slots are at fixed places, and a batch of slots travels with
//! the empty space in them. Here a slot begins where the message before it
//! ends, so that consecutive messages are one contiguous range however short
//! they are: a batch is one write (two where the ring wraps) of exactly the
//! messages' bytes and a word each. A hundred messages of one byte are 1.6 KB
//! instead of a hundred slots. A slot is cut to its message's length when it
//! is committed, if nobody has taken the next one yet; else the rest of it
//! travels, or give the length beforehand.
//!
//! How far a sender has got is not in the ring but in its row of the table,
//! pushed behind the bytes ([`Sent`]); so a receiver looks at one word a
//! sender, and nothing rests on the order of bytes within a write.
//!
//! A ring can have two sides, of which one is in use. Then a sender can go over to the other
//! one ([`Slots::go_over`]), and leaves what is on the first as it is, for whoever may still be
//! reading there.
//!
//! [`slots`] is the application's side, [`outbox`] and [`inbox`] are the
//! polling thread's, at the sender and at a receiver.

pub mod inbox;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod outbox;
mod record;
mod sent;
pub mod slots;
#[cfg(all(test, not(loom)))]
mod tests;

pub use inbox::{Corrupt, Inbox};
pub use outbox::{Limit, Outbox, Stage};
pub use record::Era;
pub use sent::Sent;
pub use slots::{SlotError, Slots, Ticket};

use crate::fabric::{FabricError, Region};
use std::ptr::NonNull;

/// Most slots of a sender.
pub const MAX_WINDOW: usize = 1 << 14;
/// Longest message.
pub const MAX_MESSAGE_BYTES: usize = 1 << 24;
/// Longest ring.
pub const MAX_RING_BYTES: usize = 1 << 30;
/// Alignment of each message.
pub const MESSAGE_ALIGN: usize = 8;
/// Alignment of a ring's sides.
const SIDE_ALIGN: usize = 64;

/// The measures of a ring.
///
/// # Invariants
///
/// `1 <= window <= MAX_WINDOW`, `message_bytes <= MAX_MESSAGE_BYTES`, and the
/// ring's bytes do not exceed [`MAX_RING_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    window: usize,
    message_bytes: usize,
}

/// A ring that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a ring of {window} slots for messages of up to {message_bytes} bytes: it takes 1 to {MAX_WINDOW} slots, messages of at most {MAX_MESSAGE_BYTES} bytes, and no more than {MAX_RING_BYTES} bytes in all")]
pub struct BadShape {
    /// Slots.
    pub window: usize,
    /// Longest message.
    pub message_bytes: usize,
}

impl Shape {
    /// A ring of `window` slots for messages of up to `message_bytes`.
    ///
    /// # Errors
    ///
    /// [`BadShape`].
    pub const fn new(window: usize, message_bytes: usize) -> Result<Self, BadShape> {
        let shape = Self {
            window,
            message_bytes,
        };
        let counts = window >= 1 && window <= MAX_WINDOW && message_bytes <= MAX_MESSAGE_BYTES;
        if !counts || shape.ring_bytes() > MAX_RING_BYTES {
            return Err(BadShape {
                window,
                message_bytes,
            });
        }
        Ok(shape)
    }

    /// Slots.
    #[must_use]
    pub const fn window(self) -> usize {
        self.window
    }

    /// Longest message.
    #[must_use]
    pub const fn message_bytes(self) -> usize {
        self.message_bytes
    }

    /// Bytes of the ring. One slot more than the window, because up to a slot
    /// is lost where the ring wraps; so whoever has a slot by the window's
    /// count has its bytes too.
    #[must_use]
    pub const fn ring_bytes(self) -> usize {
        (self.window + 1) * record::bytes(self.message_bytes)
    }

    /// Bytes of a ring with two sides.
    #[must_use]
    pub const fn two_sides_bytes(self) -> usize {
        self.second_side() + self.ring_bytes()
    }

    /// Whether a ring has a place at this offset where a record can begin, or the last one end.
    #[must_use]
    pub const fn has_place(self, offset: usize, has_two_sides: bool) -> bool {
        let side = self.side_of(offset);
        let is_there = side == 0 || has_two_sides && side <= offset;
        is_there && offset % MESSAGE_ALIGN == 0 && offset <= side + self.ring_bytes()
    }

    /// Where the second side begins. It is behind the end of the first one, so that an offset
    /// belongs to one side, ends included.
    const fn second_side(self) -> usize {
        (self.ring_bytes() / SIDE_ALIGN + 1) * SIDE_ALIGN
    }

    /// Where the side begins that an offset is on.
    const fn side_of(self, offset: usize) -> usize {
        if offset > self.ring_bytes() {
            self.second_side()
        } else {
            0
        }
    }

    /// Where the other side begins.
    pub(crate) const fn other_side(self, offset: usize) -> usize {
        self.second_side() - self.side_of(offset)
    }
}

/// A ring's bytes in a region: the own one, or a sender's that can be seen.
///
/// # Invariants
///
/// `shape.ring_bytes()` bytes at `base` are within the region; `base` is a
/// multiple of 64. Whether it has another side is for its user to know: what is
/// not within the region is not touched.
#[derive(Clone, Debug)]
pub struct Ring {
    region: Region,
    base: usize,
    shape: Shape,
}

impl Ring {
    /// A ring at an offset of the region.
    ///
    /// # Errors
    ///
    /// [`FabricError::BadRange`], [`FabricError::Misaligned`].
    pub fn new(region: Region, base: usize, shape: Shape) -> Result<Self, FabricError> {
        region.range(base, shape.ring_bytes())?;
        if base % SIDE_ALIGN != 0 {
            return Err(FabricError::Misaligned(base));
        }
        // INVARIANT: just checked.
        Ok(Self {
            region,
            base,
            shape,
        })
    }

    /// Its measures.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    fn bytes(&self, offset: usize, len: usize) -> Result<NonNull<u8>, FabricError> {
        self.region.range(self.base.saturating_add(offset), len)
    }
}
