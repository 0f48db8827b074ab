// SPDX-License-Identifier: GPL-2.0

//! Offers of RC queue pairs, and their answers.
//!
//! ```text
//! begin() ── offer ──> peer's accept() ── answer ──> finish() ── first message ──> peer is up
//! ```

use kernel::prelude::*;
use weft_core::gid::Gid;
use weft_core::rc::{Hello, Role};

use crate::dc::Requester;
use crate::rc::link::Opening;
use crate::rc::wants::Want;
use crate::rc::{HelloBytes, Rc, TICK_MS};
use crate::text::Shown;

impl<R: Requester> Rc<R> {
    /// Makes a queue pair to a peer, and the offer to send. The device has to be
    /// there until the result is finished or dropped.
    pub(crate) fn begin(&self, to: &Gid) -> Result<(Opening<R>, HelloBytes)> {
        let opening = self.open(to, Role::Offer, None)?;
        let offer = opening.hello().encode();
        Ok((opening, offer))
    }

    /// Takes a peer's answer: the queue is up, and the peer knows.
    pub(crate) fn finish(&self, opening: Opening<R>, answer: &[u8]) -> Result {
        let ours = *opening.hello();
        let theirs = Hello::decode(answer).ok_or_else(crate::errno::proto)?;
        let to = opening.peer();
        if theirs.role != Role::Answer || theirs.token != ours.token || theirs.gid != to {
            return Err(crate::errno::proto());
        }
        let queue = self.take_in(opening.connect(&theirs)?)?;
        queue
            .complete_offer()
            .inspect_err(|_| self.discard(&queue))?;
        pr_info!("RC to {} is up\n", Shown(to));
        self.work.schedule(TICK_MS);
        Ok(())
    }

    /// Answers a peer's offer. The peer's first message makes the queue usable.
    ///
    /// # Errors
    ///
    /// `EPROTO` (malformed), `EBUSY` (this node has offered too, and its offer
    /// counts), `EOPNOTSUPP`, `ENOSPC`, and those of ib_core.
    pub(crate) fn accept(&self, offer: &[u8]) -> Result<HelloBytes> {
        let theirs = Hello::decode(offer).ok_or_else(crate::errno::proto)?;
        if theirs.role != Role::Offer || theirs.gid == self.gid {
            return Err(crate::errno::proto());
        }
        // Of two that offer at once, the offer of the lower GID counts.
        let is_opening = |want: &Want| want.gid == theirs.gid && want.opening;
        if self.gid.0 < theirs.gid.0 && self.wants.lock().iter().any(is_opening) {
            return Err(EBUSY);
        }
        let opening = self.open(&theirs.gid, Role::Answer, Some(theirs.token))?;
        let answer = opening.hello().encode();
        let queue = self.take_in(opening.connect(&theirs)?)?;
        queue
            .complete_answer()
            .inspect_err(|_| self.discard(&queue))?;
        self.work.schedule(TICK_MS);
        Ok(answer)
    }

    fn open(&self, to: &Gid, role: Role, token: Option<u64>) -> Result<Opening<R>> {
        let hardware = self
            .hardware
            .lock()
            .clone()
            .ok_or_else(crate::errno::not_supported)?;
        Opening::new(hardware, &self.mrs, self.gid, *to, role, token)
    }
}
