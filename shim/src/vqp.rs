// SPDX-License-Identifier: MIT OR Apache-2.0

//! Virtual queue pairs (krcore §4.1): reliable, in order, connected in
//! microseconds.
//!
//! One system call submits any number of requests and may wait for their
//! completions. The module may take fewer requests than it was given, when the
//! VQP's queue is full; the count that it took comes back.

use crate::device::Device;
use crate::error::Error;
use crate::held::Held;
use crate::ioctl;
use crate::mr::{LocalSlice, Remote};
use crate::wr::{SendWr, Wc, SYNC_WR_ID_BIT};
use std::time::Duration;
use weft_core::gid::Gid;
use weft_core::uapi::{self, Pod, MAX_BATCH, MAX_WAIT_NS};

/// What a VQP is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VqpConfig {
    /// Work requests that may be outstanding, 1 to [`crate::MAX_SEND_WR`].
    pub max_send_wr: u32,
}

impl Default for VqpConfig {
    /// Room for 128 work requests.
    fn default() -> Self {
        Self { max_send_wr: 128 }
    }
}

/// What one [`Vqp::enter`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the module may take fewer requests than it was given"]
pub struct Progress {
    /// Requests taken, from the first on.
    pub submitted: usize,
    /// Completions written, from the first place on.
    pub completed: usize,
}

/// A virtual queue pair. Destroyed on drop; its outstanding requests are
/// dropped then.
#[derive(Debug)]
pub struct Vqp {
    device: Device,
    handle: u32,
    /// Completions that a synchronous call reaped and that are not its own.
    held: Held,
    next_sync: u64,
}

impl Vqp {
    /// Makes a VQP. A software object: it takes no hardware set-up.
    ///
    /// # Errors
    ///
    /// [`Error::BadCapacity`], [`Error::TooManyVqps`], [`Error::OutOfMemory`],
    /// [`Error::NodeGone`].
    pub fn create(device: &Device, config: &VqpConfig) -> Result<Self, Error> {
        let max_send_wr = config.max_send_wr;
        let mut arg = uapi::VqpCreate {
            max_send_wr,
            ..Pod::zeroed()
        };
        ioctl::vqp_create(device.fd(), &mut arg)
            .map_err(|errno| Error::of_vqp_create(errno, max_send_wr))?;
        Ok(Self {
            device: device.clone(),
            handle: arg.vqp,
            held: Held::default(),
            next_sync: 0,
        })
    }

    /// Connects to a node. `port` is where two-sided messages go; one-sided
    /// requests ignore it.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownPeer`], [`Error::NoMetaServer`], [`Error::MetaTimeout`],
    /// [`Error::AlreadyConnected`], [`Error::ZeroGid`], [`Error::NodeGone`].
    pub fn qconnect(&mut self, gid: Gid, port: u32) -> Result<(), Error> {
        let mut arg = uapi::QConnect {
            vqp: self.handle,
            port,
            gid,
            ..Pod::zeroed()
        };
        ioctl::qconnect(self.device.fd(), &mut arg)
            .map_err(|errno| Error::of_peer("IOC_QCONNECT", errno, gid))
    }

    /// Submits requests and answers with how many were taken: fewer than given
    /// when the queue got full, never more than [`MAX_BATCH`] at once.
    ///
    /// # Errors
    ///
    /// [`Error::QueueFull`] if none was taken, [`Error::NotConnected`],
    /// [`Error::NodeGone`], [`Error::Interrupted`].
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<usize, Error> {
        Ok(call(&self.device, self.handle, wrs, &mut [], 0, Duration::ZERO)?.submitted)
    }

    /// Reaps completions that are there and answers with how many. Does not
    /// wait.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`], [`Error::Interrupted`].
    pub fn poll_cq(&mut self, wcs: &mut [Wc]) -> Result<usize, Error> {
        Ok(self.enter(&[], wcs, 0, Duration::ZERO)?.completed)
    }

