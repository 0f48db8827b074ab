// SPDX-License-Identifier: GPL-2.0

//! The peers that are to get an RC queue pair, and the work that connects to them.
//!
//! Each wanted peer has a work item of its own ([`Connector`]), so that one that does
//! not answer delays no other. No work waits for an answer: it sends its offer and is
//! started again by the answer, or by the time. `weft_core::rc::Want` says what is next,
//! and `makes_room` which peer is no longer wanted when there are too many.
//!
//! Lock order: `wants`, then `Rc::links`. A connector's `opening` is outside of both;
//! its `rc` is held alone.

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::gid::Gid;
use weft_core::rc::{makes_room, passes_to, Hello, Lane, Step, Want, WantedBy};

use crate::clock::now_ns;
use crate::counters::{Counted, COUNTERS};
use crate::dc::Requester;
use crate::random::random_u32;
use crate::rc::link::Opening;
use crate::rc::queue::RcQueue;
use crate::rc::{Claim, Rc, MAX_WANTS};
use crate::sync::{new_lock, new_periodic, FastLock, Periodic, Routine, Woken};
use crate::text::Shown;

/// Steps of a connector before it lets other work go first: an answer, what follows
/// if it is none, and the next offer.
const MAX_STEPS: usize = 4;
/// How long who connects waits for a queue pair, and between two looks.
const QUEUE_WAIT_NS: u64 = 3_000_000_000;
const QUEUE_NAP_NS: u64 = 100_000_000;

/// A wanted peer.
struct Entry {
    /// Tells it from those that had the slot before.
    id: u64,
    want: Want,
    /// The sender of the answer to its offer.
    answered_by: Option<Claim>,
    _count: Counted,
}

/// The wanted peers of a node, in as many slots as it has connectors.
pub(super) struct WantTable {
    slots: KVec<Option<Entry>>,
    last_id: u64,
    /// The lane of the offer that is being answered.
    answering: Option<Lane>,
    /// The node has stopped: nothing is wanted any more.
    is_stopped: bool,
}

impl WantTable {
    pub(super) fn new() -> Result<Self> {
        let mut slots = KVec::with_capacity(MAX_WANTS, GFP_KERNEL)?;
        for _ in 0..MAX_WANTS {
            slots.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            slots,
            last_id: 0,
            answering: None,
            is_stopped: false,
        })
    }

    fn find(&mut self, lane: &Lane) -> Option<(usize, &mut Entry)> {
        let slots = self.slots.iter_mut().enumerate();
        let mut taken = slots.filter_map(|(slot, entry)| Some((slot, entry.as_mut()?)));
        taken.find(|(_, entry)| entry.want.lane() == lane)
    }

    fn wants(&self) -> impl Iterator<Item = &Want> + Clone {
        self.slots.iter().flatten().map(|entry| &entry.want)
    }

    /// Those for the sake of processors.
    fn for_processors(&self) -> usize {
        let wants = self.wants().filter(|want| want.by() == WantedBy::Processor);
        wants.count()
    }

    /// Wants a queue pair; answers its slot if that is new. `Err`: all slots are taken, and
    /// none makes room; or the node has stopped.
    fn add(&mut self, lane: &Lane, by: WantedBy, now_ns: u64) -> Result<Option<usize>, ()> {
        if self.is_stopped {
            return Err(());
        }
        if let Some((slot, _)) = self.find(lane) {
            self.use_again(slot, by, now_ns);
            return Ok(None);
        }
        let free = self.slots.iter().position(Option::is_none);
        // With no slot free, indices of wants are those of slots.
        let slot = free.or_else(|| makes_room(self.wants(), by, now_ns));
        let slot = slot.ok_or(())?;
        self.last_id += 1;
        if let Some(free) = self.slots.get_mut(slot) {
            *free = Some(Entry {
                id: self.last_id,
                want: Want::new(*lane, by, now_ns),
                answered_by: None,
                _count: Counted::one(&COUNTERS.rc_wants),
            });
        }
        Ok(Some(slot))
    }

    /// A wanted peer is used, or pinned.
    fn use_again(&mut self, slot: usize, by: WantedBy, now_ns: u64) {
        let Some(Some(entry)) = self.slots.get(slot) else {
            return;
        };
        let passes = match (entry.want.by(), by) {
            (WantedBy::Pin, _) => false,
            (_, WantedBy::Pin) => true,
            (WantedBy::Pool | WantedBy::Processor, _) => false,
            (_, WantedBy::Pool | WantedBy::Processor) => false,
            (WantedBy::User(owner), WantedBy::User(user)) => passes_to(self.wants(), owner, user),
        };
        if let Some(Some(entry)) = self.slots.get_mut(slot) {
            entry.want.used(now_ns);
            if passes {
                entry.want.pass_to(by);
            }
        }
    }

    fn remove(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = None;
        }
    }
}

