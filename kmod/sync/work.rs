// SPDX-License-Identifier: GPL-2.0

//! Work that runs in process context after a delay, and can be stopped.
//!
//! The kernel crate's work items own what they work on and cannot be cancelled,
//! so that unloading would have to wait for their delay. A [`Periodic`] is part
//! of what it works on and stops, for good, before that goes away.

use core::marker::PhantomData;

use kernel::prelude::*;
use kernel::sync::LockClassKey;
use kernel::types::Opaque;

use crate::bindings;

/// A type with a [`Periodic`] in it, or several, which are told apart by `N`.
///
/// # Safety
///
/// `OFFSET` is the offset of the type's `Periodic<Self, N>` field, and
/// [`Periodic::stop`] returns before the value is dropped.
pub(crate) unsafe trait Routine<const N: usize = 0>: Sync + Sized {
    /// Offset of the field in bytes.
    const OFFSET: usize;

    /// Does the work.
    fn run(&self);
}

/// Lockdep's classes of a [`Periodic`]. Two that shared a class would be one lock to
/// lockdep: it would report deadlocks that cannot be, and overlook others.
#[derive(Clone, Copy)]
pub(crate) struct Classes {
    pub(crate) work: Pin<&'static LockClassKey>,
    pub(crate) timer: Pin<&'static LockClassKey>,
}

/// Delayed work on the `T` that it is a field of.
///
/// # Invariants
///
/// `work` is initialised with [`Periodic::call`] as its function.
#[pin_data]
pub(crate) struct Periodic<T: Routine<N>, const N: usize = 0> {
    #[pin]
    work: Opaque<bindings::delayed_work>,
    _owner: PhantomData<fn(&T)>,
}

// SAFETY: the work queue's own locking makes every operation here safe from any
// thread.
unsafe impl<T: Routine<N>, const N: usize> Send for Periodic<T, N> {}
// SAFETY: as above.
unsafe impl<T: Routine<N>, const N: usize> Sync for Periodic<T, N> {}

impl<T: Routine<N>, const N: usize> Periodic<T, N> {
    /// An initialiser; nothing is scheduled yet. Callers use [`new_periodic!`], which
    /// gives each use a lock class of its own.
    pub(crate) fn new(name: &'static CStr, classes: Classes) -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: initialised here.
            work <- Opaque::ffi_init(|slot: *mut bindings::delayed_work| {
                // SAFETY: the slot is valid memory for a delayed work, and pinned;
                // name and classes are static.
                unsafe {
                    bindings::weft_work_init(
                        slot,
                        Some(Self::call),
                        name.as_char_ptr(),
                        classes.work.as_ptr().cast(),
                        classes.timer.as_ptr().cast(),
                    );
                }
            }),
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
    /// Called by C, for the work of a `Periodic<T, N>`.
    unsafe extern "C" fn call(work: *mut bindings::work_struct) {
        // SAFETY: C calls this with the `work` that is the first field of the
        // delayed work of a `Periodic<T, N>` (`Opaque` and `repr(C)` order apart,
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

/// An initialiser of a [`Periodic`], with lock classes of its own.
macro_rules! new_periodic {
    ($name:literal) => {
        $crate::sync::Periodic::new(
            kernel::c_str!($name),
            $crate::sync::Classes {
                work: kernel::static_lock_class!(),
                timer: kernel::static_lock_class!(),
            },
        )
    };
}
pub(crate) use new_periodic;
