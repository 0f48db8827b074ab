// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's side of a VQP.

use crate::device::Device;
use crate::error::{CompletionError, Error};
use crate::ioctl;
use crate::ring::Rings;
use crate::wr::SendWr;
use nix::errno::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weft_core::uapi::{self, Pod, WcStatus, MAX_WAIT_NS, RUN_RESUME};

/// A VQP's handle. Destroys the VQP on drop.
#[derive(Debug)]
pub(super) struct Handle {
    device: Device,
    number: u32,
    /// `IOC_ENTER` and `IOC_RUN` so far.
    calls: AtomicU64,
}

impl Handle {
    /// Of a VQP that was made.
    pub(super) fn new(device: &Device, number: u32) -> Self {
        Self {
            device: device.clone(),
            number,
            calls: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    #[inline]
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts a call. One thread at a time makes any, so no locked instruction is
    /// needed.
    #[inline]
    fn count_call(&self) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls.wrapping_add(1), Ordering::Relaxed);
    }

    /// One `IOC_ENTER` for requests that fit into the ring; answers with how many
    /// were taken. `min`: completions that have to be in the ring.
    #[inline]
    pub(super) fn enter(
        &self,
        rings: &mut Rings,
        wrs: &[SendWr<'_>],
        min: usize,
        timeout: Duration,
    ) -> Result<usize, Error> {
        let mut count = 0;
        for wr in wrs {
            rings.send.put(count, wr.as_raw());
            count += 1;
        }
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let timeout_ns = timeout_ns.min(MAX_WAIT_NS);
        let min = u32::try_from(min).unwrap_or(u32::MAX);
        self.count_call();
        let taken = ioctl::enter(self.device.fd(), self.number, count, min, timeout_ns)
            .map_err(Error::of_enter)?;
        rings.send.took(taken);
        Ok(taken as usize)
    }

    /// Carries a request out in one call; answers with the bytes moved. `None`: the
    /// module does not do that with this one now, or the kernel with none.
    #[inline]
    pub(super) fn run(&self, wr: &SendWr<'_>) -> Option<Result<u32, Error>> {
        let mut run = wr.as_run(self.number)?;
        self.count_call();
        match ioctl::run(self.device.fd(), &mut run) {
            Ok(status) => Some(ended(status, run.local.len)),
            Err(Errno::EAGAIN | Errno::ENOSYS) => None,
            // A signal's handler has run; the request is on its way.
            Err(Errno::EINTR) => Some(self.resume(run.local.len)),
            Err(errno) => Some(Err(Error::of_enter(errno))),
        }
    }

    /// Waits for the request that a signal interrupted, through more of them.
    #[cold]
    fn resume(&self, len: u32) -> Result<u32, Error> {
        loop {
            let mut run = uapi::Run {
                vqp: self.number,
                opcode: RUN_RESUME,
                ..Pod::zeroed()
            };
            match ioctl::run(self.device.fd(), &mut run) {
                Ok(status) => return ended(status, len),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::of_enter(errno)),
            }
        }
    }
}

#[inline]
fn ended(status: u32, len: u32) -> Result<u32, Error> {
    match WcStatus::from_number(status) {
        Some(WcStatus::Success) => Ok(len),
        status => Err(CompletionError { status }.into()),
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut arg = uapi::VqpHandle {
            vqp: self.number,
            ..Pod::zeroed()
        };
        // It fails only if the VQP went before, with its node.
        let _ = ioctl::vqp_destroy(self.device.fd(), &mut arg);
    }
}
