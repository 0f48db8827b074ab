// SPDX-License-Identifier: GPL-2.0

//! Requests that were copied and judged, for either transport. They are kept as
//! they were copied: to take them apart for a transport that has another form for
//! them costs as much as posting them.

use weft_core::dc::wire::{Operands, Receiver};
use weft_core::dc::{Local, Op, OpKind};
use weft_core::uapi::{self, SendWr, Sge, WcStatus, MAX_INLINE, MAX_SGE};

/// The bytes of a request that has them in itself.
pub(crate) type Words = [u64; MAX_INLINE as usize / 8];

/// The origin of requests.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    /// The virtual queue pair.
    pub(crate) flow: u32,
    /// The session, whose memory they may use.
    pub(crate) owner: u64,
    /// The receiver of its messages at the peer; `None`: it may not send any.
    pub(crate) to: Option<Receiver>,
}

/// The VQP that a request is of, and the peer that it goes to if the VQP is unconnected:
/// handles of the session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) vqp: u32,
    pub(crate) peer: u32,
}

/// One request to post.
pub(crate) struct Entry {
    wr: SendWr,
    kind: OpKind,
    len: u32,
    /// How it has failed already, if it has.
    failed: Option<WcStatus>,
}

impl Entry {
    /// A copied request, which is to be judged where it is kept.
    #[inline]
    pub(crate) fn copied(wr: SendWr) -> Self {
        Self {
            wr,
            kind: OpKind::Write,
            len: 0,
            failed: Some(WcStatus::LocQpOpErr),
        }
    }

    /// Judges it. Not inlined: it would be taken apart in registers, of which there
    /// are too few, and put together again.
    #[inline(never)]
    pub(crate) fn judge(&mut self, from: &Origin) {
        self.kind = match self.wr.opcode {
            uapi::OP_READ => OpKind::Read,
            uapi::OP_SEND | uapi::OP_SEND_WITH_IMM => OpKind::Send,
            uapi::OP_CAS => OpKind::CompareSwap,
            uapi::OP_FAA => OpKind::FetchAdd,
            // `check` refuses any other opcode.
            _ => OpKind::Write,
        };
        self.failed = match weft_core::vqp::check(&self.wr) {
            Ok(len) => {
                self.len = len;
                let is_deaf = from.to.is_none() && self.needs_receiver();
                is_deaf.then_some(WcStatus::LocQpOpErr)
            }
            Err(status) => Some(status),
        };
    }

    /// The operation.
    #[inline]
    pub(crate) fn kind(&self) -> OpKind {
        self.kind
    }

    /// The bytes that it moves.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// The user's name for it.
    #[inline]
    pub(crate) fn cookie(&self) -> u64 {
        self.wr.wr_id
    }

    /// How it has failed already, if it has.
    #[inline]
    pub(crate) fn failed(&self) -> Option<WcStatus> {
        self.failed
    }

    /// Whether it makes a completion even if it succeeds.
    #[inline]
    pub(crate) fn is_signaled(&self) -> bool {
        self.wr.flags & uapi::SEND_SIGNALED != 0
    }

    /// Whether it begins only when those before it have ended.
    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.wr.flags & uapi::SEND_FENCE != 0
    }

    /// Its `SEND_*` flags.
    #[inline]
    pub(crate) fn flags(&self) -> u8 {
        self.wr.flags
    }

    /// The VQP and the peer that it names.
    #[inline]
    pub(crate) fn way(&self) -> Way {
        Way {
            vqp: self.wr.vqp,
            peer: self.wr.peer,
        }
    }

    /// The peer's key and address.
    #[inline]
    pub(crate) fn remote(&self) -> (u32, u64) {
        (self.wr.rkey, self.wr.remote_addr)
    }

    /// Of an atomic operation.
    #[inline]
    pub(crate) fn operands(&self) -> Operands {
        if !self.kind.is_atomic() {
            return Operands::NONE;
        }
        let (compare_add, swap) = self.wr.operands();
        Operands { compare_add, swap }
    }

    /// Whether a receiver at the peer hears of it.
    #[inline]
    pub(crate) fn needs_receiver(&self) -> bool {
        self.kind == OpKind::Send || self.wr.opcode == uapi::OP_WRITE_WITH_IMM
    }

    /// Its bytes, if they are in itself.
    #[inline]
    pub(crate) fn inline(&self) -> Option<&Words> {
        (self.wr.flags & uapi::SEND_INLINE != 0).then_some(&self.wr.data)
    }

    /// The pieces of local memory that hold its bytes, in order. None if it has
    /// failed already.
    #[inline]
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Sge> + '_ {
        let count = match self.failed {
            None => usize::from(self.wr.num_sge).min(MAX_SGE),
            Some(_) => 0,
        };
        let sges = (0..count).map(|index| self.wr.sge(index));
        sges.filter(|sge| sge.len != 0)
    }

    /// Its piece, if it has one alone, of some bytes: most requests have.
    #[inline]
    pub(crate) fn only_piece(&self) -> Option<Sge> {
        let sge = self.wr.sge(0);
        (self.wr.num_sge == 1 && self.failed.is_none() && sge.len != 0).then_some(sge)
    }

    /// As DC takes it.
    pub(crate) fn op(&self, from: &Origin) -> Op {
        let wr = &self.wr;
        let with_imm = matches!(wr.opcode, uapi::OP_SEND_WITH_IMM | uapi::OP_WRITE_WITH_IMM);
        Op {
            cookie: wr.wr_id,
            flow: from.flow,
            owner: from.owner,
            kind: self.kind,
            imm: with_imm.then_some(wr.imm),
            to: from.to.unwrap_or(Receiver::Port(0)),
            rkey: wr.rkey,
            len: self.len,
            remote_addr: wr.remote_addr,
            operands: self.operands(),
            local: self.local(),
        }
    }

    fn local(&self) -> Local {
        if let Some(data) = self.inline() {
            return Local::Inline(*data);
        }
        const NONE: Sge = Sge {
            addr: 0,
            len: 0,
            lkey: 0,
        };
        let mut sges = [NONE; MAX_SGE];
        for (place, sge) in sges.iter_mut().zip(self.pieces()) {
            *place = sge;
        }
        Local::Sges(sges)
    }
}
