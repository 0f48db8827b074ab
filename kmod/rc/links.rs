// SPDX-License-Identifier: GPL-2.0

//! The RC queue pairs of a node, and their upkeep.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::gid::Gid;
use weft_core::uapi::WcStatus;

use crate::clock::now_ns;
use crate::dc::Requester;
use crate::rc::queue::RcQueue;
use crate::rc::Rc;
use crate::text::Shown;

/// Looks at a link that its peer does not complete before it is given up.
const MAX_LOOKS: u32 = 5;

/// A queue pair to a peer.
pub(super) struct Link<R: Requester> {
    pub(super) queue: Arc<RcQueue<R>>,
    /// Looks at it while it was not up.
    looks: u32,
}

impl<R: Requester> Rc<R> {
    /// The queue to a peer, if there is one that can be used.
    pub(super) fn queue(&self, gid: &Gid) -> Option<Arc<RcQueue<R>>> {
        let links = self.links.lock();
        let link = links
            .iter()
            .find(|link| link.queue.gid() == gid && link.queue.is_usable())?;
        Some(link.queue.clone())
    }

    /// Takes a connected queue in. What there was to that peer has lost it: a
    /// node makes a second only when the first is broken.
    pub(super) fn take_in(&self, queue: Arc<RcQueue<R>>) -> Result<Arc<RcQueue<R>>> {
        let (old, pushed) = {
            let mut links = self.links.lock();
            let place = links.iter().position(|link| link.queue.gid == queue.gid);
            let old = place.and_then(|place| links.remove(place).ok());
            let link = Link {
                queue: queue.clone(),
                looks: 0,
            };
            (old, links.push_within_capacity(link).is_ok())
        };
        if let Some(old) = old {
            end(&old.queue, WcStatus::RetryExcErr);
        }
        if !pushed {
            end(&queue, WcStatus::FatalErr);
            return Err(ENOSPC);
        }
        Ok(queue)
    }

    /// Takes a queue out and ends it.
    pub(super) fn discard(&self, queue: &Arc<RcQueue<R>>) {
        self.links
            .lock()
            .retain(|link| !Arc::ptr_eq(&link.queue, queue));
        end(queue, WcStatus::FatalErr);
    }

    /// The `index`th link's queue, and whether it has to go.
    pub(super) fn inspect(&self, index: usize) -> Option<(Arc<RcQueue<R>>, bool)> {
        let mut links = self.links.lock();
        let link = links.get_mut(index)?;
        link.looks += u32::from(!link.queue.is_usable());
        let lost = link.queue.failure().is_some() || link.looks > MAX_LOOKS;
        Some((link.queue.clone(), lost))
    }

    /// Takes broken links out, and asks idle peers for a sign of life.
    pub(super) fn look_after_links(&self) {
        let mut index = 0;
        while let Some((queue, lost)) = self.inspect(index) {
            if lost {
                pr_info!(
                    "RC to {} is lost: {:?}\n",
                    Shown(queue.gid),
                    queue.failure()
                );
                self.discard(&queue);
                continue;
            }
            queue.look_after();
            index += 1;
        }
    }
}

/// Ends a queue that is in no list any more.
pub(super) fn end<R: Requester>(queue: &RcQueue<R>, status: WcStatus) {
    queue.work.stop();
    queue.shut_down(status);
}

impl<R: Requester> RcQueue<R> {
    /// Now and then.
    fn look_after(&self) {
        self.poll();
        if self.stall.lock().look(&self.window, now_ns()) {
            pr_warn!("RC to {} makes no progress\n", Shown(self.gid));
            return self.fail(WcStatus::RetryExcErr);
        }
        let tail = self.window.published();
        if self.seen_tail.swap(tail, Ordering::Relaxed) == tail && self.is_usable() {
            self.probe();
        }
        self.arm();
    }
}