/// Connects to the wanted peer of one slot.
#[pin_data]
pub(super) struct Connector<R: Requester> {
    index: usize,
    /// Set while the node runs: `Rc::stop` breaks the cycle.
    #[pin]
    rc: FastLock<Option<Arc<Rc<R>>>>,
    /// The queue pair of the offer that is out. Only the work takes it, and `stop`
    /// after the work has ended.
    #[pin]
    opening: Mutex<Option<Opening<R>>>,
    #[pin]
    work: Periodic<Self>,
}

impl<R: Requester> Connector<R> {
    fn new(index: usize) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                index,
                rc <- new_lock!(None, "weft_rc_connector"),
                opening <- kernel::new_mutex!(None, "weft_rc_opening"),
                work <- new_periodic!("weft_rc_connect_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// As many as there may be wanted peers.
    pub(super) fn all() -> Result<KVec<Pin<KBox<Self>>>> {
        let mut all = KVec::with_capacity(MAX_WANTS, GFP_KERNEL)?;
        for slot in 0..MAX_WANTS {
            all.push(Self::new(slot)?, GFP_KERNEL)?;
        }
        Ok(all)
    }

    pub(super) fn start(&self, rc: &Arc<Rc<R>>) {
        *self.rc.lock() = Some(rc.clone());
    }

    /// Waits for a running step, and lets go of the queue pair that it was to make.
    pub(super) fn stop(&self) {
        self.work.stop();
        let opening = self.opening.lock().take();
        drop(opening);
        let rc = self.rc.lock().take();
        drop(rc);
    }

    /// Makes an offer to a peer and sends it.
    fn offer(&self, rc: &Rc<R>, next: &Next) -> Result {
        // That of a peer that made room for this one.
        let unused = self.opening.lock().take();
        drop(unused);
        let (opening, offer) = rc.begin(&next.lane)?;
        let token = opening.hello().token;
        // Before it is sent, so that its answer finds both.
        *self.opening.lock() = Some(opening);
        rc.with_want(self.index, next.id, |want, now_ns| {
            want.offered(token, now_ns);
        });
        rc.exchange()?.send(&next.lane.gid, &offer)
    }

    /// Connects with a peer's answer, if its sender is the peer.
    fn finish(&self, rc: &Rc<R>, claim: Option<Claim>, answer: &Hello) -> Result {
        let opening = self.opening.lock().take().ok_or(EINVAL)?;
        let claim = claim.ok_or(EINVAL)?;
        let exchange = rc.exchange()?;
        if !exchange.knows(&claim) {
            exchange.verify(&claim)?;
        }
        rc.finish(opening, answer, &claim)
    }

    /// Takes one step; answers whether there may be another one now.
    fn step(&self, rc: &Rc<R>) -> bool {
        let now_ns = now_ns();
        let Some(next) = rc.next_step(self.index, now_ns) else {
            let unused = self.opening.lock().take();
            drop(unused);
            return false;
        };
        let failed = |error: Error| {
            pr_debug!("no RC to {}: {error:?}\n", Shown(next.lane.gid));
        };
        match next.step {
            Step::Offer => {
                if let Err(error) = self.offer(rc, &next) {
                    failed(error);
                    rc.with_want(self.index, next.id, |want, now_ns| {
                        want.failed(now_ns, random_u32());
                    });
                }
            }
            Step::Finish(answer) => {
                let finished = self.finish(rc, next.answered_by, &answer);
                let finished = finished.inspect_err(|error| failed(*error));
                rc.with_want(self.index, next.id, |want, now_ns| match finished {
                    Ok(()) => want.connected(now_ns),
                    Err(_) => want.failed(now_ns, random_u32()),
                });
            }
            Step::Wait(until_ns) => {
                if !next.has_offer {
                    let unused = self.opening.lock().take();
                    drop(unused);
                }
                if let Some(until_ns) = until_ns {
                    let wait_ms = until_ns.saturating_sub(now_ns).div_ceil(1_000_000);
                    self.work
                        .schedule(u32::try_from(wait_ms).unwrap_or(u32::MAX));
                }
                return false;
            }
            Step::Forget => return false,
        }
        true
    }
}

// SAFETY: the offset is the field's own; `Rc::stop` stops the work before the node
// lets go of the connectors, and before `start` it is never scheduled.
unsafe impl<R: Requester> Routine for Connector<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        let Some(rc) = self.rc.lock().clone() else {
            return;
        };
        if (0..MAX_STEPS).all(|_| self.step(&rc)) {
            self.work.schedule(0);
        }
    }
}

