// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's side of queues.

use crate::device::Device;
use crate::error::Error;
use crate::ioctl;
use crate::wc::Wc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use weft_core::uapi::{self, Pod};

/// Rings by their handle; destroyed on drop. Queue pairs hold it: as long as there are any,
/// the kernel does not let the rings go.
#[derive(Debug)]
pub(crate) struct End {
    device: Device,
    number: u32,
    /// `IOC_ENTER` and `IOC_RUN` so far.
    calls: AtomicU64,
    /// There may be some in `dropped`.
    has_dropped: AtomicBool,
    /// Queue pairs that were dropped, and of which there may be completions in the ring.
    dropped: Mutex<Vec<u32>>,
}

impl End {
    /// Of rings that were made.
    pub(super) fn new(device: &Device, number: u32) -> Self {
        Self {
            device: device.clone(),
            number,
            calls: AtomicU64::new(0),
            has_dropped: AtomicBool::new(false),
            dropped: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    #[inline]
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts a call. One thread at a time makes any, so no locked instruction is
    /// needed.
    #[inline]
    pub(crate) fn count_call(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls.wrapping_add(1), Ordering::Relaxed);
    }

    /// One `IOC_ENTER`; answers with how many requests were taken.
    #[inline]
    pub(super) fn enter(&self, count: u32, min: u32, timeout_ns: u64) -> Result<u32, Error> {
        self.count_call();
        let rings = (self.number, self.number);
        ioctl::enter(self.device.fd(), rings, count, min, timeout_ns).map_err(Error::of_enter)
    }

    /// A queue pair was dropped: the kernel writes no completion of it any more.
    pub(super) fn note_dropped(&self, vqp: u32) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.push(vqp);
        self.has_dropped.store(true, Ordering::Release);
    }

    /// Takes out those of requests of queue pairs that were dropped; answers with how many
    /// are left. `ready` says how many more there are in the ring. A receive buffer comes
    /// back in any case.
    #[inline]
    pub(super) fn without_dropped(&self, wcs: &mut [Wc], ready: impl FnOnce() -> usize) -> usize {
        if !self.has_dropped.load(Ordering::Acquire) {
            return wcs.len();
        }
        self.sift(wcs, ready)
    }

    #[cold]
    fn sift(&self, wcs: &mut [Wc], ready: impl FnOnce() -> usize) -> usize {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = 0;
        for at in 0..wcs.len() {
            if wcs[at].is_recv() || !dropped.contains(&wcs[at].vqp()) {
                wcs[kept] = wcs[at];
                kept += 1;
            }
        }
        if ready() == 0 {
            dropped.clear();
            self.has_dropped.store(false, Ordering::Release);
        }
        kept
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut arg = uapi::RingsHandle {
            rings: self.number,
            ..Pod::zeroed()
        };
        // It fails only if they went before.
        let _ = ioctl::rings_destroy(self.device.fd(), &mut arg);
    }
}
