// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queues that any number of queue pairs share: a submission queue, a completion queue
//! and a receive queue in one mapping, as `ibv_cq` and `ibv_srq` are in verbs.
//!
//! A [`Qp`] on them is a few hundred bytes of the kernel's, made and connected in one system
//! call. One system call submits requests of any of them, and waits for completions of any:
//!
//! ```no_run
//! # fn main() -> Result<(), weft_shim::Error> {
//! # let (gids, local, remotes): (Vec<weft_shim::Gid>, weft_shim::LocalSlice<'_>, Vec<weft_shim::Remote>) = todo!();
//! use std::time::Duration;
//! use weft_shim::{Device, QpConfig, Queues, QueuesConfig, SendWr, Wc};
//!
//! let device = Device::open()?;
//! let mut queues = Queues::create(&device, &QueuesConfig::default())?;
//! let mut requests = Vec::new();
//! let mut qps = Vec::new();
//! for (gid, remote) in gids.iter().zip(remotes) {
//!     let qp = queues.connect(*gid, 0, &QpConfig::default())?;
//!     requests.push(SendWr::write(local, remote).on(&qp).signaled());
//!     qps.push(qp);
//! }
//! let mut wcs = vec![Wc::default(); requests.len()];
//! let all = requests.len();
//! let progress = queues.enter(&requests, &mut wcs, all, Duration::from_secs(1))?;
//! assert_eq!(progress.completed, all);
//! # Ok(())
//! # }
//! ```

mod end;
#[cfg(feature = "tokio")]
mod future;
mod notify;
mod qp;

use crate::device::Device;
use crate::error::Error;
use crate::ioctl;
use crate::mr::{Access, MemoryRegion};
use crate::patience::{ns, Patience};
use crate::ring::{Mapping, Rings};
use crate::vqp::Progress;
use crate::wc::Wc;
use crate::wr::{RecvWr, SendWr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_core::gid::Gid;
use weft_core::uapi::{self, Pod};

pub(crate) use end::End;
#[cfg(feature = "tokio")]
pub use future::AsyncQueues;
pub use notify::Moderation;
pub use qp::{Connector, PeerHandle, Qp, QpConfig, Receive};

/// What queues are made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuesConfig {
    /// Work requests that one system call can submit, up to [`crate::MAX_SEND_WR`].
    pub max_send_wr: u32,
    /// Completions that may be there, up to [`crate::MAX_WC`]. All requests of the queue
    /// pairs that are under way, or whose completions were not taken, need a place, and so
    /// does each message that has arrived. The queue has a power of two of places, the next
    /// one from this number on.
    pub max_wc: u32,
    /// Receive buffers that may be posted, up to [`crate::MAX_RECV_WR`].
    pub max_recv_wr: u32,
}

impl QueuesConfig {
    pub(crate) fn to_raw(self) -> uapi::RingsCreate {
        uapi::RingsCreate {
            max_send_wr: self.max_send_wr,
            max_wc: self.max_wc,
            max_recv_wr: self.max_recv_wr,
            ..Pod::zeroed()
        }
    }
}

impl Default for QueuesConfig {
    /// Room for 128 requests in a call and 1,024 under way, and no receiving.
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            max_wc: 1024,
            max_recv_wr: 0,
        }
    }
}

/// Queues of a session. They go once their queue pairs are gone too.
///
/// A child that is forked does not have them mapped: it must neither use nor drop its
/// parent's.
#[derive(Debug)]
pub struct Queues {
    rings: Rings,
    end: Arc<End>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Submitted {
    pub(crate) count: usize,
    /// Whether the queue had no room for all.
    pub(crate) is_full: bool,
}

#[cfg(test)]
impl Queues {
    /// Queues on these rings, without a kernel.
    pub(crate) fn of_rings(rings: Rings) -> Self {
        let end = Arc::new(End::new(&Device::of_null(), 0));
        Self { rings, end }
    }
}

impl Queues {
    /// Makes queues.
    ///
    /// # Errors
    ///
    /// [`Error::BadQueues`], [`Error::TooManyQueues`], [`Error::OutOfMemory`],
    /// [`Error::NodeGone`].
    pub fn create(device: &Device, config: &QueuesConfig) -> Result<Self, Error> {
        let mut arg = config.to_raw();
        let made = device
            .lot()
            .with_room(|| ioctl::rings_create(device.fd(), &mut arg));
        made.map_err(|errno| Error::of_rings_create(errno, &config.to_raw()))?;
        // Destroyed on drop from here on.
        let end = Arc::new(End::new(device, arg.rings));
        let rings = Rings::map(device.fd(), device.lot(), &arg).map_err(Error::of_ring_map)?;
        Ok(Self { rings, end })
    }

