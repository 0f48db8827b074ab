// SPDX-License-Identifier: GPL-2.0

//! Threads that poll without sleeping.

use core::sync::atomic::{AtomicU32, Ordering};

use kernel::types::NotThreadSafe;

use crate::bindings;

static SPINNERS: AtomicU32 = AtomicU32::new(0);

/// A thread that polls. It waits for the driver's threads, which want a CPU too. If
/// another CPU is free they run there: to yield this one would only switch back and
/// forth.
///
/// # Invariants
///
/// It is counted in `SPINNERS`.
pub(crate) struct Spinner {
    cpus: u32,
    _thread: NotThreadSafe,
}

impl Spinner {
    /// The calling thread. Process context.
    pub(crate) fn new() -> Self {
        SPINNERS.fetch_add(1, Ordering::Relaxed);
        // INVARIANT: counted just now.
        Self {
            // SAFETY: no requirement.
            cpus: unsafe { bindings::weft_online_cpus() },
            _thread: NotThreadSafe,
        }
    }

    /// One turn of the loop, with no lock held. Gives the CPU to tasks that preempt this
    /// one now; if spinners may be on all CPUs, or much is under way (`is_much`), also to
    /// those that would otherwise wait for the next tick.
    ///
    /// There is no pause instruction: the result is a microsecond away, and under a
    /// hypervisor a pause can cost more than that.
    #[inline]
    pub(crate) fn turn(&self, is_much: bool) {
        let lazy = is_much || SPINNERS.load(Ordering::Relaxed) >= self.cpus;
        // SAFETY: process context, by the constructor, and the caller holds no lock.
        unsafe { reschedule_if_needed(lazy) };
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        SPINNERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Gives the CPU away if another task wants it: one that preempts this one now, or,
/// if `lazy`, also one that would get it at the next tick.
///
/// # Safety
///
/// The caller may sleep.
#[inline]
pub(crate) unsafe fn reschedule_if_needed(lazy: bool) {
    // SAFETY: no requirement.
    if unsafe { bindings::weft_need_resched(lazy) } {
        // SAFETY: the caller's promise.
        unsafe { bindings::schedule() };
    }
}
