// SPDX-License-Identifier: GPL-2.0

//! Submission, and waiting for completions.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi::{self, WcStatus};

use super::{Connection, Submitter, Vqp};
use crate::array_vec::{room, ArrayVec};
use crate::clock::now_ns;
use crate::dc::{Entry, Origin};
use crate::errno;
use crate::peer::VqpQueue;
use crate::rc::{self, Attending, Posted};
use crate::sync::Woken;

/// Requests copied and posted at a time.
const POST_BATCH: usize = 16;
/// How long a submission waits for room on the stream.
const ROOM_WAIT_NS: u64 = 1_000_000_000;
/// How long a waiter looks for a completion before it sleeps.
const SPIN_NS: u64 = 20_000;
/// How long it sleeps at most while requests end whose queue changes.
const QUIESCE_NAP_NS: u64 = 1_000_000;

/// Some entries.
struct Batch<'a> {
    entries: ArrayVec<'a, Entry>,
    /// All need DC, or none does: a receiver hears of them, or they are atomic
    /// operations that the RDMA device does not make atomic enough.
    need_dc: bool,
}

impl Vqp {
    /// Submits and waits: [`uapi::IOC_ENTER`]. Answers how many requests it took.
    pub(crate) fn enter(self: &Arc<Self>, request: &uapi::Enter) -> Result<u32> {
        let too_many = request.wr_count > uapi::MAX_BATCH.min(self.rings.sq_entries());
        if too_many || request.wc_min > self.rings.cq_entries() {
            return Err(EINVAL);
        }
        let mut submitted = 0;
        let mut outcome = Ok(());
        // Another thread must not post between the choice and what is posted by it.
        let mut submitter = (request.wr_count != 0).then(|| self.submitter.lock());
        let queue = self
            .connection
            .get()
            .and_then(|connection| match &mut submitter {
                Some(submitter) => self.choose(submitter, &connection.peer),
                None => self.queue(),
            });
        // Before posting: then completions need no event.
        let mut attending = queue.as_deref().map(|queue| queue.attend());
        if let Some(mut submitter) = submitter {
            outcome = self.submit(
                &mut submitter,
                queue.as_deref(),
                request.wr_count,
                &mut submitted,
            );
        }
        // Full queues are a reason to wait, not to give up.
        if request.wc_min != 0 && (outcome.is_ok() || outcome == Err(ENOSPC)) {
            let mut start_ns = None;
            let mut wait = |full: bool| {
                let queue = queue.as_deref();
                self.wait(request, &mut start_ns, full, queue, &mut attending)
            };
            // What nobody is told of makes room all the same. Each turn takes some.
            let mut before = None;
            while outcome == Err(ENOSPC) && before != Some(submitted) {
                before = Some(submitted);
                outcome = match wait(true) {
                    Ok(true) => {
                        let mut submitter = self.submitter.lock();
                        // Another thread may have changed it meanwhile.
                        let queue = self.queue();
                        self.submit(
                            &mut submitter,
                            queue.as_deref(),
                            request.wr_count,
                            &mut submitted,
                        )
                    }
                    Ok(false) => break,
                    Err(error) => Err(error),
                };
            }
            if outcome.is_ok() {
                outcome = wait(false).map(drop);
            }
        }
        // What was done is reported; the reason why no more was done comes back
        // with the next call.
        match outcome {
            Err(error) if submitted == 0 => Err(error),
            _ => Ok(submitted),
        }
    }

    /// Takes `count` requests; `queue` is what they go to by RC.
    #[inline(never)]
    fn submit(
        self: &Arc<Self>,
        submitter: &mut Submitter,
        queue: Option<&VqpQueue>,
        count: u32,
        submitted: &mut u32,
    ) -> Result {
        let outcome = self.submit_from(&mut submitter.head, queue, count, submitted);
        // With the requests on their way, there is time for it.
        if queue.is_some() {
            submitter.queue = self.queue();
        }
        outcome
    }