    /// Queues that the kernel has made, and the memory that has come with them.
    pub(crate) fn with_memory(
        device: &Device,
        said: &uapi::RingsCreate,
        access: Access,
    ) -> Result<(Self, MemoryRegion), Error> {
        let end = Arc::new(End::new(device, said.rings));
        let mapping = Mapping::alone(device.fd(), said).map_err(Error::of_ring_map)?;
        let mapping = Arc::new(mapping);
        let memory = MemoryRegion::of_queues(device, &mapping, said, access);
        let rings = Rings::new(&mapping, said).ok_or(Error::AbiMismatch)?;
        Ok((Self { rings, end }, memory.ok_or(Error::AbiMismatch)?))
    }

    /// A queue pair that is connected to a node. `port` is where messages go, 1 to
    /// [`crate::MAX_PORT`]; 0: only one-sided requests will be posted. One system call, if
    /// the node is in the DCCache.
    ///
    /// # Errors
    ///
    /// Those of [`Self::qp`] and of [`crate::Vqp::qconnect`].
    #[inline]
    pub fn connect(&self, gid: Gid, port: u32, config: &QpConfig) -> Result<Qp, Error> {
        self.connector().connect(gid, port, config)
    }

    /// Something by which another thread connects queue pairs to these queues, while this one
    /// uses them.
    #[must_use]
    pub fn connector(&self) -> Connector {
        Connector {
            queues: Arc::clone(&self.end),
        }
    }

    /// A queue pair that is not connected yet.
    ///
    /// # Errors
    ///
    /// [`Error::BadCapacity`], [`Error::MissingQueue`], [`Error::ReceiveQueueInUse`],
    /// [`Error::TooManyVqps`], [`Error::OutOfMemory`], [`Error::NodeGone`].
    pub fn qp(&self, config: &QpConfig) -> Result<Qp, Error> {
        Qp::create(&self.end, config, Gid::default(), 0, false)
    }

    /// A queue pair of which each request names its peer ([`SendWr::on_to`]), as a DC
    /// initiator of verbs does. Requests to a peer are in order, and one that fails stops
    /// none to others. `config.max_send_wr` counts for each peer.
    ///
    /// # Errors
    ///
    /// Those of [`Self::qp`].
    pub fn unconnected(&self, config: &QpConfig) -> Result<Qp, Error> {
        Qp::create(&self.end, config, Gid::default(), 0, true)
    }

    /// Submits requests, each [on](SendWr::on) a queue pair of these queues' session, and
    /// answers with how many were taken: fewer than given when its queue pair, or the
    /// completion queue, got full.
    ///
    /// The call does not wait for completions, but may sleep before it has taken a request:
    /// while 128 requests of the user's from this CPU are on their way to the same peer, and
    /// before a [fenced](SendWr::fenced) one. That takes seconds if the peer is silent.
    ///
    /// # Errors
    ///
    /// [`Error::QueueFull`] if none was taken, [`Error::BadCapacity`] (the queues were made
    /// with a `max_send_wr` of 0), [`Error::NotConnected`] and [`Error::NoSuchVqp`] (of the
    /// first), [`Error::TooManyStreams`], [`Error::OutOfMemory`], [`Error::Interrupted`]. When
    /// the node has gone, requests are still taken, and complete with
    /// [`crate::WcStatus::FatalErr`].
    pub fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<usize, Error> {
        let submitted = self.submit(wrs, None, 0, Duration::ZERO)?;
        if submitted.is_full && submitted.count == 0 {
            return Err(Error::QueueFull);
        }
        Ok(submitted.count)
    }

    /// Posts receive buffers for the queue pairs that receive here, and answers with how
    /// many: fewer than given when as many are waiting as there may be. Takes no system
    /// call.
    pub fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> usize {
        let ring = &mut self.rings.recv;
        let room = ring.room(wrs.len());
        let mut posted = 0;
        for wr in wrs.iter().take(room) {
            ring.put(posted, wr.as_raw());
            posted += 1;
        }
        ring.publish(posted);
        posted as usize
    }

    /// Reaps completions that are there and answers with how many. Does not wait,
    /// and takes no system call. Completions of requests of queue pairs that were dropped
    /// are thrown away.
    #[inline]
    pub fn poll_cq(&mut self, wcs: &mut [Wc]) -> usize {
        self.purge();
        self.take(wcs)
    }

