// SPDX-License-Identifier: GPL-2.0

//! RC connections by rdma_cm: the active side.
//!
//! A [`Connector`] becomes a [`Connection`] when the peer has accepted; there is
//! nothing in between on which a request could be posted.
//!
//! Connections come from a port below 1024, which shows the peer that it is not a user of
//! this host who connects: rdma_cm lets nobody bind one without `CAP_NET_BIND_SERVICE`.

use core::ptr::NonNull;

use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::sync::{Arc, SpinLock};
use weft_core::gid::Gid;

use crate::bindings;
use crate::errno;
use crate::net::Netns;
use crate::random::random_u32;
use crate::rdma::connection::Connection;
use crate::rdma::{DmaBuffer, EventCq, Pd, Port};
use crate::sync::{new_event_count, EventCount, Woken};

/// How long each step of a connection may take.
const STEP_MS: u64 = 2_000;
/// Requests that may be outstanding.
const SEND_ENTRIES: u32 = 8;
/// READs outstanding in the network. A device that can do fewer (`max_qp_rd_atom`,
/// `max_qp_init_rd_atom`) does not connect.
const READ_DEPTH: u8 = 8;
/// The reserved ports that connections come from. The first one to be tried is random,
/// and so many are tried; a node has some tens of connections at most.
const SOURCE_PORTS: core::ops::Range<u16> = 512..1024;
const PORT_TRIES: u16 = 64;
/// Retries of the transport, and of a receiver without buffers.
const RETRIES: u8 = 7;
/// Most private data that an acceptance carries.
pub(super) const PRIVATE_BYTES: usize = 64;

const AF_INET: u16 = 2;
/// Size of C's `sockaddr_storage`.
const STORAGE_BYTES: usize = 128;

/// The last event of rdma_cm.
#[derive(Clone, Copy)]
struct Event {
    kind: bindings::rdma_cm_event_type,
    private: [u8; PRIVATE_BYTES],
}

#[pin_data]
struct Events {
    #[pin]
    last: SpinLock<Option<Event>>,
    #[pin]
    count: EventCount,
}

/// An rdma_cm identifier.
///
/// # Invariants
///
/// `raw` is valid and its context is `events`.
pub(super) struct CmId {
    raw: NonNull<bindings::rdma_cm_id>,
    events: Pin<KBox<Events>>,
}

// SAFETY: rdma_cm locks its identifiers.
unsafe impl Send for CmId {}
// SAFETY: as above.
unsafe impl Sync for CmId {}

/// A socket address as rdma_cm wants it.
#[repr(C, align(8))]
struct SocketAddr([u8; STORAGE_BYTES]);

impl SocketAddr {
    fn ipv4(addr: [u8; 4], port: u16) -> Self {
        let mut bytes = [0; STORAGE_BYTES];
        bytes[..2].copy_from_slice(&AF_INET.to_ne_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes[4..8].copy_from_slice(&addr);
        Self(bytes)
    }
}

impl CmId {
    /// An identifier in this namespace, which it holds from then on.
    fn new(netns: &Netns) -> Result<Self> {
        let events = KBox::pin_init(
            pin_init!(Events {
                last <- kernel::new_spinlock!(None, "weft_cm_event"),
                count <- new_event_count!("weft_cm_event_count"),
            }),
            GFP_KERNEL,
        )?;
        let context = (&raw const *events).cast_mut().cast();
        // SAFETY: the namespace is valid and referenced; `events` lives until `drop`
        // has destroyed the identifier.
        let raw = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                netns.raw().as_ptr(),
                Some(on_event),
                context,
                bindings::rdma_ucm_port_space_RDMA_PS_TCP,
                bindings::ib_qp_type_IB_QPT_RC,
                c"weft".as_char_ptr(),
            )
        })?;
        // INVARIANT: made with this context.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            events,
        })
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::rdma_cm_id {
        self.raw.as_ptr()
    }

    /// Binds to an address of this host and a free port of [`SOURCE_PORTS`].
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, `EADDRNOTAVAIL` (each of the ports that were tried is taken),
    /// `ENODEV` (no RDMA device has the address).
    fn bind(&self, addr: [u8; 4]) -> Result {
        let count = SOURCE_PORTS.end - SOURCE_PORTS.start;
        // The remainder is less than `count`, which is a u16.
        let first = (random_u32() % u32::from(count)) as u16;
        let mut outcome = Err(errno::addr_not_avail());
        for step in 0..PORT_TRIES {
            let port = SOURCE_PORTS.start + (first + step) % count;
            let mut source = SocketAddr::ipv4(addr, port);
            // SAFETY: the identifier is valid; the address is copied.
            outcome = to_result(unsafe {
                bindings::rdma_bind_addr(self.as_ptr(), source.0.as_mut_ptr().cast())
            });
            match outcome {
                Err(error) if error == errno::addr_in_use() => {}
                Err(error) if error == errno::addr_not_avail() => {}
                _ => break,
            }
        }
        outcome
    }

    /// Starts a step, then waits for the event that ends it.
    fn step(
        &self,
        kind: bindings::rdma_cm_event_type,
        start: impl FnOnce() -> i32,
    ) -> Result<Event> {
        *self.events.last.lock() = None;
        let mut seen = self.events.count.seen();
        to_result(start())?;
        loop {
            if let Some(event) = *self.events.last.lock() {
                return if event.kind == kind {
                    Ok(event)
                } else {
                    Err(ECONNREFUSED())
                };
            }
            if self.events.count.wait(seen, STEP_MS * 1_000_000, false) == Woken::TimedOut {
                return Err(ETIMEDOUT);
            }
            seen = self.events.count.seen();
        }
    }

    /// Whether the last event says that the connection is there.
    pub(super) fn is_established(&self) -> bool {
        let last = *self.events.last.lock();
        last.is_some_and(|event| {
            event.kind == bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED
        })
    }
}