    /// Takes them from index `head` on.
    #[inline]
    fn submit_from(
        self: &Arc<Self>,
        head: &mut u32,
        mut queue: Option<&VqpQueue>,
        count: u32,
        submitted: &mut u32,
    ) -> Result {
        let connection = self.connection.get().ok_or_else(errno::not_conn)?;
        let from = self.origin(connection);
        let mut room = room::<_, POST_BATCH>();
        let mut batch = Batch {
            entries: ArrayVec::new(&mut room),
            need_dc: false,
        };
        while *submitted < count {
            let wanted = (count - *submitted).min(POST_BATCH as u32);
            let places = {
                let mut queues = self.queues.lock();
                queues.reaped_to(self.rings.cq_head());
                queues.admit(wanted)
            };
            if places == 0 {
                return Err(ENOSPC);
            }
            self.copy(&from, queue, *head, places, &mut batch);
            let posted = self.post(connection, &mut queue, &batch, places);
            let taken = posted.unwrap_or(0);
            if taken < places {
                self.queues.lock().withdraw(places - taken);
            }
            *submitted += taken;
            *head = head.wrapping_add(taken);
            self.rings.set_sq_head(*head);
            posted?;
        }
        Ok(())
    }

    /// Whose its requests are.
    fn origin(&self, connection: &Connection) -> Origin {
        Origin {
            flow: self.flow,
            owner: self.owner.session,
            to: connection.to,
        }
    }

    /// Copies up to `places` requests that go the same way.
    fn copy(
        &self,
        from: &Origin,
        queue: Option<&VqpQueue>,
        head: u32,
        places: u32,
        batch: &mut Batch<'_>,
    ) {
        batch.entries.clear();
        for index in 0..places {
            let wr = self.rings.send_wr(head.wrapping_add(index));
            batch.entries.push(Entry::copied(wr));
            let Some(entry) = batch.entries.as_mut_slice().last_mut() else {
                break;
            };
            entry.judge(from);
            let refuses = |queue: &VqpQueue| entry.needs_receiver() || !queue.takes(entry.kind());
            let needs_dc = queue.is_some_and(refuses);
            if index == 0 {
                batch.need_dc = needs_dc;
            } else if batch.need_dc != needs_dc {
                // It is copied again, and that copy judged, in the next batch.
                batch.entries.pop();
                break;
            }
        }
    }

    /// Posts some of them, waiting for room if there is none; `places` were
    /// admitted. Answers how many.
    fn post(
        self: &Arc<Self>,
        connection: &Connection,
        queue: &mut Option<&VqpQueue>,
        batch: &Batch<'_>,
        places: u32,
    ) -> Result<u32> {
        let entries = batch.entries.as_slice();
        if queue.is_some() && batch.need_dc {
            self.leave_rc(queue, places)?;
        }
        loop {
            let woken = match *queue {
                Some(rc) => {
                    let seen = rc.room_seen();
                    match rc.post(self, self.owner.session, entries) {
                        Posted::Taken(0) => rc.wait_for_room(seen, ROOM_WAIT_NS, true),
                        Posted::Taken(taken) => return Ok(taken as u32),
                        Posted::NeedsDc => {
                            self.only_dc.store(true, Ordering::Relaxed);
                            self.leave_rc(queue, places)?;
                            continue;
                        }
                    }
                }
                None => {
                    let stream = connection.stream(self.owner.user)?;
                    let seen = stream.room().seen();
                    match stream.post(self, &self.origin(connection), entries) {
                        0 => stream.room().wait(seen, ROOM_WAIT_NS, true),
                        taken => return Ok(taken as u32),
                    }
                }
            };
            if woken == Woken::Signal {
                return Err(EINTR);
            }
        }
    }

    /// Goes by DC from now on, once all requests but the `admitted` ones have ended.
    fn leave_rc(&self, queue: &mut Option<&VqpQueue>, admitted: u32) -> Result {
        self.quiesce(*queue, admitted)?;
        self.go_by(None);
        *queue = None;
        Ok(())
    }

