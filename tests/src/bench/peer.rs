// SPDX-License-Identifier: MIT OR Apache-2.0

//! The other side: a child process on another node, in its network namespace.
//!
//! It has memory that clients READ and WRITE, over verbs and, if asked, over
//! Weft, and accepts verbs connections by TCP and by rdma_cm. It says on its
//! standard output where all that is and serves until its standard input
//! closes, so that it never outlives the benchmark.

mod region;
mod verbs;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{bail, Context as _, Result};
use serde::{Deserialize, Serialize};
use weft_shim::{Access, Device, MemoryRegion};

pub use region::Region;

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
    child: Child,
    stdin: Option<ChildStdin>,
    /// What it said.
    pub ready: Ready,
}

impl Peer {
    /// Starts a peer on `node`, for Weft too if `weft`, with this much memory for
    /// each, and waits until it serves.
    pub fn start(node: Node, weft: bool, bytes: usize) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find weft-bench itself")?;
        let mut command = Command::new(program);
        command.arg("peer").arg("--node").arg(node.0.to_string());
        command.arg("--bytes").arg(bytes.to_string());
        if weft {
            command.arg("--weft");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the peer")?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the peer has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let Ok(ready) = serde_json::from_str(&line) else {
            let status = child.wait()?;
            bail!(
                "the peer on node {} did not come up ({status}); it says why above",
                node.0
            );
        };
        Ok(Self {
            child,
            stdin,
            ready,
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("weft-bench: the peer was lost: {error}");
        }
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
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, &ready)?;
    stdout.write_all(b"\n")?;
    stdout.flush()?;
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Registers memory with Weft for all to use. It keeps its session open.
fn open_weft(node: Node, bytes: usize) -> Result<MemoryRegion> {
    let device = Device::open_on(u32::from(node.0))?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    Ok(MemoryRegion::allocate(&device, bytes, access)?)
}
