// SPDX-License-Identifier: MIT OR Apache-2.0

//! A small safe layer over libibverbs and librdmacm.
//!
//! It holds what the meta server, the benchmark baselines and the tests share:
//! devices, registered memory, completion queues, reliable connected queue
//! pairs, and connections made by rdma_cm. Names and meanings are those of the
//! verbs manual.
//!
//! Every object keeps what it was made from alive, so that whatever order a
//! program drops its objects in, the library destroys them in the order that
//! the verbs demand: queue pairs before their queues and protection domain,
//! memory after its registration, the device last. What a peer may touch is
//! only ever seen as atomics ([`Pages`]), because a peer's WRITE is one more
//! thread as far as the memory is concerned.

mod batch;
mod cm;
mod cq;
mod device;
mod endpoint;
mod error;
mod list;
mod memory;
mod mtu;
mod qp;
mod request;
mod srq;
mod sys;

pub use batch::Batch;
pub use cm::{
    CmEvent, ConnectRequest, ConnectionId, EventChannel, Listener, Route, ServerConnection,
};
pub use cq::{Cq, EventCq, Wc};
pub use device::{Context, LocalGid, Pd};
pub use endpoint::Endpoint;
pub use error::Error;
pub use list::{WrList, MAX_LIST, MAX_LIST_WORDS};
pub use memory::{Access, Mr, Pages};
pub use mtu::PathMtu;
pub use qp::{InitQp, QpConfig, RcQp};
pub use request::{Op, WorkRequest};
pub use srq::Srq;

/// What the calls of this crate answer.
pub type Result<T> = std::result::Result<T, Error>;
