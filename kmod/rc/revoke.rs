// SPDX-License-Identifier: GPL-2.0

//! Regions that go while a peer may use them (`weft_core::mr`): what a queue does
//! when its peer's go, and the notices of both sides.
//!
//! A key is revoked in three steps: what was read of it is forgotten; then the
//! count of revocations goes up; then the queue's last request is looked up with
//! the poster's lock. A poster reads the count before it looks at keys and again
//! with its lock. So what it posts by a key that was forgotten is either before
//! that last request, or not posted. Of a request that is being cut no more pieces
//! are posted.
//!
//! Lock order: `Revocations::owed` is held alone; the queue's `store` and
//! `posting` one after the other.

use core::sync::atomic::{AtomicU32, Ordering};

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::gid::Gid;
use weft_core::mr::{Notice, NoticeKind};
use weft_core::uapi::WcStatus;

use super::{Rc, RcQueue};
use crate::counters::COUNTERS;
use crate::dc::Requester;
use crate::sync::{new_lock, FastLock, Routine};
use crate::text::Shown;

/// How often it is looked whether requests have ended that a peer waits for.
const OWED_MS: u32 = 1;
/// How often it is looked whether a peer should have answered.
const WAIT_MS: u32 = 50;
/// How long such requests are waited for at a time, and how often.
const NAP_NS: u64 = 500_000;
const NAPS: usize = 8;

/// The revocations of one queue's peer.
#[pin_data]
pub(super) struct Revocations {
    count: AtomicU32,
    #[pin]
    owed: FastLock<Option<Owed>>,
}

/// An answer to a notice.
struct Owed {
    /// The notice's number.
    seq: u64,
    /// The request until which it must wait.
    until: u32,
    /// The peer is to be told that requests are still on their way: its notice has come,
    /// perhaps again.
    is_asked: bool,
}

impl Revocations {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            count: AtomicU32::new(0),
            owed <- new_lock!(None, "weft_rc_owed"),
        })
    }

    /// How many there were.
    pub(super) fn seen(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }
}

impl<R: Requester> RcQueue<R> {
    /// Uses these keys no more.
    fn revoke(&self, keys: &[u32], seq: u64) {
        self.store.lock().forget(keys);
        self.revocations.count.fetch_add(1, Ordering::AcqRel);
        // One that this kept from posting waits, on a queue that may be empty.
        self.wake_posters();
        let until = {
            let mut posting = self.posting.lock();
            posting.longs.revoke(keys);
            self.window.published()
        };
        let mut owed = self.revocations.owed.lock();
        // A notice that is repeated does not start the wait anew.
        let until = owed
            .as_ref()
            .filter(|owed| owed.seq == seq)
            .map_or(until, |owed| owed.until);
        *owed = Some(Owed {
            seq,
            until,
            is_asked: true,
        });
    }

    /// Whether the peer waits for requests to end.
    fn owes(&self) -> bool {
        self.revocations.owed.lock().is_some()
    }

    /// Takes the answer to the peer's notice that is due now, if one is.
    fn take_answer(&self) -> Option<Notice> {
        let mut owed = self.revocations.owed.lock();
        let ended = owed.take_if(|owed| self.window.has_passed(owed.until));
        let (seq, kind) = match (ended, (*owed).as_mut()) {
            (Some(owed), _) => (owed.seq, NoticeKind::Unused),
            (None, Some(owed)) if owed.is_asked => {
                owed.is_asked = false;
                (owed.seq, NoticeKind::InUse)
            }
            _ => return None,
        };
        let token = self.token;
        Some(Notice { token, seq, kind })
    }
}

impl<R: Requester> Rc<R> {
    /// The queue of a token.
    fn queue_with(&self, token: u64) -> Option<Arc<RcQueue<R>>> {
        let links = self.links.lock();
        let mut queues = links.iter().map(|link| &link.queue);
        queues.find(|queue| queue.token == token).cloned()
    }

