// SPDX-License-Identifier: GPL-2.0

//! Submission: requests are copied from a ring, judged, and posted.

use core::ptr;
use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::Arc;

use super::moves::Placement;
use super::{Connection, Queues, Vqp, VqpQueue, VqpStream};
use crate::array_vec::{room, ArrayVec, Room};
use crate::dc::{Entry, Origin, Way};
use crate::errno;
use crate::rc::Posted;
use crate::sync::{lock_interruptible, Woken};

/// Requests copied and posted at a time.
const POST_BATCH: usize = 16;
/// Streams whose requests may wait to be sent together with those of other VQPs.
const UNSENT_STREAMS: usize = 32;
/// How long a submission waits for room on the stream.
const ROOM_WAIT_NS: u64 = 1_000_000_000;
/// How long it sleeps at most while requests end whose queue changes.
const QUIESCE_NAP_NS: u64 = 1_000_000;

/// Some entries.
struct Batch<'a> {
    entries: ArrayVec<'a, Entry>,
    /// All need DC, or none does: a receiver hears of them, or they are atomic
    /// operations that the RDMA device does not make atomic enough.
    need_dc: bool,
}

/// Room for [`Unsent`].
pub(crate) type UnsentRoom = Room<Arc<VqpStream>, UNSENT_STREAMS>;

/// Streams with requests that wait to be sent together with others of the same call, of
/// which more fit into a packet. They are sent when this is dropped.
pub(crate) struct Unsent<'a> {
    streams: ArrayVec<'a, Arc<VqpStream>>,
    /// The RC queue that the call attends, and does not poll while it sleeps here.
    attended: Option<&'a VqpQueue>,
}

impl<'a> Unsent<'a> {
    /// Room for some.
    pub(crate) const fn room() -> UnsentRoom {
        room()
    }

    /// None yet, of a call that attends this RC queue.
    pub(crate) fn new(room: &'a mut UnsentRoom, attended: Option<&'a VqpQueue>) -> Self {
        Self {
            streams: ArrayVec::new(room),
            attended,
        }
    }

    /// Whether the call attends this RC queue.
    fn attends(&self, queue: &VqpQueue) -> bool {
        self.attended
            .is_some_and(|attended| ptr::eq(attended, queue))
    }

    /// The call may sleep now: nothing that it has posted waits for it meanwhile.
    fn before_sleep(&mut self) {
        self.send();
        if let Some(attended) = self.attended {
            attended.relieve_later();
        }
    }

    fn hold(&mut self, stream: &Arc<VqpStream>) {
        let is_it = |other: &Arc<VqpStream>| Arc::ptr_eq(other, stream);
        if self.streams.as_slice().iter().any(is_it) {
            return;
        }
        if self.streams.as_slice().len() == UNSENT_STREAMS {
            self.send();
        }
        self.streams.push(stream.clone());
    }

    fn send(&mut self) {
        for stream in self.streams.as_slice() {
            stream.send();
        }
        self.streams.clear();
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.send();
    }
}

/// A call's requests, from the index on that they begin at.
pub(crate) struct Source<'a> {
    /// Where they are.
    pub(crate) sq: &'a Queues,
    /// The next to take. Only the thread that has the ring's `submission` moves it.
    pub(crate) head: &'a mut u32,
    /// How many there are.
    pub(crate) count: u32,
}

impl Source<'_> {
    /// The next one's VQP and peer, as a hint.
    pub(crate) fn way(&self) -> Way {
        self.sq.rings().way(*self.head)
    }

    /// Whether the one after `taken` more is another VQP's.
    fn changes_way_after(&self, taken: u32, way: Way) -> bool {
        taken < self.count && self.sq.rings().way(self.head.wrapping_add(taken)) != way
    }

    /// So many were taken.
    fn advance(&mut self, taken: u32) {
        *self.head = self.head.wrapping_add(taken);
        self.count -= taken;
        self.sq.rings().set_sq_head(*self.head);
    }
}

