// SPDX-License-Identifier: GPL-2.0

//! Queue pairs that nobody needs any more are closed, with the peer's consent
//! (`weft_core::transfer::Close`).
//!
//! | queue pair | [`Rc::close`] | the first is gone | the peer asks |
//! |---|---|---|---|
//! | the first | closed | | closed; no longer wanted unless pinned |
//! | a further one that this node offered | closed | closed after 3 checks | likewise |
//! | a further one that the peer offered | left to the peer | closed after 10 checks | likewise |
//!
//! One that has broken, or has a newer one in its place, ends without a word (`links`).
//!
//! From the start on users post nothing: a poster looks for that with the poster's lock, and
//! sends its requests by DC. A READ behind all requests is the last one. Its end proves to those
//! who leave that what they have written is in place. Those who leave while pieces of long requests
//! are still to be posted have a READ of their own.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::gid::Gid;
use weft_core::mr::{Notice, NoticeKind};
use weft_core::rc::{Lane, Role, MAX_LANES};
use weft_core::transfer::{Close, CloseStep};

use crate::clock::now_ns;
use crate::counters::COUNTERS;
use crate::dc::Requester;
use crate::rc::links::{usable_link, Link};
use crate::rc::queue::RcQueue;
use crate::rc::Rc;
use crate::sync::Routine;
use crate::text::Shown;
use crate::trace;

/// How often it is looked whether requests have ended.
const LOOK_MS: u32 = 1;

impl<R: Requester> RcQueue<R> {
    /// Users post nothing more.
    fn begin_close(&self) {
        self.closing.store(true, Ordering::Release);
        if let Some(packets) = self.packets() {
            packets.close();
        }
        // With the lock: those who were posting are done, and those who come later see it.
        let _ = self.post_last_read(&mut self.posting.lock());
        // Who waits for room goes another way.
        self.wake_posters();
    }

    /// Whether users post nothing more because it is being closed.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Whether none of this end's requests is under way or will be.
    fn has_drained(&self) -> bool {
        self.poll();
        let mut posting = self.posting.lock();
        let _ = self.post_last_read(&mut posting);
        posting.longs.is_empty() && self.window.outstanding() == 0
    }
}

/// What is to be done for a link that is being closed.
struct Next<R: Requester> {
    queue: Arc<RcQueue<R>>,
    step: CloseStep,
}

impl<R: Requester> Rc<R> {
    /// Closes the queue pairs to a peer that this node has asked for, or stops asking. The peer
    /// closes its own when it misses the first one.
    pub(crate) fn close(&self, gid: &Gid) {
        for number in 0..MAX_LANES {
            let lane = Lane { gid: *gid, number };
            self.unwant(&lane);
            if let Some(queue) = self.queue_to_close(&lane) {
                self.with_close(&queue, |_| {});
            }
        }
    }

    /// The queue of a lane that goes with the first one: that one, and those that this node has
    /// offered.
    fn queue_to_close(&self, lane: &Lane) -> Option<Arc<RcQueue<R>>> {
        let links = self.links.lock();
        let link = usable_link(&links, lane)?;
        let goes = lane.is_first() || is_ours(link.role);
        goes.then(|| link.queue.clone())
    }

    /// Closes a queue pair, and reports to its closing.
    pub(super) fn with_close(&self, queue: &Arc<RcQueue<R>>, report: impl FnOnce(&mut Close)) {
        queue.begin_close();
        {
            let mut links = self.links.lock();
            let is_it = |link: &&mut Link<R>| Arc::ptr_eq(&link.queue, queue);
            if let Some(link) = links.iter_mut().find(is_it) {
                report(link.close.get_or_insert_with(|| Close::new(now_ns())));
            }
        }
        self.closer.hurry();
    }

    /// Takes a peer's word about a queue pair that is to be closed; answers with what to send
    /// back now.
    pub(super) fn on_close_notice(
        &self,
        notice: &Notice,
        queue: Option<Arc<RcQueue<R>>>,
        can_answer: bool,
    ) -> Option<Notice> {
        match (notice.kind, queue) {
            (NoticeKind::Close, Some(queue)) => {
                if !queue.is_closing() {
                    // The peer does not want it: this node asks for no other by itself. Who
                    // asks from now on gets another.
                    self.unwant(&queue.lane);
                }
                self.with_close(&queue, Close::asked);
            }
            (NoticeKind::Closed, Some(queue)) if queue.is_closing() => {
                self.with_close(&queue, Close::agreed);
            }
            (NoticeKind::Busy, Some(queue)) if queue.is_closing() => {
                self.with_close(&queue, |close| close.peer_is_busy(now_ns()));
            }
            (NoticeKind::Close, None) => {
                let kind = NoticeKind::Closed;
                return can_answer.then_some(Notice { kind, ..*notice });
            }
            _ => {}
        }
        None
    }

    /// The next step of the `index`th link that is being closed; how many there are.
    fn next_close(&self, index: usize) -> Option<Next<R>> {
        let queue = {
            let links = self.links.lock();
            let mut closing = links.iter().filter(|link| link.close.is_some());
            closing.nth(index)?.queue.clone()
        };
        let is_idle = queue.has_drained() || queue.failure().is_some();
        let ended = queue.window.ended();
        let mut links = self.links.lock();
        let is_it = |link: &&mut Link<R>| Arc::ptr_eq(&link.queue, &queue);
        let link = links.iter_mut().find(is_it);
        let close = link.and_then(|link| link.close.as_mut());
        // Another work may have taken it out meanwhile.
        let step = close.map_or(CloseStep::Wait(0), |close| {
            close.step(is_idle, ended, now_ns())
        });
        Some(Next { queue, step })
    }

    /// Takes a queue out that was closed.
    fn finish_close(&self, queue: &Arc<RcQueue<R>>) {
        COUNTERS.rc_closed.bump();
        trace::closed(&queue.lane.gid);
        pr_debug!("RC to {} is closed\n", Shown(queue.lane.gid));
        self.discard(queue);
    }

    fn close_notice(queue: &RcQueue<R>, kind: NoticeKind) -> Notice {
        let token = queue.token;
        Notice {
            token,
            seq: 0,
            kind,
        }
    }
}

/// Whether this node has asked for the queue pair, and so is to close it.
pub(super) fn is_ours(role: Role) -> bool {
    role == Role::Offer
}

// SAFETY: the offset is the field's own; `stop` stops the work, and the node calls
// it before it lets go.
unsafe impl<R: Requester> Routine<3> for Rc<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, closer);

    fn run(&self) {
        let mut index = 0;
        while let Some(Next { queue, step }) = self.next_close(index) {
            match step {
                CloseStep::Wait(_) => index += 1,
                CloseStep::Ask => {
                    self.tell(&queue, &Self::close_notice(&queue, NoticeKind::Close));
                    index += 1;
                }
                CloseStep::TellBusy => {
                    self.tell(&queue, &Self::close_notice(&queue, NoticeKind::Busy));
                    index += 1;
                }
                CloseStep::Answer => {
                    self.finish_close(&queue);
                    self.tell(&queue, &Self::close_notice(&queue, NoticeKind::Closed));
                }
                CloseStep::End => self.finish_close(&queue),
            }
        }
        if index != 0 {
            self.closer.schedule(LOOK_MS);
        }
    }
}
