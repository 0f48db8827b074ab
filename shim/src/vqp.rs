// SPDX-License-Identifier: MIT OR Apache-2.0

//! Virtual queue pairs (krcore §4.1): reliable, in order, connected in
//! microseconds.
//!
//! Requests, completions and receive buffers lie in rings that are shared with
//! the kernel. One system call submits any number of requests and may wait for
//! their completions; reaping completions and posting receive buffers takes none.
//! A [`Vqp`] has queues of its own, and calls that wait for one request; for many queue
//! pairs on the same queues there is [`crate::Queues`].
//! The module may take fewer requests than it was given, when the VQP's queue is
//! full; the count that it took comes back.

mod handle;

use crate::device::Device;
use crate::error::Error;
use crate::held::Held;
use crate::ioctl;
use crate::listener::{BindError, Listener};
use crate::mr::{LocalSlice, Remote};
use crate::queues::{Queues, QueuesConfig};
use crate::wc::Wc;
use crate::wr::{RecvWr, SendWr};
use handle::Handle;
use nix::errno::Errno;
use std::time::Duration;
use weft_core::gid::Gid;
use weft_core::uapi::{self, Pod, MAX_PORT, MAX_RECV_WR, MAX_SEND_WR, RINGS_NONE};

/// How long a synchronous call waits before it looks whether its request was taken:
/// in a full queue, requests that are not signalled make room without a completion.
const SYNC_WAIT: Duration = Duration::from_millis(10);

/// What a VQP is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VqpConfig {
    /// Work requests that may be outstanding, 1 to [`crate::MAX_SEND_WR`].
    pub max_send_wr: u32,
    /// Receive buffers that may be posted, up to [`crate::MAX_RECV_WR`]; 0 if it
    /// will not receive.
    pub max_recv_wr: u32,
}

impl Default for VqpConfig {
    /// Room for 128 work requests, and no receiving.
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            max_recv_wr: 0,
        }
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

/// A virtual queue pair. Destroyed on drop. Requests that were posted go on then, without
/// completions: READs still land in local memory, and WRITEs and messages still read it. Wait
/// for their completions first, or drop the [`crate::MemoryRegion`], before that memory is used
/// for something else.
///
/// A child that is forked does not have its rings mapped: it must neither use nor
/// drop its parent's VQPs, and makes its own.
#[derive(Debug)]
pub struct Vqp {
    handle: Handle,
    /// Its own. Dropped after the handle: the kernel keeps them as long as it is there.
    queues: Queues,
    config: VqpConfig,
    /// Completions that a synchronous call reaped and that are not its own.
    held: Held,
    next_sync: u64,
    /// Signalled requests whose completions were not taken; fewer once a request has failed
    /// that was not signalled.
    unheard: usize,
    /// A completion that was taken is of a request that failed.
    has_failed: bool,
    /// Requests go by RC, as the last completion said: a call that waits for one needs no
    /// ring then.
    goes_by_rc: bool,
}

impl Vqp {
    /// Makes a VQP. A software object: it takes no hardware set-up.
    ///
    /// # Errors
    ///
    /// [`Error::BadCapacity`], [`Error::TooManyVqps`], [`Error::TooManyQueues`],
    /// [`Error::OutOfMemory`], [`Error::NodeGone`].
    pub fn create(device: &Device, config: &VqpConfig) -> Result<Self, Error> {
        let queues = config.queues(device)?;
        let mut arg = config.to_raw(queues.end().number());
        ioctl::vqp_create(device.fd(), &mut arg).map_err(|errno| config.create_error(errno))?;
        Ok(Self::adopt(queues, config, arg.vqp))
    }

    /// Takes what the kernel has made on those queues.
    pub(crate) fn adopt(queues: Queues, config: &VqpConfig, number: u32) -> Self {
        // Destroyed on drop from here on.
        let handle = Handle::new(queues.end(), number);
        Self {
            handle,
            queues,
            config: *config,
            held: Held::default(),
            next_sync: 0,
            unheard: 0,
            has_failed: false,
            goes_by_rc: false,
        }
    }

