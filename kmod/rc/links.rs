// SPDX-License-Identifier: GPL-2.0

//! The RC queue pairs of a node, and their upkeep. `weft_core::rc` says which of them a
//! newer one replaces, and when.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::gid::Gid;
use weft_core::pool::LinkState;
use weft_core::rc::{
    half_open, is_superseded, room_for, room_left, usable, Lane, LinkView, Role, Seen, Stage,
};
use weft_core::transfer::Close;
use weft_core::uapi::WcStatus;

use crate::clock::now_ns;
use crate::dc::Requester;
use crate::rc::closing::is_ours;
use crate::rc::queue::{Ending, RcQueue};
use crate::rc::{Rc, TICK_MS};
use crate::sync::Routine;
use crate::text::Shown;

/// Checks of a queue pair that its peer does not complete before it is given up.
const MAX_CHECKS: u32 = 5;
/// Checks of a further queue pair to a peer, while there is no first one, before the end that
/// has offered it closes it; and before the other end does.
const ORPHAN_CHECKS: (u32, u32) = (3, 10);

/// A queue pair to a peer.
pub(super) struct Link<R: Requester> {
    pub(super) queue: Arc<RcQueue<R>>,
    /// Whether this node sent the offer, or the answer to the peer's.
    pub(super) role: Role,
    /// Checks of it while it was not up.
    checks: u32,
    /// Checks of it, a further one, since the first one to the peer was up.
    orphaned: u32,
    /// It is being closed.
    pub(super) close: Option<Close>,
}

impl<R: Requester> Link<R> {
    fn view(&self) -> LinkView {
        let stage = if self.queue.failure().is_some() {
            Stage::Broken
        } else if self.close.is_some() || self.queue.is_closing() {
            Stage::Closing
        } else if self.queue.is_usable() {
            Stage::Up
        } else if self.role == Role::Answer {
            Stage::HalfOpen
        } else {
            Stage::Finishing
        };
        LinkView {
            lane: self.queue.lane,
            stage,
        }
    }

    /// Whether this end closes it now, because the first one to the peer is gone (`has_first`
    /// says that there is one).
    fn is_orphan(&mut self, has_first: bool) -> bool {
        if self.queue.lane.is_first() || has_first {
            self.orphaned = 0;
            return false;
        }
        self.orphaned += 1;
        let (ours, theirs) = ORPHAN_CHECKS;
        let most = if is_ours(self.role) { ours } else { theirs };
        self.orphaned >= most
    }

    /// Its state for the pool, if it can be used.
    fn up_state(&self) -> LinkState {
        let packets = self.queue.packets();
        LinkState::Up {
            ours: is_ours(self.role),
            carries_packets: packets.is_some_and(|packets| packets.is_open()),
        }
    }
}

fn views<R: Requester>(links: &[Link<R>]) -> impl Iterator<Item = LinkView> + Clone + '_ {
    links.iter().map(Link::view)
}

/// The link of a lane that can be used.
pub(super) fn usable_link<'a, R: Requester>(
    links: &'a [Link<R>],
    lane: &Lane,
) -> Option<&'a Link<R>> {
    links.get(usable(views(links), lane)?)
}

/// Upkeep's decision about a queue pair.
enum Verdict {
    /// It is checked again.
    Keep,
    /// The first queue pair to the peer is gone.
    Orphan,
    /// It broke, or was never completed.
    Lost,
    /// The peer has spoken on a newer one.
    Superseded,
}

impl<R: Requester> Rc<R> {
    /// The first queue to a peer, if there is one that can be used.
    pub(crate) fn queue(&self, gid: &Gid) -> Option<Arc<RcQueue<R>>> {
        self.queue_of(&Lane::first(*gid))
    }

    /// The queue of a lane, if there is one that can be used.
    pub(crate) fn queue_of(&self, lane: &Lane) -> Option<Arc<RcQueue<R>>> {
        let links = self.links.lock();
        Some(usable_link(&links, lane)?.queue.clone())
    }

    /// The queue pairs of a lane, as its want sees them.
    pub(super) fn seen(&self, lane: &Lane, is_being_answered: bool) -> Seen {
        Seen::of(views(&self.links.lock()), lane, is_being_answered)
    }

    /// Whether there is a queue pair of a lane, in whatever stage.
    pub(super) fn has_link(&self, lane: &Lane) -> bool {
        views(&self.links.lock()).any(|link| link.lane == *lane)
    }

    /// How many more queue pairs there may be, first ones or further ones as this lane is.
    pub(super) fn room_left(&self, lane: &Lane) -> usize {
        room_left(views(&self.links.lock()), lane)
    }

    /// Whether there is room for a new queue pair of a lane.
    pub(super) fn has_room(&self, lane: &Lane, role: Role) -> bool {
        room_for(views(&self.links.lock()), lane, role).is_some()
    }

    /// The queue pairs to a peer that can be used.
    pub(crate) fn lanes_up(&self, gid: &Gid) -> usize {
        let links = self.links.lock();
        let is_it = |link: &LinkView| link.lane.gid == *gid && link.stage == Stage::Up;
        views(&links).filter(is_it).count()
    }

    /// How long there has been a queue pair to a peer that can be used; 0: there is none.
    pub(crate) fn age_ns(&self, gid: &Gid) -> u64 {
        let queue = self.queue(gid);
        queue.map_or(0, |queue| now_ns().saturating_sub(queue.made_ns).max(1))
    }

