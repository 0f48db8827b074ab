// SPDX-License-Identifier: GPL-2.0

//! A region as its node's RDMA device knows it: one registration for each block of its
//! addresses (`weft_core::mr::BlockSize`), because a device takes so many pages in one
//! and no more.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::page::PAGE_SHIFT;
use kernel::prelude::*;
use weft_core::mr::{access_by_rc, BlockSize, ACCESS_REMOTE};

use crate::quota::{Held, Kind};
use crate::rdma::{Device, FastMr, Pd, Span};

/// log2 of the bytes of a page.
pub(super) const PAGE_LOG2: u8 = PAGE_SHIFT as u8;
/// Blocks that a region may have for RC. On soft-RoCE, where a block has 2 MiB, that is
/// a region of 2 GiB; on adapters it is some hundred times as much.
pub(super) const MOST_BLOCKS: u64 = 1024;

/// The registrations of a region, in the order of its blocks.
pub(crate) struct RegisteredBlocks {
    size: BlockSize,
    /// The number of the first block.
    first: u64,
    list: KVVec<FastMr>,
    /// The `ACCESS_REMOTE_*` flags that peers have by them.
    remote_access: u32,
    _held: Held,
}

impl RegisteredBlocks {
    /// Prepares the registration of a region, which becomes valid block by block.
    ///
    /// # Errors
    ///
    /// `EMFILE`: its user has too many blocks. Those of [`FastMr::new`].
    ///
    /// # Safety
    ///
    /// The pages stay pinned until the value is dropped or released.
    pub(super) unsafe fn new(
        device: Device,
        pd: &Pd,
        size: BlockSize,
        pages: Span<'_>,
        addr: u64,
        access: u32,
        region: &Held,
    ) -> Result<Self> {
        let remote_access = access_by_rc(access, device.relaxes_writes());
        let access = access & !ACCESS_REMOTE | remote_access;
        let count = size.count(addr, pages.len as u64);
        let held = region.also(Kind::Blocks, u32::try_from(count)?)?;
        let mut list = KVVec::with_capacity(count as usize, GFP_KERNEL_ACCOUNT)?;
        for (part, len) in size.parts(addr, pages.len as u64) {
            let part_pages = pages.part((part - addr) as usize, len as usize)?;
            // SAFETY: the caller's promise.
            let mr = unsafe { FastMr::new(device, pd, part_pages, part, access) }?;
            list.push_within_capacity(mr).map_err(|_| EINVAL)?;
        }
        Ok(Self {
            size,
            first: size.block_of(addr),
            list,
            remote_access,
            _held: held,
        })
    }

    /// Each of them. All have to be made valid before one is used.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &FastMr> {
        self.list.iter()
    }

    /// The key of an address's block, for requests of this node. `None` once they were
    /// released, or of another region's.
    pub(super) fn lkey(&self, addr: u64) -> Option<u32> {
        let index = self.size.block_of(addr).checked_sub(self.first)?;
        self.list.get(usize::try_from(index).ok()?)?.lkey()
    }

    /// The keys for peers, in order.
    pub(super) fn rkeys(&self) -> impl Iterator<Item = u32> + '_ {
        self.list.iter().map(FastMr::rkey)
    }

    /// The `ACCESS_REMOTE_*` flags that peers have by them.
    pub(super) fn remote_access(&self) -> u32 {
        self.remote_access
    }

    /// The size of the blocks.
    pub(super) fn size(&self) -> BlockSize {
        self.size
    }

    /// As [`FastMr::release`], of all.
    pub(super) fn release(&self) {
        self.list.iter().for_each(FastMr::release);
    }
}
