// SPDX-License-Identifier: GPL-2.0

//! A timer of microseconds, which [`super::Periodic`] does not have: that counts ticks.

use core::marker::PhantomData;

use kernel::prelude::*;
use kernel::types::Opaque;

use crate::bindings;

/// Has a timer.
///
/// # Safety
///
/// `OFFSET` is the offset of the type's `Timer<Self>` field, and [`Timer::cancel`] returns
/// before the value is dropped.
pub(crate) unsafe trait Timed: Sync + Sized {
    /// Offset of the field in bytes.
    const OFFSET: usize;

    /// The time is over. In a softirq; does not start the timer again, nor cancel it.
    fn time_is_over(&self);
}

/// A timer of the `T` that it is a field of.
///
/// # Invariants
///
/// `timer` is initialised with [`Timer::call`] as its function.
#[pin_data]
pub(crate) struct Timer<T: Timed> {
    #[pin]
    timer: Opaque<bindings::weft_timer>,
    _owner: PhantomData<fn(&T)>,
}

// SAFETY: the timer's own locking makes every operation here safe from any thread.
unsafe impl<T: Timed> Send for Timer<T> {}
// SAFETY: as above.
unsafe impl<T: Timed> Sync for Timer<T> {}

impl<T: Timed> Timer<T> {
    /// An initialiser; it does not run yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: initialised here.
            timer <- Opaque::ffi_init(|slot: *mut bindings::weft_timer| {
                // SAFETY: the slot is valid memory for a timer, and pinned.
                unsafe { bindings::weft_timer_init(slot, Some(Self::call)) };
            }),
            _owner: PhantomData,
        })
    }

    /// Starts it; if it runs, starts it anew. Any context but hard interrupts.
    pub(crate) fn start(&self, delay_ns: u64) {
        // SAFETY: initialised, by the type's invariant.
        unsafe { bindings::weft_timer_start(self.timer.get(), delay_ns) };
    }

    /// Stops it, and waits for a call that runs on another CPU: it may be made in a softirq,
    /// because the call is one too, and so cannot be underway on this CPU.
    pub(crate) fn cancel(&self) {
        // SAFETY: initialised, by the type's invariant.
        unsafe { bindings::weft_timer_cancel(self.timer.get()) };
    }

    /// # Safety
    ///
    /// Called by C, for the timer of a `Timer<T>`.
    unsafe extern "C" fn call(timer: *mut bindings::weft_timer) {
        // SAFETY: C calls this with the timer of a `Timer<T>`, which is a field of a `T` at
        // `OFFSET`. The `T` is alive: `cancel` has not returned.
        let owner = unsafe {
            let opaque = timer.cast::<Opaque<bindings::weft_timer>>();
            let this = kernel::container_of!(opaque, Self, timer);
            &*this.cast::<u8>().sub(T::OFFSET).cast::<T>()
        };
        owner.time_is_over();
    }
}
