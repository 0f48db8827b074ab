// SPDX-License-Identifier: GPL-2.0

//! A value that is set once. The kernel crate's `SetOnce` does the same; its
//! atomics are calls into C, two of which would be a tenth of a `qconnect`.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};

const EMPTY: u8 = 0;
const FILLING: u8 = 1;
const FULL: u8 = 2;

/// # Invariants
///
/// `value` is initialised, and no longer changes, once `state` is `FULL`. It is
/// written by the one thread that moved `state` from `EMPTY` to `FILLING`.
pub(crate) struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: a `&Once<T>` gives `&T` to any thread, and takes a `T` from any.
unsafe impl<T: Send + Sync> Sync for Once<T> {}

impl<T> Once<T> {
    /// Not set.
    pub(crate) const fn new() -> Self {
        // INVARIANT: not `FULL`.
        Self {
            state: AtomicU8::new(EMPTY),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// The value, if it is set.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) != FULL {
            return None;
        }
        // SAFETY: initialised and unchanging by the invariant; the load above
        // pairs with the store in `set`.
        Some(unsafe { (*self.value.get()).assume_init_ref() })
    }

    /// Sets the value; `false` if it is set already, or being set.
    #[inline]
    pub(crate) fn set(&self, value: T) -> bool {
        if self
            .state
            .compare_exchange(EMPTY, FILLING, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        // SAFETY: nobody else writes, by the exchange above, or reads, by the
        // state.
        unsafe { (*self.value.get()).write(value) };
        // INVARIANT: initialised just above.
        self.state.store(FULL, Ordering::Release);
        true
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() == FULL {
            // SAFETY: initialised by the invariant, and not used after this.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}