    /// Connects to a node. `port` is where messages go, 1 to [`MAX_PORT`]; 0: only
    /// one-sided requests will be posted.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownPeer`], [`Error::NoMetaServer`], [`Error::MetaTimeout`],
    /// [`Error::AlreadyConnected`], [`Error::ZeroGid`], [`Error::BadPort`],
    /// [`Error::OutOfMemory`], [`Error::NodeGone`]; [`Error::Interrupted`]: a signal came first,
    /// whose handler was not to restart calls (`SA_RESTART`), and nothing has changed.
    ///
    /// If the module was loaded with `pool=rc`, the call also waits for an RC queue pair to the
    /// peer: [`Error::PeerSilent`], [`Error::NoRc`].
    #[inline]
    pub fn qconnect(&mut self, gid: Gid, port: u32) -> Result<(), Error> {
        if port > MAX_PORT {
            return Err(Error::BadPort(port));
        }
        let mut arg = uapi::QConnect {
            vqp: self.handle.number(),
            port,
            gid,
            ..Pod::zeroed()
        };
        // The call takes no longer than a return or two: failures are out of the way.
        ioctl::qconnect(self.handle.device().fd(), &mut arg)
            .map_err(|errno| Error::of_peer("IOC_QCONNECT", errno, gid))
    }

    /// Binds to a port of the node, 1 to [`MAX_PORT`]: what is sent there arrives
    /// here, from any number of senders (krcore §4.1, `qbind`). A bound VQP
    /// receives only; replies go over VQPs that it accepts.
    ///
    /// # Errors
    ///
    /// [`Error::BadPort`], [`Error::PortInUse`], [`Error::CannotBind`],
    /// [`Error::OutOfMemory`], [`Error::NodeGone`], each with the VQP, which is as it
    /// was.
    pub fn bind(self, port: u32) -> Result<Listener, BindError> {
        match self.bind_to(port) {
            Ok(()) => Ok(Listener::new(self)),
            Err(error) => Err(BindError::new(error, self)),
        }
    }

    fn bind_to(&self, port: u32) -> Result<(), Error> {
        if !(1..=MAX_PORT).contains(&port) {
            return Err(Error::BadPort(port));
        }
        let mut arg = uapi::QBind {
            vqp: self.handle.number(),
            port,
            ..Pod::zeroed()
        };
        ioctl::qbind(self.handle.device().fd(), &mut arg)
            .map_err(|errno| Error::of_bind(errno, port))
    }

    /// Submits requests and answers with how many were taken: fewer than given
    /// when the queue got full. May sleep as [`Queues::post_send`] does.
    ///
    /// # Errors
    ///
    /// [`Error::QueueFull`] if none was taken, [`Error::NotConnected`],
    /// [`Error::TooManyStreams`], [`Error::OutOfMemory`], [`Error::Interrupted`]. When the node
    /// has gone, requests are still taken, and complete with [`crate::WcStatus::FatalErr`].
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<usize, Error> {
        let vqp = self.handle.number();
        let submitted = self.queues.submit(wrs, Some(vqp), 0, Duration::ZERO)?;
        self.note(&wrs[..submitted.count]);
        if submitted.is_full && submitted.count == 0 {
            return Err(Error::QueueFull);
        }
        Ok(submitted.count)
    }

    /// Posts receive buffers and answers with how many: fewer than given when as
    /// many are waiting as there may be. Takes no system call. A VQP that was made
    /// without `max_recv_wr` takes none.
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> usize {
        self.queues.post_recv(wrs)
    }

    /// Reaps completions that are there and answers with how many. Does not wait,
    /// and takes no system call.
    ///
    /// # Errors
    ///
    /// None so far.
    #[inline]
    pub fn poll_cq(&mut self, wcs: &mut [Wc]) -> Result<usize, Error> {
        Ok(self.reap(wcs))
    }

