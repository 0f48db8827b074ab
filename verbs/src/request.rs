// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a queue pair is asked to do: work requests.

use crate::{sys, Mr};

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Copies the peer's bytes here.
    Read,
    /// Copies bytes to the peer.
    Write,
    /// Gives bytes to a receive of the peer.
    Send,
    /// Swaps the peer's word if it is `compare`, and brings here what it was.
    CompareSwap {
        /// What the word has to be.
        compare: u64,
        /// What it becomes then.
        swap: u64,
    },
    /// Adds to the peer's word, and brings here what it was.
    FetchAdd {
        /// What is added.
        add: u64,
    },
}

/// A work request with one scatter/gather element.
///
/// It names memory by key and address, and the NIC checks both against the
/// registration, so a wrong one is a failed completion, never a stray access.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: Op,
    /// Local address.
    pub local_addr: u64,
    /// Key of the local memory.
    pub lkey: u32,
    /// Bytes.
    pub len: u32,
    /// Address in the peer's memory. SEND ignores it.
    pub remote_addr: u64,
    /// Key of the peer's memory. SEND ignores it.
    pub rkey: u32,
}

impl WorkRequest {
    /// `op` on the first `len` bytes of `local` and the peer's memory at
    /// `remote`, an address and a key.
    #[must_use]
    pub fn new(op: Op, local: &Mr, len: u32, remote: (u64, u32)) -> Self {
        Self {
            wr_id: 0,
            op,
            local_addr: local.pages().addr(),
            lkey: local.lkey(),
            len,
            remote_addr: remote.0,
            rkey: remote.1,
        }
    }

    /// The local memory, as the library has it.
    pub(crate) fn element(&self) -> sys::ibv_sge {
        sys::ibv_sge {
            addr: self.local_addr,
            length: self.len,
            lkey: self.lkey,
        }
    }

    /// The request as the library has it, with its one element.
    pub(crate) fn raw(&self, element: *mut sys::ibv_sge, signaled: bool) -> sys::ibv_send_wr {
        let mut raw = sys::ibv_send_wr {
            wr_id: self.wr_id,
            sg_list: element,
            num_sge: 1,
            opcode: match self.op {
                Op::Read => sys::IBV_WR_RDMA_READ,
                Op::Write => sys::IBV_WR_RDMA_WRITE,
                Op::Send => sys::IBV_WR_SEND,
                Op::CompareSwap { .. } => sys::IBV_WR_ATOMIC_CMP_AND_SWP,
                Op::FetchAdd { .. } => sys::IBV_WR_ATOMIC_FETCH_AND_ADD,
            },
            send_flags: if signaled { sys::IBV_SEND_SIGNALED } else { 0 },
            ..Default::default()
        };
        let (remote_addr, rkey) = (self.remote_addr, self.rkey);
        let atomic = |compare_add, swap| sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
            remote_addr,
            compare_add,
            swap,
            rkey,
        };
        match self.op {
            Op::CompareSwap { compare, swap } => raw.wr.atomic = atomic(compare, swap),
            Op::FetchAdd { add } => raw.wr.atomic = atomic(add, 0),
            Op::Read | Op::Write | Op::Send => {
                raw.wr.rdma = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
            }
        }
        raw
    }
}
