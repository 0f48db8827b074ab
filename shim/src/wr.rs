// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests and completions, in the layout that the module reads and
//! writes.

use crate::error::CompletionError;
use crate::mr::{LocalSlice, Remote};
use std::marker::PhantomData;
use weft_core::uapi::{self, Pod, WcStatus};

/// Set in the `wr_id` of the requests that synchronous calls post. Other
/// requests leave it clear.
pub const SYNC_WR_ID_BIT: u64 = 1 << 63;

/// A work request. Unsignalled unless [`Self::signaled`]: it makes a completion
/// only if it fails.
///
/// # Invariants
///
/// The local range is within a region of the session that `'mr` borrows.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
#[must_use]
pub struct SendWr<'mr> {
    raw: uapi::SendWr,
    regions: PhantomData<LocalSlice<'mr>>,
}

impl<'mr> SendWr<'mr> {
    /// RDMA WRITE of `local` to `remote`.
    pub fn write(local: LocalSlice<'mr>, remote: Remote) -> Self {
        Self::new(uapi::OP_WRITE, local, remote)
    }

    /// RDMA READ of `remote` into `local`.
    pub fn read(local: LocalSlice<'mr>, remote: Remote) -> Self {
        Self::new(uapi::OP_READ, local, remote)
    }

    /// Compares the aligned 8-byte word at `remote` with `expected` and makes it
    /// `new` if it is equal, atomically. What it was lands in `local`, which has
    /// to be 8 bytes. (`IBV_WR_ATOMIC_CMP_AND_SWP`)
    pub fn compare_swap(local: LocalSlice<'mr>, remote: Remote, expected: u64, new: u64) -> Self {
        let mut wr = Self::new(uapi::OP_CAS, local, remote);
        wr.raw.compare_add = expected;
        wr.raw.swap = new;
        wr
    }

    /// Adds to the aligned 8-byte word at `remote`, wrapping, atomically. Else as
    /// [`Self::compare_swap`]. (`IBV_WR_ATOMIC_FETCH_AND_ADD`)
    pub fn fetch_add(local: LocalSlice<'mr>, remote: Remote, add: u64) -> Self {
        let mut wr = Self::new(uapi::OP_FAA, local, remote);
        wr.raw.compare_add = add;
        wr
    }

    /// Makes a completion when done.
    pub const fn signaled(mut self) -> Self {
        self.raw.flags |= uapi::SEND_SIGNALED;
        self
    }

    /// What its completion is to carry. [`SYNC_WR_ID_BIT`] is not for callers.
    pub const fn wr_id(mut self, wr_id: u64) -> Self {
        self.raw.wr_id = wr_id;
        self
    }

    fn new(opcode: u8, local: LocalSlice<'mr>, remote: Remote) -> Self {
        // INVARIANT: a `LocalSlice` is within its region.
        let raw = uapi::SendWr {
            opcode,
            num_sge: 1,
            remote_addr: remote.addr,
            rkey: remote.rkey,
            lkey: local.lkey,
            local_addr: local.addr,
            len: local.len,
            ..Pod::zeroed()
        };
        Self {
            raw,
            regions: PhantomData,
        }
    }

    pub(crate) fn as_raw(wrs: &[Self]) -> &[uapi::SendWr] {
        let first = wrs.as_ptr().cast();
        // SAFETY: `SendWr` is a transparent wrapper of `uapi::SendWr`.
        unsafe { std::slice::from_raw_parts(first, wrs.len()) }
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Wc {
    raw: uapi::Wc,
}

impl Default for Wc {
    /// A place for a completion.
    fn default() -> Self {
        Self { raw: Pod::zeroed() }
    }
}

impl Wc {
    /// From the work request.
    #[must_use]
    pub const fn wr_id(&self) -> u64 {
        self.raw.wr_id
    }

    /// How the request ended. `None`: a status of a newer module.
    #[must_use]
    pub const fn status(&self) -> Option<WcStatus> {
        WcStatus::from_number(self.raw.status)
    }

    /// Bytes that the request moved.
    ///
    /// # Errors
    ///
    /// It failed.
    pub fn result(&self) -> Result<u32, CompletionError> {
        match self.status() {
            Some(WcStatus::Success) => Ok(self.raw.byte_len),
            status => Err(CompletionError { status }),
        }
    }

    pub(crate) fn as_raw_mut(wcs: &mut [Self]) -> &mut [uapi::Wc] {
        let first = wcs.as_mut_ptr().cast();
        // SAFETY: `Wc` is a transparent wrapper of `uapi::Wc`, which any bytes
        // are a valid value of.
        unsafe { std::slice::from_raw_parts_mut(first, wcs.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mr::tests::dangling_slice;

    #[test]
    fn a_request_has_what_its_builder_was_told() {
        let remote = Remote {
            addr: 0x9000,
            rkey: 4,
        };
        let wrs = [SendWr::write(dangling_slice(0x5000, 64, 3), remote)
            .signaled()
            .wr_id(42)];
        let expected = uapi::SendWr {
            wr_id: 42,
            opcode: uapi::OP_WRITE,
            flags: uapi::SEND_SIGNALED,
            num_sge: 1,
            remote_addr: 0x9000,
            rkey: 4,
            lkey: 3,
            local_addr: 0x5000,
            len: 64,
            ..Pod::zeroed()
        };
        assert_eq!(SendWr::as_raw(&wrs), [expected]);
    }

    #[test]
    fn a_completion_is_a_length_or_an_error() {
        let mut wcs = [Wc::default(); 3];
        let raw = Wc::as_raw_mut(&mut wcs);
        raw[0].byte_len = 8;
        raw[1].status = WcStatus::RemAccessErr as u32;
        raw[2].status = 999;
        let status = Some(WcStatus::RemAccessErr);
        assert_eq!(wcs[0].result(), Ok(8));
        assert_eq!(wcs[1].result(), Err(CompletionError { status }));
        assert_eq!(wcs[2].result(), Err(CompletionError { status: None }));
    }
}
