// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The initiator takes the target's answers: chunks are done, wait, or fail with their operation.

use super::{Incoming, Initiator};
use crate::dc::op::OpKind;
use crate::dc::wire::{Response, Status};
use crate::dc::{before, WINDOW};
use crate::uapi::WcStatus;

impl Initiator {
    /// Takes a response whose token was right. `payload` is what followed the
    /// header, in bytes.
    pub fn on_response(
        &mut self,
        response: &Response,
        payload: usize,
        now_ns: u64,
    ) -> Incoming<'_> {
        match response.status {
            Status::Stale => {
                self.fail_all(WcStatus::RemAbortErr);
                return Incoming::Stale;
            }
            Status::Sequence => {
                self.hurry(response.psn);
                return Incoming::Handled;
            }
            Status::NoContext => {
                // A request that overtook the stream's first one gets this answer
                // too, and the answer may be late; after two timeouts it is not.
                if response.psn == self.base && self.patience.tries() >= 2 {
                    self.fail_all(WcStatus::RetryExcErr);
                }
                return Incoming::Handled;
            }
            // The retransmission timer tries again.
            Status::Busy => return Incoming::Handled,
            Status::NotReady => {
                self.not_ready(response.psn, now_ns);
                return Incoming::Handled;
            }
            Status::Ok
            | Status::Flushed
            | Status::Invalid
            | Status::Access
            | Status::Operation
            | Status::NoReceiver => {}
        }
        let psn = response.psn;
        if before(psn, self.base) || !before(psn, self.next) || self.chunk(psn).done {
            return Incoming::Handled;
        }
        self.patience.heard(now_ns);
        let chunk = self.chunk(psn);
        let slot = self.op(chunk.op);
        let is_read = slot.op.kind == OpKind::Read;
        let wanted = slot.op.kind.fetches() && slot.status == WcStatus::Success;
        if wanted && response.status == Status::Ok {
            if payload != chunk.len as usize || response.len != chunk.len {
                self.fail_op(chunk.op, WcStatus::RemOpErr);
            } else if chunk.len != 0 {
                return Incoming::Data {
                    psn,
                    op: &self.op(chunk.op).op,
                    offset: chunk.offset,
                    len: chunk.len,
                };
            }
        }
        if response.status != Status::Ok {
            self.failed_since_ns.get_or_insert(now_ns);
        }
        match response.status {
            Status::Flushed => self.flush_op(chunk.op),
            Status::Invalid => self.fail_op(chunk.op, WcStatus::RemInvReqErr),
            Status::Access => self.fail_op(chunk.op, WcStatus::RemAccessErr),
            Status::Operation => self.fail_op(chunk.op, WcStatus::RemOpErr),
            Status::NoReceiver => self.fail_op(chunk.op, WcStatus::RetryExcErr),
            _ => {}
        }
        if is_read && response.status == Status::Access {
            // If this answers a repeat the target has not closed the flow.
            self.make_void_from(psn);
        }
        self.done(psn, now_ns);
        Incoming::Handled
    }

    /// The payload of [`Incoming::Data`] was copied, or could not be.
    pub fn landed(&mut self, psn: u32, result: Result<(), WcStatus>, now_ns: u64) {
        if let Err(status) = result {
            self.fail_op(self.chunk(psn).op, status);
            self.make_void_from(psn);
        }
        self.done(psn, now_ns);
    }

    /// A receiver has no buffer for a chunk: nothing more is sent for a while.
    /// After [`RNR_PATIENCE_NS`](crate::dc::RNR_PATIENCE_NS) its operation fails.
    fn not_ready(&mut self, psn: u32, now_ns: u64) {
        if before(psn, self.base) || !before(psn, self.next) || self.chunk(psn).done {
            return;
        }
        self.patience.heard(now_ns);
        if self.patience.not_ready(now_ns) {
            return;
        }
        self.fail_op(self.chunk(psn).op, WcStatus::RnrRetryExcErr);
        self.make_void_from(psn);
        self.resend = self.base;
    }

    /// A chunk's operation has failed here: the target does not know, and shall carry out
    /// nothing of its flow from there on that it has not carried out. The first of them that
    /// it takes closes the flow, so that it refuses late copies of the others too.
    pub(super) fn make_void_from(&mut self, psn: u32) {
        let flow = self.op(self.chunk(psn).op).op.flow;
        let mut later = psn;
        while later != self.next {
            let chunk = self.chunk(later);
            if !chunk.done && self.op(chunk.op).op.flow == flow {
                self.chunks[later as usize % WINDOW].make_void();
            }
            later = later.wrapping_add(1);
        }
    }

    fn done(&mut self, psn: u32, now_ns: u64) {
        let slot = &mut self.chunks[psn as usize % WINDOW];
        if slot.done || before(psn, self.base) || !before(psn, self.next) {
            return;
        }
        slot.done = true;
        let op = slot.op;
        self.patience.chunk_done(slot.sent_ns, now_ns);
        let open = &mut self.op_mut(op).open;
        *open = open.saturating_sub(1);
        self.settle(op);
        self.repeats_left = u32::MAX;
        // INVARIANT: `base` moves to the first chunk that is not done.
        while self.base != self.next && self.chunk(self.base).done {
            self.base = self.base.wrapping_add(1);
            self.patience.moved_on(now_ns);
        }
        if before(self.resend, self.base) {
            self.resend = self.base;
        }
    }

    /// The target saw a gap before a later packet. Go back once per gap: the
    /// packets behind the gap each report it.
    fn hurry(&mut self, awaited: u32) {
        let is_waiting = self.patience.is_not_ready();
        if !is_waiting
            && awaited == self.base
            && self.base != self.next
            && self.hurried != Some(awaited)
        {
            self.hurried = Some(awaited);
            self.repeats_left = u32::MAX;
            self.resend = self.base;
        }
    }
}
