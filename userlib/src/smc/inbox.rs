// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receiver's end of a ring: records are found and read in place.

use super::record::{self, Head, Message};
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
    /// Its round, the low half.
    round: u32,
    void: bool,
}

/// One sender's ring at a receiver, itself included. The polling thread's.
#[derive(Debug)]
pub struct Inbox {
    ring: Ring,
    /// Offset of the next record.
    at: usize,
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

    /// Of a ring whose next record is at the offset `at`, or at the ring's start if it does
    /// not fit in there. The offset is a multiple of 8 and not behind the ring.
    #[must_use]
    pub fn starting_at(ring: Ring, at: usize) -> Self {
        Self {
            ring,
            at,
            taken: 0,
            seen: Sent::default(),
            next: None,
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
        match self.peek()? {
            Some(found) if found.round == super::sent::low(round) => {
                // SAFETY: the caller's promise.
                unsafe { self.pop(found) }
            }
            _ => Ok(None),
        }
    }

    /// Whether this round was a message, or takes a slot as one does.
    ///
    /// # Errors
    ///
    /// [`Corrupt`].
    pub fn has(&mut self, round: u64) -> Result<bool, Corrupt> {
        let next = self.peek()?;
        Ok(next.is_some_and(|found| found.round == super::sent::low(round)))
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
        self.next = None;
        self.taken += 1;
        self.at = found.end;
        if found.void {
            return Ok(None);
        }
        let bytes = self.ring.bytes(found.offset, found.len);
        let bytes = bytes.map_err(|_| Corrupt)?;
        // SAFETY: within the region, by the check, which the caller keeps.
        // The sender writes these bytes again only after this node has said
        // that it delivered them, by the caller's promise; and their arrival
        // was seen by an acquire load of the sender's row.
        Ok(Some(unsafe {
            std::slice::from_raw_parts(bytes.as_ptr(), found.len)
        }))
    }

    fn peek(&mut self) -> Result<Option<Found>, Corrupt> {
        if self.next.is_none() && self.taken < self.seen.messages {
            self.next = Some(self.find()?);
        }
        Ok(self.next)
    }

    /// The record at the cursor, or at the ring's start if it wraps.
    fn find(&self) -> Result<Found, Corrupt> {
        let ring_bytes = self.ring.shape.ring_bytes();
        let at_end = self.at == ring_bytes;
        let (at, head) = match Head::from_word(self.word(if at_end { 0 } else { self.at })?) {
            Head::Wrap if !at_end => (0, Head::from_word(self.word(0)?)),
            head => (if at_end { 0 } else { self.at }, head),
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
            && end <= ring_bytes
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
        let word = self.ring.region.word(self.ring.base + offset);
        Ok(word.map_err(|_| Corrupt)?.load(Ordering::Relaxed))
    }
}
