// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weft's cases, and the null ioctl for reference.
//!
//! The call that is measured is `qconnect`. Making the VQP is a call of its own
//! and reported beside it; its time is not part of `call` or `first write`.
//!
//! Calls are measured one after another, like the null ioctls that they are
//! compared with; the first WRITE, which leaves the node's threads at work for
//! a while, with calls of its own.
//!
//! The DCCache is the node's. With several clients, the look-up of one serves
//! those that connect right after it, in `uncached` too: that is what happens
//! when a crowd of workers starts on a host that does not know the peer.

use std::time::Instant;

use anyhow::{Context as _, Result};
use weft_shim::{Access, Device, MemoryRegion, Remote, Vqp, VqpConfig};

use super::Named;
use crate::cli::System;
use crate::nodes::{CLIENT, SERVER};
use crate::peer::Ready;
use crate::round_robin::{Case, MakeCase, Sample};

/// Weft on this host.
pub struct WeftCases(());

impl WeftCases {
    /// Checks that the module is there, has the clients' node, and finds the
    /// peer.
    pub fn open() -> Result<Self> {
        let device = Client::device()?;
        let peer = SERVER.gid();
        device.lookup(peer).with_context(|| {
            format!("the meta server does not tell of {peer}: is weft-meta running and added?")
        })?;
        Ok(Self(()))
    }

    /// The cases of these systems.
    pub fn cases(&self, systems: &[System], peer: &Ready) -> Result<Vec<Named<'_>>> {
        let remote: Remote = peer.weft.context("the peer does not serve Weft")?.into();
        let mut cases = Vec::new();
        let mut add = |system, case, make, calls| {
            if systems.contains(&system) {
                cases.push(Named {
                    system,
                    case,
                    exchange: None,
                    slow: false,
                    make,
                    calls,
                });
            }
        };
        add(
            System::Weft,
            "uncached",
            Connect::maker(remote, true, true),
            Some(Connect::maker(remote, true, false)),
        );
        add(
            System::Weft,
            "cached",
            Connect::maker(remote, false, true),
            Some(Connect::maker(remote, false, false)),
        );
        add(
            System::Weft,
            "dc_read8",
            Box::new(move || Ok(Box::new(DcRead8::connect(Client::open(remote)?)?))),
            None,
        );
        add(
            System::Ref,
            "null_ioctl",
            Box::new(|| Ok(Box::new(NullIoctl(Client::device()?)))),
            None,
        );
        Ok(cases)
    }
}

/// A session with 8 bytes of memory, on the clients' node.
struct Client {
    device: Device,
    memory: MemoryRegion,
    remote: Remote,
}

impl Client {
    fn device() -> Result<Device> {
        Device::open_on(u32::from(CLIENT.0)).context("cannot use Weft on the clients' node")
    }

    fn open(remote: Remote) -> Result<Self> {
        let device = Self::device()?;
        let memory = MemoryRegion::allocate(&device, 8, Access::LOCAL_WRITE)?;
        Ok(Self {
            device,
            memory,
            remote,
        })
    }
}

/// `qconnect` of a new VQP, with the peer in the DCCache or without.
struct Connect {
    client: Client,
    flush: bool,
    /// The connection carries a WRITE.
    write: bool,
}

impl Connect {
    fn maker<'a>(remote: Remote, flush: bool, write: bool) -> MakeCase<'a> {
        Box::new(move || {
            Ok(Box::new(Self {
                client: Client::open(remote)?,
                flush,
                write,
            }))
        })
    }
}

impl Case for Connect {
    fn sample(&mut self) -> Result<Sample> {
        let Client {
            device,
            memory,
            remote,
        } = &self.client;
        if self.flush {
            device.flush_dccache()?;
        }

        let begin = Instant::now();
        let mut vqp = Vqp::create(device, &VqpConfig::default())?;
        let create = begin.elapsed();

        let start = Instant::now();
        vqp.qconnect(SERVER.gid(), 0)?;
        let call = start.elapsed();
        let mut first_write = None;
        if self.write {
            vqp.write(memory.slice(0..8)?, *remote)?;
            first_write = Some(start.elapsed());
        }
        Ok(Sample {
            create: Some(create),
            call,
            first_write,
            ..Sample::default()
        })
    }
}

/// One 8-byte READ on a connected VQP.
struct DcRead8 {
    vqp: Vqp,
    client: Client,
}

impl DcRead8 {
    fn connect(client: Client) -> Result<Self> {
        let mut vqp = Vqp::create(&client.device, &VqpConfig::default())?;
        vqp.qconnect(SERVER.gid(), 0)?;
        Ok(Self { vqp, client })
    }
}

impl Case for DcRead8 {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        self.vqp
            .read(self.client.memory.slice(0..8)?, self.client.remote)?;
        let call = start.elapsed();
        Ok(Sample {
            call,
            ..Sample::default()
        })
    }
}

/// A system call to the module that does nothing.
struct NullIoctl(Device);

impl Case for NullIoctl {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        self.0.nop()?;
        let call = start.elapsed();
        Ok(Sample {
            call,
            ..Sample::default()
        })
    }
}
