// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs on shared queues, and the peers of unconnected ones.

use super::End;
use crate::device::Device;
use crate::error::Error;
use crate::ioctl;
use nix::errno::Errno;
use std::sync::Arc;
use weft_core::gid::Gid;
use weft_core::uapi::{
    self, Pod, MAX_PORT, MAX_SEND_WR, RINGS_NONE, VQP_SHARED_RECEIVE, VQP_UNCONNECTED,
};

/// Where a queue pair's receive buffers come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receive {
    /// It receives nothing.
    #[default]
    Nothing,
    /// From the queues' receive queue, which is its own. They come back when it fails.
    Own,
    /// From the queues' receive queue, with other queue pairs. (`ibv_srq`)
    Shared,
}

/// What a queue pair is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// Work requests that may be under way, 1 to [`crate::MAX_SEND_WR`].
    pub max_send_wr: u32,
    /// Where its receive buffers come from.
    pub receive: Receive,
}

impl Default for QpConfig {
    /// Room for 128 requests, and no receiving.
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            receive: Receive::Nothing,
        }
    }
}

/// A queue pair of [`super::Queues`]. Destroyed on drop. Requests that were posted go on then,
/// without completions, and use local memory until they have ended, as those of a
/// [`crate::Vqp`].
#[derive(Debug)]
pub struct Qp {
    queues: Arc<End>,
    number: u32,
}

/// A peer that requests of unconnected queue pairs of a session go to (an address handle of
/// verbs). Closed on drop: requests that are under way end as they would.
#[derive(Debug)]
pub struct PeerHandle {
    device: Device,
    number: u32,
}

impl Qp {
    #[inline]
    pub(super) fn create(
        queues: &Arc<End>,
        config: &QpConfig,
        gid: Gid,
        port: u32,
        is_unconnected: bool,
    ) -> Result<Self, Error> {
        if port > MAX_PORT {
            return Err(Error::BadPort(port));
        }
        let mut arg = config.to_raw(queues.number());
        arg.gid = gid;
        arg.port = port;
        if is_unconnected {
            arg.flags |= VQP_UNCONNECTED;
        }
        ioctl::vqp_create(queues.device().fd(), &mut arg)
            .map_err(|errno| of_create(errno, config, gid))?;
        queues.note_made(arg.vqp);
        Ok(Self {
            queues: Arc::clone(queues),
            number: arg.vqp,
        })
    }

    /// Its number in the session, which its completions carry ([`crate::Wc::vqp`]).
    #[inline]
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Connects one that is not, as [`crate::Vqp::qconnect`].
    ///
    /// # Errors
    ///
    /// Those of that; [`Error::CannotConnect`] (an unconnected one).
    pub fn qconnect(&self, gid: Gid, port: u32) -> Result<(), Error> {
        if port > MAX_PORT {
            return Err(Error::BadPort(port));
        }
        let mut arg = uapi::QConnect {
            vqp: self.number,
            port,
            gid,
            ..Pod::zeroed()
        };
        ioctl::qconnect(self.queues.device().fd(), &mut arg)
            .map_err(|errno| Error::of_peer("IOC_QCONNECT", errno, gid))
    }
}

/// Makes queue pairs of [`super::Queues`] that somebody else uses
/// ([`super::Queues::connector`]).
#[derive(Clone, Debug)]
pub struct Connector {
    pub(super) queues: Arc<End>,
}

impl Connector {
    /// A queue pair that is connected to a node, as [`super::Queues::connect`] makes it.
    ///
    /// # Errors
    ///
    /// Those of that.
    pub fn connect(&self, gid: Gid, port: u32, config: &QpConfig) -> Result<Qp, Error> {
        if gid.is_zero() {
            return Err(Error::ZeroGid);
        }
        Qp::create(&self.queues, config, gid, port, false)
    }
}

impl QpConfig {
    fn to_raw(self, rings: u32) -> uapi::VqpCreate {
        let (rq, flags) = match self.receive {
            Receive::Nothing => (RINGS_NONE, 0),
            Receive::Own => (rings, 0),
            Receive::Shared => (rings, VQP_SHARED_RECEIVE),
        };
        uapi::VqpCreate {
            cq: rings,
            rq,
            max_send_wr: self.max_send_wr,
            flags,
            ..Pod::zeroed()
        }
    }
}

#[cold]
fn of_create(errno: Errno, config: &QpConfig, gid: Gid) -> Error {
    match errno {
        Errno::EBUSY => Error::ReceiveQueueInUse,
        Errno::EINVAL if (1..=MAX_SEND_WR).contains(&config.max_send_wr) => Error::MissingQueue,
        Errno::EINVAL | Errno::EMFILE => Error::of_vqp_create(errno, config.max_send_wr, 0),
        errno => Error::of_peer("IOC_VQP_CREATE", errno, gid),
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let mut arg = uapi::VqpHandle {
            vqp: self.number,
            ..Pod::zeroed()
        };
        // It fails only if the VQP went before, with its node.
        let _ = ioctl::vqp_destroy(self.queues.device().fd(), &mut arg);
        self.queues.note_dropped(self.number);
    }
}

impl PeerHandle {
    /// Finds a node. `port` is where messages go, 1 to [`MAX_PORT`]; 0: only one-sided
    /// requests will be posted.
    ///
    /// # Errors
    ///
    /// As [`crate::Vqp::qconnect`], but [`Error::AlreadyConnected`];
    /// [`Error::TooManyPeers`], [`Error::OutOfMemory`].
    pub fn open(device: &Device, gid: Gid, port: u32) -> Result<Self, Error> {
        if port > MAX_PORT {
            return Err(Error::BadPort(port));
        }
        let mut arg = uapi::PeerOpen {
            gid,
            port,
            ..Pod::zeroed()
        };
        ioctl::peer_open(device.fd(), &mut arg).map_err(|errno| match errno {
            Errno::EMFILE => Error::TooManyPeers,
            errno => Error::of_peer("IOC_PEER_OPEN", errno, gid),
        })?;
        Ok(Self {
            device: device.clone(),
            number: arg.peer,
        })
    }

    /// Its number in the session, which completions of requests to it carry
    /// ([`crate::Wc::peer`]).
    #[inline]
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for PeerHandle {
    fn drop(&mut self) {
        let mut arg = uapi::PeerHandle {
            peer: self.number,
            ..Pod::zeroed()
        };
        // It fails only if the session's node has gone.
        let _ = ioctl::peer_close(self.device.fd(), &mut arg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_that_is_refused_for_its_queues_is_not_refused_for_its_capacity() {
        let refused = |max_send_wr| {
            let config = QpConfig {
                max_send_wr,
                receive: Receive::Own,
            };
            of_create(Errno::EINVAL, &config, Gid::default())
        };
        assert_eq!(refused(1), Error::MissingQueue);
        assert_eq!(refused(MAX_SEND_WR), Error::MissingQueue);
        for send in [0, MAX_SEND_WR + 1] {
            assert_eq!(refused(send), Error::BadCapacity { send, recv: 0 });
        }
    }
}