    /// Submits requests, waits until there are `min` completions or `timeout`
    /// is over, and reaps what fits, in one system call. As in
    /// [`Self::post_send`], fewer requests than given may be taken. A timeout
    /// is no error: `completed` is then less than `min`.
    ///
    /// # Errors
    ///
    /// As [`Self::post_send`], and [`Error::NoRoom`]. After an error nothing
    /// was submitted and nothing reaped.
    pub fn enter(
        &mut self,
        wrs: &[SendWr<'_>],
        wcs: &mut [Wc],
        min: usize,
        timeout: Duration,
    ) -> Result<Progress, Error> {
        let room = wcs.len().min(MAX_BATCH as usize);
        if min > room {
            return Err(Error::NoRoom { min, room });
        }
        let (device, handle) = (&self.device, self.handle);
        self.held.reap(&mut wcs[..room], min, |rest, min| {
            if wrs.is_empty() && rest.is_empty() {
                return Ok(Progress {
                    submitted: 0,
                    completed: 0,
                });
            }
            call(device, handle, wrs, rest, min, timeout)
        })
    }

    /// Reads `remote` into `local` and waits until it is there; answers with
    /// the bytes read. One system call, if nothing else is in flight on the
    /// VQP. Completions of earlier requests are kept for the next poll.
    ///
    /// # Errors
    ///
    /// [`Error::Completion`] if the request failed, else as
    /// [`Self::post_send`], but never [`Error::Interrupted`].
    pub fn read(&mut self, local: LocalSlice<'_>, remote: Remote) -> Result<u32, Error> {
        self.run(SendWr::read(local, remote))
    }

    /// Writes `local` to `remote` and waits until the peer has acknowledged it;
    /// answers with the bytes written. Else as [`Self::read`].
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn write(&mut self, local: LocalSlice<'_>, remote: Remote) -> Result<u32, Error> {
        self.run(SendWr::write(local, remote))
    }

    /// Posts one request and waits until it has ended; answers with the bytes
    /// moved. For atomic operations; else as [`Self::read`].
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    pub fn run(&mut self, wr: SendWr<'_>) -> Result<u32, Error> {
        self.next_sync = self.next_sync.wrapping_add(1);
        let wr_id = SYNC_WR_ID_BIT | self.next_sync;
        let wrs = [wr.signaled().wr_id(wr_id)];
        let (device, handle) = (&self.device, self.handle);
        self.held.complete(wr_id, |pending, wcs| {
            let wrs = if pending { &wrs[..] } else { &[] };
            call(device, handle, wrs, wcs, 1, Duration::MAX)
        })
    }
}

/// One `IOC_ENTER`. Cuts the batch and the wait to what the module takes.
fn call(
    device: &Device,
    vqp: u32,
    wrs: &[SendWr<'_>],
    wcs: &mut [Wc],
    min: usize,
    timeout: Duration,
) -> Result<Progress, Error> {
    let wrs = wrs.get(..MAX_BATCH as usize).unwrap_or(wrs);
    let timeout_ns = u64::try_from(timeout.as_nanos())
        .unwrap_or(u64::MAX)
        .min(MAX_WAIT_NS);
    let min = u32::try_from(min).unwrap_or(u32::MAX);
    let (wrs, wcs) = (SendWr::as_raw(wrs), Wc::as_raw_mut(wcs));
    let (submitted, completed) =
        ioctl::enter(device.fd(), vqp, wrs, wcs, min, timeout_ns).map_err(Error::of_enter)?;
    Ok(Progress {
        submitted,
        completed,
    })
}

impl Drop for Vqp {
    fn drop(&mut self) {
        let mut arg = uapi::VqpHandle {
            vqp: self.handle,
            ..Pod::zeroed()
        };
        // It fails only if the VQP went before, with its node.
        let _ = ioctl::vqp_destroy(self.device.fd(), &mut arg);
    }
}
