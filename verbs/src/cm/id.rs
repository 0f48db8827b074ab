// SPDX-License-Identifier: MIT OR Apache-2.0

//! What librdmacm knows by an id: listeners and connections.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};

use weft_core::gid::Gid;

use super::event::EventChannel;
use super::sockaddr::{address_of, RawAddr};
use super::CmContexts;
use crate::error::{done, made};
use crate::qp::{init_attr, post_one, take_to, MAX_READS_IN_FLIGHT, RNR_RETRIES};
use crate::{sys, Context, Cq, Error, Pd, Result, Srq, WorkRequest};

/// Names a connection or a listener in events; compares, means nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(usize);

impl ConnectionId {
    pub(super) fn of(raw: NonNull<sys::rdma_cm_id>) -> Self {
        Self(raw.as_ptr() as usize)
    }
}

/// An rdma_cm id, with its queue pair if it has one.
///
/// # Invariants
///
/// `raw` exists until this is dropped, on `_channel` or, if that is `None`, on
/// one that librdmacm keeps for it alone. All its events that were taken are
/// acknowledged, by us or, in the latter case, by librdmacm.
#[derive(Debug)]
pub(crate) struct CmId {
    pub(super) raw: NonNull<sys::rdma_cm_id>,
    pub(super) _channel: Option<EventChannel>,
}

// SAFETY: librdmacm is thread safe.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

impl CmId {
    fn new(channel: &EventChannel) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel exists and the id keeps it; `raw` is writable.
        let answer = unsafe {
            sys::rdma_create_id(channel.raw(), &mut raw, ptr::null_mut(), sys::RDMA_PS_TCP)
        };
        done("rdma_create_id", answer)?;
        Ok(Self {
            raw: made("rdma_create_id", raw)?,
            _channel: Some(channel.clone()),
        })
    }

    pub(super) fn name(&self) -> ConnectionId {
        ConnectionId::of(self.raw)
    }

    /// The device that the id is bound to, if it is bound to one.
    pub(super) fn verbs(&self) -> Option<NonNull<sys::ibv_context>> {
        // SAFETY: the id exists (invariant).
        NonNull::new(unsafe { self.raw.as_ref() }.verbs)
    }

    /// The same device, held open.
    pub(super) fn context(&self) -> Result<Context> {
        let contexts = CmContexts::open()?;
        match self.verbs() {
            Some(verbs) if contexts.holds(verbs) => Ok(Context::from_cm(verbs, contexts)),
            _ => Err(Error::NoDevice),
        }
    }

    /// The peer's address and port, as the peer's rdma_cm has written them.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: the id exists (invariant).
        let route = unsafe { &self.raw.as_ref().route };
        // SAFETY: every member of the union is an address in the same bytes,
        // and the storage variant covers them all.
        let storage = unsafe { &route.addr.__bindgen_anon_2.dst_storage };
        address_of(storage)
    }

    /// The GID of the peer's end of the path, to which messages of the connection
    /// manager and the queue pair's packets go.
    pub(super) fn path_gid(&self) -> Option<Gid> {
        // SAFETY: the id exists (invariant).
        let route = unsafe { &self.raw.as_ref().route };
        if route.num_paths < 1 || route.path_rec.is_null() {
            return None;
        }
        // SAFETY: the array has `num_paths` entries, so it has a first one.
        let dgid = unsafe { &(*route.path_rec).dgid };
        // SAFETY: every member of the union is the same 16 bytes.
        Some(Gid(unsafe { dgid.raw }))
    }

    /// Makes the id's queue pair and accepts the connection.
    pub(super) fn accept(
        self,
        pd: &Pd,
        cq: &Cq,
        srq: &Srq,
        max_send_wr: u32,
        reply: &[u8],
    ) -> Result<ServerConnection> {
        // Receives come from the shared queue.
        let mut attr = sys::ibv_qp_init_attr {
            srq: srq.raw(),
            ..init_attr(cq, max_send_wr)
        };
        // SAFETY: the id and everything that `attr` names exist; the connection
        // keeps the latter until after the queue pair is destroyed.
        let answer = unsafe { sys::rdma_create_qp(self.raw.as_ptr(), pd.raw(), &mut attr) };
        done("rdma_create_qp", answer)?;
        let connection = ServerConnection {
            id: self,
            _uses: (pd.clone(), cq.clone(), srq.clone()),
        };
        let mut param = sys::rdma_conn_param {
            private_data: reply.as_ptr().cast(),
            private_data_len: u8::try_from(reply.len()).unwrap_or(u8::MAX),
            responder_resources: MAX_READS_IN_FLIGHT,
            initiator_depth: MAX_READS_IN_FLIGHT,
            // The peer's: how often it repeats what found no receive here.
            rnr_retry_count: RNR_RETRIES,
            ..Default::default()
        };
        // SAFETY: the id has its queue pair; `param` and the reply live through
        // the call, and the length said is at most the reply's.
        let answer = unsafe { sys::rdma_accept(connection.id.raw.as_ptr(), &mut param) };
        done("rdma_accept", answer)?;
        Ok(connection)
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: the id exists (invariant).
        if !unsafe { self.raw.as_ref() }.qp.is_null() {
            // SAFETY: the id has a queue pair, which nothing else destroys.
            unsafe { sys::rdma_destroy_qp(self.raw.as_ptr()) };
        }
        // SAFETY: all events are acknowledged (invariant), so this does not
        // block; it tells the peer of a connection that it is over.
        unsafe { sys::rdma_destroy_id(self.raw.as_ptr()) };
    }
}

