// SPDX-License-Identifier: GPL-2.0

//! Waiting for a mutex until a signal comes, which the kernel crate cannot.

use core::ptr::from_ref;

use kernel::prelude::*;
use kernel::sync::lock::mutex::MutexBackend;
use kernel::sync::lock::{Backend, Guard};
use kernel::sync::Mutex;

use crate::bindings;

/// Locks a mutex. For system calls that may be made again.
///
/// # Errors
///
/// `EINTR`: a signal came first.
pub(crate) fn lock_interruptible<T>(mutex: &Mutex<T>) -> Result<Guard<'_, T, MutexBackend>> {
    // `Lock` is `repr(C)` and begins with the backend's state, which is C's mutex;
    // `Lock::from_raw` relies on that too.
    let raw = from_ref(mutex).cast::<<MutexBackend as Backend>::State>();
    // SAFETY: a mutex of the kernel crate is initialised and pinned; process context, as
    // for any mutex.
    if unsafe { bindings::weft_mutex_lock_interruptible(raw.cast_mut().cast()) } != 0 {
        return Err(EINTR);
    }
    // SAFETY: it was locked just now, by us.
    Ok(unsafe { Guard::new(mutex, ()) })
}
