// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receiver's end of a ring: records are found and read in place.

use super::record::{self, Era, Head, Message};
use super::{Ring, Sent};
use std::sync::atomic::Ordering;

/// A sender's ring holds what no sender writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its ring is corrupt")]
pub struct Corrupt;

/// A record that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// Where its message is.
    offset: usize,
    len: usize,
    /// Where the next record is.
    end: usize,
    /// Its round ([`Era::round`]).
    round: u32,
    void: bool,
}

/// One sender's ring at a receiver, itself included. The polling thread's.
#[derive(Debug)]
pub struct Inbox {
    /// Where its messages arrive.
    ring: Ring,
    /// Where they were built, if that can be seen; and from which message on that is looked at.
    source: Option<(Ring, u64)>,
    /// Offset of the next record.
    at: usize,
    /// With which message the sender goes over to its ring's other side.
    over: Option<u64>,
    era: Era,
    /// Messages taken out.
    taken: u64,
    /// What the sender was seen to have sent.
    seen: Sent,
    /// The next record, once looked at.
    next: Option<Found>,
}

impl Inbox {
    /// Of an empty ring.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        Self::starting_at(ring, 0)
    }

    /// Of a ring whose next record is at the offset `at`, or at the side's start if it does
    /// not fit in there. It is one that the ring has ([`Shape::has_place`](super::Shape::has_place)).
    #[must_use]
    pub fn starting_at(ring: Ring, at: usize) -> Self {
        Self {
            ring,
            source: None,
            at,
            over: None,
            era: Era::default(),
            taken: 0,
            seen: Sent::default(),
            next: None,
        }
    }

    /// The sender goes over to the other side with its message of this number, counted from
    /// here.
    #[must_use]
    pub fn going_over(self, over: Option<u64>) -> Self {
        Self { over, ..self }
    }

    /// The same, in an era.
    #[must_use]
    pub fn in_era(self, era: Era) -> Self {
        Self { era, ..self }
    }

    /// The same, if this is the sender's own ring: once the sender says so ([`Self::look_from`])
    /// its messages are looked at there.
    #[must_use]
    pub fn with_source(self, source: Option<Ring>) -> Self {
        let source = source.map(|ring| (ring, u64::MAX));
        Self { source, ..self }
    }

    /// Whether the sender's own ring can be seen, and it has not said yet from which message on
    /// it is to be looked into.
    #[must_use]
    pub fn may_look(&self) -> bool {
        matches!(self.source, Some((_, u64::MAX)))
    }

    /// Looks for messages in the sender's own ring from this number on, counted from the
    /// beginning, if it can be seen. The sender says so once, before it says that it has sent
    /// the first of them.
    pub fn look_from(&mut self, message: u64) {
        if let Some((_, from)) = &mut self.source {
            *from = message;
        }
    }

    /// The offset behind the last record that was taken out.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// What the sender was seen to have sent.
    #[must_use]
    pub fn seen(&self) -> Sent {
        self.seen
    }

    /// Messages that were taken out.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Learns the word of the sender's row. Its bytes are visible.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if it has sent more than its window.
    pub fn learn(&mut self, word: u64) -> Result<Sent, Corrupt> {
        let seen = self.seen.widen(word);
        let window = self.ring.shape.window() as u64;
        if seen.messages - self.taken > window || seen.messages > seen.rounds {
            return Err(Corrupt);
        }
        self.seen = seen;
        Ok(seen)
    }

    /// The message of this round, if the round was not a null, and goes past
    /// it. Rounds are asked for in order; the sender has been seen to be past
    /// them.
    ///
    /// # Safety
    ///
    /// The bytes are not used after this node has said that it delivered the
    /// message: they are the sender's again then.
    ///
    /// # Errors
    ///
    /// [`Corrupt`].
    pub unsafe fn take<'r>(&mut self, round: u64) -> Result<Option<&'r [u8]>, Corrupt> {
        let era = self.era;
        match self.peek()? {
            Some(found) if found.round == era.round(round) => {
                // SAFETY: the caller's promise.
                unsafe { self.pop(found) }
            }
            _ => Ok(None),
        }
    }

    /// Whether this round was a message. A given-up slot of this round is gone past.
    ///
    /// # Errors
    ///
    /// [`Corrupt`].
    pub fn has(&mut self, round: u64) -> Result<bool, Corrupt> {
        let era = self.era;
        let next = self.peek()?.filter(|next| next.round == era.round(round));
        Ok(next.is_some_and(|found| self.is_message(found)))
    }

    /// Whether there is a message, whatever its round. Given-up slots before it are gone past.
    ///
    /// # Errors
    ///
    /// [`Corrupt`].
    pub fn has_any(&mut self) -> Result<bool, Corrupt> {
        while let Some(found) = self.peek()? {
            if self.is_message(found) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the next record is a message; goes past it otherwise.
    fn is_message(&mut self, next: Found) -> bool {
        if next.void {
            self.go_past(next);
        }
        !next.void
    }

    /// The next message, whatever its round: for unordered delivery. Given-up
    /// slots are gone past.
    ///
    /// # Safety
    ///
    /// As for [`Self::take`].
    ///
    /// # Errors
    ///
    /// [`Corrupt`].
    pub unsafe fn take_any<'r>(&mut self) -> Result<Option<&'r [u8]>, Corrupt> {
        while let Some(found) = self.peek()? {
            // SAFETY: the caller's promise.
            let message = unsafe { self.pop(found) }?;
            if message.is_some() {
                return Ok(message);
            }
        }
        Ok(None)
    }

    /// # Safety
    ///
    /// As for [`Self::take`].
    unsafe fn pop<'r>(&mut self, found: Found) -> Result<Option<&'r [u8]>, Corrupt> {
        let bytes = self.ring().bytes(found.offset, found.len);
        self.go_past(found);
        if found.void {
            return Ok(None);
        }
        let bytes = bytes.map_err(|_| Corrupt)?;
        // SAFETY: within the region, by the check, which the caller keeps.
        // The sender writes these bytes again only after this node has said
        // that it delivered them, by the caller's promise, or has gone; and their
        // arrival was seen by an acquire load of the sender's row.
        Ok(Some(unsafe {
            std::slice::from_raw_parts(bytes.as_ptr(), found.len)
        }))
    }

    fn go_past(&mut self, next: Found) {
        self.next = None;
        self.taken += 1;
        self.at = next.end;
    }

    fn peek(&mut self) -> Result<Option<Found>, Corrupt> {
        if self.next.is_none() && self.taken < self.seen.messages {
            self.next = Some(self.find()?);
        }
        Ok(self.next)
    }

    /// The ring that the next message is in.
    fn ring(&self) -> &Ring {
        match &self.source {
            Some((source, from)) if *from <= self.taken => source,
            _ => &self.ring,
        }
    }

    /// Where the next record is, if the ring does not wrap before it.
    fn place(&self) -> usize {
        match self.over {
            Some(over) if over == self.taken => self.ring.shape.other_side(self.at),
            _ => self.at,
        }
    }

    /// The record at the cursor, or at the side's start if the ring wraps.
    fn find(&self) -> Result<Found, Corrupt> {
        let place = self.place();
        let side = self.ring.shape.side_of(place);
        let side_end = side + self.ring.shape.ring_bytes();
        let at_end = place == side_end;
        let (at, head) = match Head::from_word(self.word(if at_end { side } else { place })?) {
            Head::Wrap if !at_end => (side, Head::from_word(self.word(side)?)),
            head => (if at_end { side } else { place }, head),
        };
        let Head::Message(Message {
            len,
            round,
            gap,
            void,
        }) = head
        else {
            return Err(Corrupt);
        };
        let len = usize::try_from(len).map_err(|_| Corrupt)?;
        let behind = at + record::bytes(len);
        let end = if gap {
            usize::try_from(self.word(behind)?).map_err(|_| Corrupt)?
        } else {
            behind
        };
        let fits = len <= self.ring.shape.message_bytes()
            && behind <= end
            && end <= side_end
            && end % record::HEAD_BYTES == 0;
        fits.then_some(Found {
            offset: at + record::HEAD_BYTES,
            len,
            end,
            round,
            void,
        })
        .ok_or(Corrupt)
    }

    fn word(&self, offset: usize) -> Result<u64, Corrupt> {
        let ring = self.ring();
        let word = ring.region.word(ring.base + offset);
        Ok(word.map_err(|_| Corrupt)?.load(Ordering::Relaxed))
    }
}
