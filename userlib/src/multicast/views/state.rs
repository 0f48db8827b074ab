// SPDX-License-Identifier: MIT OR Apache-2.0

//! How a newcomer gets the application's state.
//!
//! A member that has the state takes a copy of it when it has installed the view, before it
//! delivers anything in it, and puts the copy into its own region. Nobody else writes there,
//! so a member that was put out and does not know it disturbs nobody. The newcomer reads the
//! copy piece by piece, and takes in messages in between. A word before the copy says of
//! which view it is; the newcomer reads it last, so it notices if the copy has been replaced
//! meanwhile, because the group has gone on without it.

use super::Views;
use crate::fabric::{Endpoint, FabricError, NodeSet, Region};
use std::ptr::NonNull;
use std::sync::atomic::{fence, Ordering};

/// There is no copy: the state is too long.
pub(super) const NONE: u64 = u64::MAX;
/// Bytes before the copy.
const HEAD_BYTES: usize = 64;
/// Bytes that are read at once: the polling thread does nothing else meanwhile.
const PIECE_BYTES: usize = 1 << 18;

pub(in super::super) type Take = Box<dyn FnMut() -> Vec<u8> + Send>;
pub(in super::super) type Restore = Box<dyn FnMut(&[u8]) + Send>;

/// The application's part.
pub(in super::super) struct State {
    /// Most bytes that it takes.
    pub(in super::super) max_bytes: usize,
    pub(in super::super) take: Take,
    pub(in super::super) restore: Restore,
    /// Bytes that are read at once.
    pub(in super::super) piece_bytes: usize,
}

impl State {
    pub(in super::super) fn new(
        max_bytes: usize,
        take: impl FnMut() -> Vec<u8> + Send + 'static,
        restore: impl FnMut(&[u8]) + Send + 'static,
    ) -> Self {
        Self {
            max_bytes,
            take: Box::new(take),
            restore: Box::new(restore),
            piece_bytes: PIECE_BYTES,
        }
    }
}

/// Bytes of the region for a state of so many, if they can be counted.
pub(in super::super) fn area_bytes(max_bytes: usize) -> Option<usize> {
    let bytes = max_bytes.checked_next_multiple_of(HEAD_BYTES)?;
    bytes.checked_add(HEAD_BYTES)
}

/// The state of a group on its way.
pub(super) struct Transfer {
    state: State,
    /// Where it is in the region.
    area: usize,
    /// Bytes that were read in this view.
    fetched: usize,
}

/// How far a newcomer is.
pub(super) enum Fetched {
    /// Nothing new has come.
    Nothing,
    Some,
    All,
    /// It will not come.
    Refused,
}

impl Transfer {
    pub(super) fn new(state: State, area: usize) -> Self {
        Self {
            state,
            area,
            fetched: 0,
        }
    }

    /// Bytes that were read in this view.
    #[cfg(test)]
    pub(super) fn fetched(&self) -> usize {
        self.fetched
    }

    /// What was read counts no more.
    pub(super) fn begin_anew(&mut self) {
        self.fetched = 0;
    }

    /// Puts a copy of the state into the region, and answers with its length, or [`NONE`].
    pub(super) fn copy_to(&mut self, region: &Region, view: u64) -> Result<u64, FabricError> {
        let bytes = (self.state.take)();
        let max = self.state.max_bytes;
        if bytes.len() > max {
            let len = bytes.len();
            tracing::error!(len, max, "the state is too long for a newcomer");
            return Ok(NONE);
        }
        let head = region.word(self.area)?;
        let place = region.range(self.area + HEAD_BYTES, bytes.len())?;
        let source = NonNull::from(&*bytes).cast();
        head.store(0, Ordering::Relaxed);
        // A newcomer that reads a byte of this copy does not find the view of an earlier copy in
        // the head.
        fence(Ordering::Release);
        // SAFETY: the range is within the mapped region and has as many bytes as the vector,
        // which is not part of it. Only this thread writes it. Newcomers of this view read it
        // when they are told that it is there; one of an earlier view was put out, and looks
        // at the head before it believes what it has read.
        unsafe { place.copy_from_nonoverlapping(source, bytes.len()) };
        head.store(view, Ordering::Release);
        Ok(bytes.len() as u64)
    }