    /// What there is to a peer.
    pub(crate) fn link_state(&self, gid: &Gid) -> LinkState {
        let links = self.links.lock();
        let first = Lane::first(*gid);
        if let Some(link) = usable_link(&links, &first) {
            return link.up_state();
        }
        let is_closing = |link: LinkView| link.lane == first && link.stage == Stage::Closing;
        let has_closing = views(&links).any(is_closing);
        match has_closing {
            true => LinkState::Closing,
            false => LinkState::None,
        }
    }

    /// Takes a connected queue in. An older one to that peer stays until this one is
    /// up; one that answered an older offer goes.
    pub(super) fn insert(&self, queue: &Arc<RcQueue<R>>, role: Role) -> Result {
        let (old, pushed) = {
            let mut links = self.links.lock();
            let room = room_for(views(&links), &queue.lane, role);
            let old = room.and_then(|room| links.remove(room.displaced?).ok());
            let link = Link {
                queue: queue.clone(),
                role,
                checks: 0,
                orphaned: 0,
                close: None,
            };
            let pushed = room.is_some() && links.push_within_capacity(link).is_ok();
            (old, pushed)
        };
        if let Some(old) = old {
            end(&old.queue, Ending::LetGo);
        }
        if !pushed {
            end(queue, Ending::LetGo);
            return Err(ENOSPC);
        }
        self.work.schedule(TICK_MS);
        Ok(())
    }

    /// Lets go of what the peer has offered of a lane: this node makes an offer of its own, and
    /// of two queue pairs that come up each end might use another.
    pub(super) fn let_go_of_half_open(&self, lane: &Lane) {
        let old = {
            let mut links = self.links.lock();
            let place = half_open(views(&links), lane);
            place.and_then(|place| links.remove(place).ok())
        };
        if let Some(old) = old {
            end(&old.queue, Ending::LetGo);
        }
    }

    /// Takes a queue out and ends it. If its peer is wanted, another one is made.
    pub(super) fn discard(&self, queue: &Arc<RcQueue<R>>) {
        self.links
            .lock()
            .retain(|link| !Arc::ptr_eq(&link.queue, queue));
        end(queue, Ending::LetGo);
        self.links_changed();
        self.reconnect(&queue.lane);
    }

    /// The `index`th link's queue, and what is to become of it.
    fn inspect(&self, index: usize) -> Option<(Arc<RcQueue<R>>, Verdict)> {
        let mut links = self.links.lock();
        let first = Lane::first(links.get(index)?.queue.lane.gid);
        let has_first = usable_link(&links, &first).is_some();
        let link = links.get_mut(index)?;
        // That of one which is being closed ends by itself.
        let is_waited_for = !link.queue.is_usable() && link.close.is_none();
        link.checks += u32::from(is_waited_for);
        let is_orphan = link.is_orphan(has_first);
        // One that is being closed may still have requests, and ends by itself.
        let is_closing = link.close.is_some();
        let queue = link.queue.clone();
        let verdict = if queue.failure().is_some() || link.checks > MAX_CHECKS {
            Verdict::Lost
        } else if !is_closing && is_superseded(views(&links), index, &queue.lane) {
            Verdict::Superseded
        } else if is_orphan {
            Verdict::Orphan
        } else {
            Verdict::Keep
        };
        Some((queue, verdict))
    }

    /// Takes broken and superseded links out, and asks idle peers for a sign of life.
    fn maintain_links(&self) {
        let mut index = 0;
        while let Some((queue, verdict)) = self.inspect(index) {
            match verdict {
                Verdict::Keep => {
                    if queue.maintain() {
                        self.note_use(&queue.lane.gid);
                    }
                    index += 1;
                    continue;
                }
                Verdict::Orphan => {
                    self.with_close(&queue, |_| {});
                    index += 1;
                    continue;
                }
                Verdict::Lost => note_lost(&queue),
                Verdict::Superseded => pr_info!("RC to {} is renewed\n", Shown(queue.lane.gid)),
            }
            self.discard(&queue);
        }
    }
}

/// Logs that a queue pair is taken out which broke, or was never completed.
fn note_lost<R: Requester>(queue: &RcQueue<R>) {
    let (gid, failure) = (Shown(queue.lane.gid), queue.failure());
    match queue.was_up() {
        true => pr_info!("RC to {gid} is lost: {failure:?}\n"),
        false => pr_debug!("RC to {gid} was not completed: {failure:?}\n"),
    }
}

/// Ends a queue that is in no list any more.
pub(super) fn end<R: Requester>(queue: &RcQueue<R>, ending: Ending) {
    queue.stop_work();
    queue.retire(ending);
    queue.shut_down();
}

impl<R: Requester> RcQueue<R> {
    /// Checks the queue's progress, and probes the peer if it is idle. Answers whether
    /// users have posted since the last call.
    fn maintain(&self) -> bool {
        self.poll();
        if let Some(packets) = self.packets() {
            packets.maintain();
        }
        if self.stall.lock().look(&self.window, now_ns()) {
            pr_warn!("RC to {} makes no progress\n", Shown(self.lane.gid));
            self.fail(WcStatus::RetryExcErr);
            return false;
        }
        let tail = self.window.published();
        let users = tail.wrapping_sub(self.own_requests.load(Ordering::Relaxed));
        if self.seen_tail.swap(tail, Ordering::Relaxed) == tail && self.is_usable() {
            self.probe();
        }
        self.arm();
        self.seen_users.swap(users, Ordering::Relaxed) != users
    }
}

// SAFETY: the offset is the field's own; `stop` stops the work, and the node calls
// it before it lets go.
unsafe impl<R: Requester> Routine for Rc<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        self.maintain_links();
        self.register_leftovers();
        let is_idle = self.links.lock().is_empty();
        if !is_idle {
            self.work.schedule(TICK_MS);
        }
    }
}
