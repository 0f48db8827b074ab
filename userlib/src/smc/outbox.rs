// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sender's end of a ring: what is committed becomes writes (spindle
//! §III.A, the send predicate).

use super::record::{self, Era, Head, Message};
use super::slots::{Ready, Slots};
use super::Ring;
use std::sync::atomic::Ordering;

/// A sender's ring, in its own region. The polling thread's.
#[derive(Debug)]
pub struct Outbox {
    ring: Ring,
    /// The slot that comes next.
    next: u64,
    /// Where the next record is expected.
    end: usize,
    era: Era,
}

/// What was staged for posting: some messages in at most two ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// Messages, given-up slots included.
    pub messages: u64,
    /// Given-up slots among them.
    pub voids: u64,
    /// Their ranges, as offsets in the ring and lengths. Empty ones are none.
    pub ranges: [(usize, usize); 2],
}

impl Stage {
    /// Bytes of all ranges.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.ranges[0].1 + self.ranges[1].1
    }

    /// The ranges that are there.
    pub fn ranges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.ranges.iter().copied().filter(|range| range.1 > 0)
    }
}

/// Limits of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Messages.
    pub messages: u64,
    /// Bytes after which no further message is added.
    pub bytes: usize,
}

impl Limit {
    /// None.
    pub const NONE: Self = Self {
        messages: u64::MAX,
        bytes: usize::MAX,
    };
}

impl Outbox {
    /// Of an empty ring.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        Self::starting_at(ring, 0, 0)
    }

    /// Of a ring in which the message of slot `next` comes next, behind a record that ends
    /// at the offset `end`.
    #[must_use]
    pub fn starting_at(ring: Ring, next: u64, end: usize) -> Self {
        Self {
            ring,
            next,
            end,
            era: Era::default(),
        }
    }

    /// The same, in an era.
    #[must_use]
    pub fn in_era(self, era: Era) -> Self {
        Self { era, ..self }
    }

    /// Takes committed messages, gives them rounds from `round` on, and says
    /// which ranges of the ring to post, in order.
    pub fn stage(&mut self, slots: &Slots, round: u64, limit: Limit) -> Stage {
        let mut stage = Stage::default();
        let mut current = 0;
        while stage.messages < limit.messages && stage.bytes() < limit.bytes {
            let Some(ready) = slots.ready(self.next) else {
                break;
            };
            let start = size(ready.start);
            if start != self.end {
                if current == 1 {
                    // A third range: with the next batch.
                    break;
                }
                self.go_to(start, &mut stage.ranges[0]);
                current = usize::from(stage.ranges[0].1 > 0);
            }
            let round = self.era.round(round.wrapping_add(stage.messages));
            self.put_record(ready, round);
            extend(&mut stage.ranges[current], start, size(ready.end) - start);
            self.end = size(ready.end);
            stage.messages += 1;
            stage.voids += u64::from(ready.len.is_none());
            self.next += 1;
        }
        stage
    }

    /// Whether there are committed messages that were not staged yet.
    #[must_use]
    pub fn has_more(&self, slots: &Slots) -> bool {
        slots.ready(self.next).is_some()
    }

    /// Goes on at another place than behind the last record. Where the ring wraps, it sends
    /// receivers there; that it has gone over to its other side they are told otherwise.
    ///
    /// Where the ring wraps, the end of the last record belongs to nobody: it is within a slot's
    /// length of the side's end, where the live slots, which begin at the side's start, do not
    /// reach.
    fn go_to(&mut self, start: usize, range: &mut (usize, usize)) {
        let shape = self.ring.shape;
        let side = shape.side_of(self.end);
        if side == shape.side_of(start) && self.end < side + shape.ring_bytes() {
            self.put(self.end, Head::Wrap.to_word());
            extend(range, self.end, record::HEAD_BYTES);
        }
        self.end = start;
    }

    fn put_record(&self, ready: Ready, round: u32) {
        let len = ready.len.unwrap_or(0);
        let behind = size(ready.start) + record::bytes(size(len));
        let gap = behind < size(ready.end);
        if gap {
            self.put(behind, u64::from(ready.end));
        }
        let head = Head::Message(Message {
            len,
            round,
            gap,
            void: ready.len.is_none(),
        });
        self.put(size(ready.start), head.to_word());
    }

    fn put(&self, offset: usize, value: u64) {
        // The invariants of `Slots` and `Ring` keep it within; were they
        // broken, nothing may be written.
        if let Ok(word) = self.ring.region.word(self.ring.base + offset) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

fn size(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn extend(range: &mut (usize, usize), start: usize, len: usize) {
    if range.1 == 0 {
        range.0 = start;
    }
    debug_assert_eq!(range.0 + range.1, start);
    range.1 += len;
}
