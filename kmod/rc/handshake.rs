// SPDX-License-Identifier: GPL-2.0

//! Offers of RC queue pairs, and their answers.
//!
//! ```text
//! begin() ── offer ──> peer's on_offer(), accept() ── answer ──> on_answer(), finish()
//!                                       peer is up <── first message ──┘
//! ```
//!
//! An offer is taken only from the address of its GID, from the port and the identity
//! that the peer's record holds. Records that are not cached are looked up by a work of
//! its own, at a bounded rate of which each address has a share
//! (`weft_core::rc::Admission`); known senders come first.
//!
//! Lock order: `offers` and `admission` are held alone.

use kernel::prelude::*;
use weft_core::rc::{Hello, Lane, Role};

use crate::clock::now_ns;
use crate::counters::COUNTERS;
use crate::dc::Requester;
use crate::rc::link::Opening;
use crate::rc::{Claim, HelloBytes, Rc};
use crate::sync::Routine;
use crate::text::Shown;

/// Offers that wait to be answered.
pub(super) const MAX_PENDING: usize = 32;
/// Those of them whose senders have to be looked up.
const MAX_PENDING_LOOKUPS: usize = 8;

/// An offer to be answered.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    claim: Claim,
    offer: Hello,
    /// The sender's record was cached.
    is_known: bool,
}

impl<R: Requester> Rc<R> {
    /// Makes a queue pair of a lane, and the offer to send. The device has to be
    /// there until the result is finished or dropped.
    pub(super) fn begin(&self, lane: &Lane) -> Result<(Opening<R>, HelloBytes)> {
        self.let_go_of_half_open(lane);
        let opening = self.open(lane, Role::Offer, None)?;
        let offer = opening.hello().encode();
        Ok((opening, offer))
    }

    /// Takes a peer's answer, whose sender was verified: the queue is up, and the peer
    /// knows.
    pub(super) fn finish(&self, opening: Opening<R>, theirs: &Hello, claim: &Claim) -> Result {
        let ours = *opening.hello();
        let lane = *opening.lane();
        let answers_ours = theirs.token == ours.token && theirs.lane_to_sender() == lane;
        if theirs.role != Role::Answer || !answers_ours {
            return Err(crate::errno::proto());
        }
        let queue = opening.connect(theirs, claim)?;
        self.insert(&queue, Role::Offer)?;
        self.register_all()
            .and_then(|()| queue.complete_offer(theirs.nonce))
            .inspect_err(|_| self.discard(&queue))?;
        match lane.is_first() {
            true => pr_info!("RC to {} is up\n", Shown(lane.gid)),
            false => pr_debug!("RC to {} has lane {}\n", Shown(lane.gid), lane.number),
        }
        self.links_changed();
        Ok(())
    }

    /// Takes an offer whose sender `claim` tells of. It is answered in the background.
    pub(crate) fn on_offer(&self, claim: &Claim, offer: &Hello) {
        if let Err(error) = self.queue_offer(claim, offer) {
            COUNTERS.rc_offers_refused.bump();
            pr_debug!("{}: its offer is refused: {error:?}\n", Shown(claim.gid()));
        }
    }

    fn queue_offer(&self, claim: &Claim, offer: &Hello) -> Result {
        let gid = claim.gid();
        if offer.gid != gid || gid == self.gid {
            return Err(crate::errno::proto());
        }
        let is_known = self.exchange()?.knows(claim);
        let is_admitted = {
            let mut admission = self.admission.lock();
            match is_known {
                true => admission.takes_offer(&gid, now_ns()),
                false => admission.takes_lookup(&gid, now_ns()),
            }
        };
        if !is_admitted {
            return Err(EBUSY);
        }
        {
            let mut pending = self.offers.lock();
            // A sender gives up an offer before it makes the next of that lane.
            pending.retain(|other| {
                other.offer.lane_to_sender() != offer.lane_to_sender() || other.is_known != is_known
            });
            let lookups = pending.iter().filter(|other| !other.is_known).count();
            if !is_known && lookups >= MAX_PENDING_LOOKUPS {
                return Err(EBUSY);
            }
            let next = Pending {
                claim: *claim,
                offer: *offer,
                is_known,
            };
            pending.push_within_capacity(next).map_err(|_| EBUSY)?;
        }
        self.acceptor.schedule(0);
        Ok(())
    }

    /// The next offer to answer, those of known senders first.
    fn next_offer(&self) -> Option<Pending> {
        let mut offers = self.offers.lock();
        let known = offers.iter().position(|offer| offer.is_known);
        offers.remove(known.unwrap_or(0)).ok()
    }

    /// Answers an offer, once its sender is known.
    fn answer(&self, pending: &Pending) -> Result {
        let (gid, exchange) = (pending.claim.gid(), self.exchange()?);
        if !pending.is_known {
            exchange.verify(&pending.claim)?;
        }
        let answer = self.accept(&pending.offer, &pending.claim)?;
        exchange.send(&gid, &answer)
    }

    /// Makes the queue pair that answers a peer's offer. The peer's first message makes
    /// it usable; until then, one that there was stays in use.
    ///
    /// # Errors
    ///
    /// `EPROTO` (malformed), `EBUSY` (this node has offered too, and its offer
    /// counts; or there is no first one, which a further one needs), `EOPNOTSUPP`, `ENOSPC`, and
    /// those of ib_core.
    fn accept(&self, theirs: &Hello, claim: &Claim) -> Result<HelloBytes> {
        if theirs.role != Role::Offer {
            return Err(crate::errno::proto());
        }
        let lane = theirs.lane_to_sender();
        if !lane.is_first() && self.queue(&lane.gid).is_none() {
            return Err(EBUSY);
        }
        if !self.begin_answer(&lane) {
            return Err(EBUSY);
        }
        let answer = self.make_answer(&lane, theirs, claim);
        self.end_answer(&lane);
        answer
    }

    fn make_answer(&self, lane: &Lane, theirs: &Hello, claim: &Claim) -> Result<HelloBytes> {
        let opening = self.open(lane, Role::Answer, Some(theirs.token))?;
        let answer = opening.hello().encode();
        let queue = opening.connect(theirs, claim)?;
        self.insert(&queue, Role::Answer)?;
        self.register_all().inspect_err(|_| self.discard(&queue))?;
        queue.complete_answer();
        Ok(answer)
    }

    fn open(&self, lane: &Lane, role: Role, token: Option<u64>) -> Result<Opening<R>> {
        // Before anything is made: what has no room may be asked for again and again.
        if !self.has_room(lane, role) {
            return Err(ENOSPC);
        }
        let hardware = self
            .hardware
            .lock()
            .clone()
            .ok_or_else(crate::errno::not_supported)?;
        let packets = self.exchange()?.packets();
        Opening::new(hardware, &self.mrs, self.gid, *lane, role, token, packets)
    }
}

// SAFETY: the offset is the field's own; `stop` stops the work, and the node calls
// it before it lets go.
unsafe impl<R: Requester> Routine<2> for Rc<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, acceptor);

    fn run(&self) {
        // More come at a bounded rate.
        while let Some(pending) = self.next_offer() {
            if let Err(error) = self.answer(&pending) {
                COUNTERS.rc_offers_refused.bump();
                pr_debug!("{}: no RC: {error:?}\n", Shown(pending.claim.gid()));
            }
        }
    }
}
