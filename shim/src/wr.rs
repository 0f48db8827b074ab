// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests: what a program asks of the module, in the layout of the rings.
//!
//! A request borrows the regions that it names while it is made and posted, not
//! while it is carried out. A region that goes before is no danger: the module
//! knows which memory is registered, so that the request fails, or ends in pages
//! that are pinned for it and that nobody sees any more.

mod local;
mod recv;
#[cfg(test)]
mod tests;

pub use local::{Payload, Sges};
pub use recv::RecvWr;

use crate::mr::{LocalSlice, Remote};
use crate::queues::{PeerHandle, Qp};
use local::Source;
use std::marker::PhantomData;
use weft_core::uapi::{self, Pod};

/// A work request. Unsignalled unless [`Self::signaled`]: it makes a completion
/// only if it fails.
///
/// # Invariants
///
/// The local elements are within regions of the session that `'mr` borrows.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
#[must_use]
pub struct SendWr<'mr> {
    raw: uapi::SendWr,
    regions: PhantomData<LocalSlice<'mr>>,
}

impl<'mr> SendWr<'mr> {
    /// RDMA WRITE to `remote`.
    #[inline]
    pub fn write(from: impl Into<Payload<'mr>>, remote: Remote) -> Self {
        Self::new(uapi::OP_WRITE).to(remote).moving(from.into())
    }

    /// RDMA WRITE to `remote` that takes a receive buffer of whoever receives where
    /// the VQP is connected to, and completes it with `imm`. The buffer's memory is
    /// not touched. (`IBV_WR_RDMA_WRITE_WITH_IMM`)
    pub fn write_with_imm(from: impl Into<Payload<'mr>>, remote: Remote, imm: u32) -> Self {
        let mut wr = Self::new(uapi::OP_WRITE_WITH_IMM);
        wr.raw.imm = imm;
        wr.to(remote).moving(from.into())
    }

    /// A message to whoever receives where the VQP is connected to. (`IBV_WR_SEND`)
    #[inline]
    pub fn send(from: impl Into<Payload<'mr>>) -> Self {
        Self::new(uapi::OP_SEND).moving(from.into())
    }

    /// A message that carries `imm` too. (`IBV_WR_SEND_WITH_IMM`)
    pub fn send_with_imm(from: impl Into<Payload<'mr>>, imm: u32) -> Self {
        let mut wr = Self::new(uapi::OP_SEND_WITH_IMM);
        wr.raw.imm = imm;
        wr.moving(from.into())
    }

    /// RDMA READ of `remote`.
    #[inline]
    pub fn read(into: impl Into<Sges<'mr>>, remote: Remote) -> Self {
        Self::new(uapi::OP_READ)
            .to(remote)
            .moving(into.into().into())
    }

    /// Compares the aligned 8-byte word at `remote` with `expected` and makes it
    /// `new` if it is equal, atomically. What it was lands in `local`, which has
    /// to be 8 bytes. (`IBV_WR_ATOMIC_CMP_AND_SWP`)
    #[inline]
    pub fn compare_swap(local: LocalSlice<'mr>, remote: Remote, expected: u64, new: u64) -> Self {
        let mut wr = Self::new(uapi::OP_CAS);
        wr = wr.to(remote).moving(local.into());
        wr.raw.set_operands(expected, new);
        wr
    }

    /// Adds to the aligned 8-byte word at `remote`, wrapping, atomically. Else as
    /// [`Self::compare_swap`]. (`IBV_WR_ATOMIC_FETCH_AND_ADD`)
    #[inline]
    pub fn fetch_add(local: LocalSlice<'mr>, remote: Remote, add: u64) -> Self {
        let mut wr = Self::new(uapi::OP_FAA);
        wr = wr.to(remote).moving(local.into());
        wr.raw.set_operands(add, 0);
        wr
    }

    /// Makes a completion when done.
    #[inline]
    pub const fn signaled(mut self) -> Self {
        self.raw.flags |= uapi::SEND_SIGNALED;
        self
    }

    /// Begins when the requests of its VQP before it have ended, so that it may use what a
    /// READ or an atomic operation has brought; of an unconnected one, those to the same
    /// peer. The call that posts it waits for that. (`IBV_SEND_FENCE`)
    #[inline]
    pub const fn fenced(mut self) -> Self {
        self.raw.flags |= uapi::SEND_FENCE;
        self
    }

    /// What its completion is to carry.
    #[inline]
    pub const fn wr_id(mut self, wr_id: u64) -> Self {
        self.raw.wr_id = wr_id;
        self
    }

    /// The queue pair that it goes by, for [`crate::Queues`].
    #[inline]
    pub fn on(mut self, qp: &Qp) -> Self {
        (self.raw.vqp, self.raw.peer) = (qp.number(), 0);
        self
    }

    /// The queue pair that it goes by, an unconnected one, and the peer that it goes to.
    #[inline]
    pub fn on_to(mut self, qp: &Qp, peer: &PeerHandle) -> Self {
        (self.raw.vqp, self.raw.peer) = (qp.number(), peer.number());
        self
    }

    /// Its completion is the library's own.
    #[inline]
    pub(crate) const fn private(mut self) -> Self {
        self.raw.flags |= uapi::SEND_PRIVATE | uapi::SEND_SIGNALED;
        self
    }

    #[inline]
    pub(crate) const fn is_signaled(&self) -> bool {
        self.raw.flags & uapi::SEND_SIGNALED != 0
    }

    /// As the ring has it.
    #[inline]
    pub(crate) const fn as_raw(&self) -> &uapi::SendWr {
        &self.raw
    }

    /// As the ring has it, for this VQP, whichever it named.
    #[inline]
    pub(crate) fn raw_on(&self, vqp: u32) -> uapi::SendWr {
        uapi::SendWr {
            vqp,
            peer: 0,
            ..self.raw
        }
    }

    /// As the module carries out directly, on that VQP. `None`: it does not.
    #[inline]
    pub(crate) fn as_run(&self, vqp: u32) -> Option<uapi::Run> {
        let raw = &self.raw;
        let is_plain = matches!(raw.opcode, uapi::OP_READ | uapi::OP_WRITE)
            && raw.num_sge == 1
            && raw.flags & !uapi::SEND_SIGNALED == 0;
        is_plain.then(|| uapi::Run {
            vqp,
            opcode: raw.opcode.into(),
            rkey: raw.rkey,
            reserved: 0,
            remote_addr: raw.remote_addr,
            local: raw.sge(0),
        })
    }

    #[inline]
    fn new(opcode: u8) -> Self {
        // INVARIANT: there are no elements.
        Self {
            raw: uapi::SendWr {
                opcode,
                ..Pod::zeroed()
            },
            regions: PhantomData,
        }
    }

    #[inline]
    fn to(mut self, remote: Remote) -> Self {
        self.raw.remote_addr = remote.addr;
        self.raw.rkey = remote.rkey;
        self
    }

    #[inline]
    fn moving(mut self, payload: Payload<'mr>) -> Self {
        match payload.0 {
            Source::Sges(Sges { sges, count, .. }) => {
                // INVARIANT: that of `Sges`.
                self.raw.num_sge = count;
                for (at, sge) in sges.into_iter().take(count.into()).enumerate() {
                    self.raw.set_sge(at, sge);
                }
            }
            Source::Inline { len, data } => {
                self.raw.flags |= uapi::SEND_INLINE;
                self.raw.inline_len = len;
                self.raw.data = data;
            }
        }
        self
    }
}