#[allow(non_snake_case, reason = "named like the kernel crate's constants")]
fn ECONNREFUSED() -> Error {
    Error::from_errno(-111)
}

impl Drop for CmId {
    fn drop(&mut self) {
        // Waits for a running callback.
        // SAFETY: valid by the invariant, and not used after this.
        unsafe { bindings::rdma_destroy_id(self.as_ptr()) };
    }
}

/// Answers 0: the identifier stays ours.
///
/// # Safety
///
/// Called by rdma_cm, for an identifier that [`CmId::new`] has made.
unsafe extern "C" fn on_event(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> i32 {
    // SAFETY: rdma_cm calls this with a valid identifier and event.
    let (context, event) = unsafe { ((*id).context, &*event) };
    // SAFETY: the context is the `Events` of a `CmId` that is not yet dropped:
    // destroying the identifier waits for this call.
    let events = unsafe { &*context.cast::<Events>() };
    let mut told = Event {
        kind: event.event,
        private: [0; PRIVATE_BYTES],
    };
    if event.event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT {
        return 0;
    }
    if event.event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED {
        // SAFETY: a connection event carries connection parameters.
        let conn = unsafe { &event.param.conn };
        if !conn.private_data.is_null() {
            let len = usize::from(conn.private_data_len).min(PRIVATE_BYTES);
            // SAFETY: rdma_cm says how long the private data is.
            let private =
                unsafe { core::slice::from_raw_parts(conn.private_data.cast::<u8>(), len) };
            for (to, from) in told.private.iter_mut().zip(private) {
                *to = *from;
            }
        }
    }
    *events.last.lock() = Some(told);
    events.count.notify();
    0
}

/// Makes connections from one port.
pub(crate) struct Connector {
    pub(crate) port: Port,
    pub(crate) pd: Arc<Pd>,
    pub(crate) source: [u8; 4],
}

impl Connector {
    /// Connects to an IPv4-mapped address. May sleep for seconds.
    ///
    /// # Errors
    ///
    /// `EINVAL` (not an IPv4 address), those of [`CmId::bind`], `ENODEV` (the way there
    /// is not through this device), `ECONNREFUSED` (nobody listens, or it declined),
    /// `ETIMEDOUT`, and those of rdma_cm.
    pub(crate) fn connect(&self, netns: &Netns, to: Gid, port: u16) -> Result<Connection> {
        use bindings::*;
        let dest = SocketAddr::ipv4(to.to_ipv4().ok_or(EINVAL)?, port);
        let id = CmId::new(netns)?;
        id.bind(self.source)?;
        id.step(rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED, || {
            // SAFETY: the identifier is valid and bound; the address is copied.
            unsafe {
                rdma_resolve_addr(
                    id.as_ptr(),
                    core::ptr::null_mut(),
                    dest.0.as_ptr().cast(),
                    STEP_MS as usize,
                )
            }
        })?;
        // SAFETY: the identifier is valid and bound to a device now.
        if unsafe { (*id.as_ptr()).device } != self.port.device.as_ptr() {
            return Err(ENODEV);
        }
        id.step(rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED, || {
            // SAFETY: the identifier is valid.
            unsafe { rdma_resolve_route(id.as_ptr(), STEP_MS as usize) }
        })?;
        let cq = EventCq::new(self.port.device, SEND_ENTRIES + 1)?;
        let buffer = DmaBuffer::new(self.port.device, kernel::page::PAGE_SIZE)?;
        self.create_qp(&id, &cq)?;
        let mut connection = Connection {
            id,
            cq,
            buffer,
            pd: self.pd.clone(),
            private: [0; PRIVATE_BYTES],
            next_number: 1,
            unfinished: None,
        };
        let mut param = rdma_conn_param {
            responder_resources: READ_DEPTH,
            initiator_depth: READ_DEPTH,
            retry_count: RETRIES,
            rnr_retry_count: RETRIES,
            ..Default::default()
        };
        let id = &connection.id;
        let event = id.step(rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED, || {
            // SAFETY: the identifier is valid and has a queue pair.
            unsafe { rdma_connect(id.as_ptr(), &mut param) }
        })?;
        connection.private = event.private;
        Ok(connection)
    }

    fn create_qp(&self, id: &CmId, cq: &EventCq) -> Result {
        let mut attr = bindings::ib_qp_init_attr {
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        attr.cap.max_send_wr = SEND_ENTRIES;
        attr.cap.max_send_sge = 1;
        attr.cap.max_recv_wr = 1;
        attr.cap.max_recv_sge = 1;
        // SAFETY: identifier, domain and queue are valid and outlive the queue
        // pair: `Connection` destroys it first.
        to_result(unsafe { bindings::rdma_create_qp(id.as_ptr(), self.pd.as_ptr(), &mut attr) })
    }
}
