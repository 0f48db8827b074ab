// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clients that use verbs: a connected RC queue pair each.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, Result};
use weft_verbs::{Batch, Op, Route, WorkRequest};

use super::args::{Mode, Operation};
use super::plan::{Work, PEER_BYTES};
use super::BATCH;
use crate::cli::ExchangeKind;
use crate::nodes::CLIENT;
use crate::peer::Ready;
use crate::pool::{Lent, Pool};
use crate::round_robin::{Case, Sample};
use crate::verbs::{Exchange, Link, Stack, CM_PATIENCE};

/// Connected clients.
pub struct VerbsClients(Pool<Client>);

/// One client: its connection, and its number.
struct Client {
    link: Link,
    index: u16,
}

impl VerbsClients {
    /// Connects `count` clients with memory for requests of `bytes`.
    pub fn connect(peer: &Ready, count: u16, memory: usize) -> Result<Self> {
        let context = CLIENT.open()?;
        let local = CLIENT.local_gid(&context)?;
        let exchange = Exchange::with(ExchangeKind::Tcp, peer);
        let connect = |index| {
            let stack = Stack::with(&context, memory, BATCH)?;
            let link = Link::warm(stack, local, exchange)?;
            Ok(Client { link, index })
        };
        Ok(Self(Pool::fill(count, connect)?))
    }

    /// Connects `count` clients that send messages to a station.
    pub fn connect_to_station(station: SocketAddr, count: u16, memory: usize) -> Result<Self> {
        let connect = |index| {
            let route = Route::resolve(station, CM_PATIENCE)?;
            let stack = Stack::with(&route.context()?, memory, BATCH)?;
            let link = Link::over_route(route, stack)?;
            Ok(Client { link, index })
        };
        Ok(Self(Pool::fill(count, connect)?))
    }

    /// Whether it is an operation that they have.
    pub fn can(operation: Operation) -> bool {
        op(operation).is_some()
    }

    /// A case for one thread.
    pub fn case(&self, work: Work) -> Result<Box<dyn Case + '_>> {
        let client = self.0.take()?;
        let op = op(work.op).context("the verbs layer has no such operation")?;
        let offset = work.offset(client.index, PEER_BYTES);
        let request = client.link.request(op, work.bytes, offset);
        Ok(match work.mode {
            Mode::Sync => Box::new(One { client, request }),
            Mode::Async => {
                let batch = Batch::new(&[request; BATCH as usize]);
                Box::new(Many { client, batch })
            }
        })
    }
}

/// An operation as verbs names it, as far as the verbs layer has it.
fn op(operation: Operation) -> Option<Op> {
    match operation {
        Operation::Read => Some(Op::Read),
        Operation::Write => Some(Op::Write),
        Operation::Send => Some(Op::Send),
        Operation::Cas | Operation::Faa => None,
    }
}

/// One request.
struct One<'a> {
    client: Lent<'a, Client>,
    request: WorkRequest,
}

impl Case for One<'_> {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        self.client.link.run(&self.request)?;
        Ok(Sample {
            call: start.elapsed(),
            ..Sample::default()
        })
    }
}

/// A batch.
struct Many<'a> {
    client: Lent<'a, Client>,
    batch: Batch,
}

impl Case for Many<'_> {
    fn sample(&mut self) -> Result<Sample> {
        let start = Instant::now();
        self.client.link.run_batch(&self.batch)?;
        Ok(Sample {
            call: start.elapsed(),
            ..Sample::default()
        })
    }
}