/// Accepts connections to an address. Dropping it stops that.
#[derive(Debug)]
pub struct Listener(CmId);

impl Listener {
    /// Listens on `addr`; connection requests arrive on `channel`. At most
    /// `backlog` wait to be taken. (`rdma_bind_addr`, `rdma_listen`)
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `EADDRNOTAVAIL` (not an address of this host), `ENODEV` (no
    /// RDMA device has it).
    pub fn bind(channel: &EventChannel, addr: SocketAddr, backlog: u16) -> Result<Self> {
        let id = CmId::new(channel)?;
        let mut raw_addr = RawAddr::from(addr);
        // SAFETY: the id exists; the address is laid out as its family says.
        let answer = unsafe { sys::rdma_bind_addr(id.raw.as_ptr(), raw_addr.as_mut_ptr()) };
        done("rdma_bind_addr", answer)?;
        // SAFETY: the id is bound.
        let answer = unsafe { sys::rdma_listen(id.raw.as_ptr(), c_int::from(backlog)) };
        done("rdma_listen", answer)?;
        Ok(Self(id))
    }

    /// Its name in events.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.0.name()
    }
}

/// An accepted connection with its queue pair. Dropping it disconnects.
#[derive(Debug)]
pub struct ServerConnection {
    id: CmId,
    _uses: (Pd, Cq, Srq),
}

impl ServerConnection {
    /// Its name in events.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.id.name()
    }

    /// The number of its queue pair, as completions give it.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        // SAFETY: a connection is only made with a queue pair, which exists
        // until the id is dropped.
        unsafe { (*self.qp()).qp_num }
    }

    /// Posts a request, which makes a completion. As many may be outstanding as
    /// the connection was accepted for. (`ibv_post_send`)
    ///
    /// # Errors
    ///
    /// `ENOMEM` when the queue is full.
    pub fn post(&self, request: &WorkRequest) -> Result<()> {
        // SAFETY: the id has its queue pair until it is dropped.
        unsafe { post_one(self.qp(), request, true) }
    }

    /// Posts a request that makes a completion only if it fails; see
    /// [`RcQp::post_unsignaled`](crate::RcQp::post_unsignaled).
    ///
    /// # Errors
    ///
    /// As [`Self::post`].
    pub fn post_unsignaled(&self, request: &WorkRequest) -> Result<()> {
        // SAFETY: as in `post`.
        unsafe { post_one(self.qp(), request, false) }
    }

    /// Takes its queue pair to ERR: nothing more is received, and what has taken a receive
    /// completes. (`ibv_modify_qp`)
    ///
    /// # Errors
    ///
    /// The device's, which has perhaps gone.
    pub fn stop(&self) -> Result<()> {
        // SAFETY: the id has its queue pair until it is dropped.
        unsafe { take_to(self.qp(), sys::IBV_QPS_ERR) }
    }

    fn qp(&self) -> *mut sys::ibv_qp {
        // SAFETY: the id exists.
        unsafe { self.id.raw.as_ref() }.qp
    }
}
