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
    /// More regions for Weft, each with a key of its own.
    pub keys: Vec<Region>,
}

/// Bytes of each of those, and of the memory beside them.
pub const KEY_BYTES: u32 = 4096;
/// Regions that a session of the peer has at most.
const SESSION_KEYS: u32 = 240;

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
        Self::start_with(node, weft, bytes, 0)
    }

    /// Starts a peer for Weft too that has so many regions for it.
    pub fn with_keys(node: Node, keys: u32) -> Result<Self> {
        Self::start_with(node, true, KEY_BYTES as usize, keys)
    }

    fn start_with(node: Node, weft: bool, bytes: usize, keys: u32) -> Result<Self> {
        let words = [
            ("--node", node.0.to_string()),
            ("--bytes", bytes.to_string()),
            ("--keys", keys.to_string()),
        ];
        let words = words.into_iter().flat_map(|(k, v)| [k.to_owned(), v]);
        let mut args: Vec<_> = ["peer".to_owned()].into_iter().chain(words).collect();
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
    let keys = make_keys(node, args.keys)?;
    let ready = Ready {
        tcp: verbs.tcp,
        rdma_cm: verbs.rdma_cm,
        weft: weft.as_ref().map(|memory| memory.remote().into()),
        keys: keys.iter().map(|region| region.remote().into()).collect(),
    };
    say_ready(&ready)?;
    let ended = wait_for_end();
    // They end with their sessions, all at once: each by itself would wait until no
    // RC peer can use it any more.
    std::mem::forget(keys);
    ended
}

/// Makes so many regions, in as many sessions as they need.
fn make_keys(node: Node, keys: u32) -> Result<Vec<MemoryRegion>> {
    let mut regions = Vec::new();
    while let Some(left) = keys
        .checked_sub(regions.len() as u32)
        .filter(|&left| left > 0)
    {
        let device = Device::open_on(u32::from(node.0))?;
        for _ in 0..left.min(SESSION_KEYS) {
            let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
            regions.push(MemoryRegion::allocate(&device, KEY_BYTES as usize, access)?);
        }
    }
    Ok(regions)
}

/// Registers memory with Weft for all to use. It keeps its session open.
fn open_weft(node: Node, bytes: usize) -> Result<MemoryRegion> {
    let device = Device::open_on(u32::from(node.0))?;
    let access =
        Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    Ok(MemoryRegion::allocate(&device, bytes, access)?)
}
