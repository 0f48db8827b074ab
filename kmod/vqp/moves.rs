// SPDX-License-Identifier: GPL-2.0

//! What carries a VQP's requests changes while it is in use (krcore §4.6): a request that
//! comes while earlier ones are on the old way is held until those have ended. So requests
//! end in order, and none is posted twice.
//!
//! Who posts does it, with the submitter's lock: no other thread posts to the VQP meanwhile.
//! The wait is short (`weft_core::transfer::Hold`); if the earlier requests take longer, or
//! never end because the peer is gone, the VQP stays where it is and tries again later.

use core::sync::atomic::Ordering;

use kernel::sync::Arc;
use weft_core::transfer::{Course, Crossing, Held, Hold};

use super::{Peer, Vqp, VqpQueue};
use crate::clock::now_ns;
use crate::counters::COUNTERS;
use crate::rc::{lane_of_this_cpu, Behind};
use crate::sync::{is_same, Woken, NO_VERSION};
use crate::trace;

/// How long the proof of placement is looked for before anything else is looked at.
const PROOF_SPIN_NS: u64 = 500_000;
/// How long it sleeps at most between two looks at the earlier requests.
const NAP_NS: u64 = 1_000_000;

/// The proof that what a VQP has written by an RC queue is in the peer's memory, before it
/// goes another way: an adapter may say that a WRITE has ended before that is so. A READ
/// behind it, which ends, is the proof.
pub(super) struct Placement<'a> {
    /// `None`: there is nothing to prove.
    queue: Option<&'a VqpQueue>,
    read: Option<u32>,
}

impl<'a> Placement<'a> {
    /// Of what has gone by this queue.
    pub(super) fn new(queue: Option<&'a VqpQueue>) -> Self {
        Self { queue, read: None }
    }

    /// Whether it is proven, after a moment. To be asked once all requests of the VQP have
    /// ended, again and again. Process context.
    pub(super) fn is_proven(&mut self) -> bool {
        let Some(queue) = self.queue else {
            return true;
        };
        if self.read.is_none() {
            match queue.read_behind() {
                Behind::Posted(until) => self.read = Some(until),
                Behind::Full => return false,
                Behind::Gone => self.queue = None,
            }
        }
        let Some(until) = self.read else {
            return true;
        };
        // Nobody is told of its end: it is looked for.
        let has_passed = || queue.has_passed(until);
        has_passed() || queue.attend().spin(has_passed, PROOF_SPIN_NS)
    }
}

impl Vqp {
    /// The RC queue for the requests that are posted next; `None`: they go by DC. Runs
    /// `before_wait` if it has to wait for earlier ones.
    #[inline]
    pub(super) fn choose(
        &self,
        submitter: &mut Option<Arc<VqpQueue>>,
        peer: &Peer,
        before_wait: impl FnOnce(),
    ) -> Option<Arc<VqpQueue>> {
        let current = submitter.take().or_else(|| self.queue());
        let version = peer.route().version(self.lane.load(Ordering::Relaxed));
        let is_settled = match &current {
            Some(queue) => queue.is_usable(),
            None => !self.has_left.load(Ordering::Relaxed),
        };
        if is_settled && self.route_seen.load(Ordering::Relaxed) == version {
            return current;
        }
        self.follow(current, peer, before_wait)
    }

    /// Takes the way that the pool has decided on, if it can be taken now.
    #[cold]
    fn follow(
        &self,
        current: Option<Arc<VqpQueue>>,
        peer: &Peer,
        before_wait: impl FnOnce(),
    ) -> Option<Arc<VqpQueue>> {
        let is_barred = self.only_dc.load(Ordering::Relaxed);
        let lane = self.settle_lane(peer);
        let version = peer.route().version(lane);
        let decided = peer.route().queue(lane);
        let wanted = decided.filter(|queue| !is_barred && queue.is_usable());
        if !is_same(current.as_ref(), wanted.as_ref()) {
            let start_ns = now_ns();
            let may_go = match self.crossing(current.as_deref(), version).course(start_ns) {
                Course::Stay => false,
                Course::Hold => {
                    before_wait();
                    self.waits_for_others(current.as_deref())
                }
                Course::Go => true,
            };
            if !may_go {
                return current;
            }
            self.go_by(wanted.clone());
            COUNTERS.moves.bump();
            trace::moved(
                self.flow,
                wanted.is_some(),
                now_ns().saturating_sub(start_ns),
            );
        }
        self.has_left.store(false, Ordering::Relaxed);
        self.route_seen.store(version, Ordering::Relaxed);
        wanted
    }

    /// Its state before it goes over to the way of this version.
    fn crossing(&self, current: Option<&VqpQueue>, version: u32) -> Crossing {
        let has_seen = self.route_seen.load(Ordering::Relaxed) == version;
        Crossing {
            is_idle: self.under_way() == 0,
            gives_proof: current.is_some_and(VqpQueue::can_prove),
            has_left: self.has_left.load(Ordering::Relaxed) && has_seen,
            held_until_ns: self.held_until_ns.load(Ordering::Relaxed),
        }
    }

    /// Settles which of the peer's queue pairs it takes: that of the processor that it first
    /// posts from.
    fn settle_lane(&self, peer: &Peer) -> u8 {
        if self.route_seen.load(Ordering::Relaxed) == NO_VERSION {
            let lane = lane_of_this_cpu(peer.route().lanes());
            self.lane.store(lane, Ordering::Relaxed);
        }
        let lane = self.lane.load(Ordering::Relaxed);
        peer.route().note_need(lane);
        lane
    }

    /// Waits until all requests have ended, and what they have written is in place.
    /// Answers whether that is so.
    fn waits_for_others(&self, queue: Option<&VqpQueue>) -> bool {
        let mut now = now_ns();
        let done = self.cq.done();
        let mut placement = Placement::new(queue);
        let mut hold = Hold::new(self.under_way() + 1, now);
        loop {
            let seen = done.seen();
            if let Some(queue) = queue {
                queue.poll();
            }
            let under_way = self.under_way();
            let is_proven = under_way == 0 && placement.is_proven();
            let woken = match hold.look(under_way + u32::from(!is_proven), now) {
                Held::Passed => return true,
                Held::GiveUp(until_ns) => {
                    self.held_until_ns.store(until_ns, Ordering::Relaxed);
                    COUNTERS.moves_put_off.bump();
                    return false;
                }
                Held::Wait(left_ns) => done.wait(seen, left_ns.min(NAP_NS), true),
            };
            if woken == Woken::Signal {
                return false;
            }
            now = now_ns();
        }
    }
}
