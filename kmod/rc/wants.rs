// SPDX-License-Identifier: GPL-2.0

//! The peers that are to get an RC queue pair, and the work that connects to them.

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::gid::Gid;

use crate::clock::now_ns;
use crate::dc::Requester;
use crate::rc::queue::RcQueue;
use crate::rc::{is_default, Rc, TICK_MS};
use crate::sync::Routine;
use crate::text::Shown;

/// A peer that is to get a queue pair.
pub(super) struct Want {
    pub(super) gid: Gid,
    pinned: bool,
    pub(super) opening: bool,
    retry_ns: u64,
}

impl<R: Requester> Rc<R> {
    /// The queue that a VQP to this peer is to use; `None`: DC. If RC is what peers
    /// get, one is made in the background.
    pub(crate) fn choose(&self, gid: &Gid) -> Option<Arc<RcQueue<R>>> {
        let queue = self.queue(gid);
        if queue.is_none() && is_default() && *gid != self.gid {
            // One too many is served by DC.
            let _ = self.add_want(gid, false);
        }
        queue
    }

    /// Keeps a queue to a peer, whether or not it is used.
    ///
    /// # Errors
    ///
    /// `EINVAL` (its own GID, or no IPv4 address), `EOPNOTSUPP` (the device cannot
    /// do it), `ENOSPC` (too many).
    pub(crate) fn pin(&self, gid: &Gid) -> Result {
        if *gid == self.gid || gid.to_ipv4().is_none() {
            return Err(EINVAL);
        }
        if self.hardware.lock().is_none() {
            return Err(crate::errno::not_supported());
        }
        self.add_want(gid, true).then_some(()).ok_or(ENOSPC)
    }

    /// No longer keeps a queue to a peer; one that is there stays until it breaks.
    ///
    /// # Errors
    ///
    /// `ENOENT`: none was pinned.
    pub(crate) fn unpin(&self, gid: &Gid) -> Result {
        let mut wants = self.wants.lock();
        let before = wants.len();
        wants.retain(|want| want.gid != *gid || !want.pinned);
        (wants.len() != before).then_some(()).ok_or(ENOENT)
    }

    fn add_want(&self, gid: &Gid, pinned: bool) -> bool {
        {
            let mut wants = self.wants.lock();
            if let Some(want) = wants.iter_mut().find(|want| want.gid == *gid) {
                want.pinned |= pinned;
                return true;
            }
            let want = Want {
                gid: *gid,
                pinned,
                opening: false,
                retry_ns: 0,
            };
            if wants.push_within_capacity(want).is_err() {
                return false;
            }
        }
        self.work.hurry();
        true
    }

    /// The next peer to connect to.
    fn next_want(&self) -> Option<Gid> {
        let now_ns = now_ns();
        let mut wants = self.wants.lock();
        let want = wants
            .iter_mut()
            .find(|want| !want.opening && want.retry_ns <= now_ns && !self.has_link(&want.gid))?;
        want.opening = true;
        want.retry_ns = now_ns.saturating_add(u64::from(TICK_MS) * 1_000_000);
        Some(want.gid)
    }

    fn has_link(&self, gid: &Gid) -> bool {
        self.links.lock().iter().any(|link| link.queue.gid == *gid)
    }

    fn connect(&self, gid: &Gid) -> Result {
        let (opening, offer) = self.begin(gid)?;
        let answer = self.exchange()?.exchange(gid, &offer)?;
        self.finish(opening, &answer)
    }
}

// SAFETY: the offset is the field's own; `stop` stops the work, and the node calls
// it before it lets go.
unsafe impl<R: Requester> Routine for Rc<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        self.look_after_links();
        while let Some(gid) = self.next_want() {
            if let Err(error) = self.connect(&gid) {
                pr_debug!("no RC to {}: {error:?}\n", Shown(gid));
            }
            let mut wants = self.wants.lock();
            if let Some(want) = wants.iter_mut().find(|want| want.gid == gid) {
                want.opening = false;
            }
        }
        let idle = self.links.lock().is_empty() && self.wants.lock().is_empty();
        if !idle {
            self.work.schedule(TICK_MS);
        }
    }
}