    /// Waits until all requests but the `admitted` ones have ended, as they do
    /// within about a second.
    fn quiesce(&self, queue: Option<&VqpQueue>, admitted: u32) -> Result {
        loop {
            let seen = self.done.seen();
            if let Some(queue) = queue {
                queue.poll();
            }
            if self.in_flight() <= admitted {
                return Ok(());
            }
            if self.done.wait(seen, QUIESCE_NAP_NS, true) == Woken::Signal {
                return Err(EINTR);
            }
        }
    }

    /// Waits for completions, or for room if the queue is `full`. Answers whether
    /// there is room for what waits for it. `start_ns` is when the call began to wait,
    /// once it had to.
    fn wait(
        &self,
        request: &uapi::Enter,
        start_ns: &mut Option<u64>,
        full: bool,
        queue: Option<&VqpQueue>,
        attending: &mut Option<Attending<'_, Self>>,
    ) -> Result<bool> {
        let timeout_ns = request.timeout_ns.min(uapi::MAX_WAIT_NS);
        // Since when none of the requests has ended.
        let mut silent_ns = None;
        loop {
            let seen = self.done.seen();
            self.look(queue);
            if full && self.has_room() {
                return Ok(true);
            }
            if self.has_enough(request) {
                return Ok(false);
            }
            let looked_ns = now_ns();
            let waited_ns = looked_ns.saturating_sub(*start_ns.get_or_insert(looked_ns));
            if waited_ns >= timeout_ns {
                return Ok(false);
            }
            let left_ns = timeout_ns - waited_ns;
            let silence_ns = looked_ns.saturating_sub(*silent_ns.get_or_insert(looked_ns));
            let polls = waited_ns < rc::LONGEST_SPIN_NS
                && silence_ns < rc::SPIN_NS
                && queue.is_some_and(VqpQueue::is_worth_polling);
            if let Some(polling) = attending.as_ref().filter(|_| polls) {
                let has_ended = || self.done.seen() != seen;
                let has_news = polling.spin(has_ended, left_ns.min(rc::SPIN_NS));
                if !full && self.has_enough(request) {
                    return Ok(false);
                }
                if has_news {
                    silent_ns = None;
                }
                continue;
            }
            drop(attending.take());
            if waited_ns < SPIN_NS && !queue.is_some_and(VqpQueue::is_busy) {
                self.spin(seen, left_ns.min(SPIN_NS));
            } else if self.doze(queue, seen, left_ns) == Woken::Signal {
                return Err(EINTR);
            }
        }
    }

    /// Sleeps until something has ended or arrived after `seen`. If requests are on
    /// their way by RC, the queue tells of their end, whoever else polls it.
    fn doze(&self, queue: Option<&VqpQueue>, seen: u32, timeout_ns: u64) -> Woken {
        match queue.filter(|_| self.in_flight() != 0) {
            Some(queue) => queue.sleep(&self.done, seen, timeout_ns),
            None => self.done.wait(seen, timeout_ns, true),
        }
    }

    /// Ends what has ended on the queue that it shares, and gives its own buffers
    /// back if it has failed.
    fn look(&self, queue: Option<&VqpQueue>) {
        if let Some(queue) = queue {
            queue.poll();
        }
        if self.failed.load(Ordering::Relaxed) {
            self.flush_receives(&mut self.queues.lock(), WcStatus::WrFlushErr);
        }
    }

    /// Whether there are as many completions as the user waits for. One that lies
    /// about what it has taken waits too long, or not at all.
    fn has_enough(&self, request: &uapi::Enter) -> bool {
        self.rings.unreaped() >= request.wc_min
    }

    /// Looks for a completion without sleeping.
    fn spin(&self, seen: u32, time_ns: u64) {
        let start_ns = now_ns();
        while self.done.seen() == seen && now_ns().saturating_sub(start_ns) < time_ns {
            core::hint::spin_loop();
        }
    }
}
