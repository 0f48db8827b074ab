// SPDX-License-Identifier: GPL-2.0

//! Waiting for a mutex until a signal comes, which the kernel crate cannot.

use core::ptr::from_ref;

use kernel::prelude::*;
use kernel::sync::lock::mutex::MutexBackend;
use kernel::sync::lock::{Backend, Guard, Lock};

use crate::bindings;

/// C's mutex.
type State = <MutexBackend as Backend>::State;

/// Locks a mutex, of the kernel crate or a [`FastMutex`](super::FastMutex). For system calls
/// that may be made again.
///
/// # Errors
///
/// `EINTR`: a signal came first.
#[inline]
pub(crate) fn lock_interruptible<T, B>(mutex: &Lock<T, B>) -> Result<Guard<'_, T, B>>
where
    B: Backend<State = State, GuardState = ()>,
{
    // `Lock` is `repr(C)` and begins with the backend's state, which is C's mutex;
    // `Lock::from_raw` relies on that too.
    let raw = from_ref(mutex).cast::<State>();
    // SAFETY: a lock of the kernel crate is initialised and pinned, and both backends with
    // this state lock the mutex in it; process context, as for any mutex.
    if unsafe { bindings::weft_mutex_lock_interruptible(raw.cast_mut().cast()) } != 0 {
        return Err(EINTR);
    }
    // SAFETY: it was locked just now, by us.
    Ok(unsafe { Guard::new(mutex, ()) })
}
