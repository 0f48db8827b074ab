// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clients of Weft, and which transport their requests take.
//!
//! The module's pool chooses the transport, by peer, and changes it when another is
//! faster. So what is measured over RC or over DC goes to a peer whose transport was
//! forced ([`Way`]), and each client makes sure of it.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use weft_shim::{Access, Device, MemoryRegion, PoolPeer, Remote, Vqp, VqpConfig};

use crate::cli::Transport;
use crate::counters::counter;
use crate::nodes::{Node, CLIENT};
use crate::round_robin::{Case, Sample};

/// How long an RC queue pair may take to be made, in the background.
const FORCE_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const FORCE_NAP: Duration = Duration::from_millis(1);

/// A session on the clients' node.
pub fn device() -> Result<Device> {
    Device::open_on(u32::from(CLIENT.0)).context("cannot use Weft on the clients' node")
}

/// A system call to the module that does nothing.
pub struct NullIoctl(Device);

impl NullIoctl {
    /// Opens a session.
    pub fn open() -> Result<Self> {
        Ok(Self(device()?))
    }
}

impl Case for NullIoctl {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        self.0.nop()?;
        Ok(Sample {
            call: start.elapsed(),
            ..Sample::default()
        })
    }
}

/// A session with memory and a VQP that is connected to a peer's memory.
pub struct WeftLink {
    pub vqp: Vqp,
    pub memory: MemoryRegion,
    pub remote: Remote,
}

impl WeftLink {
    /// Connects to memory of a node, for one-sided requests.
    pub fn connect(to: Node, remote: Remote, bytes: usize, max_send_wr: u32) -> Result<Self> {
        Self::with(&device()?, to, (0, remote), bytes, max_send_wr)
    }

    /// Connects to a port of a node, to send messages.
    pub fn to_port(to: Node, port: u32, bytes: usize, max_send_wr: u32) -> Result<Self> {
        let nowhere = Remote { addr: 0, rkey: 0 };
        Self::with(&device()?, to, (port, nowhere), bytes, max_send_wr)
    }

    /// The same in a session that is there; `at` is a port and memory.
    pub fn with(
        device: &Device,
        to: Node,
        at: (u32, Remote),
        bytes: usize,
        max_send_wr: u32,
    ) -> Result<Self> {
        let (port, remote) = at;
        let memory = MemoryRegion::allocate(device, bytes, Access::LOCAL_WRITE)?;
        let config = VqpConfig {
            max_send_wr,
            ..VqpConfig::default()
        };
        let mut vqp = Vqp::create(device, &config)?;
        vqp.qconnect(to.gid(), port)
            .with_context(|| format!("cannot connect to node {}", to.0))?;
        Ok(Self {
            vqp,
            memory,
            remote,
        })
    }

    /// WRITEs 8 bytes, and answers with what they went over.
    pub fn probe(&mut self) -> Result<Transport> {
        let before = counter("rc_chains")?;
        self.vqp.write(self.memory.slice(0..8)?, self.remote)?;
        Ok(if counter("rc_chains")? == before {
            Transport::Dc
        } else {
            Transport::Rc
        })
    }

    /// Makes sure that requests go over this.
    pub fn expect(&mut self, transport: Transport) -> Result<()> {
        let found = self.probe()?;
        ensure!(
            found == transport,
            "requests go over {}, not {}: the module was used before, or not as it has to be; load it anew",
            found.name(),
            transport.name()
        );
        Ok(())
    }
}

/// The transport that requests from one node to another take, whatever the pool would
/// choose. The pool chooses again when this is dropped.
pub struct Way {
    device: Device,
    to: Node,
}

impl Way {
    /// Has requests take this transport, and waits until they do.
    pub fn force(from: Node, to: Node, transport: Transport) -> Result<Self> {
        let this = Self::begin(from, to, transport)?;
        this.wait_for(transport)?;
        Ok(this)
    }

    /// The same, without waiting until they do.
    pub fn begin(from: Node, to: Node, transport: Transport) -> Result<Self> {
        let device = Device::open_on(u32::from(from.0))?;
        let this = Self { device, to };
        this.take(transport)?;
        Ok(this)
    }

    /// The same from the clients' node, to each of these.
    pub fn force_all(
        to: impl IntoIterator<Item = Node>,
        transport: Transport,
    ) -> Result<Vec<Self>> {
        let force = |node| Self::force(CLIENT, node, transport);
        to.into_iter().map(force).collect()
    }

    /// Has requests take another transport, without waiting until they do.
    pub fn take(&self, transport: Transport) -> Result<()> {
        let forced = self.device.pool_use(self.to.gid(), Some(transport.into()));
        forced.with_context(|| format!("cannot force {} to node {}", transport.name(), self.to.0))
    }

    fn is_taken(&self, transport: Transport) -> Result<bool> {
        let peer = pool_peer(&self.device, self.to)?;
        let is_taken = |peer: PoolPeer| peer.is_forced && peer.transport == transport.into();
        Ok(peer.is_some_and(is_taken))
    }

    /// Waits until the pool sends requests by this transport.
    pub fn wait_for(&self, transport: Transport) -> Result<()> {
        let deadline = Instant::now() + FORCE_PATIENCE;
        while !self.is_taken(transport)? {
            if Instant::now() > deadline {
                let (name, node) = (transport.name(), self.to.0);
                bail!("node {node} is not reached over {name} within {FORCE_PATIENCE:?}");
            }
            thread::sleep(FORCE_NAP);
        }
        Ok(())
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Err(error) = self.device.pool_use(self.to.gid(), None) {
            eprintln!("weft-bench: node {} stays forced: {error}", self.to.0);
        }
    }
}

/// What the pool of a session's node knows of a peer.
pub fn pool_peer(device: &Device, to: Node) -> Result<Option<PoolPeer>> {
    let peers = device.pool_peers()?;
    Ok(peers.into_iter().find(|peer| peer.gid == to.gid()))
}

impl From<weft_shim::Transport> for Transport {
    fn from(transport: weft_shim::Transport) -> Self {
        match transport {
            weft_shim::Transport::Dc => Self::Dc,
            weft_shim::Transport::Rc => Self::Rc,
        }
    }
}

impl From<Transport> for weft_shim::Transport {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Dc => Self::Dc,
            Transport::Rc => Self::Rc,
        }
    }
}
