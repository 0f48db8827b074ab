// SPDX-License-Identifier: GPL-2.0

//! One call that submits requests of any VQPs and waits for completions.

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi::{self, Enter};

use super::objects::next_flow;
use super::Session;
use crate::dc::Way;
use crate::queues::Waiting;
use crate::sync::lock_interruptible;
use crate::vqp::{Queues, Source, Unsent, Vqp, VqpQueue};

/// Times that a request is looked at before it is taken, or not: what it names may change
/// in between.
const TRIES: u32 = 16;

/// A request's VQP, found by what it names.
struct Found {
    way: Way,
    vqp: Arc<Vqp>,
    /// The unconnected VQP whose branch that is.
    parent: Option<Arc<Vqp>>,
}

impl Session {
    /// Submits and waits: [`uapi::IOC_ENTER`]. Answers how many requests it took.
    ///
    /// # Errors
    ///
    /// Those of [`Enter`].
    pub(crate) fn enter(&self, request: &Enter) -> Result<u32> {
        let cq = self.queues(request.cq)?;
        let other = match request.sq == request.cq {
            true => None,
            false => Some(self.queues(request.sq)?),
        };
        let sq = other.as_ref().unwrap_or(&cq);
        let too_many = request.wr_count > uapi::MAX_BATCH.min(sq.rings().sq_entries());
        if too_many || request.wc_min > cq.rings().cq_entries() {
            return Err(EINVAL);
        }
        if request.wr_count == 0 {
            let queue = cq.queue_to_poll();
            return match request.wc_min {
                0 => Ok(0),
                _ => Waiting::new(&cq, request, queue.as_deref())
                    .for_completions()
                    .map(|()| 0),
            };
        }
        let mut left = request.wr_count;
        let outcome = self.submit_and_wait(sq, &cq, request, &mut left);
        // The number of requests done is reported; the reason why no more were done comes back
        // with the next call.
        match outcome {
            Err(error) if left == request.wr_count => Err(error),
            _ => Ok(request.wr_count - left),
        }
    }

    /// Takes requests, of which `left` are not taken, and waits. Answers why it took no more,
    /// or how the wait went wrong.
    fn submit_and_wait(&self, sq: &Queues, cq: &Queues, request: &Enter, left: &mut u32) -> Result {
        let mut found = None;
        let queue = self.queue_to_attend(sq, &mut found);
        // Before posting: then completions need no event.
        let mut waiting = Waiting::new(cq, request, queue.as_deref());
        let mut outcome = self.submit(sq, left, &mut found, waiting.attended());
        if request.wc_min == 0 {
            return outcome;
        }
        // Full queues are a reason to wait, not to give up. Unsignalled requests that have
        // ended make room too. Each turn takes some, unless another thread was quicker.
        while outcome == Err(ENOSPC) {
            let full = found.as_ref().map(|found| {
                let vqp = &found.vqp;
                waiting.for_room(vqp.cq(), || vqp.has_room())
            });
            outcome = match full {
                Some(Ok(true)) => self.submit(sq, left, &mut found, waiting.attended()),
                Some(Ok(false)) | None => return outcome,
                Some(Err(error)) => Err(error),
            };
        }
        outcome.and_then(|()| waiting.for_completions())
    }

    /// The RC queue of the first request's VQP.
    fn queue_to_attend(&self, sq: &Queues, found: &mut Option<Found>) -> Option<Arc<VqpQueue>> {
        let mut head = lock_interruptible(sq.submission()).ok()?;
        let source = Source {
            sq,
            head: &mut head,
            count: 1,
        };
        self.find(source.way(), found).ok()?.queue_to_attend()
    }

    /// Takes requests until all are taken or one cannot be: `left` are not. `found` is the
    /// VQP of the last one that was looked at, `attended` the RC queue that the caller attends.
    fn submit(
        &self,
        sq: &Queues,
        left: &mut u32,
        found: &mut Option<Found>,
        attended: Option<&VqpQueue>,
    ) -> Result {
        let mut room = Unsent::room();
        let mut unsent = Unsent::new(&mut room, attended);
        let mut head = lock_interruptible(sq.submission())?;
        let mut source = Source {
            sq,
            head: &mut head,
            count: *left,
        };
        let (mut outcome, mut tries) = (Ok(()), TRIES);
        while source.count != 0 && outcome.is_ok() {
            let (way, before) = (source.way(), source.count);
            outcome = match self.find(way, found) {
                Ok(vqp) => vqp.submit(&mut source, way, &mut unsent),
                Err(error) => Err(error),
            };
            if source.count != before {
                tries = TRIES;
            } else if outcome.is_ok() {
                // The user changes the ring meanwhile, or the branch was let go of.
                tries -= 1;
                if tries == 0 {
                    outcome = Err(EBADF);
                }
            }
        }
        *left = source.count;
        outcome
    }

    /// The VQP that a request names, or its branch to the peer that it names.
    fn find<'a>(&self, way: Way, found: &'a mut Option<Found>) -> Result<&'a Arc<Vqp>> {
        let is_it = |found: &Found| found.way == way && !found.vqp.is_retired();
        if !found.as_ref().is_some_and(is_it) {
            // A call's requests are often all of one VQP, each to another peer.
            let parent = found.take().filter(|before| before.way.vqp == way.vqp);
            let vqp = match parent.and_then(|before| before.parent) {
                Some(parent) => parent,
                None => self.vqp(way.vqp)?,
            };
            *found = Some(self.branch_or_self(vqp, way)?);
        }
        found.as_ref().map(|found| &found.vqp).ok_or(EBADF)
    }

    /// The VQP itself, or its branch to the peer that `way` names.
    fn branch_or_self(&self, vqp: Arc<Vqp>, way: Way) -> Result<Found> {
        let (vqp, parent) = if vqp.is_unconnected() {
            let open = || self.open_peer(way.peer);
            (vqp.branch(way.peer, open, next_flow)?, Some(vqp))
        } else if way.peer != 0 {
            return Err(EBADF);
        } else {
            (vqp, None)
        };
        Ok(Found { way, vqp, parent })
    }
}
