// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Work requests, receive buffers and completions.

use super::{pod, Pod, MAX_RECV_SGE};

/// RDMA WRITE. (`IBV_WR_RDMA_WRITE`)
pub const OP_WRITE: u8 = 0;
/// RDMA WRITE that takes a receive buffer of the peer, and completes it with an
/// immediate. (`IBV_WR_RDMA_WRITE_WITH_IMM`)
pub const OP_WRITE_WITH_IMM: u8 = 1;
/// A message. (`IBV_WR_SEND`)
pub const OP_SEND: u8 = 2;
/// A message with an immediate. (`IBV_WR_SEND_WITH_IMM`)
pub const OP_SEND_WITH_IMM: u8 = 3;
/// RDMA READ. (`IBV_WR_RDMA_READ`)
pub const OP_READ: u8 = 4;
/// Compare and swap of an aligned 8-byte word. (`IBV_WR_ATOMIC_CMP_AND_SWP`) The
/// word's former value lands in the local 8 bytes.
pub const OP_CAS: u8 = 5;
/// Fetch and add, likewise. (`IBV_WR_ATOMIC_FETCH_AND_ADD`)
pub const OP_FAA: u8 = 6;

/// [`Wc::opcode`]: a message has arrived. (`IBV_WC_RECV`)
pub const WC_RECV: u16 = 128;
/// [`Wc::opcode`]: a WRITE with an immediate has arrived.
/// (`IBV_WC_RECV_RDMA_WITH_IMM`)
pub const WC_RECV_RDMA_WITH_IMM: u16 = 129;

/// The request begins when the requests of its VQP before it have ended; of an unconnected
/// one, those to the same peer. (`IBV_SEND_FENCE`, which waits for READs and atomic
/// operations alone.) The call that submits it waits for that, and so do requests behind it
/// in the ring.
pub const SEND_FENCE: u8 = 1;
/// The request makes a completion. (`IBV_SEND_SIGNALED`)
pub const SEND_SIGNALED: u8 = 1 << 1;
/// The data is in the request itself. (`IBV_SEND_INLINE`)
pub const SEND_INLINE: u8 = 1 << 3;
/// The completion is for who made the request alone: it has [`WC_PRIVATE`], so that a
/// library can tell its own requests from its user's, whose `wr_id` may be anything.
pub const SEND_PRIVATE: u8 = 1 << 7;

/// [`Wc::flags`]: there is an immediate. (`IBV_WC_WITH_IMM`)
pub const WC_WITH_IMM: u32 = 1 << 1;
/// [`Wc::flags`]: of a request with [`SEND_PRIVATE`].
pub const WC_PRIVATE: u32 = 1 << 7;
/// [`Wc::flags`]: the VQP's requests go by RC, so that [`Run`](super::Run) is worth
/// trying.
pub const WC_BY_RC: u32 = 1 << 8;

pod! {
    /// A piece of local memory. (`ibv_sge`)
    pub struct Sge [16] {
        /// First byte.
        pub addr: u64,
        /// Bytes.
        pub len: u32,
        /// The region's key.
        pub lkey: u32,
    }
}

pod! {
    /// A work request, two cache lines.
    pub struct SendWr [128] {
        /// Comes back in the completion.
        pub wr_id: u64,
        /// `OP_*`.
        pub opcode: u8,
        /// `SEND_*`.
        pub flags: u8,
        /// Elements in `data`; 0 with [`SEND_INLINE`].
        pub num_sge: u16,
        /// Immediate data, of the operations that have it; else zero. In the order of
        /// the host's bytes: the peer's [`Wc::imm`] is the same number.
        pub imm: u32,
        /// Address in the peer's memory; zero for messages.
        pub remote_addr: u64,
        /// The peer's key for it; zero for messages.
        pub rkey: u32,
        /// Bytes in `data` with [`SEND_INLINE`]; else zero.
        pub inline_len: u32,
        /// The VQP.
        pub vqp: u32,
        /// If that is unconnected: the peer, from [`PeerOpen`](super::PeerOpen). Else zero.
        pub peer: u32,
        /// Must be zero.
        pub reserved: u64,
        /// [`Sge`]s, or the data itself with [`SEND_INLINE`]. An atomic operation has its
        /// operands behind its one element ([`SendWr::set_operands`]).
        pub data: [u64; 10],
    }
}

impl SendWr {
    /// The element with this index, as `data` has it.
    #[inline]
    #[must_use]
    pub fn sge(&self, index: usize) -> Sge {
        let Some(first) = index.checked_mul(2) else {
            return Sge::zeroed();
        };
        match self.data.get(first..) {
            Some(&[addr, rest, ..]) => Sge::from_words(addr, rest),
            _ => Sge::zeroed(),
        }
    }

    /// Of an atomic operation: what the word has to be (`OP_CAS`) or what is added
    /// (`OP_FAA`), and what the word becomes (`OP_CAS`; else zero).
    #[inline]
    #[must_use]
    pub fn operands(&self) -> (u64, u64) {
        let [_, _, compare_add, swap, ..] = self.data;
        (compare_add, swap)
    }

    /// Puts the operands of an atomic operation in.
    #[inline]
    pub fn set_operands(&mut self, compare_add: u64, swap: u64) {
        let [_, _, first, second, ..] = &mut self.data;
        (*first, *second) = (compare_add, swap);
    }

    /// Puts an element in; one past the last place is ignored.
    #[inline]
    pub fn set_sge(&mut self, index: usize, sge: Sge) {
        if let Some(words) = self.data.chunks_exact_mut(2).nth(index) {
            words.copy_from_slice(&sge.to_words());
        }
    }
}

impl Sge {
    #[inline]
    fn from_words(addr: u64, rest: u64) -> Self {
        let (low, high) = (rest as u32, (rest >> 32) as u32);
        let (len, lkey) = match cfg!(target_endian = "little") {
            true => (low, high),
            false => (high, low),
        };
        Self { addr, len, lkey }
    }

    #[inline]
    fn to_words(self) -> [u64; 2] {
        let (low, high) = match cfg!(target_endian = "little") {
            true => (self.len, self.lkey),
            false => (self.lkey, self.len),
        };
        [self.addr, u64::from(low) | (u64::from(high) << 32)]
    }
}

pod! {
    /// A receive buffer, one cache line. (`ibv_recv_wr`)
    pub struct RecvWr [64] {
        /// Comes back in the completion.
        pub wr_id: u64,
        /// Elements in `sges`; 0: takes only messages without bytes.
        pub num_sge: u32,
        /// Must be zero.
        pub reserved: u32,
        /// Where the bytes go.
        pub sges: [Sge; MAX_RECV_SGE],
    }
}

pod! {
    /// A completion.
    pub struct Wc [32] {
        /// From the work request or the receive buffer.
        pub wr_id: u64,
        /// A [`WcStatus`](super::WcStatus).
        pub status: u16,
        /// `OP_*` of the request, or `WC_RECV*`.
        pub opcode: u16,
        /// `WC_*`.
        pub flags: u32,
        /// Bytes moved; 0 if it failed.
        pub byte_len: u32,
        /// The VQP. It may have been destroyed since.
        pub vqp: u32,
        /// The immediate, if there is one, as the number that the sender gave.
        pub imm: u32,
        /// Of a message to a bound VQP: its sender, for [`Accept`](super::Accept). Of a
        /// request of an unconnected VQP: its [`SendWr::peer`]. Else
        /// [`SRC_NONE`](super::SRC_NONE).
        pub src: u32,
    }
}
