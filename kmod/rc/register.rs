// SPDX-License-Identifier: GPL-2.0

//! Registering memory regions with the device: by requests on a queue pair, because
//! that is the way for consumers in the kernel. Such a request stays on this node; it
//! has its turn among those of users.
//!
//! A new queue pair registers all regions before its peer may use it. A region that
//! comes later is registered by whoever makes it, on the queue pair with the fewest
//! requests. What fails then is tried again now and then; the region is used by DC
//! meanwhile.

use kernel::prelude::*;
use kernel::sync::Arc;

use super::{Rc, RcQueue};
use crate::dc::Requester;
use crate::mem::{Place, Unregistered};

impl<R: Requester> RcQueue<R> {
    /// Registers a region, and waits for it.
    ///
    /// # Errors
    ///
    /// The queue broke.
    fn register_region(&self, region: Unregistered) -> Result {
        let blocks = match self.mrs.prepare(&region) {
            Ok(blocks) => blocks,
            Err(error) => {
                // The device has no room, the host no memory, or the user has too many:
                // DC needs none of that.
                pr_debug!("a region stays unknown to the device: {error:?}\n");
                return Ok(());
            }
        };
        for mr in blocks.iter() {
            let _control = self.control.lock();
            self.request(|qp, wr_id| qp.register(mr, wr_id))?;
        }
        self.mrs.registered(region, blocks);
        Ok(())
    }

    /// Registers all regions that the device does not know.
    ///
    /// # Errors
    ///
    /// The queue broke.
    pub(super) fn register_regions(&self) -> Result {
        let mut place = Place::default();
        while let Some(region) = self.mrs.unregistered(&mut place) {
            self.register_region(region)?;
        }
        Ok(())
    }
}

impl<R: Requester> Rc<R> {
    /// The usable queue that has the fewest requests on their way.
    fn idlest_queue(&self) -> Option<Arc<RcQueue<R>>> {
        let links = self.links.lock();
        let usable = links.iter().filter(|link| link.queue.is_usable());
        let idlest = usable.min_by_key(|link| link.queue.window.outstanding())?;
        Some(idlest.queue.clone())
    }

    /// A region was made: the device learns of it, if RC is up. The device has to be
    /// there until this returns. May sleep, as long as a request takes.
    pub(crate) fn on_new_region(&self, key: u32) {
        let Some(queue) = self.idlest_queue() else {
            return;
        };
        if let Some(region) = self.mrs.unregistered_region(key) {
            // A queue that broke is ended elsewhere.
            let _ = queue.register_region(region);
        }
    }

    /// Registers what could not be before.
    pub(super) fn register_leftovers(&self) {
        if let Some(queue) = self.idlest_queue() {
            let _ = queue.register_regions();
        }
    }
}
