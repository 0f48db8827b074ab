// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clients that use Weft: a session and a connected VQP each.

use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use weft_shim::{LocalSlice, Remote, SendWr, Wc};

use super::args::{Mode, Operation};
use super::plan::{Work, PEER_BYTES};
use super::BATCH;
use crate::cli::Transport;
use crate::lent::{Lent, Pool};
use crate::messages::Station;
use crate::nodes::Node;
use crate::pace::{Paced, Step};
use crate::peer::Ready;
use crate::round_robin::Case;
use crate::weft::WeftLink;

/// How long a batch may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connected clients.
pub struct WeftClients(Pool<Client>);

/// One client.
struct Client {
    link: WeftLink,
    index: u16,
}

impl WeftClients {
    /// Connects `count` clients with this much memory to a node's, over a
    /// transport.
    pub fn connect(
        peer: &Ready,
        node: Node,
        transport: Transport,
        count: u16,
        memory: usize,
    ) -> Result<Self> {
        let remote: Remote = peer.weft.context("the peer does not serve Weft")?.into();
        let connect = |index| {
            let mut link = WeftLink::connect(node, remote, memory.max(8), BATCH)?;
            link.expect(transport)?;
            Ok(Client { link, index })
        };
        Ok(Self(Pool::fill(count, connect)?))
    }

    /// Connects `count` clients that send messages to a station.
    pub fn connect_to_station(station: &Station, count: u16, memory: usize) -> Result<Self> {
        let connect = |index| {
            let link = WeftLink::to_port(station.node, station.port, memory, BATCH)?;
            Ok(Client { link, index })
        };
        Ok(Self(Pool::fill(count, connect)?))
    }

    /// A case for one thread.
    pub fn case(&self, work: Work) -> Result<Box<dyn Case + '_>> {
        let client = self.0.take()?;
        let remote = client
            .link
            .remote
            .offset(work.offset(client.index, PEER_BYTES));
        let requests = Requests {
            client,
            remote,
            work,
        };
        Ok(match work.mode {
            Mode::Sync => Box::new(Paced::new(One(requests), work.pause())),
            Mode::Async => Box::new(Paced::new(Many(requests), work.pause())),
        })
    }
}

/// A request. Comparing with zero may succeed or not: that makes no difference to
/// what it takes.
fn request(op: Operation, local: LocalSlice<'_>, remote: Remote) -> SendWr<'_> {
    match op {
        Operation::Read => SendWr::read(local, remote),
        Operation::Write => SendWr::write(local, remote),
        Operation::Cas => SendWr::compare_swap(local, remote, 0, 0),
        Operation::Faa => SendWr::fetch_add(local, remote, 1),
        // Ping-pongs have clients of their own.
        Operation::Send | Operation::WritePp | Operation::SendPp => SendWr::send(local),
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

impl Step for One<'_> {
    fn step(&mut self) -> Result<()> {
        let Requests {
            client,
            remote,
            work,
        } = &mut self.0;
        let WeftLink { vqp, memory, .. } = &mut client.link;
        let local = memory.slice(0..work.bytes as usize)?;
        vqp.run(request(work.op, local, *remote))?;
        Ok(())
    }
}

/// A batch.
struct Many<'a>(Requests<'a>);

impl Step for Many<'_> {
    fn step(&mut self) -> Result<()> {
        let Requests {
            client,
            remote,
            work,
        } = &mut self.0;
        let WeftLink { vqp, memory, .. } = &mut client.link;
        let local = memory.slice(0..work.bytes as usize)?;
        let mut batch = [request(work.op, local, *remote); BATCH as usize];
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
        Ok(())
    }
}