    /// Submits requests, waits until there are `min` completions or `timeout`
    /// is over, and reaps what fits, in one system call; in none if there is nothing
    /// to submit and nothing to wait for. A batch that is longer than the ring takes
    /// several. As in [`Self::post_send`], fewer requests than given may be taken. A
    /// timeout is no error: `completed` is then less than `min`. So it is if a request cannot
    /// be taken for another reason than a full queue: the call does not wait then, and the next
    /// one, which begins with that request, tells the reason.
    ///
    /// # Errors
    ///
    /// As [`Self::post_send`], and [`Error::NoRoom`] if so many completions fit
    /// neither into `wcs` nor into the VQP's ring. After an error nothing was
    /// submitted and nothing reaped.
    pub fn enter(
        &mut self,
        wrs: &[SendWr<'_>],
        wcs: &mut [Wc],
        min: usize,
        timeout: Duration,
    ) -> Result<Progress, Error> {
        let held = self.held.len().min(wcs.len());
        let room = wcs.len().min(held + self.queues.entries());
        if min > room {
            return Err(Error::NoRoom { min, room });
        }
        let (vqp, min) = (self.handle.number(), min.saturating_sub(held));
        let submitted = self.queues.submit(wrs, Some(vqp), min, timeout)?;
        self.note(&wrs[..submitted.count]);
        let completed = self.reap(wcs);
        if submitted.is_full && submitted.count == 0 && completed == 0 {
            return Err(Error::QueueFull);
        }
        Ok(Progress {
            submitted: submitted.count,
            completed,
        })
    }

    /// System calls that have handed requests to the kernel or waited for completions
    /// (`IOC_ENTER`, `IOC_RUN`) since the VQP was made, for measurements.
    #[must_use]
    pub fn system_calls(&self) -> u64 {
        self.handle.calls()
    }

    /// Reads `remote` into `local` and waits until it is there; answers with
    /// the bytes read. One system call, if nothing else is in flight on the
    /// VQP. Completions of earlier requests are kept for the next poll; the session's
    /// descriptor does not tell of those, so poll until there are none before waiting by it.
    ///
    /// # Errors
    ///
    /// [`Error::Completion`] if the request failed, else as
    /// [`Self::post_send`], but never [`Error::Interrupted`].
    #[inline]
    pub fn read(&mut self, local: LocalSlice<'_>, remote: Remote) -> Result<u32, Error> {
        self.run(SendWr::read(local, remote))
    }

    /// Writes `local` to `remote` and waits until the peer has acknowledged it;
    /// answers with the bytes written. Else as [`Self::read`].
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    #[inline]
    pub fn write(&mut self, local: LocalSlice<'_>, remote: Remote) -> Result<u32, Error> {
        self.run(SendWr::write(local, remote))
    }

    /// Posts one request and waits until it has ended; answers with the bytes
    /// moved. For atomic operations and messages; else as [`Self::read`].
    ///
    /// # Errors
    ///
    /// As [`Self::read`].
    #[inline]
    pub fn run(&mut self, wr: SendWr<'_>) -> Result<u32, Error> {
        if self.goes_by_rc {
            if let Some(result) = self.handle.run(&wr) {
                return result;
            }
            self.goes_by_rc = false;
        }
        self.run_by_ring(wr)
    }

    #[inline]
    fn run_by_ring(&mut self, wr: SendWr<'_>) -> Result<u32, Error> {
        self.next_sync = self.next_sync.wrapping_add(1);
        let wr_id = self.next_sync;
        let wrs = [wr.private().wr_id(wr_id)];
        let Self {
            queues,
            handle,
            held,
            goes_by_rc,
            ..
        } = self;
        held.complete(wr_id, |pending, wcs| {
            // What is there already would end the wait.
            let mut completed = queues.take(wcs);
            let mut submitted = 0;
            if completed == 0 {
                let wrs = if pending { &wrs[..] } else { &[] };
                submitted = match queues.call(wrs, Some(handle.number()), 1, SYNC_WAIT) {
                    Err(Error::QueueFull) => 0,
                    taken => taken?,
                };
                completed = queues.take(wcs);
            }
            if let Some(last) = wcs[..completed].last() {
                *goes_by_rc = last.is_by_rc();
            }
            Ok(Progress {
                submitted,
                completed,
            })
        })
    }

    #[inline]
    fn reap(&mut self, wcs: &mut [Wc]) -> usize {
        let held = self.held.take(wcs);
        let count = held + self.queues.take(&mut wcs[held..]);
        let heard = wcs[..count].iter().filter(|wc| !wc.is_recv());
        self.has_failed |= heard.clone().any(|wc| wc.result().is_err());
        self.unheard = self.unheard.saturating_sub(heard.count());
        count
    }

    /// These requests were taken.
    #[inline]
    fn note(&mut self, wrs: &[SendWr<'_>]) {
        self.unheard += wrs.iter().filter(|wr| wr.is_signaled()).count();
    }

    /// Whether all completions of its signalled requests were taken. After a failure all
    /// requests complete, signalled or not, so that those which are there count too.
    pub(crate) fn owes_nothing(&mut self) -> bool {
        let has_more = self.held.len() != 0 || self.queues.has_completions();
        self.unheard == 0 && !(self.has_failed && has_more)
    }

    /// Waits until there are `min` completions, and leaves them where they are.
    pub(crate) fn wait(&mut self, min: usize, timeout: Duration) -> Result<(), Error> {
        let room = self.held.len() + self.queues.entries();
        if min > room {
            return Err(Error::NoRoom { min, room });
        }
        let min = min.saturating_sub(self.held.len());
        self.queues.submit(&[], None, min, timeout).map(drop)
    }

    pub(crate) fn device(&self) -> &Device {
        self.handle.device()
    }

    pub(crate) fn number(&self) -> u32 {
        self.handle.number()
    }

    pub(crate) fn config(&self) -> &VqpConfig {
        &self.config
    }
}

impl VqpConfig {
    /// Queues for one such VQP alone, with a place for each completion that there can be.
    pub(crate) fn queues(&self, device: &Device) -> Result<Queues, Error> {
        let &Self {
            max_send_wr,
            max_recv_wr,
        } = self;
        if !(1..=MAX_SEND_WR).contains(&max_send_wr) || max_recv_wr > MAX_RECV_WR {
            return Err(Error::BadCapacity {
                send: max_send_wr,
                recv: max_recv_wr,
            });
        }
        let config = QueuesConfig {
            max_send_wr,
            max_wc: max_send_wr.saturating_add(max_recv_wr),
            max_recv_wr,
        };
        Queues::create(device, &config)
    }

    /// What the kernel is asked for, on those queues.
    pub(crate) fn to_raw(self, rings: u32) -> uapi::VqpCreate {
        uapi::VqpCreate {
            cq: rings,
            rq: match self.max_recv_wr {
                0 => RINGS_NONE,
                _ => rings,
            },
            max_send_wr: self.max_send_wr,
            ..Pod::zeroed()
        }
    }

    fn create_error(&self, errno: Errno) -> Error {
        Error::of_vqp_create(errno, self.max_send_wr, self.max_recv_wr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mr::Remote;
    use crate::ring::tests::rings;
    use crate::wr::Payload;
    use weft_core::uapi::WcStatus;

    fn wc(status: WcStatus) -> uapi::Wc {
        uapi::Wc {
            status: status as u16,
            opcode: uapi::OP_WRITE.into(),
            ..Pod::zeroed()
        }
    }

    /// One on which a signalled request was posted, and which has these completions.
    fn vqp_with(wcs: &[uapi::Wc]) -> Vqp {
        let config = VqpConfig::default();
        let mut vqp = Vqp::adopt(Queues::of_rings(rings(8, 0, wcs)), &config, 3);
        let text = Payload::inline(b"text").unwrap();
        vqp.note(&[SendWr::write(text, Remote { addr: 0, rkey: 0 }).signaled()]);
        vqp
    }

    #[test]
    fn an_error_of_an_unsignalled_request_is_not_the_completion_that_is_owed() {
        let mut vqp = vqp_with(&[wc(WcStatus::RemAccessErr), wc(WcStatus::WrFlushErr)]);
        let mut wcs = [Wc::default()];
        assert!(!vqp.owes_nothing());
        assert_eq!(vqp.poll_cq(&mut wcs), Ok(1));
        assert!(!vqp.owes_nothing());
        assert_eq!(vqp.poll_cq(&mut wcs), Ok(1));
        assert!(vqp.owes_nothing());
    }

    #[test]
    fn a_vqp_whose_completions_were_taken_owes_nothing() {
        let mut vqp = vqp_with(&[wc(WcStatus::Success)]);
        assert_eq!(vqp.poll_cq(&mut [Wc::default()]), Ok(1));
        assert!(vqp.owes_nothing());
    }
}
