// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kernel's side of a VQP.

use crate::device::Device;
use crate::error::{CompletionError, Error};
use crate::ioctl;
use crate::queues::End;
use crate::wr::SendWr;
use nix::errno::Errno;
use std::sync::Arc;
use weft_core::uapi::{self, Pod, WcStatus, RUN_RESUME};

/// A VQP's handle. Destroys the VQP on drop.
#[derive(Debug)]
pub(super) struct Handle {
    queues: Arc<End>,
    number: u32,
}

impl Handle {
    /// Of a VQP that was made on those queues.
    pub(super) fn new(queues: &Arc<End>, number: u32) -> Self {
        Self {
            queues: Arc::clone(queues),
            number,
        }
    }

    #[inline]
    pub(super) fn device(&self) -> &Device {
        self.queues.device()
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    #[inline]
    pub(super) fn calls(&self) -> u64 {
        self.queues.calls()
    }

    /// Carries a request out in one call; answers with the bytes moved. `None`: the
    /// module does not do that with this one now, or the kernel with none.
    #[inline]
    pub(super) fn run(&self, wr: &SendWr<'_>) -> Option<Result<u32, Error>> {
        let mut run = wr.as_run(self.number)?;
        self.queues.count_call();
        match ioctl::run(self.device().fd(), &mut run) {
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
            match ioctl::run(self.device().fd(), &mut run) {
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
        let _ = ioctl::vqp_destroy(self.device().fd(), &mut arg);
    }
}
