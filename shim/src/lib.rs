// SPDX-License-Identifier: MIT OR Apache-2.0

//! The user side of `/dev/weft`: RDMA connections in microseconds.
//!
//! [`Device`] is a session with the module on one node. It registers memory
//! ([`MemoryRegion`]) and makes virtual queue pairs ([`Vqp`], krcore §4.1),
//! which borrow a connection from the module's pool when they connect.
//!
//! ```no_run
//! use weft_shim::{Access, Device, MemoryRegion, Remote, Vqp, VqpConfig};
//!
//! # fn main() -> Result<(), weft_shim::Error> {
//! let device = Device::open()?;
//! let region = MemoryRegion::allocate(&device, 4096, Access::LOCAL_WRITE)?;
//! let mut vqp = Vqp::create(&device, &VqpConfig::default())?;
//! vqp.qconnect("10.0.0.2".parse().expect("an address"), 0)?;
//!
//! // What the peer told us about its region.
//! let remote = Remote { addr: 0x7f00_0000_0000, rkey: 0x1234 };
//! vqp.read(region.slice(0..64)?, remote)?;
//! println!("{:x}", region.load_u64(0)?);
//! # Ok(())
//! # }
//! ```
//!
//! A VQP that is bound to a port gets messages from anybody, and reaches whoever has
//! sent them ([`Listener`]):
//!
//! ```no_run
//! # use weft_shim::{Access, Device, MemoryRegion, Message, RecvWr, SendWr, Vqp, VqpConfig};
//! # use std::time::Duration;
//! # fn main() -> Result<(), weft_shim::Error> {
//! # let device = Device::open()?;
//! # let region = MemoryRegion::allocate(&device, 4096, Access::LOCAL_WRITE)?;
//! let config = VqpConfig { max_recv_wr: 64, ..VqpConfig::default() };
//! let mut listener = Vqp::create(&device, &config)?.bind(7)?;
//! listener.post_recv(&[RecvWr::new(region.slice(0..4096)?)]);
//!
//! let mut messages = [Message::default(); 16];
//! let count = listener.pop_msgs(&mut messages, 1, Duration::MAX)?;
//! for message in &messages[..count] {
//!     let len = message.result()? as usize;
//!     if let Some(sender) = message.sender() {
//!         let echo = SendWr::send(region.slice(0..len)?);
//!         listener.vqp(sender)?.run(echo)?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod capi;
mod device;
mod error;
mod held;
mod ioctl;
mod listener;
mod memory;
mod mr;
mod patience;
mod pool;
mod queues;
mod ring;
mod start;
mod vqp;
mod wc;
mod window;
mod wr;

pub use device::{Device, MetaServerInfo, Node, Peer, RcUse};
pub use error::{CompletionError, Error};
pub use held::MAX_HELD_COMPLETIONS;
pub use listener::{BindError, Listener, Message, MAX_ACCEPTED};
pub use mr::{Access, LocalSlice, MemoryRegion, Remote};
pub use pool::{PeerTraffic, PoolPeer, Transport, TransportCost};
#[cfg(feature = "tokio")]
pub use queues::AsyncQueues;
pub use queues::{Connector, Moderation, PeerHandle, Qp, QpConfig, Queues, QueuesConfig, Receive};
pub use start::{Start, StartConfig};
pub use vqp::{Progress, Vqp, VqpConfig};
pub use wc::{Opcode, Sender, Wc};
pub use window::MemoryWindow;
pub use wr::{Payload, RecvWr, SendWr, Sges};

pub use weft_core::gid::Gid;
pub use weft_core::uapi::{
    WcStatus, MAX_BATCH, MAX_INLINE, MAX_MR_BYTES, MAX_MSG_BYTES, MAX_PORT, MAX_RECV_SGE,
    MAX_RECV_WR, MAX_RING_MEMORY, MAX_SEND_WR, MAX_SGE, MAX_WC,
};
