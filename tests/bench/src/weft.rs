// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clients of Weft, and which transport their requests take.
//!
//! The module chooses the transport, by peer: RC where it keeps a queue pair, DC
//! else. So what is measured over RC goes to a peer that was pinned, what is
//! measured over DC to another, and each client makes sure of it.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use weft_shim::{Access, Device, MemoryRegion, Remote, Vqp, VqpConfig};

use crate::cli::Transport;
use crate::counters::counter;
use crate::nodes::{Node, CLIENT};
use crate::round_robin::{Case, Sample};

/// How long an RC queue pair may take to be made, in the background.
const PIN_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const PIN_NAP: Duration = Duration::from_millis(20);

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

/// A peer that the module keeps an RC queue pair to. It stays when this is
/// dropped, until it breaks.
pub struct Pin {
    device: Device,
    to: Node,
}

impl Pin {
    /// Pins the node of this memory, and waits until WRITEs go over RC.
    pub fn up(to: Node, remote: Remote) -> Result<Self> {
        let device = device()?;
        device
            .pool_pin(to.gid())
            .with_context(|| format!("cannot pin node {}", to.0))?;
        let this = Self { device, to };
        let mut link = WeftLink::connect(to, remote, 8, 1)?;
        let deadline = Instant::now() + PIN_PATIENCE;
        while link.probe()? != Transport::Rc {
            if Instant::now() > deadline {
                bail!("no RC queue pair to node {} within {PIN_PATIENCE:?}", to.0);
            }
            thread::sleep(PIN_NAP);
        }
        Ok(this)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Err(error) = self.device.pool_unpin(self.to.gid()) {
            eprintln!("weft-bench: node {} stays pinned: {error}", self.to.0);
        }
    }
}
