// SPDX-License-Identifier: GPL-2.0

//! A wait queue for `poll(2)`, `select` and epoll.

use core::sync::atomic::{AtomicBool, Ordering};

use kernel::bindings as c;
use kernel::prelude::*;
use kernel::sync::LockClassKey;
use kernel::types::Opaque;

/// Wakes whoever polls. Those who do not poll pay one load for each notification: the
/// queue is woken only if somebody has looked since it was woken last.
///
/// The queue must outlive the file whose `poll` operation uses it: epoll leaves a queue
/// before the file is released, and everybody else holds the file.
#[pin_data]
pub(crate) struct PollQueue {
    #[pin]
    queue: Opaque<c::wait_queue_head>,
    /// Somebody has looked since the last wake-up.
    armed: AtomicBool,
}

// SAFETY: the wait queue has its own lock, the flag is atomic.
unsafe impl Send for PollQueue {}
// SAFETY: as above.
unsafe impl Sync for PollQueue {}

impl PollQueue {
    /// An initialiser. Callers use [`new_poll_queue!`], which gives each use a lock
    /// class of its own.
    pub(crate) fn new(
        name: &'static CStr,
        class: Pin<&'static LockClassKey>,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: the slot is valid memory for a wait queue head, and pinned; name
            // and class are static.
            queue <- Opaque::ffi_init(|slot| unsafe {
                c::__init_waitqueue_head(slot, name.as_char_ptr(), class.as_ptr());
            }),
            armed: AtomicBool::new(false),
        })
    }

    /// Has the poller woken by notifications from now on. What it polls for has to be
    /// looked at after this, also when it only looks (`table` is then NULL or wants
    /// nothing): epoll looks so before it hands an event out, and then waits again.
    ///
    /// # Safety
    ///
    /// `file` and `table` are what C called the `poll` operation with, and the queue
    /// outlives the file.
    pub(crate) unsafe fn register(&self, file: *mut c::file, table: *mut c::poll_table_struct) {
        // SAFETY: by the caller's promise; `new` initialised the queue.
        unsafe { c::poll_wait(file, self.queue.get(), table) };
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Wakes pollers, if there may be any. Any context.
    ///
    /// The caller has made what they poll for visible, followed by a full barrier:
    /// either that is seen after `register`, or `armed` here.
    #[inline]
    pub(crate) fn notify(&self) {
        if self.armed.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    #[inline(never)]
    fn wake(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            // Without a key: each poller looks again, and so arms the queue again.
            // SAFETY: `new` initialised the queue.
            unsafe { crate::bindings::weft_wait_wake(self.queue.get().cast()) };
        }
    }
}

/// An initialiser of a [`PollQueue`], with a lock class of its own.
macro_rules! new_poll_queue {
    ($name:literal) => {
        $crate::sync::PollQueue::new(kernel::c_str!($name), kernel::static_lock_class!())
    };
}
pub(crate) use new_poll_queue;
