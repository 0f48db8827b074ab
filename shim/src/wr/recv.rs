// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive buffers.

use super::local::check;
use crate::error::Error;
use crate::mr::LocalSlice;
use std::marker::PhantomData;
use weft_core::uapi::{self, Pod, MAX_RECV_SGE};

/// A buffer for one message. What arrives fills its pieces one after the other; its
/// completion tells how many bytes.
///
/// # Invariants
///
/// The elements are within regions of the session that `'mr` borrows.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct RecvWr<'mr> {
    raw: uapi::RecvWr,
    regions: PhantomData<LocalSlice<'mr>>,
}

impl<'mr> RecvWr<'mr> {
    /// A buffer in one piece.
    pub fn new(into: LocalSlice<'mr>) -> Self {
        let mut this = Self::empty();
        // INVARIANT: a `LocalSlice` is within its region.
        this.raw.num_sge = 1;
        this.raw.sges[0] = into.to_raw();
        this
    }

    /// A buffer in at most [`MAX_RECV_SGE`] pieces.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyElements`], or [`Error::TooLong`] over
    /// [`crate::MAX_MSG_BYTES`].
    pub fn scattered(into: &[LocalSlice<'mr>]) -> Result<Self, Error> {
        let mut this = Self::empty();
        this.raw.num_sge = check(into, MAX_RECV_SGE)?.into();
        // INVARIANT: a `LocalSlice` is within its region.
        for (place, slice) in this.raw.sges.iter_mut().zip(into) {
            *place = slice.to_raw();
        }
        Ok(this)
    }

    /// Takes a message without bytes, or a WRITE with an immediate.
    pub fn empty() -> Self {
        Self {
            raw: Pod::zeroed(),
            regions: PhantomData,
        }
    }

    /// What its completion is to carry.
    pub const fn wr_id(mut self, wr_id: u64) -> Self {
        self.raw.wr_id = wr_id;
        self
    }

    pub(crate) const fn as_raw(&self) -> &uapi::RecvWr {
        &self.raw
    }
}
