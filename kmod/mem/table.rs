// SPDX-License-Identifier: GPL-2.0

//! A node's memory regions, found by their keys in softirqs.
//!
//! Keys are random: whoever knows one was told it. A region that is in use is
//! marked so for the few microseconds of a copy, with softirqs disabled; taking
//! it out of the table waits for that.
//!
//! Lock order: a set's lock is innermost.

use core::sync::atomic::{AtomicU32, Ordering};

use kernel::alloc::KVBox;
use kernel::prelude::*;
use weft_core::uapi;

use crate::bindings;
use crate::counters::{Counted, COUNTERS};
use crate::mem::UserPages;
use crate::net::Skb;
use crate::random::random_u32;
use crate::sync::{new_lock, BhDisabled, BhLock};

const SETS: usize = 1024;
/// Regions with the same low bits in their key.
const WAYS: usize = 8;
/// Keys tried before the table counts as full.
const KEY_TRIES: usize = 64;

/// What a key may be used for.
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
    fn flag(self) -> u32 {
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

/// A registered memory region.
pub(crate) struct Mr {
    key: u32,
    owner: u32,
    access: u32,
    addr: u64,
    len: u64,
    pages: UserPages,
    users: AtomicU32,
    _count: Counted,
}

type Set = [Option<KBox<Mr>>; WAYS];

/// The regions of a node.
pub(crate) struct MrTable {
    sets: Pin<KVBox<[BhLock<Set>; SETS]>>,
}

/// A piece of a region, in use.
///
/// # Invariants
///
/// `mr` counts this value in `users`, which keeps it alive; softirqs are
/// disabled, which keeps the use short.
pub(crate) struct Piece<'a> {
    mr: *const Mr,
    start: usize,
    _bh: &'a BhDisabled,
}

impl MrTable {
    /// A table without regions.
    pub(crate) fn new() -> Result<Self> {
        let sets = KVBox::pin_init(
            pin_init::pin_init_array_from_fn(|_| new_lock!([const { None }; WAYS], "weft_mr_set")),
            GFP_KERNEL,
        )?;
        Ok(Self { sets })
    }

    fn set(&self, key: u32) -> &BhLock<Set> {
        &self.sets[key as usize % SETS]
    }

    /// Takes a region in and answers its key.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no key was free.
    pub(crate) fn insert(
        &self,
        owner: u32,
        request: &uapi::MrReg,
        pages: UserPages,
    ) -> Result<u32> {
        let mut mr = KBox::new(
            Mr {
                key: 0,
                owner,
                access: request.access,
                addr: request.addr,
                len: request.len,
                pages,
                users: AtomicU32::new(0),
                _count: Counted::one(&COUNTERS.mrs),
            },
            GFP_KERNEL,
        )?;
        for _ in 0..KEY_TRIES {
            let key = random_u32();
            mr.key = key;
            let mut set = self.set(key).lock();
            if key == 0 || set.iter().flatten().any(|other| other.key == key) {
                continue;
            }
            if let Some(way) = set.iter_mut().find(|way| way.is_none()) {
                *way = Some(mr);
                return Ok(key);
            }
        }
        Err(ENOSPC)
    }

    /// Takes a region of `owner` out, waits until nobody uses it, and unpins it.
    /// May sleep.
    ///
    /// # Errors
    ///
    /// `ENOENT`: the owner has no such region.
    pub(crate) fn remove(&self, owner: u32, key: u32) -> Result {
        let mr = {
            let mut set = self.set(key).lock();
            let is_it = |way: &&mut Option<KBox<Mr>>| {
                way.as_ref()
                    .is_some_and(|mr| mr.key == key && mr.owner == owner)
            };
            set.iter_mut()
                .find(is_it)
                .and_then(Option::take)
                .ok_or(ENOENT)?
        };
        // Users have softirqs disabled and copy at most one chunk each.
        while mr.users.load(Ordering::Acquire) != 0 {
            // SAFETY: no requirement but process context.
            unsafe { bindings::weft_yield() };
        }
        drop(mr);
        Ok(())
    }

    /// Finds `len` bytes at `addr` in the region of `key` for `access`. `owner`
    /// has to be the region's own if the access is local. `None`: no such
    /// region, out of its range, or not allowed.
    pub(crate) fn find<'a>(
        &self,
        bh: &'a BhDisabled,
        key: u32,
        owner: u32,
        addr: u64,
        len: u32,
        access: Access,
    ) -> Option<Piece<'a>> {
        let set = self.set(key).lock();
        let mr = set.iter().flatten().find(|mr| mr.key == key)?;
        let flag = access.flag();
        if mr.access & flag != flag || (access.is_local() && mr.owner != owner) {
            return None;
        }
        let start = addr.checked_sub(mr.addr)?;
        if start.checked_add(u64::from(len))? > mr.len {
            return None;
        }
        mr.users.fetch_add(1, Ordering::Relaxed);
        // INVARIANT: counted above, under the set's lock, which `remove` takes
        // before it looks at the count.
        Some(Piece {
            mr: &raw const **mr,
            start: start as usize,
            _bh: bh,
        })
    }
}

impl Piece<'_> {
    fn mr(&self) -> &Mr {
        // SAFETY: alive by the invariant.
        unsafe { &*self.mr }
    }

    /// Copies bytes out; `false` if there are fewer.
    pub(crate) fn read(&self, to: &mut [u8]) -> bool {
        self.mr().pages.read(self.start, to)
    }

    /// Swaps the word if it is `compare`; answers what it was. `None` if it is not
    /// aligned in memory.
    pub(crate) fn compare_swap(&self, compare: u64, swap: u64) -> Option<u64> {
        self.mr().pages.compare_swap(self.start, compare, swap)
    }

    /// Adds to the word; answers what it was. `None` if it is not aligned in
    /// memory.
    pub(crate) fn fetch_add(&self, add: u64) -> Option<u64> {
        self.mr().pages.fetch_add(self.start, add)
    }

    /// Copies `len` bytes of a packet, from byte `from`, in; `false` if they do
    /// not fit.
    pub(crate) fn write(&self, packet: &Skb, from: u32, len: u32) -> bool {
        self.mr()
            .pages
            .write(self.start, packet, from, len as usize)
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.mr().users.fetch_sub(1, Ordering::Release);
    }
}
