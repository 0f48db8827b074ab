// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sending: a slot, the message built in it, done (spindle §III.A).

use super::shared::Shared;
use super::SendError;
use crate::predicates::{Idle, IdlePolicy};
use crate::smc::{SlotError, Ticket};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How a sender waits for room. A stream frees slots every few microseconds,
/// and whoever sleeps meanwhile has to be woken by the polling thread, which
/// takes as long as posting several messages. Where a yield shows that others
/// want the processor, the sender sleeps at once: it may be the polling thread
/// that does not run.
const ROOM_POLICY: IdlePolicy = IdlePolicy {
    spins: 16,
    quiesce_after: Duration::from_micros(100),
    contended_after: Duration::from_micros(10),
    longest_sleep: None,
};

/// Sends to one subgroup. Clone it for further threads: their messages are
/// sent in the order in which their slots were taken.
#[derive(Clone)]
pub struct Sender {
    shared: Arc<Shared>,
    /// First byte of the own ring in the region.
    base: usize,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("subgroup", &self.shared.spec.name)
            .finish_non_exhaustive()
    }
}

impl Sender {
    pub(super) fn new(shared: Arc<Shared>, base: usize) -> Self {
        Self { shared, base }
    }

    /// Sends the message that the closure builds in place. Waits while the
    /// window is full. A closure that panics, or puts in more than there is room for,
    /// sends nothing.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (group, chat): (weft::Group, weft::SubgroupHandle) = todo!();
    /// let sender = group.sender(chat)?;
    /// sender.send(|slot| slot.put(b"hello"))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SendError::Wedged`], [`SendError::Stopped`], [`SendError::NotSender`],
    /// [`SendError::Closed`], [`SendError::TooLong`]; [`SendError::Full`] from within a delivery
    /// of the group, and anywhere in a group that is stepped ([`super::Builder::join_stepped`]).
    pub fn send<R>(&self, build: impl FnOnce(&mut Slot<'_>) -> R) -> Result<R, SendError> {
        let room = self.shared.spec.shape.message_bytes();
        self.build(self.wait_for_slot(room)?, build)
    }

    /// As [`Self::send`], without waiting.
    ///
    /// # Errors
    ///
    /// As [`Self::send`]; [`SendError::Full`] whenever the window is full.
    pub fn try_send<R>(&self, build: impl FnOnce(&mut Slot<'_>) -> R) -> Result<R, SendError> {
        let room = self.shared.spec.shape.message_bytes();
        self.build(self.take_slot(room)?, build)
    }

    /// As [`Self::send`], into a slot for `len` bytes. Where many threads send
    /// at once, no byte behind a short message travels then.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn send_sized<R>(
        &self,
        len: usize,
        build: impl FnOnce(&mut Slot<'_>) -> R,
    ) -> Result<R, SendError> {
        self.build(self.wait_for_slot(len)?, build)
    }

    /// As [`Self::send`], for a task, of any executor: it waits for room without keeping a
    /// thread. Dropped before it is done, it sends nothing. In a group that is stepped it waits
    /// until others have stepped.
    ///
    /// ```no_run
    /// # async fn example(group: weft::Group, chat: weft::SubgroupHandle) -> Result<(), Box<dyn std::error::Error>> {
    /// let sender = group.sender(chat)?;
    /// sender.send_async(|slot| slot.put(b"hello")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SendError::Wedged`], [`SendError::Stopped`], [`SendError::NotSender`],
    /// [`SendError::Closed`], [`SendError::TooLong`].
    pub async fn send_async<R>(
        &self,
        build: impl FnOnce(&mut Slot<'_>) -> R,
    ) -> Result<R, SendError> {
        let room = self.shared.spec.shape.message_bytes();
        loop {
            match self.take_slot(room) {
                Err(SendError::Full) => {}
                taken => return self.build(taken?, build),
            }
            let shared = &self.shared;
            let began = Instant::now();
            shared.room.wait(|| shared.has_room_or_never()).await;
            shared.note_wait(began);
        }
    }

    /// Sends a copy of these bytes. Waits while the window is full.
    ///
    /// # Errors
    ///
    /// As [`Self::send_sized`].
    pub fn send_bytes(&self, bytes: &[u8]) -> Result<(), SendError> {
        self.send_sized(bytes.len(), |slot| slot.put(bytes))
    }

    /// Sends a copy of a value. Waits while the window is full.
    ///
    /// # Errors
    ///
    /// As [`Self::send_sized`].
    pub fn send_value<T: IntoBytes + Immutable>(&self, value: &T) -> Result<(), SendError> {
        self.send_bytes(value.as_bytes())
    }

    /// Slots that are free now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.shared.slots.room()
    }

    fn take_slot(&self, len: usize) -> Result<Ticket, SendError> {
        self.shared.is_open()?;
        let _lock = self.shared.sender_lock();
        self.shared.slots.take(len).map_err(|error| match error {
            SlotError::Full => SendError::Full,
            SlotError::TooLong { len, room } => SendError::TooLong { len, room },
        })
    }

    fn wait_for_slot(&self, len: usize) -> Result<Ticket, SendError> {
        match self.take_slot(len) {
            Err(SendError::Full) if self.shared.may_wait() => {}
            answer => return answer,
        }
        let began = Instant::now();
        let shared = &self.shared;
        let answer = loop {
            let mut idle = Idle::new(ROOM_POLICY);
            while !shared.has_room_or_never() {
                if !idle.pause() {
                    shared.room.wait_until(None, || shared.has_room_or_never());
                }
            }
            match self.take_slot(len) {
                Err(SendError::Full) => {}
                answer => break answer,
            }
        };
        shared.note_wait(began);
        answer
    }

    fn build<R>(
        &self,
        ticket: Ticket,
        build: impl FnOnce(&mut Slot<'_>) -> R,
    ) -> Result<R, SendError> {
        let place = self.shared.endpoint.region();
        let place = place.range(self.base + ticket.offset(), ticket.room());
        let Ok(place) = place else {
            // Impossible by the invariant of `Slots`.
            self.shared.slots.give_up(ticket);
            return Err(SendError::Closed);
        };
        // SAFETY: within the mapped region, which `self` keeps; zeros or what
        // was written before; and this ticket's alone until it is handed over,
        // at the end of the slot's life.
        let bytes = unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), ticket.room()) };
        let mut slot = Slot {
            sender: self,
            ticket: Some(ticket),
            bytes,
            len: 0,
        };
        let answer = build(&mut slot);
        slot.commit()?;
        Ok(answer)
    }
}