    /// Takes a notice that came from the address of `from`; answers with what to send
    /// back now, if that is possible (`can_answer`). Only the peer of a queue counts:
    /// others do not know its token, and do not speak from its address.
    pub(crate) fn on_notice(
        &self,
        from: &Gid,
        notice: &Notice,
        can_answer: bool,
    ) -> Option<Notice> {
        let queue = self.queue_with(notice.token);
        if queue.as_ref().is_some_and(|queue| queue.lane.gid != *from) {
            return None;
        }
        match (&notice.kind, queue) {
            (NoticeKind::Close | NoticeKind::Closed | NoticeKind::Busy, queue) => {
                self.on_close_notice(notice, queue, can_answer)
            }
            (NoticeKind::Gone(keys), Some(queue)) => {
                self.let_go(&queue, keys.as_slice(), notice.seq, can_answer)
            }
            (NoticeKind::Gone(_), None) => {
                // It is gone, and its requests are; or it is not there yet, and reads
                // a table without them.
                let kind = NoticeKind::Unused;
                can_answer.then_some(Notice { kind, ..*notice })
            }
            (NoticeKind::Unused, Some(_)) => {
                self.mrs.answered(notice.token, notice.seq);
                self.tell_peers();
                None
            }
            (NoticeKind::InUse, Some(_)) => {
                self.mrs.in_use(notice.token, notice.seq);
                None
            }
            // A queue that is gone has nothing to wait for.
            (_, None) => None,
        }
    }

    /// Uses a peer's regions no more; answers with what to send back now. The rest is
    /// sent once requests have ended.
    fn let_go(
        &self,
        queue: &RcQueue<R>,
        keys: &[u32],
        seq: u64,
        can_answer: bool,
    ) -> Option<Notice> {
        queue.revoke(keys, seq);
        queue.poll();
        let answer = can_answer.then(|| queue.take_answer()).flatten();
        if queue.owes() {
            self.announcer.hurry();
        }
        answer
    }

    /// Has peers told of the regions that go, if there are any.
    pub(crate) fn tell_peers(&self) {
        if self.mrs.waits_for_peers() {
            self.announcer.hurry();
        }
    }

    /// Sends a notice to a queue's peer. If it does not arrive it will be repeated. It waits for
    /// nothing, because peers that are gone must not delay what others are told in time.
    pub(super) fn tell(&self, queue: &RcQueue<R>, notice: &Notice) {
        let (Ok(exchange), Some(peer)) = (self.exchange(), queue.peer.get()) else {
            return;
        };
        COUNTERS.rc_notices.bump();
        if let Err(error) = exchange.tell(peer, &notice.encode()) {
            pr_debug!("no notice to {}: {error:?}\n", Shown(queue.lane.gid));
        }
    }

    /// The `index`th queue.
    pub(crate) fn nth(&self, index: usize) -> Option<Arc<RcQueue<R>>> {
        let links = self.links.lock();
        Some(links.get(index)?.queue.clone())
    }

    /// Ends queues whose peers had their time: the regions can go then.
    fn end_overdue(&self) {
        let mut index = 0;
        while let Some(queue) = self.nth(index) {
            if self.mrs.is_overdue(queue.token) {
                pr_info!("{} does not let go of a region\n", Shown(queue.lane.gid));
                queue.fail(WcStatus::RetryExcErr);
            }
            index += 1;
        }
    }

    /// Answers peers whose requests have ended; one that still waits, if any does.
    fn answer_peers(&self) -> Option<Arc<RcQueue<R>>> {
        let (mut index, mut waits) = (0, None);
        while let Some(queue) = self.nth(index) {
            let seen = queue.room_seen();
            if let Some(answer) = queue.take_answer() {
                self.tell(&queue, &answer);
            }
            if queue.owes() {
                waits = Some((queue, seen));
            }
            index += 1;
        }
        let (queue, seen) = waits?;
        queue.wait_for_room(seen, NAP_NS, false);
        Some(queue)
    }
}

// SAFETY: the offset is the field's own; `stop` stops the work, and the node calls
// it before it lets go.
unsafe impl<R: Requester> Routine<1> for Rc<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, announcer);

    fn run(&self) {
        while let Some(notice) = self.mrs.next_notice() {
            // One that is just being connected is told when the notice is repeated.
            if let Some(queue) = self.queue_with(notice.token) {
                self.tell(&queue, &notice);
            }
        }
        let owed = (0..NAPS).all(|_| self.answer_peers().is_some());
        self.end_overdue();
        if owed {
            self.announcer.schedule(OWED_MS);
        } else if self.mrs.waits_for_peers() {
            self.announcer.schedule(WAIT_MS);
        }
    }
}
