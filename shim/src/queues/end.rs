// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's side of queues.

use crate::device::Device;
use crate::error::Error;
use crate::ioctl;
use crate::ring::CompletionRing;
use crate::wc::Wc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    /// Queue pairs that were dropped since the ring was purged of their completions.
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
        let mut dropped = self.dropped();
        dropped.push(vqp);
        self.has_dropped.store(true, Ordering::Release);
    }

    /// A queue pair was made. The kernel gives a number again after some thousand others:
    /// completions with it are the new one's from now on.
    pub(super) fn note_made(&self, vqp: u32) {
        if self.has_dropped() {
            self.dropped().retain(|dropped| *dropped != vqp);
        }
    }

    /// Whether there may be completions of queue pairs that were dropped.
    #[inline]
    fn has_dropped(&self) -> bool {
        self.has_dropped.load(Ordering::Acquire)
    }

    pub(super) fn dropped(&self) -> MutexGuard<'_, Vec<u32>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Throws away what there is in the ring of requests of queue pairs that were dropped;
    /// answers whether there was anything. A receive buffer comes back in any case.
    #[inline]
    pub(super) fn purge_dropped(&self, ring: &mut CompletionRing) -> bool {
        self.has_dropped() && self.purge(ring)
    }

    #[cold]
    fn purge(&self, ring: &mut CompletionRing) -> bool {
        // Locked until all are out: a new queue pair may have the number of one of them.
        let mut dropped = self.dropped();
        dropped.sort_unstable();
        let mut threw_some = false;
        ring.purge(|raw| {
            let is_dead = !Wc::from_raw(*raw).is_recv() && dropped.binary_search(&raw.vqp).is_ok();
            threw_some |= is_dead;
            is_dead
        });
        dropped.clear();
        self.has_dropped.store(false, Ordering::Release);
        threw_some
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
