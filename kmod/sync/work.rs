// SPDX-License-Identifier: GPL-2.0

//! Work that runs in process context after a delay, and can be stopped.
//!
//! The kernel crate's work items own what they work on and cannot be cancelled,
//! so that unloading would have to wait for their delay. A [`Periodic`] is part
//! of what it works on and stops, for good, before that goes away.

use core::marker::PhantomData;

use kernel::prelude::*;
use kernel::types::Opaque;

use crate::bindings;

/// What has a [`Periodic`] in it.
///
/// # Safety
///
/// `OFFSET` is the offset of the type's `Periodic<Self>` field, and
/// [`Periodic::stop`] returns before the value is dropped.
pub(crate) unsafe trait Routine: Sync + Sized {
    /// Offset of the field in bytes.
    const OFFSET: usize;

    /// Does the work.
    fn run(&self);
}

/// Delayed work on the `T` that it is a field of.
///
/// # Invariants
///
/// `work` is initialised with [`Periodic::call`] as its function.
#[pin_data]
pub(crate) struct Periodic<T: Routine> {
    #[pin]
    work: Opaque<bindings::delayed_work>,
    _owner: PhantomData<fn(&T)>,
}

// SAFETY: the work queue's own locking makes every operation here safe from any
// thread.
unsafe impl<T: Routine> Send for Periodic<T> {}
// SAFETY: as above.
unsafe impl<T: Routine> Sync for Periodic<T> {}

impl<T: Routine> Periodic<T> {
    /// An initialiser; nothing is scheduled yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: initialised here.
            // SAFETY: the slot is valid memory for a delayed work, and pinned.
            work <- Opaque::ffi_init(|slot| unsafe { bindings::weft_work_init(slot, Some(Self::call)) }),
            _owner: PhantomData,
        })
    }

    /// Runs after `delay_ms`, unless it is scheduled already. Any context.
    pub(crate) fn schedule(&self, delay_ms: u32) {
        // SAFETY: initialised, by the type's invariant.
        unsafe { bindings::weft_work_schedule(self.work.get(), delay_ms) };
    }

    /// Runs at once, also if it is scheduled for later. Any context.
    pub(crate) fn hurry(&self) {
        // SAFETY: initialised, by the type's invariant.
        unsafe { bindings::weft_work_hurry(self.work.get()) };
    }

    /// Waits for a running call, and never runs again. Process context.
    pub(crate) fn stop(&self) {
        // SAFETY: initialised, by the type's invariant.
        unsafe { bindings::disable_delayed_work_sync(self.work.get()) };
    }

    /// # Safety
    ///
    /// Called by C, for the work of a `Periodic<T>`.
    unsafe extern "C" fn call(work: *mut bindings::work_struct) {
        // SAFETY: C calls this with the `work` that is the first field of the
        // delayed work of a `Periodic<T>` (`Opaque` and `repr(C)` order apart,
        // `container_of!` does the arithmetic), which is a field of a `T` at
        // `OFFSET`. The `T` is alive: `stop` has not returned.
        let owner = unsafe {
            let delayed = kernel::container_of!(work, bindings::delayed_work, work);
            let opaque = delayed.cast::<Opaque<bindings::delayed_work>>();
            let this = kernel::container_of!(opaque, Self, work);
            &*this.cast::<u8>().sub(T::OFFSET).cast::<T>()
        };
        owner.run();
    }
}
