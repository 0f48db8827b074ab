// SPDX-License-Identifier: GPL-2.0

//! Sleeping until something has happened, woken from any context.

use core::sync::atomic::{AtomicU32, Ordering};

use kernel::prelude::*;
use kernel::sync::LockClassKey;
use kernel::types::Opaque;

use crate::bindings;

/// Waits from this on use the timer wheel, which counts ticks: to program the
/// processor's timer costs more than a wake-up.
const LONG_NS: u64 = 20_000_000;

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The counter moved.
    Event,
    /// The time is over.
    TimedOut,
    /// A signal is pending.
    Signal,
}

/// A counter of events with a wait queue, used like a futex: read it, look
/// whether what you wait for is there, then wait for the counter to move.
#[pin_data]
pub(crate) struct EventCount {
    #[pin]
    queue: Opaque<bindings::wait_queue_head>,
    count: AtomicU32,
    /// Threads that wait, or are about to.
    waiting: AtomicU32,
}

// SAFETY: the wait queue has its own lock, the counter is atomic.
unsafe impl Send for EventCount {}
// SAFETY: as above.
unsafe impl Sync for EventCount {}

impl EventCount {
    /// An initialiser. Callers use [`new_event_count!`], which gives each use a lock
    /// class of its own.
    pub(crate) fn new(
        name: &'static CStr,
        class: Pin<&'static LockClassKey>,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: the slot is valid memory for a wait queue head, and pinned; name
            // and class are static.
            queue <- Opaque::ffi_init(|slot| unsafe {
                bindings::__init_waitqueue_head(slot, name.as_char_ptr(), class.as_ptr().cast());
            }),
            count: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
        })
    }

    /// The counter; read it before looking for what is waited for.
    pub(crate) fn seen(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Says that something has happened. Any context.
    #[inline]
    pub(crate) fn notify(&self) {
        // Sequentially consistent: either a waiter, who counts itself first, sees
        // the new count, or it is seen here.
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) != 0 {
            // SAFETY: `new` initialised the queue.
            unsafe { bindings::weft_wait_wake(self.queue.get()) };
        }
    }

    /// Sleeps until the counter is no longer `seen`. Process context.
    pub(crate) fn wait(&self, seen: u32, timeout_ns: u64, interruptible: bool) -> Woken {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let wait = if timeout_ns < LONG_NS {
            bindings::weft_wait_hrtimer
        } else {
            bindings::weft_wait_ticks
        };
        // SAFETY: `new` initialised the queue; the counter lives as long as
        // `self`, which is borrowed for the call.
        let result = unsafe {
            wait(
                self.queue.get(),
                self.count.as_ptr(),
                seen,
                timeout_ns,
                interruptible,
            )
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Woken::from(result)
    }

    /// Says that something has happened that one of those who wait in [`Self::wait_either`]
    /// for it is to look after. Any context.
    #[inline]
    pub(crate) fn notify_one(&self) {
        // As in `notify`.
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) != 0 {
            // SAFETY: `new` initialised the queue.
            unsafe { bindings::weft_wait_wake_one(self.queue.get()) };
        }
    }

    /// Sleeps until the counter is no longer `seen`, or a `call` comes; interruptibly, and
    /// sometimes for no reason. Process context.
    pub(crate) fn wait_either(&self, seen: u32, call: (&Self, u32), timeout_ns: u64) -> Woken {
        let (calls, seen_call) = call;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        calls.waiting.fetch_add(1, Ordering::SeqCst);
        // SAFETY: `new` initialised the queues; the counters live as long as what they are
        // in, which is borrowed for the call.
        let result = unsafe {
            bindings::weft_wait_either(
                self.queue.get(),
                self.count.as_ptr(),
                seen,
                calls.queue.get(),
                calls.count.as_ptr(),
                seen_call,
                timeout_ns,
                timeout_ns >= LONG_NS,
            )
        };
        calls.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Woken::from(result)
    }
}

impl From<i32> for Woken {
    fn from(result: i32) -> Self {
        match result {
            0 => Self::Event,
            result if result == ERESTARTSYS.to_errno() => Self::Signal,
            _ => Self::TimedOut,
        }
    }
}

/// An initialiser of an [`EventCount`], with a lock class of its own.
macro_rules! new_event_count {
    ($name:literal) => {
        $crate::sync::EventCount::new(kernel::c_str!($name), kernel::static_lock_class!())
    };
}
pub(crate) use new_event_count;