impl Vqp {
    /// The RC queue that requests of the next call go to, if they go by RC: to attend to
    /// before they are posted.
    pub(crate) fn queue_to_attend(&self) -> Option<Arc<VqpQueue>> {
        let connection = self.connection.get()?;
        let mut submitter = lock_interruptible(&self.submitter).ok()?;
        let queue = self.choose(&mut submitter, &connection.peer, || {});
        submitter.clone_from(&queue);
        queue
    }

    /// Takes the requests from the source that are this VQP's, by their `way`, until there
    /// is another's or no room. A branch that was let go of takes none.
    ///
    /// # Errors
    ///
    /// Those of [`weft_core::uapi::Enter`]; those that were taken before stay so.
    pub(crate) fn submit(
        self: &Arc<Self>,
        source: &mut Source<'_>,
        way: Way,
        unsent: &mut Unsent<'_>,
    ) -> Result {
        let connection = self.connection.get().ok_or_else(errno::not_conn)?;
        // Another thread must not post between the choice and what is posted by it. One that
        // waits for room has the lock as long.
        let mut submitter = match self.submitter.try_lock() {
            Some(submitter) => submitter,
            None => {
                unsent.before_sleep();
                lock_interruptible(&self.submitter)?
            }
        };
        if self.is_retired() {
            return Ok(());
        }
        // Its own may be among those that were not sent yet.
        let queue = self.choose(&mut submitter, &connection.peer, || unsent.before_sleep());
        let outcome = self.submit_by(connection, queue.as_deref(), source, way, unsent);
        // With the requests on their way, there is time for it.
        if let Some(queue) = &queue {
            *submitter = self.queue();
            // Threads that attend it may sleep, and this one does not poll for them.
            if !unsent.attends(queue) {
                queue.relieve_attenders();
            }
        }
        outcome
    }

