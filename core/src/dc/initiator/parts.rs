// SPDX-License-Identifier: GPL-2.0 OR MIT

//! An initiator's records of its operations, and of the chunks that it cuts them into.

use crate::dc::op::Op;
use crate::uapi::WcStatus;

#[derive(Clone, Copy)]
pub(super) struct OpSlot {
    pub(super) op: Op,
    /// Bytes for which chunks exist. An operation of no bytes has one chunk.
    pub(super) cut: u32,
    pub(super) cut_all: bool,
    /// Chunks that exist and are not done.
    pub(super) open: u32,
    pub(super) status: WcStatus,
    /// Its status is the target's word that something before has failed. An answer
    /// that was lost may tell more, if what has failed is a part of itself.
    pub(super) flushed: bool,
    pub(super) stage: Stage,
}

/// How far an operation has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is not cut to its end, or some of its chunks are open.
    Running,
    /// It waits to be reaped.
    Ended,
    /// It only keeps its place, until those before it are gone.
    Reaped,
}

#[derive(Clone, Copy)]
pub(super) struct Chunk {
    /// Its operation. Once the chunk is done that may be reaped, and the number be no
    /// longer in use.
    pub(super) op: u32,
    pub(super) is_atomic: bool,
    pub(super) offset: u32,
    pub(super) len: u32,
    pub(super) done: bool,
    /// Its operation has failed before the target took it. Because it has used its PSN, a
    /// request goes out that the target refuses.
    pub(super) void: bool,
    /// When it was sent; `None` before, and once it was sent again: nobody knows
    /// then which of the two is answered.
    pub(super) sent_ns: Option<u64>,
    pub(super) resent: bool,
}

impl Chunk {
    pub(super) fn note_sent(&mut self, now_ns: u64) {
        self.sent_ns = (!self.resent).then_some(now_ns);
        self.resent = true;
    }

    /// Whether a chunk that was sent was sent before.
    pub(super) const fn is_repeat(&self) -> bool {
        self.resent && self.sent_ns.is_none()
    }

    pub(super) fn make_void(&mut self) {
        self.len = 0;
        self.void = true;
    }
}

pub(super) const NO_OP: OpSlot = OpSlot {
    op: Op::EMPTY,
    cut: 0,
    cut_all: true,
    open: 0,
    status: WcStatus::Success,
    flushed: false,
    stage: Stage::Reaped,
};
pub(super) const FRESH_CHUNK: Chunk = Chunk {
    op: 0,
    is_atomic: false,
    offset: 0,
    len: 0,
    done: false,
    void: false,
    sent_ns: None,
    resent: false,
};
pub(super) const NO_CHUNK: Chunk = Chunk {
    done: true,
    ..FRESH_CHUNK
};