    /// Reads a piece of the copy of so many bytes that the donor has for this view.
    pub(super) fn fetch(
        &mut self,
        endpoint: &dyn Endpoint,
        donor: usize,
        bytes: u64,
        view: u64,
    ) -> Result<Fetched, FabricError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes > self.state.max_bytes {
            return Ok(Fetched::Refused);
        }
        let (area, from) = (self.area, self.fetched);
        let len = (bytes - from.min(bytes)).min(self.state.piece_bytes);
        let at = area + HEAD_BYTES + from;
        endpoint.read(donor, at, at, len)?;
        self.fetched = from + len;
        if self.fetched < bytes {
            return Ok(Fetched::Some);
        }
        // The head is read behind the copy: it says whether that still is the copy of this view.
        fence(Ordering::Acquire);
        endpoint.read(donor, area, area, size_of::<u64>())?;
        let head = endpoint.region().word(area)?.load(Ordering::Acquire);
        if head != view {
            self.begin_anew();
            return Ok(Fetched::Nothing);
        }
        Ok(Fetched::All)
    }

    /// Hands the copy to the application.
    pub(super) fn restore(&mut self, region: &Region) {
        let Ok(place) = region.range(self.area + HEAD_BYTES, self.fetched) else {
            return;
        };
        // SAFETY: within the mapped region, which the endpoint keeps. Peers only read this
        // range; of this process only this thread writes it, and not before the closure
        // has returned.
        let bytes = unsafe { std::slice::from_raw_parts(place.as_ptr(), self.fetched) };
        (self.state.restore)(bytes);
    }
}

impl Views {
    /// The member that gives the state to those who lack it in this view.
    fn donor(&self) -> Option<usize> {
        self.view.members.minus(self.lacking).iter().next()
    }

    /// If it is this member's part to give the state, takes a copy of it as it is now.
    pub(super) fn give_state(&mut self) {
        if self.lacking.is_empty() || self.donor() != Some(self.rank) {
            return;
        }
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        let number = self.view.number;
        let copied = transfer.copy_to(self.endpoint.region(), number);
        let own = self.welcomes.own();
        own.state_bytes.store(copied.unwrap_or(NONE));
        self.welcome(super::rows::WelcomeRow::state_bytes(), self.lacking);
        self.welcomes.own().state_of.store(number);
        self.welcome(super::rows::WelcomeRow::state_of(), self.lacking);
    }

    /// Whether this member has not been given the state yet.
    pub(super) fn is_lacking(&self) -> bool {
        self.lacking.contains(self.rank)
    }

    /// Reads a piece of the state, if this member lacks it. It has it with the last one: then
    /// the application restores it and hears of the view.
    pub(super) fn fetch_state(&mut self) -> bool {
        if !self.is_lacking() {
            return false;
        }
        match self.fetch_piece() {
            // If the donor is down there will be another one.
            Err(_) | Ok(Fetched::Nothing) => false,
            Ok(Fetched::Some) => true,
            Ok(Fetched::All) => {
                self.restore();
                true
            }
            Ok(Fetched::Refused) => self.stop(super::Ending::Excluded),
        }
    }

    fn fetch_piece(&mut self) -> Result<Fetched, FabricError> {
        let Some((donor, transfer)) = self.donor().zip(self.transfer.as_mut()) else {
            return Ok(Fetched::Refused);
        };
        let row = self.welcomes.row(donor);
        if row.state_of.get() != self.view.number {
            return Ok(Fetched::Nothing);
        }
        let (bytes, number) = (row.state_bytes.get(), self.view.number);
        transfer.fetch(&*self.endpoint, donor, bytes, number)
    }

    fn restore(&mut self) {
        if let Some(transfer) = &mut self.transfer {
            transfer.restore(self.endpoint.region());
        }
        self.lacking = self.lacking.minus(NodeSet::EMPTY.with(self.rank));
        self.seats.own().restored.raise();
        self.tell_seat(super::rows::SeatRow::restored(), self.view.members);
        self.tell_view();
    }
}
