// SPDX-License-Identifier: GPL-2.0

//! Ring memory is freed here, in process context, wherever its last user let go of it:
//! a VQP may end in a softirq, and take what its session kept along.
//!
//! Neither half of it can go in a softirq. `vfree` would queue the memory by a list
//! in the memory itself, which a process may still have mapped, and write. And the
//! charge holds a reference to an address space: the last one frees page tables
//! under `pgd_lock`, which the rest of the kernel takes with softirqs enabled.
//!
//! The last reference to a VQP may go wherever its last request or message ends: in a softirq
//! or a thread's call, with a stream's lock let go (`Stream::run`); in a thread or a work that
//! reaps for an RC queue pair, likewise without a lock; in a softirq under the lock of a set of
//! contexts, with a message (`dc::incoming`). The VQP may take the last references to its
//! `Queues` and, by its `Connection`, to its `Peer` along. So all three can be dropped in a
//! softirq, and take no lock there that is outside of a set of contexts:
//!
//! - Of `Queues`, the session has stopped the work before (`Queues::stop_work`), the timer of an
//!   eventfd may be cancelled there (`queues::channel`), and the memory comes here.
//! - A `Peer` closes its streams, for which spin locks are enough, and marks its route, which the
//!   pool lets go of later (`pool::RouteUse`).
//!
//! The list is a stack without locks (as `llist_add` and `llist_del_all`): any
//! context pushes one, one taker takes all. A taker holds `draining`, and takes no other lock
//! of the module with it.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};

use super::arena::Memory;
use crate::bindings;
use crate::sync::{new_periodic, Periodic, Routine};

/// Memory, and the next one of the list of those to be freed.
pub(super) struct Node {
    pub(super) memory: Memory,
    next: *mut Node,
}

// SAFETY: only the thread that has taken the whole list follows `next`.
unsafe impl Send for Node {}

impl Node {
    /// Memory, with what it takes to put it on the list: that cannot be allocated
    /// when it is time.
    pub(super) fn new(memory: Memory) -> Result<KBox<Self>> {
        let next = null_mut();
        Ok(KBox::new(Self { memory, next }, GFP_KERNEL)?)
    }
}

/// # Invariants
///
/// `first` is null or leads to a list of nodes that nobody else owns, made by
/// `KBox::into_raw`.
#[pin_data]
struct Frees {
    first: AtomicPtr<Node>,
    /// Held by who frees what was on the list, until all of it is gone.
    #[pin]
    draining: Mutex<()>,
    #[pin]
    work: Periodic<Self>,
}

/// The module's list, from before the first ring is made until after the last one
/// is gone.
static FREES: AtomicPtr<Frees> = AtomicPtr::new(null_mut());

fn frees() -> Option<&'static Frees> {
    // SAFETY: null, or the list of the `FlushOnUnload` that set it, which is the last
    // part of the module to go: nothing of ours runs after that.
    unsafe { FREES.load(Ordering::Acquire).as_ref() }
}

impl Frees {
    fn push(&self, node: KBox<Node>) {
        let node = KBox::into_raw(node);
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is ours until the exchange succeeds.
            unsafe { (*node).next = first };
            // INVARIANT: the node leads to the list that it replaces.
            match self.first.compare_exchange_weak(
                first,
                node,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Frees what is on the list. When this returns what others have taken from it is gone too.
    /// Process context.
    fn drain(&self) {
        let _draining = self.draining.lock();
        // INVARIANT: an empty list; what was in it is ours.
        let mut next = self.first.swap(null_mut(), Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: made by `KBox::into_raw`, and ours by the swap above.
            let node = unsafe { KBox::from_raw(next) };
            next = node.next;
        }
    }
}

// SAFETY: the offset is the field's own; `FlushOnUnload` stops the work, and the
// list is never dropped before.
unsafe impl Routine for Frees {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        self.drain();
    }
}

/// Frees memory: at once in process context, soon in any other.
pub(super) fn free(node: KBox<Node>) {
    // SAFETY: no requirement.
    if !unsafe { bindings::weft_in_interrupt() } {
        return drop(node);
    }
    match frees() {
        Some(frees) => {
            frees.push(node);
            frees.work.schedule(0);
        }
        // Rings exist only after `FlushOnUnload::new`. To leak one is harmless, to
        // free it here is not.
        None => core::mem::forget(node),
    }
}

/// Frees what waits for its turn, and waits until what is being freed is gone: its owner is no
/// longer charged for it then. Process context.
pub(super) fn flush() {
    if let Some(frees) = frees() {
        frees.drain();
    }
}

/// Frees, when it is dropped, all rings that went in a softirq. The last part of the
/// module to go: nobody may push any more.
pub(crate) struct FlushOnUnload(Arc<Frees>);

impl FlushOnUnload {
    /// Makes the list. The module's initialisation calls it, once.
    pub(crate) fn new() -> Result<Self> {
        let frees = Arc::pin_init(
            pin_init!(Frees {
                // INVARIANT: empty.
                first: AtomicPtr::new(null_mut()),
                draining <- kernel::new_mutex!((), "weft_ring_frees"),
                work <- new_periodic!("weft_ring_free_work"),
            }),
            GFP_KERNEL,
        )?;
        FREES.store((&raw const *frees).cast_mut(), Ordering::Release);
        Ok(Self(frees))
    }
}

impl Drop for FlushOnUnload {
    fn drop(&mut self) {
        self.0.work.stop();
        self.0.drain();
        FREES.store(null_mut(), Ordering::Release);
    }
}
