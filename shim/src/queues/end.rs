// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's side of queues.

use crate::device::Device;
use crate::error::Error;
use crate::ioctl;
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
    dropped: Mutex<Vec<Dropped>>,
}

/// A queue pair that was dropped, and of which there may be completions in the ring.
#[derive(Debug)]
struct Dropped {
    vqp: u32,
    /// They are among the next so many that are taken. `None`: among those that were there
    /// when the ring is looked at next, because the kernel writes no more of them.
    within: Option<usize>,
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
        let within = None;
        self.dropped().push(Dropped { vqp, within });
        self.has_dropped.store(true, Ordering::Release);
    }

    /// A queue pair was made. The kernel gives a number again after some thousand others:
    /// completions with it are the new one's from now on.
    pub(super) fn note_made(&self, vqp: u32) {
        if self.has_dropped() {
            self.dropped().retain(|dropped| dropped.vqp != vqp);
        }
    }

    /// Whether there may be completions of queue pairs that were dropped.
    #[inline]
    pub(super) fn has_dropped(&self) -> bool {
        self.has_dropped.load(Ordering::Acquire)
    }

    fn dropped(&self) -> MutexGuard<'_, Vec<Dropped>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out those of requests of queue pairs that were dropped; answers with how many
    /// are left. `ready` says how many more there are in the ring. A receive buffer comes
    /// back in any case.
    #[inline]
    pub(super) fn without_dropped(&self, wcs: &mut [Wc], ready: impl FnOnce() -> usize) -> usize {
        match self.has_dropped() {
            true => self.sift(wcs, ready),
            false => wcs.len(),
        }
    }

    #[cold]
    fn sift(&self, wcs: &mut [Wc], ready: impl FnOnce() -> usize) -> usize {
        let mut dropped = self.dropped();
        let is_of_dropped = |at: usize, wc: &Wc| {
            let is_it = |dropped: &Dropped| {
                dropped.vqp == wc.vqp() && dropped.within.is_none_or(|within| at < within)
            };
            !wc.is_recv() && dropped.iter().any(is_it)
        };
        let mut kept = 0;
        for at in 0..wcs.len() {
            if !is_of_dropped(at, &wcs[at]) {
                wcs[kept] = wcs[at];
                kept += 1;
            }
        }
        let more = ready();
        for dropped in dropped.iter_mut() {
            let within = dropped
                .within
                .map(|within| within.saturating_sub(wcs.len()));
            dropped.within = within.or(Some(more));
        }
        dropped.retain(|dropped| dropped.within != Some(0));
        if dropped.is_empty() {
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
