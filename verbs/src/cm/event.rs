// SPDX-License-Identifier: MIT OR Apache-2.0

//! The event channel, and connection requests, which it brings.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use weft_core::gid::Gid;

use super::id::{CmId, ConnectionId, ServerConnection};
use super::CmContexts;
use crate::cq::set_nonblocking;
use crate::error::made;
use crate::{sys, Context, Cq, Error, Pd, Result, Srq};

/// Where rdma_cm events arrive. Clones share it.
#[derive(Clone, Debug)]
pub struct EventChannel(Arc<ChannelInner>);

#[derive(Debug)]
struct ChannelInner(NonNull<sys::rdma_event_channel>);

// SAFETY: librdmacm is thread safe; a channel is a file descriptor.
unsafe impl Send for ChannelInner {}
// SAFETY: as above.
unsafe impl Sync for ChannelInner {}

/// Something that happened to a listener or a connection.
#[derive(Debug)]
pub enum CmEvent {
    /// A peer asks for a connection.
    ConnectRequest(ConnectRequest),
    /// An accepted connection is up.
    Established(ConnectionId),
    /// A connection is over, was never completed, or its device went away; or
    /// the listener's device did.
    Lost(ConnectionId),
    /// Something that asks for nothing.
    Other,
}

impl EventChannel {
    /// Opens a channel. (`rdma_create_event_channel`)
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], or `ENOENT` when the kernel has no rdma_cm.
    pub fn new() -> Result<Self> {
        CmContexts::open()?;
        // SAFETY: takes nothing.
        let raw = unsafe { sys::rdma_create_event_channel() };
        let channel = ChannelInner(made("rdma_create_event_channel", raw)?);
        // SAFETY: the channel was just made.
        set_nonblocking(unsafe { channel.0.as_ref() }.fd)?;
        Ok(Self(Arc::new(channel)))
    }

    /// Takes the next event, if one waits. (`rdma_get_cm_event`)
    ///
    /// # Errors
    ///
    /// What reading the channel answers.
    pub fn next(&self) -> Result<Option<CmEvent>> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel exists and `event` is writable.
        if unsafe { sys::rdma_get_cm_event(self.raw(), &mut event) } != 0 {
            let error = Error::last("rdma_get_cm_event");
            return match error.errno() {
                Some(libc::EAGAIN) => Ok(None),
                _ => Err(error),
            };
        }
        let event = made("rdma_get_cm_event", event)?;
        // SAFETY: the event is ours until it is acknowledged.
        let (kind, id) = unsafe { (event.as_ref().event, event.as_ref().id) };
        // SAFETY: taken above, acknowledged once, not used afterwards.
        unsafe { sys::rdma_ack_cm_event(event.as_ptr()) };
        let id = made("rdma_get_cm_event", id)?;
        Ok(Some(match kind {
            sys::RDMA_CM_EVENT_CONNECT_REQUEST => {
                // INVARIANT (`CmId`): the event made this id on this channel and
                // hands it over; the event is acknowledged.
                CmEvent::ConnectRequest(ConnectRequest(CmId {
                    raw: id,
                    _channel: Some(self.clone()),
                }))
            }
            sys::RDMA_CM_EVENT_ESTABLISHED => CmEvent::Established(ConnectionId::of(id)),
            sys::RDMA_CM_EVENT_DISCONNECTED
            | sys::RDMA_CM_EVENT_CONNECT_ERROR
            | sys::RDMA_CM_EVENT_UNREACHABLE
            | sys::RDMA_CM_EVENT_REJECTED
            | sys::RDMA_CM_EVENT_DEVICE_REMOVAL => CmEvent::Lost(ConnectionId::of(id)),
            _ => CmEvent::Other,
        }))
    }

    pub(super) fn raw(&self) -> *mut sys::rdma_event_channel {
        self.0 .0.as_ptr()
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel exists as long as `self`.
        let fd = unsafe { self.0 .0.as_ref() }.fd;
        // SAFETY: the descriptor is open until the channel is destroyed.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        // SAFETY: made in `new`; every id on it holds it, so there is none.
        unsafe { sys::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// A peer's wish to connect. Dropping it says no.
#[derive(Debug)]
pub struct ConnectRequest(CmId);

impl ConnectRequest {
    /// The peer's IP address and port. The peer's rdma_cm has written them into the
    /// request: that nobody else has is for the caller to make sure of, see
    /// [`Self::path_gid`]. On a host whose kernel is honest a port below 1024 takes
    /// `CAP_NET_BIND_SERVICE`.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.0.peer()
    }

    /// The GID to which the answer to this request, and all packets of the connection,
    /// will go. It is a field of its own in the request, so that it need not be that of
    /// [`Self::peer`].
    #[must_use]
    pub fn path_gid(&self) -> Option<Gid> {
        self.0.path_gid()
    }

    /// Whether the request came in by this device.
    #[must_use]
    pub fn is_on(&self, context: &Context) -> bool {
        self.0
            .verbs()
            .is_some_and(|verbs| verbs.as_ptr() == context.raw())
    }

    /// The device that the request came in by.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]: it went away meanwhile.
    pub fn context(&self) -> Result<Context> {
        self.0.context()
    }

    /// Says yes: makes a queue pair that receives into `srq`, and answers with
    /// `reply` as private data (at most 196 bytes). The connection may be used
    /// by the peer at once; [`CmEvent::Established`] follows.
    /// (`rdma_create_qp`, `rdma_accept`)
    ///
    /// # Errors
    ///
    /// `EINVAL` when `pd` is not of [`ConnectRequest::context`], `ENOMEM` when
    /// the device has no queue pair left, `ECONNRESET` and its like when the peer
    /// gave up.
    pub fn accept(self, pd: &Pd, cq: &Cq, srq: &Srq, reply: &[u8]) -> Result<ServerConnection> {
        self.0.accept(pd, cq, srq, 1, reply)
    }

    /// As [`ConnectRequest::accept`], which has room for one request of the
    /// server's, with room for `max_send_wr`.
    ///
    /// # Errors
    ///
    /// As [`ConnectRequest::accept`].
    pub fn accept_sending(
        self,
        pd: &Pd,
        cq: &Cq,
        srq: &Srq,
        max_send_wr: u32,
        reply: &[u8],
    ) -> Result<ServerConnection> {
        self.0.accept(pd, cq, srq, max_send_wr, reply)
    }
}
