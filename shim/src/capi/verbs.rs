// SPDX-License-Identifier: MIT OR Apache-2.0

//! The parts of `<infiniband/verbs.h>` that the C ABI reads and writes, in its
//! layout. `tests.rs` holds each field against the header itself.

#![expect(
    missing_docs,
    reason = "the manual of ibv_post_send(3) explains the fields"
)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use weft_core::gid::Gid;
use weft_core::uapi;

/// `IBV_WR_RDMA_WRITE`, an `enum ibv_wr_opcode`.
pub const WR_RDMA_WRITE: u32 = 0;
/// `IBV_WR_RDMA_WRITE_WITH_IMM`.
pub const WR_RDMA_WRITE_WITH_IMM: u32 = 1;
/// `IBV_WR_SEND`.
pub const WR_SEND: u32 = 2;
/// `IBV_WR_SEND_WITH_IMM`.
pub const WR_SEND_WITH_IMM: u32 = 3;
/// `IBV_WR_RDMA_READ`.
pub const WR_RDMA_READ: u32 = 4;
/// `IBV_WR_ATOMIC_CMP_AND_SWP`.
pub const WR_ATOMIC_CMP_AND_SWP: u32 = 5;
/// `IBV_WR_ATOMIC_FETCH_AND_ADD`.
pub const WR_ATOMIC_FETCH_AND_ADD: u32 = 6;

/// `IBV_SEND_FENCE`, an `enum ibv_send_flags`.
pub const SEND_FENCE: u32 = 1;
/// `IBV_SEND_SIGNALED`.
pub const SEND_SIGNALED: u32 = 1 << 1;
/// `IBV_SEND_SOLICITED`: who waits is woken by every completion anyway.
pub const SEND_SOLICITED: u32 = 1 << 2;
/// `IBV_SEND_INLINE`.
pub const SEND_INLINE: u32 = 1 << 3;

/// `IBV_WC_SEND`, an `enum ibv_wc_opcode`.
pub const WC_SEND: u32 = 0;
/// `IBV_WC_RDMA_WRITE`.
pub const WC_RDMA_WRITE: u32 = 1;
/// `IBV_WC_RDMA_READ`.
pub const WC_RDMA_READ: u32 = 2;
/// `IBV_WC_COMP_SWAP`.
pub const WC_COMP_SWAP: u32 = 3;
/// `IBV_WC_FETCH_ADD`.
pub const WC_FETCH_ADD: u32 = 4;
/// `IBV_WC_RECV`.
pub const WC_RECV: u32 = 128;
/// `IBV_WC_RECV_RDMA_WITH_IMM`.
pub const WC_RECV_RDMA_WITH_IMM: u32 = 129;

/// `IBV_WC_WITH_IMM`, an `enum ibv_wc_flags`.
pub const WC_WITH_IMM: u32 = 1 << 1;

/// `IBV_WC_GENERAL_ERR`, an `enum ibv_wc_status`.
pub const WC_GENERAL_ERR: u32 = 21;

/// `union ibv_gid`, which is aligned to 8 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct IbvGid {
    pub raw: Gid,
}

/// `struct ibv_sge`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

impl Sge {
    /// In the module's form.
    pub(super) const fn to_raw(self) -> uapi::Sge {
        uapi::Sge {
            addr: self.addr,
            len: self.length,
            lkey: self.lkey,
        }
    }
}

/// The beginning of `struct ibv_send_wr`, up to its union `wr`. What C did not
/// set of it is not looked at.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: u32,
    pub send_flags: u32,
    /// In network order.
    pub imm_data: MaybeUninit<u32>,
    pub wr: Wr,
}

/// `struct ibv_recv_wr`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// `ibv_send_wr::wr`. The opcode tells which one it is.
#[derive(Clone, Copy)]
#[repr(C)]
pub union Wr {
    pub rdma: Rdma,
    pub atomic: Atomic,
}

/// `ibv_send_wr::wr.rdma`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// `ibv_send_wr::wr.atomic`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// `struct ibv_wc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// In network order.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// `struct ibv_qp_cap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_srq_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}
