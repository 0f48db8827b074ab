// SPDX-License-Identifier: GPL-2.0

//! Registering memory regions with the device, by [`Registrar`]'s requests.
//!
//! All regions are registered before a peer may use a new queue pair. A region that
//! comes later is registered by whoever makes it. What fails then is tried again now and
//! then; the region is used by DC meanwhile.
//!
//! Lock order: `registrar`, then `hardware` or the regions' own.

use kernel::prelude::*;

use super::Rc;
use crate::dc::Requester;
use crate::mem::{Place, Unregistered};
use crate::rdma::Registrar;

impl<R: Requester> Rc<R> {
    /// Lets the registrar do something; makes it first, if there is none. One that fails
    /// goes before this returns, so that none of its requests is on its way any more.
    fn run(
        &self,
        registrar: &mut Option<Registrar>,
        work: impl FnOnce(&mut Registrar) -> Result,
    ) -> Result {
        if registrar.is_none() {
            let hardware = self.hardware.lock().clone();
            let hardware = hardware.ok_or_else(crate::errno::not_supported)?;
            *registrar = Some(Registrar::new(hardware.port, hardware.pd, &self.gid)?);
        }
        let outcome = registrar.as_mut().map_or(Err(ENODEV), work);
        if outcome.is_err() {
            *registrar = None;
        }
        outcome
    }

    /// Registers a region, and waits for it.
    ///
    /// # Errors
    ///
    /// The registrar failed.
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
            let mut registrar = self.registrar.lock();
            self.run(&mut registrar, |registrar| registrar.register(mr))?;
        }
        self.mrs.registered(region, blocks);
        Ok(())
    }

    /// Registers all regions that the device does not know.
    fn register_regions(&self) -> Result {
        let mut place = Place::default();
        while let Some(region) = self.mrs.unregistered(&mut place) {
            self.register_region(region)?;
        }
        Ok(())
    }

    /// Makes the key of this node's table valid, unless it is.
    fn register_table(&self) -> Result {
        let mut registrar = self.registrar.lock();
        let Some(table) = self.mrs.unregistered_table() else {
            return Ok(());
        };
        let outcome = self.run(&mut registrar, |registrar| registrar.register_table(&table));
        self.mrs.table_registered(outcome.is_ok())?;
        outcome
    }

    /// Registers all that peers use by RC. The device has to be there until this
    /// returns. May sleep.
    ///
    /// # Errors
    ///
    /// The registrar failed.
    pub(super) fn register_all(&self) -> Result {
        self.register_table()?;
        self.register_regions()
    }

    /// Whether there is a queue pair, or one is being made. It is among the links before its maker
    /// goes through the regions: so one of the two sees to a region that is made meanwhile.
    fn is_in_use(&self) -> bool {
        !self.links.lock().is_empty()
    }

    /// A region was made: the device learns of it, if RC is up. The device has to be
    /// there until this returns. May sleep, as long as a request takes.
    pub(crate) fn on_new_region(&self, key: u32) {
        if !self.is_in_use() {
            return;
        }
        if let Some(region) = self.mrs.unregistered_region(key) {
            // It is tried again.
            let _ = self.register_region(region);
        }
    }

    /// Registers what could not be before.
    pub(super) fn register_leftovers(&self) {
        if self.is_in_use() {
            let _ = self.register_regions();
        }
    }
}
