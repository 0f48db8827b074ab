// SPDX-License-Identifier: GPL-2.0

//! A session's memory for rings.
//!
//! Allocating, mapping and unmapping rings costs many times what connecting does.
//! So small rings that were destroyed are kept, and their mappings with them, for
//! the next that want as many bytes. A place in the device's address space
//! always means the same memory: who has it mapped need not map it again.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::bindings as c;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::uapi::{KEPT_RINGS, MAX_KEPT_RING_BYTES};

use super::frees::{self, Node};
use super::mapping;
use crate::bindings;
use crate::mem::{Charge, Lender, UserPages};
use crate::sync::{new_lock, BhLock};

/// Rings are this far apart in the device's address space, in bytes; none are as
/// long.
const STRIDE: u64 = 1 << 24;

/// Pages for rings, charged as pinned memory is. Dropped in process context alone
/// ([`frees`]).
///
/// # Invariants
///
/// `base` is `bytes` from `weft_rings_alloc`, page-aligned.
pub(super) struct Memory {
    base: NonNull<u8>,
    bytes: u32,
    /// Dropped after the memory is gone (by `Drop`).
    charge: Charge,
}

// SAFETY: the memory is not tied to a thread.
unsafe impl Send for Memory {}

impl Memory {
    fn new(bytes: u32) -> Result<Self> {
        let charge = Charge::new(bytes as usize / PAGE_SIZE)?;
        // SAFETY: no requirement but process context; NULL means no memory.
        let base = NonNull::new(unsafe { bindings::weft_rings_alloc(bytes as usize) });
        // INVARIANT: so much was asked for.
        Ok(Self {
            base: base.ok_or(ENOMEM)?.cast(),
            bytes,
            charge,
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, by the invariant, and not used after this: rings
        // and mappings hold the `Block`, which hands it to `frees`. Process context:
        // `frees` drops it, or `Block::new` that failed.
        unsafe { bindings::weft_rings_free(self.base.as_ptr().cast(), self.bytes as usize) };
    }
}

/// Memory of some rings. Rings, the session that keeps it and each of its mappings
/// hold a reference, so that it is charged as long as anybody can use it. The last one
/// may be dropped in any context.
pub(super) struct Block {
    node: ManuallyDrop<KBox<Node>>,
    map_offset: u64,
}

// SAFETY: what `&self` allows is to ask where the memory is, how long, and whose.
unsafe impl Sync for Block {}

impl Block {
    fn new(bytes: u32, map_offset: u64) -> Result<Arc<Self>> {
        let node = ManuallyDrop::new(Node::new(Memory::new(bytes)?)?);
        Ok(Arc::new(Self { node, map_offset }, GFP_KERNEL_ACCOUNT)?)
    }

    /// Where it begins.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.node.memory.base
    }

    pub(super) fn bytes(&self) -> u32 {
        self.node.memory.bytes
    }

    /// Its pages from a byte on that begins one, for a region.
    fn pages_from(block: &Arc<Self>, offset: u32, writable: bool) -> Result<UserPages> {
        let count = (block.bytes().saturating_sub(offset)) as usize / PAGE_SIZE;
        let page_at = |index| {
            let at = offset as usize + index * PAGE_SIZE;
            // SAFETY: within the block, as `count` says.
            let address = unsafe { block.base().as_ptr().add(at) };
            // SAFETY: an address of memory from `weft_rings_alloc`.
            NonNull::new(unsafe { bindings::weft_rings_page(address.cast()) })
        };
        // SAFETY: they are the block's, whose memory the kernel has mapped.
        unsafe { UserPages::lent(block.clone(), count, writable, page_at) }
    }

    /// Whether rings of the caller's that want so many bytes may have it.
    fn fits(&self, bytes: u32) -> bool {
        self.bytes() == bytes && self.node.memory.charge.is_callers()
    }

    fn may_be_kept(&self) -> bool {
        self.bytes() <= MAX_KEPT_RING_BYTES
    }
}

impl Lender for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: here alone, and it is not used after this.
        frees::free(unsafe { ManuallyDrop::take(&mut self.node) });
    }
}