    /// Likewise, with the submitter's lock held; `queue` is what they go to by RC.
    #[inline]
    fn submit_by(
        self: &Arc<Self>,
        connection: &Connection,
        mut queue: Option<&VqpQueue>,
        source: &mut Source<'_>,
        way: Way,
        unsent: &mut Unsent<'_>,
    ) -> Result {
        let from = self.origin(connection);
        let mut room = room::<_, POST_BATCH>();
        let mut batch = Batch {
            entries: ArrayVec::new(&mut room),
            need_dc: false,
        };
        while source.count != 0 && source.way() == way {
            // Often each request of a call is another VQP's.
            let wanted = match source.changes_way_after(1, way) {
                true => 1,
                false => source.count.min(POST_BATCH as u32),
            };
            let places = self.admit(wanted);
            if places == 0 {
                return Err(ENOSPC);
            }
            self.copy(&from, queue, source, way, places, &mut batch);
            let copied = batch.entries.as_slice().len() as u32;
            let holds = source.changes_way_after(copied, way);
            let posted = self.post(connection, &mut queue, &batch, places, unsent, holds);
            let taken = posted.unwrap_or(0);
            if taken < places {
                self.withdraw(places - taken);
            }
            source.advance(taken);
            posted?;
            if copied == 0 {
                // As if it had been another's from the start.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes up to `wanted` places, here and for completions; answers how many.
    fn admit(&self, wanted: u32) -> u32 {
        let admitted = self.in_flight.admit(wanted);
        let places = match admitted {
            0 => 0,
            some => self.cq.reserve(some),
        };
        if places < admitted {
            self.in_flight.end(admitted - places);
        }
        places
    }

    /// Gives places back whose requests were not posted after all.
    fn withdraw(&self, places: u32) {
        let was_full = !self.in_flight.has_room();
        let was_cq_full = self.cq.release(places);
        self.in_flight.end(places);
        if was_full || was_cq_full {
            // Another thread may have found no room, and no completion comes of these.
            self.cq.done().notify();
        }
    }

    /// The origin of its requests.
    fn origin(&self, connection: &Connection) -> Origin {
        Origin {
            flow: self.flow,
            owner: self.owner.session,
            to: connection.to,
        }
    }

    /// Copies up to `places` requests that are this VQP's and go the same way. A fenced one
    /// is the first of its batch.
    fn copy(
        &self,
        from: &Origin,
        queue: Option<&VqpQueue>,
        source: &Source<'_>,
        way: Way,
        places: u32,
        batch: &mut Batch<'_>,
    ) {
        batch.entries.clear();
        for index in 0..places {
            let wr = source.sq.rings().send_wr(source.head.wrapping_add(index));
            batch.entries.push(Entry::copied(wr));
            let Some(entry) = batch.entries.as_mut_slice().last_mut() else {
                break;
            };
            if entry.way() != way {
                batch.entries.pop();
                break;
            }
            entry.judge(from);
            let refuses = |queue: &VqpQueue| entry.needs_receiver() || !queue.takes(entry.kind());
            let needs_dc = queue.is_some_and(refuses);
            if index == 0 {
                batch.need_dc = needs_dc;
            } else if batch.need_dc != needs_dc || entry.is_fenced() {
                // It is copied again, and that copy judged, in the next batch.
                batch.entries.pop();
                break;
            }
        }
    }

    /// Posts some of them, waiting for room if there is none; `places` were
    /// admitted. Answers how many. If others will follow, `holds`, they wait to be sent
    /// with those.
    fn post(
        self: &Arc<Self>,
        connection: &Connection,
        queue: &mut Option<&VqpQueue>,
        batch: &Batch<'_>,
        places: u32,
        unsent: &mut Unsent<'_>,
        holds: bool,
    ) -> Result<u32> {
        let entries = batch.entries.as_slice();
        if entries.is_empty() {
            return Ok(0);
        }
        if entries.first().is_some_and(Entry::is_fenced) {
            // Waited for here, because a fence of the device's would hold up all VQPs of the
            // queue pair, and knows nothing of requests that are cut or go by DC.
            unsent.before_sleep();
            self.quiesce(*queue, places)?;
        }
        if queue.is_some() && batch.need_dc {
            unsent.before_sleep();
            self.leave_rc(queue, places)?;
        }
        loop {
            let woken = match *queue {
                Some(rc) => {
                    let seen = rc.room_seen();
                    let session = self.owner.session;
                    match rc.post(self, session, entries, &mut || unsent.before_sleep()) {
                        Posted::Taken(0) => {
                            unsent.before_sleep();
                            rc.wait_for_room(seen, ROOM_WAIT_NS, true)
                        }
                        Posted::Taken(taken) => return Ok(taken as u32),
                        Posted::Interrupted => return Err(EINTR),
                        refused @ (Posted::NeedsDc | Posted::Closing) => {
                            unsent.before_sleep();
                            if matches!(refused, Posted::NeedsDc) {
                                self.only_dc.store(true, Ordering::Relaxed);
                            }
                            self.leave_rc(queue, places)?;
                            continue;
                        }
                    }
                }
                None => {
                    let stream = connection.stream(self.owner.user)?;
                    let seen = stream.room().seen();
                    match stream.post(self, &self.origin(connection), entries, holds) {
                        0 => {
                            unsent.before_sleep();
                            stream.room().wait(seen, ROOM_WAIT_NS, true)
                        }
                        taken => {
                            if holds {
                                unsent.hold(stream);
                            }
                            return Ok(taken as u32);
                        }
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
        self.prove(*queue)?;
        self.go_by(None);
        // It goes back to RC when none of its requests is under way.
        self.has_left.store(true, Ordering::Relaxed);
        *queue = None;
        Ok(())
    }

    /// Waits until what its requests have written is in the peer's memory.
    fn prove(&self, queue: Option<&VqpQueue>) -> Result {
        let mut placement = Placement::new(queue);
        let done = self.cq.done();
        loop {
            let seen = done.seen();
            if placement.is_proven() {
                return Ok(());
            }
            if done.wait(seen, QUIESCE_NAP_NS, true) == Woken::Signal {
                return Err(EINTR);
            }
        }
    }

    /// Waits until all requests but the `admitted` ones have ended, as they do
    /// within about a second.
    fn quiesce(&self, queue: Option<&VqpQueue>, admitted: u32) -> Result {
        let done = self.cq.done();
        loop {
            let seen = done.seen();
            if let Some(queue) = queue {
                queue.poll();
            }
            if self.under_way() <= admitted {
                return Ok(());
            }
            if done.wait(seen, QUIESCE_NAP_NS, true) == Woken::Signal {
                return Err(EINTR);
            }
        }
    }
}
