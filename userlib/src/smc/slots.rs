// SPDX-License-Identifier: MIT OR Apache-2.0

//! Taking slots without a lock (spindle §III.A: the sender's path).
//!
//! Any number of application threads take slots, in order, with one
//! compare-and-swap, and commit them in any order; the polling thread takes
//! the committed ones from the front. What is here is the process's own
//! memory: only bytes of messages are in the region.
//!
//! Rounds are given to messages when they are posted, not when their slots are
//! taken. So a null never waits for a slot that the application holds, nor
//! takes it.

use super::{record, Shape};
use crate::line::Line;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Length of a slot that was given up.
const VOID: u32 = u32::MAX;

/// A slot could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// All slots hold messages that not everybody has delivered.
    #[error("the window is full: wait until others have delivered")]
    Full,
    /// The message does not fit into a slot.
    #[error("a message of {len} bytes does not fit into a slot of {room}: make the subgroup with a longer max_message")]
    TooLong {
        /// Bytes asked for.
        len: usize,
        /// Bytes of a slot.
        room: usize,
    },
}

/// A committed slot.
#[derive(Debug)]
struct Entry {
    /// Start in the high half, end in the low one.
    place: AtomicU64,
    /// Length of the message, or [`VOID`].
    len: AtomicU64,
    /// One more than the number of the message that is ready here.
    ready: AtomicU64,
}

/// The slots of a sender.
///
/// # Invariants
///
/// `tail` is the number of slots taken (modulo 2^32) in the high half and the
/// offset behind the last one in the low half, on the side that is in use. Slot
/// `n` belongs to its [`Ticket`] until committed, then to the polling thread
/// until `freed > n`; so bytes and entry have one owner at any time.
#[derive(Debug)]
pub struct Slots {
    shape: Shape,
    /// Written by those who send.
    tail: Line<AtomicU64>,
    /// Slots whose messages were delivered everywhere. Written by the polling
    /// thread.
    freed: Line<AtomicU64>,
    entries: Box<[Entry]>,
}

/// A slot that was taken. Commit it, or give it up: until then nothing behind
/// it is sent.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what is taken holds up what comes behind until it is committed or given up"]
pub struct Ticket {
    number: u32,
    start: u32,
    room: u32,
}

impl Ticket {
    /// Offset in the ring of the message's first byte.
    #[must_use]
    pub fn offset(&self) -> usize {
        usize_of(self.start) + record::HEAD_BYTES
    }

    /// Longest message it takes.
    #[must_use]
    pub fn room(&self) -> usize {
        usize_of(self.room)
    }

    fn end(&self, len: u32) -> u32 {
        self.start + u32_of(record::bytes(usize_of(len)))
    }
}

/// A message that waits to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    /// Offset of its record in the ring.
    pub(super) start: u32,
    /// Offset of the end of its slot.
    pub(super) end: u32,
    /// Its length; none if the slot was given up.
    pub(super) len: Option<u32>,
}

