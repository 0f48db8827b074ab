// SPDX-License-Identifier: GPL-2.0

//! A memory region, and the uses of one.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::mr::{BlockName, Record};
use weft_core::uapi;

use crate::counters::Counted;
use crate::mem::blocks::RegisteredBlocks;
use crate::mem::UserPages;
use crate::net::Skb;
use crate::quota::Held;
use crate::rdma::Span;
use crate::sync::{BhDisabled, Once};

/// Uses of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The owner's WRITEs take bytes from here.
    LocalRead,
    /// The owner's READs put bytes here.
    LocalWrite,
    /// A peer's READs take bytes from here.
    RemoteRead,
    /// A peer's WRITEs put bytes here.
    RemoteWrite,
    /// A peer's atomic operations change words here.
    RemoteAtomic,
}

impl Access {
    /// The flag that a region needs for it.
    pub(crate) fn flag(self) -> u32 {
        match self {
            Self::LocalRead => uapi::ACCESS_LOCAL_READ,
            Self::LocalWrite => uapi::ACCESS_LOCAL_WRITE,
            Self::RemoteRead => uapi::ACCESS_REMOTE_READ,
            Self::RemoteWrite => uapi::ACCESS_REMOTE_WRITE,
            Self::RemoteAtomic => uapi::ACCESS_REMOTE_ATOMIC,
        }
    }

    fn is_local(self) -> bool {
        matches!(self, Self::LocalRead | Self::LocalWrite)
    }
}

/// The pages of a region, which its windows share with it.
pub(super) struct SharedPages {
    pub(super) pages: UserPages,
    /// Windows of the region. Changes with the table's `state` locked.
    pub(super) windows: AtomicU32,
}

/// A registered memory region, or a window of one: a further key to a part of its pages.
pub(super) struct Mr {
    pub(super) key: u32,
    pub(super) owner: u64,
    pub(super) access: u32,
    pub(super) addr: u64,
    pub(super) len: u64,
    /// Where in the pages it begins.
    pub(super) first: usize,
    pub(super) is_window: bool,
    /// The device's registration of the same pages, once there is one. Dropped
    /// before them.
    pub(super) ib: Once<RegisteredBlocks>,
    /// Somebody is registering it with the device.
    pub(super) is_registering: AtomicBool,
    pub(super) shared: Arc<SharedPages>,
    /// Peers may have read of it in the table of valid regions. Changes with the table's
    /// `state` locked.
    pub(super) is_shown: AtomicBool,
    /// [`Piece`]s and [`RegionUse`]s.
    pub(super) users: AtomicU32,
    pub(super) held: Held,
    pub(super) _count: Counted,
}

impl Mr {
    /// Whether anybody uses it. Once it is out of the table that only changes to
    /// no.
    pub(super) fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) != 0
    }

    /// Its pages.
    pub(super) fn pages(&self) -> &UserPages {
        &self.shared.pages
    }

    /// Whether it is a region with windows: those have to go first.
    pub(super) fn has_windows(&self) -> bool {
        !self.is_window && self.shared.windows.load(Ordering::Relaxed) != 0
    }

    /// A window was bound to it. The table's `state` is locked.
    pub(super) fn note_window(&self) {
        self.shared.windows.fetch_add(1, Ordering::Relaxed);
    }

    /// It has left the table, whose `state` is locked.
    pub(super) fn note_removed(&self) {
        if self.is_window {
            self.shared.windows.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The pages of the range, for the device.
    pub(super) fn span(&self) -> Result<Span<'_>> {
        self.pages().span().part(self.first, self.len as usize)
    }

    /// Its records in the table that peers READ: none, until the device knows it, nor if
    /// they may not reach it by the device.
    pub(super) fn records(&self) -> impl Iterator<Item = (BlockName, Record)> + '_ {
        let blocks = self.ib.get().filter(|blocks| blocks.remote_access() != 0);
        blocks.into_iter().flat_map(move |blocks| {
            let access = blocks.remote_access();
            let size = blocks.size();
            let parts = size.parts(self.addr, self.len).zip(blocks.rkeys());
            parts.map(move |((addr, len), rkey)| {
                let name = BlockName {
                    key: self.key,
                    block: size.block_of(addr),
                };
                let record = Record {
                    addr,
                    len,
                    access,
                    rkey,
                };
                (name, record)
            })
        })
    }

    /// Where in the region the range begins, if `owner` may use it so.
    pub(super) fn start_of(&self, owner: u64, addr: u64, len: u32, access: Access) -> Option<u64> {
        let flag = access.flag();
        if self.access & flag != flag || (access.is_local() && self.owner != owner) {
            return None;
        }
        let start = addr.checked_sub(self.addr)?;
        (start.checked_add(u64::from(len))? <= self.len).then_some(start)
    }
}

/// A region in use by a request on an RC queue pair, which may last as long as
/// such a request: a second.
///
/// # Invariants
///
/// `mr` counts this value in `users`, which keeps it alive and registered.
pub(crate) struct RegionUse(NonNull<Mr>);

// SAFETY: a use is a count, which any thread may give back; regions are `Sync`.
unsafe impl Send for RegionUse {}
// SAFETY: as above.
unsafe impl Sync for RegionUse {}

impl RegionUse {
    /// Counts a use. The caller holds the lock of the region's set.
    pub(super) fn new(mr: &Mr) -> Self {
        mr.users.fetch_add(1, Ordering::Relaxed);
        // INVARIANT: counted under the set's lock, which has to be taken before
        // the region leaves the table and the count is looked at.
        Self(NonNull::from(mr))
    }

    /// The region.
    pub(super) fn mr(&self) -> &Mr {
        // SAFETY: alive by the invariant.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for RegionUse {
    fn drop(&mut self) {
        // SAFETY: alive by the invariant, until this very change.
        unsafe { &*self.0.as_ptr() }
            .users
            .fetch_sub(1, Ordering::Release);
    }
}

/// A piece of a region, in use.
///
/// # Invariants
///
/// `mr` counts this value in `users`, which keeps it alive; softirqs are
/// disabled, which keeps the use short.
pub(crate) struct Piece<'a> {
    pub(super) mr: *const Mr,
    pub(super) start: usize,
    pub(super) _bh: &'a BhDisabled,
}

impl Piece<'_> {
    fn mr(&self) -> &Mr {
        // SAFETY: alive by the invariant.
        unsafe { &*self.mr }
    }

    /// Copies bytes out; `false` if there are fewer.
    pub(crate) fn read(&self, to: &mut [u8]) -> bool {
        self.mr().pages().read(self.start, to)
    }

    /// Swaps the word if it is `compare`; answers what it was. `None` if it is not
    /// aligned in memory.
    pub(crate) fn compare_swap(&self, compare: u64, swap: u64) -> Option<u64> {
        self.mr().pages().compare_swap(self.start, compare, swap)
    }

    /// Adds to the word; answers what it was. `None` if it is not aligned in
    /// memory.
    pub(crate) fn fetch_add(&self, add: u64) -> Option<u64> {
        self.mr().pages().fetch_add(self.start, add)
    }

    /// Copies `len` bytes of a packet, from byte `from`, in; `false` if they do
    /// not fit.
    pub(crate) fn write(&self, packet: &Skb, from: u32, len: u32) -> bool {
        self.mr()
            .pages()
            .write(self.start, packet, from, len as usize)
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.mr().users.fetch_sub(1, Ordering::Release);
    }
}
