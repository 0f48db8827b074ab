// SPDX-License-Identifier: GPL-2.0

//! A request that its process waits for, by the short way: [`uapi::Run`].

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi::{self, WcStatus};
use weft_core::vqp::check_run;

use super::{Vqp, VqpQueue};
use crate::rc::{Attending, SingleRequest};
use crate::sync::{lock_interruptible, Woken};

/// How long it sleeps at most between two polls: who polls for it may be without a CPU.
const NAP_NS: u64 = 19_000_000;

impl Vqp {
    /// Carries the request out. Answers how it ended.
    ///
    /// # Errors
    ///
    /// Those of [`uapi::Run`].
    pub(crate) fn run(self: &Arc<Self>, request: &uapi::Run) -> Result<WcStatus> {
        if request.opcode == uapi::RUN_RESUME {
            return self.resume();
        }
        let request = SingleRequest {
            kind: check_run(request).ok_or(EAGAIN)?,
            local: request.local,
            rkey: request.rkey,
            remote_addr: request.remote_addr,
        };
        let connection = self.connection.get().ok_or(EAGAIN)?;
        // `EINTR` would say that the request is on its way.
        let mut submitter = lock_interruptible(&self.submitter).map_err(|_| EAGAIN)?;
        let queue = self.choose(&mut submitter, &connection.peer, || {});
        let queue = queue.ok_or(EAGAIN)?;
        if !self.direct.begin() {
            return Err(EAGAIN);
        }
        // Before posting: then its completion needs no event.
        let attending = queue.attend();
        let is_posted = queue.post_single(self, self.owner.session, &request);
        *submitter = Some(queue.clone());
        drop(submitter);
        if !is_posted {
            self.direct.finish();
            return Err(EAGAIN);
        }
        self.answer(&queue, attending)
    }

    /// Waits until it has ended.
    #[inline]
    fn answer(&self, queue: &VqpQueue, attending: Attending<'_, Self>) -> Result<WcStatus> {
        if queue.is_worth_polling() {
            attending.spin(|| self.direct.outcome().is_some(), queue.spin_ns());
        }
        drop(attending);
        if let Some(status) = self.direct.outcome() {
            self.direct.finish();
            return Ok(status);
        }
        self.sleep(Some(queue))
    }

    /// Waits for the one that a signal left on its way.
    #[cold]
    fn resume(&self) -> Result<WcStatus> {
        if !self.direct.resume() {
            return Err(ENOENT);
        }
        // The queue does not change while a request is on its way.
        self.sleep(self.queue().as_deref())
    }

    /// Likewise, without a CPU.
    #[inline(never)]
    fn sleep(&self, queue: Option<&VqpQueue>) -> Result<WcStatus> {
        loop {
            let seen = self.cq.done().seen();
            if let Some(queue) = queue {
                queue.poll();
            }
            if let Some(status) = self.direct.outcome() {
                self.direct.finish();
                return Ok(status);
            }
            let done = self.cq.done();
            let woken = match queue {
                Some(queue) => queue.sleep(done, seen, NAP_NS),
                None => done.wait(seen, NAP_NS, true),
            };
            if woken == Woken::Signal {
                self.direct.leave();
                return Err(EINTR);
            }
        }
    }
}