/// A slot in which a message is built. It derefs to all the bytes that it has
/// room for, which hold whatever was there before; the message is the first
/// [`Slot::len`] of them, none at first.
#[derive(Debug)]
pub struct Slot<'a> {
    sender: &'a Sender,
    /// Until it is committed.
    ticket: Option<Ticket>,
    bytes: &'a mut [u8],
    len: usize,
}

impl Slot<'_> {
    /// Appends bytes to the message. A message that gets longer than there is room is not
    /// sent ([`SendError::TooLong`]).
    pub fn put(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(place) = self.bytes.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
        }
        self.len = end;
    }

    /// Says how long the message is that was built in the bytes. Longer than there is room
    /// it is not sent ([`SendError::TooLong`]).
    pub fn set_len(&mut self, len: usize) {
        self.len = len;
    }

    /// Bytes of the message so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the message is empty so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes the message a value of this type, to be filled in place. None if
    /// the slot is too short for it, or it wants more than 8-byte alignment.
    pub fn value<T: FromBytes + IntoBytes + KnownLayout + Immutable>(&mut self) -> Option<&mut T> {
        let bytes = self.bytes.get_mut(..size_of::<T>())?;
        let value = T::mut_from_bytes(bytes).ok()?;
        self.len = size_of::<T>();
        Some(value)
    }

    /// A slot that is not committed is given up.
    fn commit(mut self) -> Result<(), SendError> {
        let (len, room) = (self.len, self.bytes.len());
        if len > room {
            return Err(SendError::TooLong { len, room });
        }
        let Some(ticket) = self.ticket.take() else {
            return Ok(());
        };
        let shared = &self.sender.shared;
        {
            let _lock = shared.sender_lock();
            shared.slots.commit(ticket, self.len);
        }
        shared.ring();
        Ok(())
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        // Not committed: the closure panicked, or the message is too long.
        if let Some(ticket) = self.ticket.take() {
            self.sender.shared.slots.give_up(ticket);
            self.sender.shared.ring();
        }
    }
}

impl Deref for Slot<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for Slot<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}
