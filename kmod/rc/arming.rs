// SPDX-License-Identifier: GPL-2.0

//! Arming an RC queue pair's completion queue while nobody polls, and the work items that
//! look at it in the background.
//!
//! | who waits | who looks at the completion queue |
//! |---|---|
//! | threads that poll (`attendance`) | they do, one at a time; the queue is not armed |
//! | threads that sleep (`sleepers`) | the one that the device's call wakes through `calls` |
//! | those who wait for room (`room`) | as in the other rows: a look that finds room wakes them |
//! | nobody, or `poll(2)` alone | `work`, which the device's call starts |
//!
//! The device calls once for each arming. So whoever looks after a call arms the queue again,
//! unless threads that poll see to it (`look_again`). These may have lost their CPU, or sleep
//! while they post elsewhere: as long as others rely on them, `relief` looks every 4 ms.

use core::sync::atomic::Ordering;

use crate::dc::Requester;
use crate::rc::queue::RcQueue;
use crate::rdma::Notified;
use crate::sync::{EventCount, Routine, Woken};

/// Times that the queue is armed and found not to be empty before it is left to
/// the work item.
const ARM_TRIES: u32 = 4;
/// How often the completion queue is looked at while it is not armed because threads
/// attend, in milliseconds: longer than they leave it alone while they have a CPU.
const RELIEF_MS: u32 = 4;
/// Tells this work of a queue from its other one.
pub(super) const RELIEF: usize = 1;

impl<R: Requester> RcQueue<R> {
    /// Sleeps until room was made after `seen`, also while the caller attends.
    pub(crate) fn wait_for_room(&self, seen: u32, timeout_ns: u64, interruptible: bool) -> Woken {
        self.poll();
        self.arm();
        self.room.wait(seen, timeout_ns, interruptible)
    }

    /// Sleeps until `done` is no longer `seen`. Requests of the caller are on their way:
    /// the device calls when they end, also while others attend, which may have lost
    /// their CPU.
    pub(crate) fn sleep(&self, done: &EventCount, seen: u32, timeout_ns: u64) -> Woken {
        // Either we see that the device has called, or its call sees us.
        let called = self.calls.seen();
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if !self.armed.load(Ordering::SeqCst) {
            self.arm();
        }
        let woken = done.wait_either(seen, (&self.calls, called), timeout_ns);
        // Either the device's call, which counts before it looks for sleepers, sees that
        // this one is none any more, or the call is seen here.
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        if self.calls.seen() != called {
            self.look_again();
        }
        woken
    }

    /// After a call of the device: ends what has ended, and arms the queue again if nobody
    /// else looks after what is left.
    fn look_again(&self) {
        self.poll();
        if self.attendance.is_empty() || self.sleepers.load(Ordering::SeqCst) != 0 {
            self.arm();
        } else {
            self.relieve_later();
        }
    }

    /// Sees to it that completions are noticed soon, though only threads that attend
    /// would. For those that leave requests behind and wait in `poll(2)`, and for threads that
    /// attend and are about to sleep.
    #[inline]
    pub(crate) fn relieve_later(&self) {
        if !self.is_quiet() {
            self.relief.schedule(RELIEF_MS);
        }
    }

    /// Likewise, if threads attend, for those that have posted and do not attend. Without
    /// threads that attend the queue was armed when they posted.
    #[inline]
    pub(crate) fn relieve_attenders(&self) {
        if !self.attendance.is_empty() {
            self.relieve_later();
        }
    }

    /// Stops what runs in the background, for good. Process context.
    pub(super) fn stop_work(&self) {
        self.relief.stop();
        self.work.stop();
    }

    /// Nobody polls, and the device will not call.
    pub(super) fn needs_event(&self) -> bool {
        self.attendance.is_empty() && !self.armed.load(Ordering::Acquire)
    }

    /// Nothing will complete.
    fn is_quiet(&self) -> bool {
        self.window.outstanding() == 0 && self.up.load(Ordering::Acquire)
    }

    /// Makes sure that completions are noticed though nobody polls.
    #[inline]
    pub(super) fn arm(&self) {
        if !self.is_quiet() {
            self.arm_or_poll();
        }
    }

    #[inline(never)]
    fn arm_or_poll(&self) {
        for _ in 0..ARM_TRIES {
            {
                let reaping = self.reaping.lock();
                let Some(cq) = &reaping.cq else { return };
                // One that was armed before, and has not called, will call.
                if self.armed.swap(true, Ordering::AcqRel) || cq.arm() {
                    return;
                }
                self.armed.store(false, Ordering::Release);
            }
            self.poll();
            if self.is_quiet() {
                return;
            }
        }
        self.work.schedule(0);
    }
}

impl<R: Requester> Notified for RcQueue<R> {
    fn on_completion(&self) {
        self.armed.swap(false, Ordering::SeqCst);
        self.events.notify();
        // A thread that sleeps for a completion looks sooner than a work item would.
        self.calls.notify_one();
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            self.work.schedule(0);
        }
    }
}

// SAFETY: the offset is the field's own; `Link`s, which own the queues, stop the
// work before they let go of them.
unsafe impl<R: Requester> Routine<RELIEF> for RcQueue<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, relief);

    fn run(&self) {
        self.poll();
        if self.attendance.is_empty() {
            self.arm();
        } else {
            self.relieve_later();
        }
    }
}

// SAFETY: as above.
unsafe impl<R: Requester> Routine for RcQueue<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        match self.failure() {
            Some(_) => {
                self.poll();
                self.shut_down();
            }
            None => self.look_again(),
        }
    }
}
