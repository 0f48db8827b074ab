// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clients that use Weft: a session and a connected VQP each.

use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use weft_shim::{Access, Device, MemoryRegion, Remote, SendWr, Vqp, VqpConfig, Wc};

use super::pool::{Lent, Pool};
use super::{Work, BATCH, PEER_BYTES};
use crate::cli::{Mode, Operation};
use crate::nodes::{CLIENT, SERVER};
use crate::peer::Ready;
use crate::round_robin::{Case, Sample};

/// How long a batch may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connected clients.
pub struct WeftClients(Pool<Client>);

/// One client.
struct Client {
    vqp: Vqp,
    memory: MemoryRegion,
    remote: Remote,
    index: u16,
}

impl WeftClients {
    /// Connects `count` clients with memory for requests of `bytes`.
    pub fn connect(peer: &Ready, count: u16, bytes: u32) -> Result<Self> {
        let remote: Remote = peer.weft.context("the peer does not serve Weft")?.into();
        let memory = usize::try_from(bytes)?;
        let connect = |index| Client::connect(remote, memory, index);
        Ok(Self(Pool::fill(count, connect)?))
    }

    /// A case for one thread.
    pub fn case(&self, work: Work) -> Result<Box<dyn Case + '_>> {
        let client = self.0.take()?;
        let remote = client.remote.offset(work.offset(client.index, PEER_BYTES));
        let requests = Requests {
            client,
            remote,
            work,
        };
        Ok(match work.mode {
            Mode::Sync => Box::new(One(requests)),
            Mode::Async => Box::new(Many(requests)),
        })
    }
}

impl Client {
    fn connect(remote: Remote, bytes: usize, index: u16) -> Result<Self> {
        let device =
            Device::open_on(u32::from(CLIENT.0)).context("cannot use Weft on the clients' node")?;
        let memory = MemoryRegion::allocate(&device, bytes, Access::LOCAL_WRITE)?;
        let mut vqp = Vqp::create(
            &device,
            &VqpConfig {
                max_send_wr: BATCH,
                ..VqpConfig::default()
            },
        )?;
        vqp.qconnect(SERVER.gid(), 0)
            .with_context(|| format!("cannot connect to node {}", SERVER.0))?;
        Ok(Self {
            vqp,
            memory,
            remote,
            index,
        })
    }
}

/// What a case's requests are made from.
struct Requests<'a> {
    client: Lent<'a, Client>,
    remote: Remote,
    work: Work,
}

/// One request.
struct One<'a>(Requests<'a>);

impl Case for One<'_> {
    fn sample(&mut self) -> Result<Sample> {
        let Requests {
            client,
            remote,
            work,
        } = &mut self.0;
        let Client { vqp, memory, .. } = &mut **client;
        let start = Instant::now();
        let local = memory.slice(0..work.bytes as usize)?;
        match work.op {
            Operation::Read => vqp.read(local, *remote)?,
            Operation::Write => vqp.write(local, *remote)?,
        };
        Ok(Sample {
            call: start.elapsed(),
            ..Sample::default()
        })
    }
}

/// A batch.
struct Many<'a>(Requests<'a>);

impl Case for Many<'_> {
    fn sample(&mut self) -> Result<Sample> {
        let Requests {
            client,
            remote,
            work,
        } = &mut self.0;
        let Client { vqp, memory, .. } = &mut **client;
        let start = Instant::now();
        let local = memory.slice(0..work.bytes as usize)?;
        let request = match work.op {
            Operation::Read => SendWr::read(local, *remote),
            Operation::Write => SendWr::write(local, *remote),
        };
        let mut batch = [request; BATCH as usize];
        if let Some(last) = batch.last_mut() {
            *last = last.signaled();
        }
        let mut room = [Wc::default()];
        let progress = vqp.enter(&batch, &mut room, 1, PATIENCE)?;
        ensure!(
            progress.submitted == batch.len(),
            "the VQP took {} of {BATCH} requests, though it has room for all",
            progress.submitted
        );
        ensure!(
            progress.completed == 1,
            "a batch was not done within {} s",
            PATIENCE.as_secs()
        );
        room[0].result()?;
        Ok(Sample {
            call: start.elapsed(),
            ..Sample::default()
        })
    }
}
