// SPDX-License-Identifier: GPL-2.0

//! Waiting for completions, or for room.

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi;

use super::Queues;
use crate::clock::now_ns;
use crate::dc::Requester;
use crate::rc::{self, Attending, RcQueue};
use crate::sync::Woken;

/// How long a waiter looks for a completion before it sleeps.
const SPIN_NS: u64 = 20_000;

/// How long a waiter sleeps at most for room among the completions of other queues than it
/// waits at: those do not wake it.
const ROOM_NAP_NS: u64 = 1_000_000;

/// One call's wait.
pub(crate) struct Waiting<'a, R: Requester> {
    queues: &'a Queues<R>,
    /// Completions that have to be there.
    wanted: u32,
    timeout_ns: u64,
    /// The RC queue that is polled meanwhile, and that others need no event for.
    queue: Option<&'a RcQueue<R>>,
    attending: Option<Attending<'a, R>>,
    /// When it first looked for room, or had to wait.
    start_ns: Option<u64>,
}

impl<R: Requester> Queues<R> {
    /// The RC queue to poll while waiting here, if the requests of the call say nothing
    /// better.
    pub(crate) fn queue_to_poll(&self) -> Option<Arc<RcQueue<R>>> {
        self.rc_queue()
    }

    /// Completions that are there and were not taken, as the user says: one that lies waits
    /// too long, or not at all.
    fn unreaped(&self) -> u32 {
        self.rings.unreaped()
    }

    /// Whether requests are under way, or messages landing.
    fn expects_something(&self) -> bool {
        self.completions.lock().expects_some()
    }
}

impl<'a, R: Requester> Waiting<'a, R> {
    /// A wait that has not begun. From now on `queue` is attended: what ends there needs no
    /// event.
    pub(crate) fn new(
        queues: &'a Queues<R>,
        request: &uapi::Enter,
        queue: Option<&'a RcQueue<R>>,
    ) -> Self {
        Self {
            queues,
            wanted: request.wc_min,
            timeout_ns: request.timeout_ns.min(uapi::MAX_WAIT_NS),
            queue,
            attending: queue.map(RcQueue::attend),
            start_ns: None,
        }
    }

    /// The RC queue that it attends; none once it no longer polls.
    pub(crate) fn attended(&self) -> Option<&'a RcQueue<R>> {
        self.queue.filter(|_| self.attending.is_some())
    }

    /// Waits until there are completions enough or the time is over.
    ///
    /// # Errors
    ///
    /// `EINTR`.
    pub(crate) fn for_completions(&mut self) -> Result {
        self.wait(None, uapi::MAX_WAIT_NS).map(drop)
    }

    /// Waits until there is room for a request whose completion goes to `cq`, as `has_room`
    /// says. Answers whether there is: otherwise there are completions enough, or the time
    /// is over. Others may be quicker to take it: then it is called again.
    ///
    /// # Errors
    ///
    /// `EINTR`.
    pub(crate) fn for_room(&mut self, cq: &Queues<R>, has_room: impl Fn() -> bool) -> Result<bool> {
        match self.start_ns {
            // Others may have taken the room that there was, again and again.
            Some(start_ns) if now_ns().saturating_sub(start_ns) >= self.timeout_ns => {
                return Ok(false);
            }
            Some(_) if current!().signal_pending() => return Err(EINTR),
            Some(_) => {}
            None => self.start_ns = Some(now_ns()),
        }
        let longest_ns = match core::ptr::eq(cq, self.queues) {
            true => uapi::MAX_WAIT_NS,
            false => ROOM_NAP_NS,
        };
        self.wait(Some(&has_room), longest_ns)
    }

    /// Sleeps for at most `longest_ns` at a time.
    fn wait(&mut self, full: Option<&dyn Fn() -> bool>, longest_ns: u64) -> Result<bool> {
        let queues = self.queues;
        // Since when none of the requests has ended.
        let mut silent_ns = None;
        loop {
            let seen = queues.done.seen();
            self.look();
            if full.is_some_and(|has_room| has_room()) {
                return Ok(true);
            }
            if self.has_enough() {
                return Ok(false);
            }
            let looked_ns = now_ns();
            let waited_ns = looked_ns.saturating_sub(*self.start_ns.get_or_insert(looked_ns));
            if waited_ns >= self.timeout_ns {
                return Ok(false);
            }
            let left_ns = self.timeout_ns - waited_ns;
            let silence_ns = looked_ns.saturating_sub(*silent_ns.get_or_insert(looked_ns));
            let spin_ns = match self.queue.filter(|queue| queue.is_worth_polling()) {
                Some(queue) if waited_ns < rc::LONGEST_SPIN_NS => queue.spin_ns(),
                _ => 0,
            };
            let polling = self.attending.as_ref();
            if let Some(polling) = polling.filter(|_| silence_ns < spin_ns) {
                let has_ended = || queues.done.seen() != seen;
                let has_news = polling.spin(has_ended, left_ns.min(spin_ns));
                if full.is_none() && self.has_enough() {
                    return Ok(false);
                }
                if has_news {
                    silent_ns = None;
                }
                continue;
            }
            drop(self.attending.take());
            if waited_ns < SPIN_NS && !self.queue.is_some_and(RcQueue::is_busy) {
                self.spin(seen, left_ns.min(SPIN_NS));
            } else if self.doze(seen, left_ns.min(longest_ns)) == Woken::Signal {
                return Err(EINTR);
            }
        }
    }

    /// Sleeps until something has ended or arrived after `seen`. If requests are on
    /// their way by RC, the queue tells of their end, whoever else polls it.
    fn doze(&self, seen: u32, timeout_ns: u64) -> Woken {
        let done = &self.queues.done;
        match self.queue.filter(|_| self.queues.expects_something()) {
            Some(queue) => queue.sleep(done, seen, timeout_ns),
            None => done.wait(seen, timeout_ns, true),
        }
    }

    /// Ends what has ended on the RC queue, and gives receive buffers back whose VQP has
    /// failed.
    fn look(&self) {
        if let Some(queue) = self.queue {
            queue.poll();
        }
        self.queues.flush_receives();
    }

    fn has_enough(&self) -> bool {
        self.queues.unreaped() >= self.wanted
    }

    /// Looks for a completion without sleeping.
    fn spin(&self, seen: u32, time_ns: u64) {
        let start_ns = now_ns();
        while self.queues.done.seen() == seen && now_ns().saturating_sub(start_ns) < time_ns {
            core::hint::spin_loop();
        }
    }
}
