// SPDX-License-Identifier: GPL-2.0

//! ValidMR: the node's regions in a table that peers READ before they use one by
//! RC (krcore §4.2).

use core::sync::atomic::AtomicU64;

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::kv::{Geometry, Table};

use crate::mem::region::Mr;
use crate::rdma::{Device, DmaWords, Pd, TableMr};

/// Where a peer finds the table.
#[derive(Clone, Copy)]
pub(crate) struct TableInfo {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) geometry: Geometry,
}

/// The table. Fields are dropped in order.
///
/// # Invariants
///
/// `table` lies in `words`, which do not move.
pub(super) struct ValidMr {
    table: Table<'static>,
    mr: Arc<TableMr>,
    /// A queue pair has made the key of `mr` valid.
    registered: bool,
    pd: Arc<Pd>,
    words: DmaWords,
}

impl ValidMr {
    /// Whether a device can register the table of so many regions at once.
    pub(super) fn fits(device: Device, capacity: u32) -> bool {
        let bytes = Geometry::for_capacity(capacity).map(|geometry| geometry.words() * 8);
        bytes.is_some_and(|bytes| TableMr::pages(bytes) <= device.most_pages() as usize)
    }

    /// A table with room for `capacity` regions.
    pub(super) fn new(device: Device, pd: Arc<Pd>, capacity: u32) -> Result<Self> {
        let geometry = Geometry::for_capacity(capacity).ok_or(EINVAL)?;
        let words = DmaWords::new(device, geometry.words())?;
        let storage: *const [AtomicU64] = words.words();
        // SAFETY: the words are on the heap until `words` is dropped, which is
        // after `table`.
        let table = Table::new(unsafe { &*storage }, geometry).ok_or(EINVAL)?;
        let mr = Arc::new(TableMr::new(pd.clone(), &words)?, GFP_KERNEL)?;
        // INVARIANT: as just made.
        Ok(Self {
            table,
            mr,
            registered: false,
            pd,
            words,
        })
    }

    /// Shows a region to peers, all of it or, if there is not room for all, nothing.
    /// Answers whether any may have seen a part of it.
    pub(super) fn insert(&mut self, region: &Mr) -> bool {
        let mut is_seen = false;
        for (name, record) in region.records() {
            let inserted = self.table.insert(&name.table_key(), &record.to_value());
            if inserted.is_err() {
                self.remove(region);
                return is_seen;
            }
            is_seen = true;
        }
        self.words.flush();
        is_seen
    }

    /// Hides a region. Those who have seen it have to be told.
    pub(super) fn remove(&mut self, region: &Mr) {
        for (name, _) in region.records() {
            self.table.remove(&name.table_key());
        }
        self.words.flush();
    }

    pub(super) fn info(&self) -> TableInfo {
        TableInfo {
            addr: self.mr.addr(),
            rkey: self.mr.rkey(),
            geometry: self.table.geometry(),
        }
    }

    /// The registration, if no queue pair has made its key valid yet.
    pub(super) fn unregistered(&self) -> Option<Arc<TableMr>> {
        (!self.registered).then(|| self.mr.clone())
    }

    pub(super) fn set_registered(&mut self) {
        self.registered = true;
    }

    /// Another registration: a queue pair broke while it made this one's key
    /// valid, so that nobody knows whether it is.
    pub(super) fn renew(&mut self) -> Result {
        self.mr = Arc::new(TableMr::new(self.pd.clone(), &self.words)?, GFP_KERNEL)?;
        self.registered = false;
        Ok(())
    }
}
