// SPDX-License-Identifier: GPL-2.0

//! The queues of a session, on rings that its process maps: a submission queue, a
//! completion queue and a receive queue, which any number of VQPs use, as those of verbs
//! (`ibv_cq`, `ibv_srq`).
//!
//! A request takes a place in the completion queue before it is posted, a message before
//! it lands: no completion is lost for want of room, and one VQP's completions push
//! nobody else's out.
//!
//! Lock order, outermost first: `submission`; `receives`; `completions`. `queue` is
//! held alone, `channel` around what the eventfd wakes.

mod channel;
mod receiving;
mod wait;

use core::sync::atomic::{fence, AtomicBool, AtomicU32, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi::{CqNotify, RingsCreate, Wc};
use weft_core::vqp::{Completions, Receives};

use crate::dc::Requester;
use crate::rc::RcQueue;
use crate::rings::{Arena, Rings};
use crate::sync::{
    new_event_count, new_lock, new_periodic, BhLock, EventCount, EventFd, FastLock, FastMutex,
    Periodic, PollQueue,
};

use channel::Channel;
pub(crate) use wait::Waiting;

/// The queues on one set of rings.
#[pin_data]
pub(crate) struct Queues<R: Requester> {
    rings: Rings,
    /// The index of the next request to copy.
    #[pin]
    submission: FastMutex<u32>,
    #[pin]
    completions: BhLock<Completions>,
    #[pin]
    receives: BhLock<Receives>,
    /// Whether what is posted to receive comes back. Changes with `receives` locked.
    is_flushing: AtomicBool,
    /// VQPs that use them. Changes under the session's lock.
    users: AtomicU32,
    /// Hands back what a softirq has left.
    #[pin]
    flush_work: Periodic<Self>,
    /// The RC queue that a VQP of theirs began to use last: who waits polls that one.
    #[pin]
    queue: FastLock<Option<Arc<RcQueue<R>>>>,
    /// Counts completions, and requests that have ended without one.
    #[pin]
    done: EventCount,
    /// Signalled when completions come, if there is one.
    #[pin]
    channel: BhLock<Option<Pin<KBox<Channel>>>>,
    /// Whether there is one: most rings have none, and do not take the lock.
    has_channel: AtomicBool,
    /// The session's pollers.
    pollers: Arc<PollQueue>,
}

impl<R: Requester> Queues<R> {
    /// Queues on new rings, which are described in `request`.
    ///
    /// # Errors
    ///
    /// Those of [`Arena::lend`].
    pub(crate) fn new(
        arena: &Arc<Arena>,
        pollers: Arc<PollQueue>,
        request: &mut RingsCreate,
    ) -> Result<Arc<Self>> {
        let rings = Rings::new(arena, request)?;
        rings.describe(request);
        let completions = Completions::new(request.max_wc);
        let receives = Receives::new(request.max_recv_wr);
        Arc::pin_init(
            pin_init!(Self {
                rings,
                submission <- new_lock!(0, "weft_submission"),
                completions <- new_lock!(completions, "weft_completions"),
                receives <- new_lock!(receives, "weft_receives"),
                users: AtomicU32::new(0),
                is_flushing: AtomicBool::new(false),
                flush_work <- new_periodic!("weft_flush_work"),
                queue <- new_lock!(None, "weft_queues_rc"),
                done <- new_event_count!("weft_queues_done"),
                channel <- new_lock!(None, "weft_channel"),
                has_channel: AtomicBool::new(false),
                pollers,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The rings.
    pub(crate) fn rings(&self) -> &Rings {
        &self.rings
    }

    /// The index of the next request to copy, for the thread that submits.
    pub(crate) fn submission(&self) -> &FastMutex<u32> {
        &self.submission
    }

    /// Counts completions, and requests that have ended without one.
    pub(crate) fn done(&self) -> &EventCount {
        &self.done
    }

    /// A VQP begins to use them. Under the session's lock.
    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// A VQP no longer uses them. Under the session's lock.
    pub(crate) fn remove_user(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lets go of what no VQP needs any more, if none uses them.
    pub(crate) fn tidy(&self) {
        if !self.are_used() {
            let queue = self.queue.lock().take();
            drop(queue);
        }
    }

    /// Whether VQPs use them. For certain under the session's lock alone.
    pub(crate) fn are_used(&self) -> bool {
        self.users.load(Ordering::Relaxed) != 0
    }

    /// Takes up to `wanted` places for completions; answers how many it got.
    #[inline]
    pub(crate) fn reserve(&self, wanted: u32) -> u32 {
        let mut completions = self.completions.lock();
        completions.reaped_to(self.rings.cq_head());
        completions.reserve(wanted)
    }

    /// Whether there is a place for a completion.
    pub(crate) fn has_room(&self) -> bool {
        let mut completions = self.completions.lock();
        completions.reaped_to(self.rings.cq_head());
        completions.has_room()
    }

    /// Gives places back whose requests were not posted after all. Answers whether there
    /// was no room meanwhile, so that somebody may wait for it.
    pub(crate) fn release(&self, places: u32) -> bool {
        let mut completions = self.completions.lock();
        let was_full = !completions.has_room();
        completions.release(places);
        was_full
    }

    /// A request or a message that had a place has ended. The module writes its completion,
    /// if it has one, unless `is_deaf` says, with the lock held, that nobody is to hear of
    /// it.
    #[inline]
    pub(crate) fn complete(&self, wc: Option<&Wc>, is_deaf: impl FnOnce() -> bool) {
        let mut completions = self.completions.lock();
        let Some(wc) = wc.filter(|_| !is_deaf()) else {
            return completions.release(1);
        };
        if let Some(index) = completions.complete() {
            self.rings.push(index, wc);
        }
    }

    /// Runs `f` while no completion is written.
    pub(crate) fn silently<T>(&self, f: impl FnOnce() -> T) -> T {
        let _completions = self.completions.lock();
        f()
    }

    /// Wakes those who wait for completions.
    #[inline]
    pub(crate) fn notify(&self) {
        self.done.notify();
        // The counter's locked instruction is the barrier that pollers need, and
        // `set_channel`.
        self.pollers.notify();
        if self.has_channel.load(Ordering::SeqCst) {
            self.signal();
        }
    }

    /// Tells the channel of completions.
    #[inline(never)]
    fn signal(&self) {
        if let Some(channel) = &*self.channel.lock() {
            channel.arrived(self.rings.cq_tail());
        }
    }

    /// Has an eventfd signalled for completions in place of the one before, or none.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn set_channel(&self, eventfd: Option<EventFd>, request: &CqNotify) -> Result {
        let channel = match eventfd {
            Some(eventfd) => Some(Channel::new(eventfd, request, self.rings.cq_tail())?),
            None => None,
        };
        let before = {
            let mut place = self.channel.lock();
            let before = core::mem::replace(&mut *place, channel);
            self.has_channel.store(place.is_some(), Ordering::SeqCst);
            // Whoever has not seen the channel has written its completions before: they are
            // seen here.
            fence(Ordering::SeqCst);
            if let Some(channel) = place.as_ref().filter(|_| self.has_completions()) {
                channel.signal();
            }
            before
        };
        // Without the lock, because it may wait for its timer.
        drop(before);
        Ok(())
    }

    /// Whether there are completions that the user says that it has not taken.
    pub(crate) fn has_completions(&self) -> bool {
        self.rings.unreaped() != 0
    }

    /// A VQP of theirs goes by this RC queue from now on.
    pub(crate) fn goes_by(&self, queue: Arc<RcQueue<R>>) {
        let before = self.queue.lock().replace(queue);
        drop(before);
    }

    /// A VQP of theirs no longer goes by that RC queue.
    pub(crate) fn leaves(&self, queue: &Arc<RcQueue<R>>) {
        let is_it = |current: &mut Arc<RcQueue<R>>| Arc::ptr_eq(current, queue);
        let before = self.queue.lock().take_if(is_it);
        drop(before);
    }

    /// The RC queue that a VQP of theirs began to use last.
    fn rc_queue(&self) -> Option<Arc<RcQueue<R>>> {
        self.queue.lock().clone()
    }
}
