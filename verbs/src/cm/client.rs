// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections by rdma_cm(7): the active side, which waits for each step.

use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::time::Duration;

use super::id::CmId;
use super::sockaddr::RawAddr;
use crate::error::{done, made};
use crate::qp::{init_attr, MAX_READS_IN_FLIGHT};
use crate::{sys, Context, Cq, Error, Pd, RcQp, Result, Srq};

/// A way to a peer that rdma_cm has found, not yet a connection.
#[derive(Debug)]
pub struct Route(CmId);

impl Route {
    /// Finds the device and the route to `addr`, each within `patience`.
    /// (`rdma_resolve_addr`, `rdma_resolve_route`)
    ///
    /// # Errors
    ///
    /// `ENODEV` or `ENETUNREACH` when no RDMA device leads there, `ETIMEDOUT`.
    pub fn resolve(addr: SocketAddr, patience: Duration) -> Result<Self> {
        Self::find(None, addr, patience)
    }

    /// As [`Self::resolve`], from an address and port of this host. The address may be
    /// the unspecified one.
    ///
    /// # Errors
    ///
    /// As [`Self::resolve`]; `EACCES`: the port is below 1024 and the process lacks
    /// `CAP_NET_BIND_SERVICE`; `EADDRINUSE`, `EADDRNOTAVAIL`: another id has the port.
    pub fn resolve_from(source: SocketAddr, addr: SocketAddr, patience: Duration) -> Result<Self> {
        Self::find(Some(source), addr, patience)
    }

    fn find(source: Option<SocketAddr>, addr: SocketAddr, patience: Duration) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is writable. With no channel, calls wait for their event.
        let answer = unsafe {
            sys::rdma_create_id(ptr::null_mut(), &mut raw, ptr::null_mut(), sys::RDMA_PS_TCP)
        };
        done("rdma_create_id", answer)?;
        // INVARIANT (`CmId`): the id is new; librdmacm acknowledges its events.
        let id = CmId {
            raw: made("rdma_create_id", raw)?,
            _channel: None,
        };
        let patience_ms = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
        let mut raw_source = source.map(RawAddr::from);
        let mut raw_addr = RawAddr::from(addr);
        // SAFETY: the id exists; the addresses are laid out as their families say.
        let answer = unsafe {
            sys::rdma_resolve_addr(
                id.raw.as_ptr(),
                raw_source
                    .as_mut()
                    .map_or(ptr::null_mut(), RawAddr::as_mut_ptr),
                raw_addr.as_mut_ptr(),
                patience_ms,
            )
        };
        done("rdma_resolve_addr", answer)?;
        // SAFETY: the id is bound to a device.
        let answer = unsafe { sys::rdma_resolve_route(id.raw.as_ptr(), patience_ms) };
        done("rdma_resolve_route", answer)?;
        Ok(Self(id))
    }

    /// The device that the route starts at, as librdmacm has it open.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`]: it went away meanwhile.
    pub fn context(&self) -> Result<Context> {
        self.0.context()
    }

    /// Makes a queue pair for `max_send_wr` requests at a time and connects it.
    /// Answers with the peer's private data beside it, which rdma_cm may have
    /// padded. (`rdma_create_qp`, `rdma_connect`)
    ///
    /// # Errors
    ///
    /// `ECONNREFUSED` (nobody listens, or the peer said no), `ETIMEDOUT`;
    /// `EINVAL` when `pd` is not of [`Route::context`].
    pub fn connect(self, pd: &Pd, cq: &Cq, max_send_wr: u32) -> Result<(RcQp, Vec<u8>)> {
        self.connect_with(pd, cq, None, max_send_wr)
    }

    /// As [`Route::connect`], with a queue pair that receives too, into `srq`; its
    /// receives complete to `cq` as its requests do.
    ///
    /// # Errors
    ///
    /// As [`Route::connect`].
    pub fn connect_receiving(
        self,
        pd: &Pd,
        cq: &Cq,
        srq: &Srq,
        max_send_wr: u32,
    ) -> Result<(RcQp, Vec<u8>)> {
        self.connect_with(pd, cq, Some(srq), max_send_wr)
    }

    fn connect_with(
        self,
        pd: &Pd,
        cq: &Cq,
        srq: Option<&Srq>,
        max_send_wr: u32,
    ) -> Result<(RcQp, Vec<u8>)> {
        let id = self.0;
        let mut attr = init_attr(cq, max_send_wr);
        attr.srq = srq.map_or(ptr::null_mut(), Srq::raw);
        // SAFETY: id, domain and queues exist; the latter are kept with the pair.
        let answer = unsafe { sys::rdma_create_qp(id.raw.as_ptr(), pd.raw(), &mut attr) };
        done("rdma_create_qp", answer)?;
        // SAFETY: the id exists.
        let qp = made("rdma_create_qp", unsafe { id.raw.as_ref() }.qp)?;
        let qp = RcQp::of_cm(qp, id, (pd, cq, srq));
        let mut param = sys::rdma_conn_param {
            responder_resources: MAX_READS_IN_FLIGHT,
            initiator_depth: MAX_READS_IN_FLIGHT,
            retry_count: 7,
            rnr_retry_count: 7,
            ..Default::default()
        };
        let id = qp.cm_id().ok_or(Error::NoDevice)?;
        // SAFETY: the id has its queue pair; `param` lives through the call.
        let answer = unsafe { sys::rdma_connect(id.raw.as_ptr(), &mut param) };
        done("rdma_connect", answer)?;
        let reply = private_data(id);
        Ok((qp, reply))
    }
}

/// What the peer said when it accepted.
fn private_data(id: &CmId) -> Vec<u8> {
    // SAFETY: the id exists.
    let event = unsafe { id.raw.as_ref() }.event;
    let Some(event) = NonNull::new(event) else {
        return Vec::new();
    };
    // SAFETY: an id without a channel keeps its last event until its next call.
    let param = unsafe { &event.as_ref().param };
    // SAFETY: the event of a connected id carries connection parameters.
    let conn = unsafe { &param.conn };
    if conn.private_data.is_null() {
        return Vec::new();
    }
    let len = usize::from(conn.private_data_len);
    // SAFETY: the event holds so many bytes of private data.
    unsafe { std::slice::from_raw_parts(conn.private_data.cast::<u8>(), len) }.to_vec()
}
