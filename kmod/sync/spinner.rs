// SPDX-License-Identifier: GPL-2.0

//! Threads that look for something without sleeping.

use core::sync::atomic::{AtomicU32, Ordering};

use kernel::types::NotThreadSafe;

use crate::bindings;

static SPINNERS: AtomicU32 = AtomicU32::new(0);

/// A thread that spins. What it looks for is made by other threads, the driver's,
/// which want a CPU too. If the spinner leaves one free, they are better off there:
/// giving way would only switch back and forth on this one.
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

    /// One turn, without locks. Lets those run who must not wait; if spinners may be
    /// on all CPUs, or if it `is_much` that is looked for, all who want this CPU.
    #[inline]
    pub(crate) fn turn(&self, is_much: bool) {
        let polite = is_much || SPINNERS.load(Ordering::Relaxed) >= self.cpus;
        // SAFETY: process context, by the constructor, and no lock is held.
        unsafe { bindings::weft_spin_once(polite) };
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        SPINNERS.fetch_sub(1, Ordering::Relaxed);
    }
}
