// SPDX-License-Identifier: MIT OR Apache-2.0

//! The other side: a child process on another node, in its network namespace.
//!
//! It has memory that clients READ and WRITE, over verbs and, if asked, over
//! Weft, and accepts verbs connections by TCP and by rdma_cm.

mod region;
mod verbs;

use std::net::SocketAddr;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use weft_shim::{Access, Device, MemoryRegion};

pub use region::Region;

use crate::child::{say_ready, wait_for_end, Helper};
use crate::cli::PeerArgs;
use crate::nodes::Node;

/// Where a peer is to be found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Exchanges queue pair addresses over TCP.
    pub tcp: SocketAddr,
    /// Accepts connections by rdma_cm.
    pub rdma_cm: SocketAddr,
    /// Its memory for Weft, if it serves that.
    pub weft: Option<Region>,
}

/// A running peer. Dropping it ends it.
pub struct Peer {
    _helper: Helper,
    /// What it said.
    pub ready: Ready,
}

impl Peer {
    /// Starts a peer on `node`, for Weft too if `weft`, with this much memory for
    /// each, and waits until it serves.
    pub fn start(node: Node, weft: bool, bytes: usize) -> Result<Self> {
        let mut args = vec!["peer".to_owned(), "--node".to_owned(), node.0.to_string()];
        args.extend(["--bytes".to_owned(), bytes.to_string()]);
        if weft {
            args.push("--weft".to_owned());
        }
        let (helper, ready) = Helper::start(&args)?;
        Ok(Self {
            _helper: helper,
            ready,
        })
    }
}

/// Is the peer.
pub fn serve(args: &PeerArgs) -> Result<()> {
    let node = Node(args.node);
    node.enter()?;
    let verbs = verbs::Service::start(node, args.bytes)?;
    let weft = match args.weft {
        true => Some(open_weft(node, args.bytes)?),
        false => None,
    };
    let ready = Ready {
        tcp: verbs.tcp,
        rdma_cm: verbs.rdma_cm,
        weft: weft.as_ref().map(|memory| memory.remote().into()),
    };
    say_ready(&ready)?;
    wait_for_end()
}

/// Registers memory with Weft for all to use. It keeps its session open.
fn open_weft(node: Node, bytes: usize) -> Result<MemoryRegion> {
    let device = Device::open_on(u32::from(node.0))?;
    let access =
        Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    Ok(MemoryRegion::allocate(&device, bytes, access)?)
}