/// A session's memory for rings.
#[pin_data]
pub(crate) struct Arena {
    /// Memory of rings that are gone, for the next ones. Requests may end, and so rings
    /// go, in softirqs.
    #[pin]
    kept: BhLock<[Option<Arc<Block>>; KEPT_RINGS]>,
    /// Places that were given out. None is given twice.
    places: AtomicU64,
}

impl Arena {
    /// One without memory.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                kept <- new_lock!([const { None }; KEPT_RINGS], "weft_arena"),
                places: AtomicU64::new(0),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whether rings could be mapped from there.
    pub(crate) fn is_place(map_offset: u64) -> bool {
        map_offset % STRIDE == 0
    }

    /// So many bytes, whole pages, charged to the caller. What is in them is what
    /// was in rings of the session before, or zero.
    ///
    /// # Errors
    ///
    /// `ENOMEM` (also: over `RLIMIT_MEMLOCK`).
    pub(super) fn lend(arena: &Arc<Self>, bytes: u32) -> Result<Lent> {
        let block = match arena.take_kept(bytes) {
            Some(block) => block,
            None => arena.new_block(bytes)?,
        };
        Ok(Lent {
            block,
            home: Some(arena.clone()),
        })
    }

    /// As [`Self::lend`], but all zero, and not kept afterwards: a region may have it still.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn lend_new(arena: &Arc<Self>, bytes: u32) -> Result<Lent> {
        Ok(Lent {
            block: arena.new_block(bytes)?,
            home: None,
        })
    }

    /// Memory that was nobody's. What is kept, and what waits to be freed, makes way
    /// for it.
    fn new_block(&self, bytes: u32) -> Result<Arc<Block>> {
        let place = self.places.fetch_add(1, Ordering::Relaxed) * STRIDE;
        Block::new(bytes, place).or_else(|_| {
            self.make_way();
            Block::new(bytes, place)
        })
    }

    /// Frees what is kept, and what waits to be freed, so that nobody is charged for it any
    /// more. Process context.
    pub(crate) fn make_way(&self) {
        let kept = core::mem::replace(&mut *self.kept.lock(), [const { None }; KEPT_RINGS]);
        drop(kept);
        frees::flush();
    }

    /// Other processes that share the session pay for memory of their own.
    fn take_kept(&self, bytes: u32) -> Option<Arc<Block>> {
        let fits = |block: &mut Arc<Block>| block.fits(bytes);
        let mut kept = self.kept.lock();
        kept.iter_mut().find_map(|slot| slot.take_if(fits))
    }

    /// Keeps a block for the next rings, if there is room. Any context.
    fn keep(&self, block: &Arc<Block>) {
        if !block.may_be_kept() {
            return;
        }
        let mut kept = self.kept.lock();
        if let Some(free) = kept.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(block.clone());
        }
    }
}

/// Memory of rings.
pub(super) struct Lent {
    block: Arc<Block>,
    /// Where it goes back to.
    home: Option<Arc<Arena>>,
}

impl Lent {
    /// Where it begins.
    pub(super) fn base(&self) -> *mut u8 {
        self.block.base().as_ptr()
    }

    pub(super) fn bytes(&self) -> u32 {
        self.block.bytes()
    }

    /// Its pages from a byte on that begins one, for a region, which keeps them.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn pages_from(&self, offset: u32, writable: bool) -> Result<UserPages> {
        Block::pages_from(&self.block, offset, writable)
    }

    /// Where it is mapped from.
    pub(super) fn map_offset(&self) -> u64 {
        self.block.map_offset
    }

    /// Maps it.
    ///
    /// # Errors
    ///
    /// `EINVAL`: not all of it, or not shared.
    ///
    /// # Safety
    ///
    /// `vma` is what C's `mmap` operation was called with.
    pub(super) unsafe fn map(&self, vma: *mut c::vm_area_struct) -> Result {
        // SAFETY: the caller's promise.
        unsafe { mapping::map(vma, &self.block) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(arena) = &self.home {
            arena.keep(&self.block);
        }
    }
}
