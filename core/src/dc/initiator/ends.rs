// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How operations end: well, failed, or flushed behind one of their flow that has failed.
//!
//! Later operations of the flow are flushed in each case. Of those that were not cut to their
//! end nothing more is sent. For the others it depends on the cause:
//!
//! | cause | status | sent for what the target has not taken | flow at the target |
//! |---|---|---|---|
//! | the target refuses a request | the answer's | the requests: it refuses them | closed already |
//! | it says `Flushed` | `WrFlushErr`, until the cause is heard | the same | closed already |
//! | it refuses the repeat of a READ | `RemAccessErr` | requests to be refused | closed by them |
//! | memory here may not be used | `LocProtErr` | the same | the same |
//! | a receiver has no buffer for too long | `RnrRetryExcErr` | the same | the same |
//! | an answer has the wrong length | `RemOpErr` | the requests: it carries them out | open |
//! | it was posted as failed | the caller's | nothing | open |
//! | the stream breaks | of a flow's first: the cause | nothing; it starts over | forgotten |

use super::parts::{OpSlot, Stage};
use super::Initiator;
use crate::dc::before;
use crate::dc::op::Completion;
use crate::dc::MAX_OPS;
use crate::uapi::WcStatus;

impl Initiator {
    /// Whether an operation of the flow that was not reaped yet has failed.
    pub(super) fn has_failed(&self, flow: u32) -> bool {
        let mut number = self.first_op;
        while number != self.next_op {
            let slot = self.op(number);
            let failed = slot.status != WcStatus::Success && slot.stage != Stage::Reaped;
            if slot.op.flow == flow && failed {
                return true;
            }
            number = number.wrapping_add(1);
        }
        false
    }

    /// The next operation that has ended; those of a flow in the order in which they
    /// were pushed.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        if self.ended == 0 {
            return None;
        }
        let number = self.next_to_reap()?;
        let slot = self.op_mut(number);
        slot.stage = Stage::Reaped;
        let slot = *slot;
        // INVARIANT: one less waits; nothing reaped is left at the front. What has
        // ended is cut to its end, so `cut_op` may pass it.
        self.ended -= 1;
        while self.first_op != self.next_op && self.op(self.first_op).stage == Stage::Reaped {
            self.first_op = self.first_op.wrapping_add(1);
        }
        if before(self.cut_op, self.first_op) {
            self.cut_op = self.first_op;
        }
        if slot.status != WcStatus::Success {
            self.failed_ops = self.failed_ops.saturating_sub(1);
        }
        Some(Completion {
            slot: number as usize % MAX_OPS,
            cookie: slot.op.cookie,
            status: slot.status,
            kind: slot.op.kind,
            with_imm: slot.op.imm.is_some(),
            len: slot.op.len,
        })
    }

    /// The first operation that has ended and that no earlier one of its flow keeps
    /// waiting.
    fn next_to_reap(&mut self) -> Option<u32> {
        let mut number = self.first_op;
        while number != self.next_op {
            let slot = self.op_mut(number);
            let (stage, flow) = (slot.stage, slot.op.flow);
            if stage == Stage::Ended
                && !self.any_before(number, self.first_op, |slot| {
                    slot.op.flow == flow && slot.stage != Stage::Reaped
                })
            {
                return Some(number);
            }
            number = number.wrapping_add(1);
        }
        None
    }

    /// Whether `is_it` holds for an operation from `from` on and before `number`.
    pub(super) fn any_before(
        &self,
        number: u32,
        from: u32,
        is_it: impl Fn(&OpSlot) -> bool,
    ) -> bool {
        let mut other = from;
        while other != number {
            if is_it(self.op(other)) {
                return true;
            }
            other = other.wrapping_add(1);
        }
        false
    }

    /// Looks whether an operation has ended.
    pub(super) fn settle(&mut self, number: u32) {
        let slot = self.op_mut(number);
        if slot.stage == Stage::Running && slot.cut_all && slot.open == 0 {
            // INVARIANT: one more waits.
            slot.stage = Stage::Ended;
            self.ended += 1;
        }
    }

    /// Ends every operation: of each flow the first with `status`, those after it
    /// flushed. The stream is unusable afterwards until it has been reaped and
    /// [restarted](Self::restart).
    pub fn fail_all(&mut self, status: WcStatus) {
        let mut number = self.first_op;
        while number != self.next_op {
            let slot = self.op_mut(number);
            if slot.stage == Stage::Running {
                slot.cut_all = true;
                slot.open = 0;
                // If it was flushed, why, the target did not live to tell: this is why then.
                if slot.status == WcStatus::Success || slot.flushed {
                    self.fail_op(number, status);
                }
                self.settle(number);
            }
            number = number.wrapping_add(1);
        }
        self.cut_op = self.next_op;
        self.base = self.next;
        self.resend = self.next;
        self.patience.calm();
        self.repeats_left = u32::MAX;
        self.broken = true;
    }

    /// The target says that the operation, or one before it, has failed.
    pub(super) fn flush_op(&mut self, flushed: u32) {
        if self.op(flushed).status == WcStatus::Success {
            self.fail_op(flushed, WcStatus::WrFlushErr);
            self.op_mut(flushed).flushed = true;
        }
    }

    /// Fails an operation, and with it the later ones of its flow: what was not
    /// yet cut of them is not sent, what is on its way the target refuses. The
    /// first failure of an operation is its status.
    pub(super) fn fail_op(&mut self, failed: u32, status: WcStatus) {
        let flow = self.op(failed).op.flow;
        let (mut number, mut status) = (failed, status);
        while number != self.next_op {
            let slot = self.op_mut(number);
            if slot.op.flow == flow && slot.stage != Stage::Reaped {
                slot.cut_all = true;
                if slot.status == WcStatus::Success {
                    slot.status = status;
                    self.failed_ops += 1;
                } else if slot.flushed {
                    // The cause is known now, or is that of an earlier operation.
                    slot.status = status;
                    slot.flushed = false;
                }
                self.settle(number);
                status = WcStatus::WrFlushErr;
            }
            number = number.wrapping_add(1);
        }
    }
}
