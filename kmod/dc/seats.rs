// SPDX-License-Identifier: GPL-2.0

//! How many contexts a target keeps: as many as a share of the machine's memory holds,
//! and of those a fraction for one address. No table decides how many nodes may talk to
//! a node, and one node alone does not fill what there is.
//!
//! Lock order: a set's lock is innermost.

use core::sync::atomic::{AtomicUsize, Ordering};

use kernel::alloc::KVBox;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::bindings;
use crate::dc::swap_remove;
use crate::random::KeyedHash;
use crate::sync::{new_lock, BhLock};

/// The part of the machine's memory that contexts may take: one in so many bytes.
const MEMORY_SHARE: u64 = 64;
/// Contexts that a node may have on the smallest machine, and on the largest.
const MIN_CONTEXTS: u64 = 8192;
const MAX_CONTEXTS: u64 = 262_144;
/// The part of all contexts that one address may have: one in so many.
const SOURCE_SHARE: usize = 4;
/// Sets of addresses. Which share a set nobody can choose.
const SETS: usize = 256;

/// An address that has contexts here.
struct Source {
    addr: [u8; 4],
    contexts: usize,
}

/// A set has as many sources as there are.
type Sets = [BhLock<KVec<Source>>; SETS];

/// A target's seats: each context has one.
pub(super) struct Seats {
    hash: KeyedHash,
    limit: usize,
    taken: AtomicUsize,
    sources: Pin<KVBox<Sets>>,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoSeat;

impl Seats {
    /// Seats for contexts, each of which takes a block of memory of `block_bytes`, and
    /// `beside_bytes` in an array.
    pub(super) fn new(block_bytes: usize, beside_bytes: usize) -> Result<Arc<Self>> {
        let new_set = |_| new_lock!(KVec::new(), "weft_context_sources");
        // SAFETY: no requirement.
        let taken_bytes = unsafe { bindings::kmalloc_size_roundup(block_bytes) } + beside_bytes;
        let contexts = memory_bytes() / MEMORY_SHARE / (taken_bytes as u64).max(1);
        let seats = Self {
            hash: KeyedHash::new(),
            limit: contexts.clamp(MIN_CONTEXTS, MAX_CONTEXTS) as usize,
            taken: AtomicUsize::new(0),
            sources: KVBox::pin_init(pin_init::pin_init_array_from_fn(new_set), GFP_KERNEL)?,
        };
        Ok(Arc::new(seats, GFP_KERNEL)?)
    }

    /// Whether all are taken.
    pub(super) fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.limit
    }

    fn set(&self, addr: [u8; 4]) -> &BhLock<KVec<Source>> {
        &self.sources[self.hash.place([u32::from_ne_bytes(addr), 0, 0, 0], SETS)]
    }

    /// A seat for a context of this address.
    pub(super) fn take(this: &Arc<Self>, addr: [u8; 4]) -> Result<Seat, NoSeat> {
        if this.taken.fetch_add(1, Ordering::Relaxed) >= this.limit {
            this.taken.fetch_sub(1, Ordering::Relaxed);
            return Err(NoSeat);
        }
        let counted = this.count(addr);
        if counted.is_err() {
            this.taken.fetch_sub(1, Ordering::Relaxed);
        }
        counted.map(|()| Seat {
            seats: this.clone(),
            addr,
        })
    }

    /// Counts a context of an address, if it may have one more.
    fn count(&self, addr: [u8; 4]) -> Result<(), NoSeat> {
        let mut set = self.set(addr).lock();
        if let Some(source) = set.iter_mut().find(|source| source.addr == addr) {
            if source.contexts >= self.limit / SOURCE_SHARE {
                return Err(NoSeat);
            }
            source.contexts += 1;
            return Ok(());
        }
        let source = Source { addr, contexts: 1 };
        set.push(source, GFP_ATOMIC).map_err(|_| NoSeat)
    }
}

/// Bytes of memory that the machine has.
fn memory_bytes() -> u64 {
    let mut info = bindings::sysinfo::default();
    // SAFETY: the struct is writable.
    unsafe { bindings::si_meminfo(&mut info) };
    (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
}

/// A context's seat; dropping it gives it back.
pub(super) struct Seat {
    seats: Arc<Seats>,
    addr: [u8; 4],
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut set = self.seats.set(self.addr).lock();
        if let Some(at) = set.iter().position(|source| source.addr == self.addr) {
            let left = set.get_mut(at).map_or(0, |source| {
                source.contexts = source.contexts.saturating_sub(1);
                source.contexts
            });
            if left == 0 {
                let _ = swap_remove(&mut set, at);
            }
        }
        drop(set);
        self.seats.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
