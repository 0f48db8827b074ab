// SPDX-License-Identifier: GPL-2.0

//! A process's eventfd (`linux/eventfd.h`).

use core::ptr::NonNull;

use kernel::error::from_err_ptr;
use kernel::prelude::*;

use crate::bindings;

/// An eventfd's counter. It stays when its descriptors are closed.
///
/// # Invariants
///
/// The pointer is to a context that this has a reference to.
pub(crate) struct EventFd(NonNull<bindings::eventfd_ctx>);

// SAFETY: the counter has its own lock, and its references are counted atomically.
unsafe impl Send for EventFd {}
// SAFETY: as above.
unsafe impl Sync for EventFd {}

impl EventFd {
    /// That of the caller's descriptor.
    ///
    /// # Errors
    ///
    /// `EBADF` (there is no such descriptor), `EINVAL` (it is another kind of file).
    pub(crate) fn of_descriptor(descriptor: u32) -> Result<Self> {
        // SAFETY: called in a system call; the number may be anything.
        let context = from_err_ptr(unsafe { bindings::eventfd_ctx_fdget(descriptor as i32) })?;
        // INVARIANT: C gives us a reference.
        NonNull::new(context).map(Self).ok_or(EBADF)
    }

    /// Adds 1 to the counter and wakes who waits for it. Any context.
    pub(crate) fn signal(&self) {
        // SAFETY: by the type's invariant. It is not called by a wake-up of another eventfd,
        // which C forbids: completions come from the network and from devices.
        unsafe { bindings::weft_eventfd_signal(self.0.as_ptr()) };
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        // SAFETY: gives back the reference of the invariant. Any context, as for completions
        // of asynchronous I/O (`fs/aio.c`).
        unsafe { bindings::eventfd_ctx_put(self.0.as_ptr()) };
    }
}
