// SPDX-License-Identifier: GPL-2.0

//! A node's regions as the RDMA device knows them: none until RC is used.
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
use weft_core::mr::BlockSize;
use weft_core::uapi;

use crate::mem::blocks::{RegisteredBlocks, MOST_BLOCKS, PAGE_LOG2};
use crate::mem::region::{Mr, RegionUse};
use crate::mem::table::{MrTable, VALID};
use crate::mem::valid::ValidMr;
use crate::rdma::{Device, Pd};

/// The device of a node that can have RC queue pairs.
pub(super) struct Hardware {
    device: Device,
    pd: Arc<Pd>,
    blocks: BlockSize,
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
    fn claim(mr: &Mr, blocks: BlockSize) -> Option<Self> {
        let is_candidate = mr.ib.get().is_none() && blocks.count(mr.addr, mr.len) <= MOST_BLOCKS;
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
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: it is not, the device lists too few pages in a registration.
    pub(crate) fn allow_rc(&self, device: Device, pd: Arc<Pd>) -> Result {
        let blocks = BlockSize::of_device(device.most_pages(), PAGE_LOG2);
        let blocks = blocks.filter(|_| ValidMr::fits(device, VALID));
        let blocks = blocks.ok_or_else(crate::errno::not_supported)?;
        *self.hardware.lock() = Some(Hardware { device, pd, blocks });
        Ok(())
    }

    /// The size of the blocks in which regions are registered, where RC is possible.
    pub(crate) fn block_size(&self) -> Option<BlockSize> {
        Some(self.hardware.lock().as_ref()?.blocks)
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
        let Hardware { device, pd, .. } =
            hardware.as_ref().ok_or_else(crate::errno::not_supported)?;
        if self.state.lock().valid.is_some() {
            return Ok(());
        }
        let valid = ValidMr::new(*device, pd.clone(), VALID)?;
        self.state.lock().valid = Some(valid);
        Ok(())
    }

    /// The next region that the device does not know, from `place` on, which moves
    /// behind it. Those of too many blocks are left out.
    pub(crate) fn unregistered(&self, place: &mut Place) -> Option<Unregistered> {
        let blocks = self.block_size()?;
        while let Some(set) = self.sets.get(place.set) {
            let set = set.lock();
            let rest = set.iter().filter(|(key, _)| **key >= place.key);
            for (key, mr) in rest {
                if let Some(found) = Unregistered::claim(mr, blocks) {
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
        let blocks = self.block_size()?;
        let set = self.set(key).lock();
        Unregistered::claim(set.get(&key)?, blocks)
    }

    /// Prepares the registration of a region. The device has to be there until the
    /// result is dropped or given to [`Self::registered`].
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`, and those of [`RegisteredBlocks::new`].
    pub(crate) fn prepare(&self, region: &Unregistered) -> Result<RegisteredBlocks> {
        let (device, pd, size) = {
            let hardware = self.hardware.lock();
            let hardware = hardware.as_ref().ok_or_else(crate::errno::not_supported)?;
            (hardware.device, hardware.pd.clone(), hardware.blocks)
        };
        let mr = region.0.mr();
        // SAFETY: the region holds the pages, and drops what it is given before them;
        // what it is not given goes before the use of the region does.
        unsafe {
            RegisteredBlocks::new(device, &pd, size, mr.span()?, mr.addr, mr.access, &mr.held)
        }
    }

    /// A queue pair has made the keys of a region valid: requests go by RC from now on,
    /// and peers' too if the table has room for it.
    pub(crate) fn registered(&self, region: Unregistered, ib: RegisteredBlocks) {
        let mr = region.0.mr();
        if !mr.ib.set(ib) {
            return;
        }
        let mut state = self.state.lock();
        // With `state` locked no region goes; this one may have gone before.
        let set = self.set(mr.key).lock();
        let is_there = set
            .get(&mr.key)
            .is_some_and(|there| core::ptr::eq(&**there, mr));
        drop(set);
        if let Some(valid) = state.valid.as_mut().filter(|_| is_there) {
            let is_shown = valid.insert(mr);
            mr.is_shown.store(is_shown, Ordering::Relaxed);
        }
    }
}
