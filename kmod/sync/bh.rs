// SPDX-License-Identifier: GPL-2.0

//! Spin locks that are taken in process context and in softirqs, and locks without
//! the kernel crate's helpers.
//!
//! Rust's `SpinLock` is C's `spin_lock`: a softirq that interrupts its holder
//! on the same CPU and wants the lock would wait for ever. A [`BhLock`] keeps
//! softirqs off this CPU while it is held, as `spin_lock_bh` does. A [`FastLock`]
//! is a `SpinLock` whose two operations are one call each: the kernel crate goes
//! through a helper, which on the connect path costs as much as the lock.

use kernel::ffi::c_char;
use kernel::sync::lock::mutex::MutexBackend;
use kernel::sync::lock::spinlock::SpinLockBackend;
use kernel::sync::lock::{Backend, Guard, Lock};
use kernel::types::NotThreadSafe;

use crate::bindings;

#[cfg(CONFIG_PREEMPT_RT)]
compile_error!("spin locks of PREEMPT_RT kernels are another type: weft.ko does not support them");

/// Softirqs do not run on this CPU while a value of this type lives.
pub(crate) struct BhDisabled(NotThreadSafe);

impl BhDisabled {
    /// Keeps softirqs off this CPU. When the last such value on a CPU is dropped
    /// in process context, the softirqs that are pending run at once.
    pub(crate) fn new() -> Self {
        // SAFETY: may be called in any context but hard interrupts. There at most the
        // callback of a completion queue runs, which takes no such lock: it wakes and
        // schedules (`rdma::Notified`).
        unsafe { bindings::weft_local_bh_disable() };
        Self(NotThreadSafe)
    }
}

impl Drop for BhDisabled {
    fn drop(&mut self) {
        // SAFETY: pairs with the call in `new`, on the same CPU because the type
        // is not `Send` and disabled softirqs forbid migration.
        unsafe { bindings::weft_local_bh_enable() };
    }
}

/// The CPU that the caller runs on, or ran on a moment ago.
pub(crate) fn cpu() -> usize {
    // SAFETY: no requirement.
    unsafe { bindings::weft_cpu() as usize }
}

type State = <SpinLockBackend as Backend>::State;

/// C's lock within the state of a Rust spin lock: its first member.
fn raw(state: *mut State) -> *mut bindings::raw_spinlock_t {
    state.cast()
}

macro_rules! backend {
    ($(#[$meta:meta])* $name:ident, $lock:ident, $unlock:ident) => {
        $(#[$meta])*
        pub(crate) struct $name;

        // SAFETY: C's spin lock ensures mutual exclusion; `relock` is the default.
        unsafe impl Backend for $name {
            type State = State;
            type GuardState = ();

            unsafe fn init(state: *mut State, name: *const c_char, key: *mut kernel::bindings::lock_class_key) {
                // SAFETY: the caller's promises are the callee's requirements.
                unsafe { SpinLockBackend::init(state, name, key) };
            }

            #[inline]
            unsafe fn lock(state: *mut State) {
                // SAFETY: the caller promises that the lock is initialised.
                unsafe { bindings::$lock(raw(state)) };
            }

            unsafe fn try_lock(_state: *mut State) -> Option<()> {
                // Nothing here uses `try_lock`. `None` is sound: the lock was not taken,
                // so there is no guard.
                None
            }

            #[inline]
            unsafe fn unlock(state: *mut State, _guard: &()) {
                // SAFETY: the caller promises to own the lock.
                unsafe { bindings::$unlock(raw(state)) };
            }

            // Each access through a guard calls this. Without lockdep the call does
            // nothing, and would cost a quarter of the lock.
            #[inline]
            unsafe fn assert_is_held(_state: *mut State) {
                #[cfg(CONFIG_LOCKDEP)]
                // SAFETY: the caller promises that the lock is initialised.
                unsafe {
                    SpinLockBackend::assert_is_held(_state)
                };
            }
        }
    };
}

backend! {
    /// `spin_lock_bh`.
    BhBackend, _raw_spin_lock_bh, _raw_spin_unlock_bh
}
backend! {
    /// `spin_lock`.
    FastBackend, _raw_spin_lock, _raw_spin_unlock
}

/// A mutex that no guard asks about, like the locks above.
pub(crate) struct PlainMutexBackend;

type MutexState = <MutexBackend as Backend>::State;

// SAFETY: all is C's mutex's; `relock` is the default.
unsafe impl Backend for PlainMutexBackend {
    type State = MutexState;
    type GuardState = ();

    unsafe fn init(
        state: *mut MutexState,
        name: *const c_char,
        key: *mut kernel::bindings::lock_class_key,
    ) {
        // SAFETY: the caller's promises are the callee's requirements.
        unsafe { MutexBackend::init(state, name, key) };
    }

    #[inline]
    unsafe fn lock(state: *mut MutexState) {
        // SAFETY: as above.
        unsafe { MutexBackend::lock(state) }
    }

    unsafe fn try_lock(state: *mut MutexState) -> Option<()> {
        // SAFETY: as above.
        unsafe { MutexBackend::try_lock(state) }
    }

    #[inline]
    unsafe fn unlock(state: *mut MutexState, guard: &()) {
        // SAFETY: as above.
        unsafe { MutexBackend::unlock(state, guard) };
    }

    #[inline]
    unsafe fn assert_is_held(_state: *mut MutexState) {
        #[cfg(CONFIG_LOCKDEP)]
        // SAFETY: as above.
        unsafe {
            MutexBackend::assert_is_held(_state)
        };
    }
}

/// A mutex on a fast path.
pub(crate) type FastMutex<T> = Lock<T, PlainMutexBackend>;

/// A spin lock for data that softirqs use too.
pub(crate) type BhLock<T> = Lock<T, BhBackend>;

/// Holds a [`BhLock`].
pub(crate) type BhGuard<'a, T> = Guard<'a, T, BhBackend>;

/// A spin lock for data that only process context uses.
pub(crate) type FastLock<T> = Lock<T, FastBackend>;

/// Holds a [`FastLock`].
pub(crate) type FastGuard<'a, T> = Guard<'a, T, FastBackend>;

/// An initialiser of a lock, with a lock class of its own.
macro_rules! new_lock {
    ($value:expr, $name:literal) => {
        kernel::sync::lock::Lock::new($value, kernel::c_str!($name), kernel::static_lock_class!())
    };
}
pub(crate) use new_lock;
