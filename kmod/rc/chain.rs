// SPDX-License-Identifier: GPL-2.0

//! A batch of requests as ib_core takes them: one chain, posted by one call.

use kernel::alloc::KBox;
use kernel::prelude::*;
use weft_core::dc::OpKind;
use weft_core::rc::WrId;
use weft_core::uapi::{Sge, MAX_SGE};

use crate::bindings::*;
use crate::dc::{Entry, Words};
use crate::mem::Access;

/// Requests in a chain.
pub(super) const CHAIN: usize = 16;
/// Pieces of local memory that a request may have.
pub(super) const SGES: usize = MAX_SGE;

/// The access that an operation needs to local and to remote memory.
pub(super) fn access(kind: OpKind) -> (Access, Access) {
    match kind {
        OpKind::Read => (Access::LocalWrite, Access::RemoteRead),
        // Messages do not come here.
        OpKind::Write | OpKind::Send => (Access::LocalRead, Access::RemoteWrite),
        OpKind::CompareSwap | OpKind::FetchAdd => (Access::LocalWrite, Access::RemoteAtomic),
    }
}

/// The device's keys for a request whose own were checked.
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
    inline: [Words; CHAIN],
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
                inline: [Words::default(); CHAIN],
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

    /// Appends a request; nothing happens if the chain is full.
    pub(super) fn push(&mut self, seq: u32, entry: &Entry, keys: &Keys, signaled: bool) {
        let index = self.len;
        let (Some(list), Some(inline)) = (self.sges.get_mut(index), self.inline.get_mut(index))
        else {
            return;
        };
        // A request of no bytes has no piece either: some adapters take the length 0 of a
        // piece for 2 GiB (mlx4; ionic refuses it then). Nor has its key to be valid (IBTA
        // vol. 1, C9-88).
        let inline_data = entry.inline().filter(|_| entry.len() != 0);
        let (num_sge, mut send_flags) = match inline_data {
            Some(data) => (
                put_inline(list, inline, data, entry.len()),
                ib_send_flags_IB_SEND_INLINE,
            ),
            None => (put_sges(list, entry.pieces(), keys), 0),
        };
        if signaled {
            send_flags |= ib_send_flags_IB_SEND_SIGNALED;
        }
        let wr = ib_send_wr {
            next: core::ptr::null_mut(),
            __bindgen_anon_1: ib_send_wr__bindgen_ty_1 {
                wr_id: WrId::Request(seq).encode(),
            },
            sg_list: list.as_mut_ptr(),
            num_sge,
            opcode: opcode(entry.kind()),
            send_flags,
            ..ib_send_wr::default()
        };
        self.put(index, wr, entry, keys.rkey);
        self.len += 1;
        self.link(index);
    }

    /// Appends a piece of a READ or WRITE, signalled; nothing happens if the chain is
    /// full.
    pub(super) fn push_piece(
        &mut self,
        seq: u32,
        kind: OpKind,
        sges: &[Sge],
        keys: &Keys,
        remote_addr: u64,
    ) {
        let index = self.len;
        let Some(list) = self.sges.get_mut(index) else {
            return;
        };
        let num_sge = put_sges(list, sges.iter().copied(), keys);
        let mut wr = rdma_wr(opcode(kind), WrId::Request(seq).encode());
        wr.wr.sg_list = list.as_mut_ptr();
        wr.wr.num_sge = num_sge;
        wr.remote_addr = remote_addr;
        wr.rkey = keys.rkey;
        self.is_atomic[index] = false;
        self.rdma[index] = wr;
        self.len += 1;
        self.link(index);
    }

    /// Puts a request into the list of its kind.
    fn put(&mut self, index: usize, wr: ib_send_wr, entry: &Entry, rkey: u32) {
        let (_, remote_addr) = entry.remote();
        self.is_atomic[index] = entry.kind().is_atomic();
        if entry.kind().is_atomic() {
            let operands = entry.operands();
            self.atomic[index] = ib_atomic_wr {
                wr,
                remote_addr,
                compare_add: operands.compare_add,
                swap: operands.swap,
                rkey,
                ..ib_atomic_wr::default()
            };
        } else {
            self.rdma[index] = ib_rdma_wr {
                wr,
                remote_addr,
                rkey,
            };
        }
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

pub(super) fn opcode(kind: OpKind) -> ib_wr_opcode {
    match kind {
        OpKind::Read => ib_wr_opcode_IB_WR_RDMA_READ,
        OpKind::Write | OpKind::Send => ib_wr_opcode_IB_WR_RDMA_WRITE,
        OpKind::CompareSwap => ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP,
        OpKind::FetchAdd => ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD,
    }
}

/// A signalled request that names no memory yet.
#[inline]
pub(super) fn rdma_wr(opcode: ib_wr_opcode, wr_id: u64) -> ib_rdma_wr {
    let mut wr = ib_rdma_wr::default();
    wr.wr.__bindgen_anon_1.wr_id = wr_id;
    wr.wr.opcode = opcode;
    wr.wr.send_flags = ib_send_flags_IB_SEND_SIGNALED;
    wr
}

/// Lists the pieces of a request's memory; answers how many.
fn put_sges(list: &mut [ib_sge; SGES], sges: impl Iterator<Item = Sge>, keys: &Keys) -> i32 {
    let mut count = 0;
    for ((place, sge), lkey) in list.iter_mut().zip(sges).zip(keys.lkeys) {
        *place = ib_sge {
            addr: sge.addr,
            length: sge.len,
            lkey,
        };
        count += 1;
    }
    count
}

/// Keeps the bytes of a request that has them in itself, and lists them.
fn put_inline(list: &mut [ib_sge; SGES], place: &mut Words, data: &Words, length: u32) -> i32 {
    *place = *data;
    list[0] = ib_sge {
        addr: place.as_ptr() as u64,
        length,
        lkey: 0,
    };
    1
}

// SAFETY: the pointers in it lead into itself, and are set anew for each chain.
unsafe impl Send for Chain {}