    /// Throws completions of queue pairs that were dropped away; answers whether there were
    /// any.
    #[inline]
    fn purge(&mut self) -> bool {
        self.end.purge_dropped(&mut self.rings.done)
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
    /// neither into `wcs` nor into the ring. After an error nothing was
    /// submitted and nothing reaped.
    pub fn enter(
        &mut self,
        wrs: &[SendWr<'_>],
        wcs: &mut [Wc],
        min: usize,
        timeout: Duration,
    ) -> Result<Progress, Error> {
        let room = wcs.len().min(self.entries());
        if min > room {
            return Err(Error::NoRoom { min, room });
        }
        // Another thread may drop queue pairs during the wait, which then goes on.
        let start = (min != 0).then(Instant::now);
        let submitted = self.submit(wrs, None, min, timeout)?;
        let mut threw_some = self.purge();
        let mut completed = self.take(wcs);
        // The wait was for those that were thrown away, too.
        while threw_some && completed < min {
            let left = start.map_or(timeout, |start| timeout.saturating_sub(start.elapsed()));
            if left.is_zero() || self.submit(&[], None, min - completed, left).is_err() {
                break;
            }
            threw_some = self.purge();
            completed += self.take(&mut wcs[completed..]);
        }
        if submitted.is_full && submitted.count == 0 && completed == 0 {
            return Err(Error::QueueFull);
        }
        Ok(Progress {
            submitted: submitted.count,
            completed,
        })
    }

    /// System calls that have submitted requests or waited for completions (`IOC_ENTER`)
    /// since the queues were made, for measurements.
    #[must_use]
    pub fn system_calls(&self) -> u64 {
        self.end.calls()
    }

    /// Places for completions.
    pub(crate) fn entries(&self) -> usize {
        self.rings.done.entries()
    }

    /// Whether completions are there.
    pub(crate) fn has_completions(&mut self) -> bool {
        self.rings.done.ready(1) != 0
    }

    pub(crate) fn end(&self) -> &Arc<End> {
        &self.end
    }

    /// Takes completions off the ring.
    #[inline]
    pub(crate) fn take(&mut self, wcs: &mut [Wc]) -> usize {
        self.rings
            .done
            .take(wcs.len(), |at, wc| wcs[at] = Wc::from_raw(wc))
    }

    /// One `IOC_ENTER` for requests that fit into the ring; answers with how many
    /// were taken. `vqp`: theirs, whichever they name. `min`: completions that have to be
    /// in the ring.
    #[inline]
    pub(crate) fn call(
        &mut self,
        wrs: &[SendWr<'_>],
        vqp: Option<u32>,
        min: usize,
        timeout: Duration,
    ) -> Result<usize, Error> {
        let mut count = 0;
        for wr in wrs {
            match vqp {
                Some(vqp) => self.rings.send.put(count, &wr.raw_on(vqp)),
                None => self.rings.send.put(count, wr.as_raw()),
            }
            count += 1;
        }
        let min = u32::try_from(min).unwrap_or(u32::MAX);
        let taken = self.end.enter(count, min, ns(timeout))?;
        self.rings.send.took(taken);
        Ok(taken as usize)
    }

    /// Submits requests, in as many pieces as the ring makes of them, and waits
    /// until there are `min` completions in the ring, of queue pairs that were not dropped
    /// before. `vqp` as in [`Self::call`].
    pub(crate) fn submit(
        &mut self,
        wrs: &[SendWr<'_>],
        vqp: Option<u32>,
        min: usize,
        timeout: Duration,
    ) -> Result<Submitted, Error> {
        self.purge();
        let room = self.rings.send.room();
        if room == 0 && !wrs.is_empty() {
            let recv = self.rings.recv.capacity();
            return Err(Error::BadCapacity { send: 0, recv });
        }
        let submitted = submit_pieces(wrs, room, min, timeout, |piece, min, timeout| {
            self.call(piece, vqp, min, timeout)
        })?;
        if wrs.is_empty() && self.rings.done.ready(min) < min {
            self.call(&[], vqp, min, timeout)?;
        }
        Ok(submitted)
    }
}

/// [`Queues::submit`] of requests, by `call`, which takes up to `room` requests, waits as it
/// is told, and answers how many it has taken. `room` is not zero if there are requests.
#[inline]
fn submit_pieces<'a>(
    wrs: &[SendWr<'a>],
    room: usize,
    min: usize,
    timeout: Duration,
    mut call: impl FnMut(&[SendWr<'a>], usize, Duration) -> Result<usize, Error>,
) -> Result<Submitted, Error> {
    let mut patience = Patience::new(timeout);
    let (mut rest, mut is_full, mut needs_room) = (wrs, false, false);
    while !rest.is_empty() && !is_full {
        let piece = &rest[..rest.len().min(room)];
        let is_last = piece.len() == rest.len();
        let answer = if is_last {
            call(piece, min, patience.left())
        } else if needs_room {
            patience.nap(|nap| call(piece, min, nap))
        } else {
            call(piece, 0, Duration::ZERO)
        };
        let taken = match answer {
            Err(Error::QueueFull) => 0,
            // The next call tells about it.
            Err(_) if rest.len() < wrs.len() => break,
            taken => taken?,
        };
        rest = &rest[taken..];
        let may_nap = min > 0 && !patience.is_over();
        needs_room = may_nap && taken < piece.len() && (needs_room || taken == 0);
        // If a part was taken without waiting, the next piece tells why not all were.
        is_full = taken < piece.len() && (is_last || (taken == 0 && !may_nap));
    }
    Ok(Submitted {
        count: wrs.len() - rest.len(),
        is_full,
    })
}

#[cfg(test)]
mod tests;