/// A connector's next step.
struct Next {
    id: u64,
    lane: Lane,
    step: Step,
    has_offer: bool,
    answered_by: Option<Claim>,
}

impl<R: Requester> Rc<R> {
    /// The queue to a peer, which is made if need be, on a user's behalf. `None`: the peer
    /// is the node itself, which needs none.
    ///
    /// # Errors
    ///
    /// `EHOSTDOWN` (the peer has not answered), `EOPNOTSUPP` (the device cannot do it),
    /// `EINTR`.
    pub(crate) fn wait_for_queue(&self, gid: &Gid, user: u32) -> Result<Option<Arc<RcQueue<R>>>> {
        if *gid == self.gid {
            return Ok(None);
        }
        let start_ns = now_ns();
        let mut was_wanted = false;
        loop {
            let seen = self.changes.seen();
            // The device may go meanwhile.
            self.check_peer(gid)?;
            if let Some(queue) = self.queue(gid) {
                return Ok(Some(queue));
            }
            // If all slots are taken by wants that were not tried yet, it asks again. A want
            // that was tried, and has made room for another, comes back with the next call
            // only: else those of dead peers would take the slots from one another, and from
            // live ones, before an answer can come.
            let lane = Lane::first(*gid);
            if !was_wanted || self.is_wanted(&lane) {
                was_wanted |= self.add_want(&lane, WantedBy::User(user));
            }
            let left_ns = QUEUE_WAIT_NS.saturating_sub(now_ns().saturating_sub(start_ns));
            if left_ns == 0 {
                return Err(crate::errno::host_down());
            }
            if self.changes.wait(seen, left_ns.min(QUEUE_NAP_NS), true) == Woken::Signal {
                return Err(EINTR);
            }
        }
    }

    /// Asks for a queue to a peer that the pool has found to be used much.
    pub(crate) fn want(&self, gid: &Gid) {
        // If there is no room the pool tries again.
        let _ = self.add_want(&Lane::first(*gid), WantedBy::Pool);
    }

    /// Asks for a further queue to a peer, for the processors whose it is, unless there is one, or
    /// no room for it beside those that are there and those that are asked for.
    pub(crate) fn want_more(&self, lane: &Lane) {
        let asked_for = self.wants.lock().for_processors();
        if !self.has_link(lane) && asked_for < self.room_left(lane) {
            let _ = self.add_want(lane, WantedBy::Processor);
        }
    }

    /// Asks no more, unless an administrator has asked too.
    pub(super) fn unwant(&self, lane: &Lane) {
        let slot = {
            let mut wants = self.wants.lock();
            let Some((slot, entry)) = wants.find(lane) else {
                return;
            };
            if entry.want.by() == WantedBy::Pin {
                return;
            }
            wants.remove(slot);
            slot
        };
        // The work lets go of an offer that is out.
        self.hurry(slot);
    }

    /// Whether there may be a queue to a peer.
    ///
    /// # Errors
    ///
    /// `EINVAL` (its own GID, or no IPv4 address), `EOPNOTSUPP` (the device cannot
    /// do it).
    pub(crate) fn check_peer(&self, gid: &Gid) -> Result {
        if *gid == self.gid || gid.to_ipv4().is_none() {
            return Err(EINVAL);
        }
        if self.hardware.lock().is_none() {
            return Err(crate::errno::not_supported());
        }
        Ok(())
    }

    /// Keeps a queue to a peer, whether or not it is used.
    ///
    /// # Errors
    ///
    /// Those of [`Rc::check_peer`]; `ENOSPC` (too many are pinned).
    pub(crate) fn pin(&self, gid: &Gid) -> Result {
        self.check_peer(gid)?;
        self.add_want(&Lane::first(*gid), WantedBy::Pin)
            .then_some(())
            .ok_or(ENOSPC)
    }

