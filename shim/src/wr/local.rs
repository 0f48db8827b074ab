// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where the bytes of a request come from and go to: pieces of regions, or the
//! request itself.

use crate::error::Error;
use crate::mr::LocalSlice;
use std::marker::PhantomData;
use weft_core::uapi::{self, Pod, MAX_INLINE, MAX_MSG_BYTES, MAX_SGE};

/// Pieces of registered memory, one after the other: a READ scatters over them, a
/// WRITE or SEND gathers from them.
///
/// # Invariants
///
/// The first `count` elements are within regions of the session that `'mr` borrows,
/// `count` is at most [`MAX_SGE`], and all of them together have at most
/// [`MAX_MSG_BYTES`].
#[derive(Clone, Copy, Debug)]
pub struct Sges<'mr> {
    pub(super) sges: [uapi::Sge; MAX_SGE],
    pub(super) count: u16,
    regions: PhantomData<LocalSlice<'mr>>,
}

impl<'mr> Sges<'mr> {
    /// No bytes: a message of length 0.
    pub const EMPTY: Self = Self {
        sges: [uapi::Sge {
            addr: 0,
            len: 0,
            lkey: 0,
        }; MAX_SGE],
        count: 0,
        regions: PhantomData,
    };

    /// These pieces, at most [`MAX_SGE`].
    ///
    /// # Errors
    ///
    /// [`Error::TooManyElements`], or [`Error::TooLong`] over [`MAX_MSG_BYTES`].
    pub fn new(slices: &[LocalSlice<'mr>]) -> Result<Self, Error> {
        let mut this = Self::EMPTY;
        this.count = check(slices, MAX_SGE)?;
        // INVARIANT: a `LocalSlice` is within its region, and `check` has counted.
        for (place, slice) in this.sges.iter_mut().zip(slices) {
            *place = slice.to_raw();
        }
        Ok(this)
    }
}

/// How many there are, if that is not too many and not too much.
pub(super) fn check(slices: &[LocalSlice<'_>], max: usize) -> Result<u16, Error> {
    let given = slices.len();
    let count = u16::try_from(given).ok().filter(|_| given <= max);
    let count = count.ok_or(Error::TooManyElements { given, max })?;
    let bytes: u64 = slices.iter().map(|slice| u64::from(slice.len())).sum();
    if bytes > u64::from(MAX_MSG_BYTES) {
        return Err(Error::TooLong(bytes as usize));
    }
    Ok(count)
}

impl<'mr> From<LocalSlice<'mr>> for Sges<'mr> {
    #[inline]
    fn from(slice: LocalSlice<'mr>) -> Self {
        // INVARIANT: a `LocalSlice` is within its region, and not too long.
        let mut this = Self::EMPTY;
        this.sges[0] = slice.to_raw();
        this.count = 1;
        this
    }
}

/// What a WRITE or SEND moves: pieces of registered memory, or bytes that travel in
/// the request itself and need no region. Nothing can be read into a payload:
///
/// ```compile_fail,E0277
/// # use weft_shim::{Payload, Remote, SendWr};
/// # let remote = Remote { addr: 0, rkey: 0 };
/// let _ = SendWr::read(Payload::inline(b"bytes").unwrap(), remote);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Payload<'mr>(pub(super) Source<'mr>);

#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'mr> {
    Sges(Sges<'mr>),
    Inline { len: u32, data: [u64; 10] },
}

impl Payload<'static> {
    /// A copy of these bytes, at most [`MAX_INLINE`]. (`IBV_SEND_INLINE`)
    ///
    /// # Errors
    ///
    /// [`Error::InlineTooLong`].
    pub fn inline(bytes: &[u8]) -> Result<Self, Error> {
        let len = u32::try_from(bytes.len()).ok();
        let len = len
            .filter(|len| *len <= MAX_INLINE)
            .ok_or(Error::InlineTooLong(bytes.len()))?;
        let mut words = uapi::SendWr::zeroed().data;
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        Ok(Self(Source::Inline { len, data: words }))
    }
}

impl<'mr> From<Sges<'mr>> for Payload<'mr> {
    #[inline]
    fn from(sges: Sges<'mr>) -> Self {
        Self(Source::Sges(sges))
    }
}

impl<'mr> From<LocalSlice<'mr>> for Payload<'mr> {
    #[inline]
    fn from(slice: LocalSlice<'mr>) -> Self {
        Sges::from(slice).into()
    }
}
