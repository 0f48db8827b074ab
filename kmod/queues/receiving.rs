// SPDX-License-Identifier: GPL-2.0

//! The receive ring of some queues: buffers that are taken, and those that come back because
//! the VQP whose own the ring is is in error.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use weft_core::uapi::{self, RecvWr, Wc, WcStatus};
use weft_core::vqp::{ReceiveUse, Receives};

use super::Queues;
use crate::dc::Requester;
use crate::sync::Routine;

/// Receive buffers that are handed back with a request of a VQP that has failed, often in a
/// softirq or with a lock that others wait for. If there may be more, a work does the rest.
const FEW_BUFFERS: u32 = 32;

impl<R: Requester> Queues<R> {
    /// A VQP begins to take receive buffers from here.
    ///
    /// # Errors
    ///
    /// `EBUSY`: others do, and not all of them say that they share it.
    pub(crate) fn begin_receiving(&self, how: ReceiveUse) -> Result {
        match self.receives.lock().begin(how) {
            true => Ok(()),
            false => Err(EBUSY),
        }
    }

    /// A VQP that took receive buffers from here is gone, and knows it. None of its buffers is
    /// handed back after this.
    pub(crate) fn end_receiving(&self) {
        let mut receives = self.receives.lock();
        receives.end();
        self.is_flushing.store(false, Ordering::Release);
    }

    /// The next receive buffer here, with a place for its completion in `to`. None if the VQP
    /// that asks was destroyed, as `is_deaf` says with the lock held: then they are another's.
    pub(crate) fn claim(&self, to: &Self, is_deaf: impl FnOnce() -> bool) -> Option<RecvWr> {
        let mut receives = self.receives.lock();
        match is_deaf() {
            true => None,
            false => self.take_buffer(&mut receives, to),
        }
    }

    /// Likewise, with the lock held.
    fn take_buffer(&self, receives: &mut Receives, to: &Self) -> Option<RecvWr> {
        let index = receives.next(self.rings.rq_tail())?;
        if to.reserve(1) == 0 {
            return None;
        }
        let buffer = self.rings.recv_wr(index);
        // Only now: the user may put another buffer there from then on.
        self.rings.set_rq_head(receives.take());
        Some(buffer)
    }

    /// The VQP with this handle, whose own the receive ring is, is in error: what is
    /// posted to receive comes back, now and later. Unless it was destroyed, as `is_deaf`
    /// says with the lock held: then the ring may be another's.
    pub(crate) fn fail_receives(&self, vqp: u32, is_deaf: impl FnOnce() -> bool) {
        {
            let mut receives = self.receives.lock();
            if is_deaf() || !receives.fail(vqp) {
                return;
            }
            self.is_flushing.store(true, Ordering::Release);
        }
        // The caller may hold what others wait for, or be a softirq.
        if self.flush_some(FEW_BUFFERS) == FEW_BUFFERS {
            self.flush_work.schedule(0);
        }
    }

    /// Hands back what was posted to receive, if the VQP that it was for is in error.
    pub(crate) fn flush_receives(&self) {
        self.flush_some(self.rings.rq_entries());
    }

    /// As [`Self::flush_receives`], but at most so many, because the user may go on posting
    /// meanwhile. Answers how many.
    fn flush_some(&self, most: u32) -> u32 {
        let mut flushed = 0;
        while flushed < most && self.flush_next() {
            flushed += 1;
        }
        if flushed != 0 {
            self.notify();
        }
        flushed
    }

    /// Hands back the next buffer that was posted for a VQP in error. Answers whether there was
    /// one.
    #[inline]
    fn flush_next(&self) -> bool {
        // Most rings are of no VQP in error.
        if !self.is_flushing() {
            return false;
        }
        let mut receives = self.receives.lock();
        // The lock keeps the VQP from going, and the ring from another, until the completion
        // is written.
        let Some(vqp) = receives.failed() else {
            return false;
        };
        let Some(buffer) = self.take_buffer(&mut receives, self) else {
            return false;
        };
        let wc = Wc {
            wr_id: buffer.wr_id,
            status: WcStatus::WrFlushErr as u16,
            opcode: uapi::WC_RECV,
            flags: 0,
            byte_len: 0,
            vqp,
            imm: 0,
            src: uapi::SRC_NONE,
        };
        self.complete(Some(&wc), || false);
        true
    }

    /// The session lets go of them: no work hands buffers back any more. VQPs that live on
    /// until their requests have ended may still have them. May sleep.
    pub(crate) fn stop_work(&self) {
        self.flush_work.stop();
    }

    /// Whether the VQP that the receive ring is of is in error.
    pub(crate) fn is_flushing(&self) -> bool {
        self.is_flushing.load(Ordering::Acquire)
    }
}

// SAFETY: the offset is the field's own. A session stops the work before it lets go of queues
// that were in its table; others are no VQP's, and only a VQP's failure schedules it.
unsafe impl<R: Requester> Routine for Queues<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, flush_work);

    fn run(&self) {
        self.flush_receives();
    }
}
