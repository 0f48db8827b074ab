// SPDX-License-Identifier: GPL-2.0

//! What the RDMA device knows of a node's regions: nothing until RC is used.
//!
//! Then the table that peers read is made ([`MrTable::use_rc`]), and the regions are
//! registered one by one, those that exist when the first queue pair is connected and
//! later ones when their owner registers them. The pages are those that were pinned
//! and charged when the owner did: its address space is not looked at again. A region
//! that the device does not know is used by DC.
//!
//! Lock order: as in `table`.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi;

use crate::mem::region::{Mr, RegionUse};
use crate::mem::table::{MrTable, VALID};
use crate::mem::valid::ValidMr;
use crate::rdma::{Device, FastMr, Pd};

/// The device of a node that can have RC queue pairs.
pub(super) struct Hardware {
    device: Device,
    pd: Arc<Pd>,
}

/// Whether a node uses RC, or why it cannot; for [`uapi::NodeInfo::rc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum RcUse {
    /// It can, and has not yet.
    Unused = uapi::RC_UNUSED,
    /// It does.
    Used = uapi::RC_USED,
    /// The device registers no memory by requests on queue pairs, or is gone.
    NoFastRegistration = uapi::RC_NO_FAST_REGISTRATION,
}

/// A region that the device does not know, and that nobody else registers with it
/// meanwhile.
///
/// # Invariants
///
/// The region's `is_registering` is set, by us.
pub(crate) struct Unregistered(RegionUse);

impl Unregistered {
    /// Claims a region whose set is locked.
    fn claim(mr: &Mr, most_pages: u32) -> Option<Self> {
        let is_candidate =
            mr.ib.get().is_none() && mr.pages.span().pages.len() <= most_pages as usize;
        if !is_candidate || mr.is_registering.swap(true, Ordering::Acquire) {
            return None;
        }
        // INVARIANT: set by the swap. (The previous holder may have registered
        // the region since it was looked at: `MrTable::registered` finds that out.)
        Some(Self(RegionUse::new(mr)))
    }
}

impl Drop for Unregistered {
    fn drop(&mut self) {
        self.0.mr().is_registering.store(false, Ordering::Release);
    }
}

/// How far a walk over all regions has come.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    set: usize,
    /// The least key that was not looked at.
    key: u32,
}

impl Place {
    fn next_set(self) -> Self {
        Self {
            set: self.set + 1,
            key: 0,
        }
    }
}

impl MrTable {
    /// RC is possible on this device; nothing is registered with it yet.
    pub(crate) fn allow_rc(&self, device: Device, pd: Arc<Pd>) {
        *self.hardware.lock() = Some(Hardware { device, pd });
    }

    /// Whether RC is used or could be.
    pub(crate) fn rc_use(&self) -> RcUse {
        if self.state.lock().valid.is_some() {
            RcUse::Used
        } else if self.hardware.lock().is_some() {
            RcUse::Unused
        } else {
            RcUse::NoFastRegistration
        }
    }

    /// RC is used from now on: makes the table that peers read, unless it is there.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` (not possible on this device), `ENOMEM`, `ENOSPC`, and those of the
    /// driver.
    pub(crate) fn use_rc(&self) -> Result {
        let hardware = self.hardware.lock();
        let Hardware { device, pd } = hardware.as_ref().ok_or_else(crate::errno::not_supported)?;
        if self.state.lock().valid.is_some() {
            return Ok(());
        }
        let mut valid = ValidMr::new(*device, pd.clone(), VALID)?;
        // Regions come and go with it locked, so the table misses none. Those for which
        // there is no room are used by DC.
        let mut state = self.state.lock();
        for set in self.sets.iter() {
            for mr in set.lock().values_mut() {
                let record = mr.record();
                mr.is_shown = record.is_some_and(|record| valid.insert(mr.key, &record).is_ok());
            }
        }
        state.valid = Some(valid);
        Ok(())
    }

    /// The next region that the device does not know, from `place` on, which moves
    /// behind it. Those of more pages than the device takes are left out.
    pub(crate) fn unregistered(&self, place: &mut Place) -> Option<Unregistered> {
        let most_pages = self.most_pages()?;
        while let Some(set) = self.sets.get(place.set) {
            let set = set.lock();
            let rest = set.iter().filter(|(key, _)| **key >= place.key);
            for (key, mr) in rest {
                if let Some(found) = Unregistered::claim(mr, most_pages) {
                    // The last key of all leads on to the next set.
                    match key.checked_add(1) {
                        Some(next) => place.key = next,
                        None => *place = place.next_set(),
                    }
                    return Some(found);
                }
            }
            *place = place.next_set();
        }
        None
    }

    /// The region of a key, if the device does not know it.
    pub(crate) fn unregistered_region(&self, key: u32) -> Option<Unregistered> {
        let most_pages = self.most_pages()?;
        let set = self.set(key).lock();
        Unregistered::claim(set.get(&key)?, most_pages)
    }

    fn most_pages(&self) -> Option<u32> {
        let hardware = self.hardware.lock();
        Some(hardware.as_ref()?.device.most_pages())
    }

    /// Prepares the registration of a region. The device has to be there until the
    /// result is dropped or given to [`Self::registered`].
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`, and those of [`FastMr::new`].
    pub(crate) fn prepare(&self, region: &Unregistered) -> Result<FastMr> {
        let (device, pd) = {
            let hardware = self.hardware.lock();
            let hardware = hardware.as_ref().ok_or_else(crate::errno::not_supported)?;
            (hardware.device, hardware.pd.clone())
        };
        let mr = region.0.mr();
        // SAFETY: the region owns the pages, and drops what it is given before them; a
        // `FastMr` that it is not given goes before the use of the region does.
        unsafe { FastMr::new(device, &pd, mr.pages.span(), mr.addr, mr.access) }
    }

    /// A queue pair has made the key of a region valid: requests go by RC from now on.
    pub(crate) fn registered(&self, region: Unregistered, ib: FastMr) {
        let mr = region.0.mr();
        if !mr.ib.set(ib) {
            return;
        }
        let Some(record) = mr.record() else { return };
        let mut state = self.state.lock();
        // With `state` locked no region goes; this one may have gone before.
        let is_shown = self
            .set(mr.key)
            .lock()
            .get(&mr.key)
            .is_some_and(|other| core::ptr::eq(&**other, mr) && other.is_shown);
        if let Some(valid) = state.valid.as_mut().filter(|_| is_shown) {
            // In place of the record that it has: there is room.
            let _ = valid.insert(mr.key, &record);
        }
    }
}
