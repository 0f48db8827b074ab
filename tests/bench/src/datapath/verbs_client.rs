// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clients that use verbs: a connected RC queue pair each.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use weft_verbs::{Batch, Op, Route};

use super::args::{Mode, Operation};
use super::clients::Lane;
use super::plan::{Work, PEER_BYTES};
use super::BATCH;
use crate::cli::ExchangeKind;
use crate::lent::{Lent, Pool};
use crate::nodes::CLIENT;
use crate::pace::{Paced, Step};
use crate::peer::Ready;
use crate::round_robin::Case;
use crate::verbs::{Exchange, Link, Stack, CM_PATIENCE};
use crate::wait::Wait;

/// Connected clients.
pub struct VerbsClients {
    pool: Pool<Client>,
    lane: Lane,
}

/// One client: its connection, and its number.
struct Client {
    link: Link,
    index: u16,
}

impl VerbsClients {
    /// Connects `count` clients with memory for requests of `memory` bytes.
    pub fn connect(peer: &Ready, wait: Wait, count: u16, memory: usize) -> Result<Self> {
        let context = CLIENT.open()?;
        let local = CLIENT.local_gid(&context)?;
        let exchange = Exchange::with(ExchangeKind::Tcp, peer);
        Self::fill(wait, count, |index| {
            let link = Link::warm(
                Stack::waiting(wait, &context, memory, BATCH)?,
                local,
                exchange,
            )?;
            Ok(Client { link, index })
        })
    }

    /// Connects `count` clients that send messages to a station.
    pub fn connect_to_station(
        station: SocketAddr,
        wait: Wait,
        count: u16,
        memory: usize,
    ) -> Result<Self> {
        Self::fill(wait, count, |index| {
            let route = Route::resolve(station, CM_PATIENCE)?;
            let stack = Stack::waiting(wait, &route.context()?, memory, BATCH)?;
            let link = Link::over_route(route, stack)?;
            Ok(Client { link, index })
        })
    }

    fn fill(wait: Wait, count: u16, connect: impl FnMut(u16) -> Result<Client>) -> Result<Self> {
        let pool = Pool::fill(count, connect)?;
        let path_mtu = pool.take()?.link.path_mtu()?.bytes();
        let lane = Lane::verbs(wait, path_mtu);
        Ok(Self { pool, lane })
    }

    /// What its rows are of.
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// A case for one thread.
    pub fn case(&self, work: Work) -> Result<Box<dyn Case + '_>> {
        let client = self.pool.take()?;
        let op = op(work.op).context("the verbs client has no such operation")?;
        let offset = work.offset(client.index, PEER_BYTES);
        let request = client.link.request(op, work.bytes, offset);
        let count = match work.mode {
            Mode::Sync => 1,
            Mode::Async => BATCH as usize,
        };
        let batch = Batch::new(&vec![request; count]);
        Ok(Box::new(Paced::new(
            Posting { client, batch },
            work.pause(),
        )))
    }
}

/// An operation as verbs names it. A comparison with zero may succeed or not:
/// that makes no difference to what it takes.
fn op(operation: Operation) -> Option<Op> {
    match operation {
        Operation::Read => Some(Op::Read),
        Operation::Write => Some(Op::Write),
        Operation::Send => Some(Op::Send),
        Operation::Cas => Some(Op::CompareSwap {
            compare: 0,
            swap: 0,
        }),
        Operation::Faa => Some(Op::FetchAdd { add: 1 }),
        Operation::WritePp | Operation::SendPp => None,
    }
}

/// A request, or a batch of them, made beforehand.
struct Posting<'a> {
    client: Lent<'a, Client>,
    batch: Batch,
}

impl Step for Posting<'_> {
    fn step(&mut self) -> Result<()> {
        self.client.link.run_batch(&self.batch)
    }
}