impl Slots {
    /// All slots free.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        // A power of two, so that numbers may wrap.
        let entries = shape.window().next_power_of_two();
        Self {
            shape,
            tail: Line(AtomicU64::new(0)),
            freed: Line(AtomicU64::new(0)),
            entries: (0..entries)
                .map(|_| Entry {
                    place: AtomicU64::new(0),
                    len: AtomicU64::new(0),
                    ready: AtomicU64::new(0),
                })
                .collect(),
        }
    }

    /// Their ring's measures.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Takes the next slot, for a message of up to `len` bytes.
    ///
    /// # Errors
    ///
    /// [`SlotError`]. A full window frees up.
    pub fn take(&self, len: usize) -> Result<Ticket, SlotError> {
        let room = self.shape.message_bytes();
        if len > room {
            return Err(SlotError::TooLong { len, room });
        }
        let need = u32_of(record::bytes(len));
        let ring = u32_of(self.shape.ring_bytes());
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let (number, end) = halves(tail);
            // Acquire: whoever freed the slot has seen its message delivered,
            // so nobody reads the bytes any more.
            let freed = halves(self.freed.load(Ordering::Acquire)).1;
            if usize_of(number.wrapping_sub(freed)) >= self.shape.window() {
                // `freed` may be newer than `tail`: then look again.
                let now = self.tail.load(Ordering::Relaxed);
                if now == tail {
                    return Err(SlotError::Full);
                }
                tail = now;
                continue;
            }
            let side = u32_of(self.shape.side_of(usize_of(end)));
            let start = if end + need <= side + ring { end } else { side };
            // INVARIANT: `start + need` is at most the end of the side, and by
            // the count of slots (`Shape::ring_bytes`) no live one overlaps.
            let next = joined(number.wrapping_add(1), start + need);
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            match self
                .tail
                .compare_exchange_weak(tail, next, order.0, order.1)
            {
                Ok(_) => {
                    return Ok(Ticket {
                        number,
                        start,
                        room: u32_of(len),
                    })
                }
                Err(now) => tail = now,
            }
        }
    }

    /// Lets all slots that are taken from now on be on the ring's other side, and answers with
    /// the number of the first of them. The caller knows that there are two sides, and that no
    /// slot of the other one is live. `near` is a number at most a window before it. For the
    /// polling thread.
    pub fn go_over(&self, near: u64) -> u64 {
        let mut tail = self.tail.load(Ordering::Relaxed);
        loop {
            let (number, end) = halves(tail);
            let other = u32_of(self.shape.other_side(usize_of(end)));
            // INVARIANT: the start of the other side is on it. A slot that is cut later finds
            // another word, and stays as long as it is (`Self::cut`).
            let next = joined(number, other);
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            match self
                .tail
                .compare_exchange_weak(tail, next, order.0, order.1)
            {
                Ok(_) => {
                    let ahead = number.wrapping_sub(super::sent::low(near));
                    return near.wrapping_add(u64::from(ahead));
                }
                Err(now) => tail = now,
            }
        }
    }

    /// Hands a message of `len` bytes, at most the ticket's room, to the
    /// polling thread.
    pub fn commit(&self, ticket: Ticket, len: usize) {
        let len = u32_of(len).min(ticket.room);
        let end = self.cut(&ticket, ticket.end(len));
        self.hand_over(&ticket, end, len);
    }

    /// Gives a slot up: no message comes of it.
    pub fn give_up(&self, ticket: Ticket) {
        let end = self.cut(&ticket, ticket.end(0));
        self.hand_over(&ticket, end, VOID);
    }

    /// Lets the next slot begin at `end`, unless it has begun already. Answers
    /// with where this slot ends.
    fn cut(&self, ticket: &Ticket, end: u32) -> u32 {
        let taken = ticket.number.wrapping_add(1);
        let whole = ticket.end(ticket.room);
        if end == whole {
            return whole;
        }
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        // INVARIANT: `end` is within the slot, which is still the last one if
        // this succeeds: the number in the word cannot come around while the
        // ticket is out.
        let cut =
            self.tail
                .compare_exchange(joined(taken, whole), joined(taken, end), order.0, order.1);
        match cut {
            Ok(_) => end,
            Err(_) => whole,
        }
    }

    fn hand_over(&self, ticket: &Ticket, end: u32, len: u32) {
        let entry = self.entry(ticket.number);
        entry
            .place
            .store(joined(ticket.start, end), Ordering::Relaxed);
        entry.len.store(u64::from(len), Ordering::Relaxed);
        // Release: the message's bytes come before it.
        entry
            .ready
            .store(u64::from(ticket.number.wrapping_add(1)), Ordering::Release);
    }

    /// The message with this number, if it is ready. For the polling thread.
    pub(super) fn ready(&self, number: u64) -> Option<Ready> {
        let number = halves(number).1;
        let entry = self.entry(number);
        if entry.ready.load(Ordering::Acquire) != u64::from(number.wrapping_add(1)) {
            return None;
        }
        let (start, end) = halves(entry.place.load(Ordering::Relaxed));
        let len = halves(entry.len.load(Ordering::Relaxed)).1;
        Some(Ready {
            start,
            end,
            len: (len != VOID).then_some(len),
        })
    }

    /// Frees all slots below this number. For the polling thread.
    pub fn free(&self, below: u64) {
        // Release: the deliveries that it rests on come before it.
        self.freed.store(below, Ordering::Release);
    }

    /// Slots taken, modulo 2^32.
    pub(crate) fn taken(&self) -> u32 {
        halves(self.tail.load(Ordering::Acquire)).0
    }

    /// Slots that can be taken now.
    #[must_use]
    pub fn room(&self) -> usize {
        let freed = halves(self.freed.load(Ordering::Acquire)).1;
        let used = usize_of(self.taken().wrapping_sub(freed));
        self.shape.window().saturating_sub(used)
    }

    fn entry(&self, number: u32) -> &Entry {
        &self.entries[usize_of(number) & (self.entries.len() - 1)]
    }
}

fn halves(word: u64) -> (u32, u32) {
    (super::sent::high(word), super::sent::low(word))
}

fn joined(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

fn usize_of(value: u32) -> usize {
    // No machine with 16-bit pointers has an RDMA NIC.
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn u32_of(value: usize) -> u32 {
    // Rings are at most `MAX_RING_BYTES`.
    u32::try_from(value).unwrap_or(u32::MAX)
}
