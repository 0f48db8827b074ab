// SPDX-License-Identifier: GPL-2.0

//! A batch of requests as ib_core takes them: one chain, posted by one call.

use kernel::alloc::KBox;
use kernel::prelude::*;
use weft_core::dc::{Local, Op, OpKind};
use weft_core::rc::WrId;
use weft_core::uapi::{Sge, MAX_INLINE, MAX_SGE};

use crate::bindings::*;
use crate::mem::Access;

/// Requests in a chain.
pub(super) const CHAIN: usize = 16;
/// Pieces of local memory that a request may have.
pub(super) const SGES: usize = MAX_SGE;

/// The pieces of local memory of an operation; at most [`SGES`].
pub(super) fn sges(op: &Op) -> impl Iterator<Item = Sge> + '_ {
    op.local.pieces(0, op.len)
}

/// What an operation does with the memory of both sides.
pub(super) fn access(kind: OpKind) -> (Access, Access) {
    match kind {
        OpKind::Read => (Access::LocalWrite, Access::RemoteRead),
        // Messages do not come here.
        OpKind::Write | OpKind::Send => (Access::LocalRead, Access::RemoteWrite),
        OpKind::CompareSwap | OpKind::FetchAdd => (Access::LocalWrite, Access::RemoteAtomic),
    }
}

/// An operation whose keys were checked: the device's keys for them.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    pub(super) lkeys: [u32; SGES],
    pub(super) rkey: u32,
}

/// # Invariants
///
/// The first `len` places of `is_atomic` say in which of the two lists the request
/// of the same index is; each of those but the last points to the next.
pub(super) struct Chain {
    rdma: [ib_rdma_wr; CHAIN],
    atomic: [ib_atomic_wr; CHAIN],
    sges: [[ib_sge; SGES]; CHAIN],
    inline: [[u64; MAX_INLINE as usize / 8]; CHAIN],
    is_atomic: [bool; CHAIN],
    len: usize,
}

impl Chain {
    pub(super) fn new() -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                rdma: [ib_rdma_wr::default(); CHAIN],
                atomic: [ib_atomic_wr::default(); CHAIN],
                sges: [[ib_sge::default(); SGES]; CHAIN],
                inline: [[0; MAX_INLINE as usize / 8]; CHAIN],
                is_atomic: [false; CHAIN],
                len: 0,
            },
            GFP_KERNEL,
        )?)
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn request(&mut self, index: usize) -> Option<&mut ib_send_wr> {
        if *self.is_atomic.get(index)? {
            self.atomic.get_mut(index).map(|wr| &mut wr.wr)
        } else {
            self.rdma.get_mut(index).map(|wr| &mut wr.wr)
        }
    }

    /// Appends an operation; nothing happens if the chain is full.
    pub(super) fn push(&mut self, seq: u32, op: &Op, keys: &Keys, signaled: bool) {
        let index = self.len;
        let Some(list) = self.sges.get_mut(index) else {
            return;
        };
        let mut count = 0;
        for ((place, sge), lkey) in list.iter_mut().zip(sges(op)).zip(keys.lkeys) {
            *place = ib_sge {
                addr: sge.addr,
                length: sge.len,
                lkey,
            };
            count += 1;
        }
        let is_inline = self.put_inline(index, op);
        let list = match self.sges.get_mut(index) {
            Some(list) => list,
            None => return,
        };
        count += i32::from(is_inline);
        let list = list.as_mut_ptr();
        let opcode = match op.kind {
            OpKind::Read => ib_wr_opcode_IB_WR_RDMA_READ,
            OpKind::Write | OpKind::Send => ib_wr_opcode_IB_WR_RDMA_WRITE,
            OpKind::CompareSwap => ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP,
            OpKind::FetchAdd => ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD,
        };
        let is_atomic = matches!(op.kind, OpKind::CompareSwap | OpKind::FetchAdd);
        if is_atomic {
            self.atomic[index].remote_addr = op.remote_addr;
            self.atomic[index].rkey = keys.rkey;
            self.atomic[index].compare_add = op.operands.compare_add;
            self.atomic[index].swap = op.operands.swap;
        } else {
            self.rdma[index].remote_addr = op.remote_addr;
            self.rdma[index].rkey = keys.rkey;
        }
        self.is_atomic[index] = is_atomic;
        self.len += 1;
        if let Some(wr) = self.request(index) {
            wr.next = core::ptr::null_mut();
            wr.__bindgen_anon_1.wr_id = WrId::Request(seq).encode();
            wr.sg_list = list;
            wr.num_sge = count;
            wr.opcode = opcode;
            wr.send_flags = if is_inline {
                ib_send_flags_IB_SEND_INLINE
            } else {
                0
            };
        }
        if signaled {
            self.signal_last();
        }
        self.link(index);
    }

    /// Keeps the bytes of an operation that has them in itself, and lists them.
    fn put_inline(&mut self, index: usize, op: &Op) -> bool {
        let (Local::Inline(words), Some(place)) = (&op.local, self.inline.get_mut(index)) else {
            return false;
        };
        *place = *words;
        let addr = place.as_ptr() as u64;
        let Some(first) = self.sges.get_mut(index).and_then(|list| list.first_mut()) else {
            return false;
        };
        *first = ib_sge {
            addr,
            length: op.len,
            lkey: 0,
        };
        true
    }

    /// Hangs the request behind the one before it.
    fn link(&mut self, index: usize) {
        let next = self
            .request(index)
            .map_or(core::ptr::null_mut(), core::ptr::from_mut);
        let before = index.checked_sub(1).and_then(|before| self.request(before));
        if let Some(before) = before {
            before.next = next;
        }
    }

    /// Makes the last request a signalled one.
    pub(super) fn signal_last(&mut self) {
        let last = self.len.checked_sub(1).and_then(|last| self.request(last));
        if let Some(wr) = last {
            wr.send_flags |= ib_send_flags_IB_SEND_SIGNALED;
        }
    }

    /// The chain, for one call.
    pub(super) fn first(&mut self) -> *const ib_send_wr {
        self.request(0)
            .map_or(core::ptr::null(), |wr| core::ptr::from_ref(wr))
    }
}

// SAFETY: the pointers in it lead into itself, and are set anew for each chain.
unsafe impl Send for Chain {}