    /// No longer keeps a queue to a peer; the pool closes one that is there.
    ///
    /// # Errors
    ///
    /// `ENOENT`: none was pinned.
    pub(crate) fn unpin(&self, gid: &Gid) -> Result {
        let slot = {
            let mut wants = self.wants.lock();
            let (slot, entry) = wants.find(&Lane::first(*gid)).ok_or(ENOENT)?;
            if entry.want.by() != WantedBy::Pin {
                return Err(ENOENT);
            }
            wants.remove(slot);
            slot
        };
        // The work lets go of an offer that is out.
        self.hurry(slot);
        Ok(())
    }

    fn is_wanted(&self, lane: &Lane) -> bool {
        self.wants.lock().find(lane).is_some()
    }

    fn add_want(&self, lane: &Lane, by: WantedBy) -> bool {
        let added = self.wants.lock().add(lane, by, now_ns());
        if let Ok(Some(slot)) = added {
            self.hurry(slot);
        }
        added.is_ok()
    }

    fn hurry(&self, slot: usize) {
        if let Some(connector) = self.connectors.get(slot) {
            connector.work.hurry();
        }
    }

    /// A peer is in use.
    pub(super) fn note_use(&self, gid: &Gid) {
        if let Some((_, entry)) = self.wants.lock().find(&Lane::first(*gid)) {
            entry.want.used(now_ns());
        }
    }

    /// The queue of a lane is gone: if it is wanted, another one is made.
    pub(super) fn reconnect(&self, lane: &Lane) {
        let slot = self.wants.lock().find(lane).map(|(slot, _)| slot);
        if let Some(slot) = slot {
            self.hurry(slot);
        }
    }

    /// Begins to answer an offer of a peer, unless this node has offered too and its offer
    /// counts: of two that cross, that of the lower GID. Until [`Rc::end_answer`] this node makes
    /// no offer of that lane, nor soon after as long as the queue pair is half open; later it lets
    /// go of that one first. So no two queue pairs come up of which each end would use another.
    pub(super) fn begin_answer(&self, lane: &Lane) -> bool {
        let mut wants = self.wants.lock();
        let own = wants.find(lane);
        if own.is_some_and(|(_, entry)| entry.want.prevails(&self.gid)) {
            return false;
        }
        wants.answering = Some(*lane);
        true
    }

    /// The offer was answered, or cannot be.
    pub(super) fn end_answer(&self, lane: &Lane) {
        self.wants.lock().answering = None;
        self.reconnect(lane);
    }

    /// Takes an answer to an offer. Its sender is looked at by the work.
    pub(crate) fn on_answer(&self, claim: &Claim, answer: &Hello) {
        let slot = {
            let mut wants = self.wants.lock();
            let Some((slot, entry)) = wants.find(&answer.lane_to_sender()) else {
                return;
            };
            if !entry.want.answered(&claim.gid(), answer) {
                return;
            }
            entry.answered_by = Some(*claim);
            slot
        };
        self.hurry(slot);
    }

    /// The next step of a slot's connector; `None`: the slot is free.
    fn next_step(&self, slot: usize, now_ns: u64) -> Option<Next> {
        let mut wants = self.wants.lock();
        let answering = wants.answering;
        let entry = wants.slots.get_mut(slot)?.as_mut()?;
        let lane = *entry.want.lane();
        let seen = self.seen(&lane, answering == Some(lane));
        let step = entry.want.step(seen, now_ns, random_u32());
        let next = Next {
            id: entry.id,
            lane,
            step,
            has_offer: entry.want.has_offer(),
            answered_by: entry.answered_by,
        };
        if step == Step::Forget {
            wants.remove(slot);
            return None;
        }
        Some(next)
    }

    /// Reports to a wanted peer, unless another has its slot now.
    fn with_want(&self, slot: usize, id: u64, report: impl FnOnce(&mut Want, u64)) {
        let mut wants = self.wants.lock();
        if let Some(Some(entry)) = wants.slots.get_mut(slot) {
            if entry.id == id {
                report(&mut entry.want, now_ns());
            }
        }
    }

    /// Forgets all: the node stops.
    pub(super) fn clear_wants(&self) {
        let mut wants = self.wants.lock();
        wants.is_stopped = true;
        wants.slots.iter_mut().for_each(|slot| *slot = None);
    }
}
