// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections that processes hold on both sides: how they are made, what that takes of
//! time and memory, and how many WRITEs they carry.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::holder::{Answer, Order, Waves};
use super::result::Used;
use super::usage::{drop_caches, process_bytes, Machine};
use super::Kind;
use crate::child::Helper;
use crate::cli::System;
use crate::nodes::{Node, CLIENT};
use crate::peer::Region;
use crate::stats::Times;

/// Connections that are made at a time, so that what the processes tell one another
/// takes little memory.
pub const STEP: usize = 50;
/// After a measurement, for the kernel to free what was left to its workers.
const REST: Duration = Duration::from_secs(1);

/// A process that holds connections.
struct Process {
    helper: Helper,
    region: Region,
}

impl Process {
    fn start(system: System, node: Node) -> Result<Self> {
        let words = [
            "holder".to_owned(),
            format!("--system={}", system.name()),
            format!("--node={}", node.0),
        ];
        let (helper, region) = Helper::start(&words)?;
        Ok(Self { helper, region })
    }

    fn order(&mut self, order: &Order) -> Result<Answer> {
        self.helper.tell(order)?;
        self.helper.hear()
    }
}

/// The memory of all processes on one side.
fn processes_bytes(processes: &[Process]) -> Result<i64> {
    let each = processes.iter();
    each.map(|process| process_bytes(process.helper.pid()))
        .sum()
}

/// How connections were made.
pub struct Made {
    /// How many there are.
    pub count: usize,
    /// Why there are no more.
    pub limit: Option<String>,
    /// The client's calls that make and connect one.
    pub calls: Times,
    /// The WRITE over each that follows.
    pub first_writes: Times,
    /// Time that all took, on both sides, with a WRITE over each.
    pub time: Duration,
}

/// Connections, and the processes that hold them.
pub struct Held {
    kind: Kind,
    client: Process,
    servers: Vec<Process>,
    /// How they were made.
    pub made: Made,
    /// The memory that they take.
    pub used: Used,
}

impl Held {
    /// Makes so many connections in new processes, and looks how much memory they take.
    pub fn make(kind: Kind, peers: &[Node], count: usize) -> Result<Self> {
        peers.iter().try_for_each(|peer| peer.greet())?;
        let system = kind.system();
        let mut client = Process::start(system, CLIENT)?;
        let servers = peers.iter().map(|&node| Process::start(system, node));
        let mut servers = servers.collect::<Result<Vec<_>>>()?;

        drop_caches()?;
        let first = Machine::settled()?;
        let before = Machine::settled()?;
        let process = process_bytes(client.helper.pid())?;
        let peer_processes = processes_bytes(&servers)?;
        let made = connect_all(kind, peers, &mut client, &mut servers, count)?;
        let after = Machine::settled()?;
        let used = Used {
            made: made.count,
            limit: made.limit.clone(),
            module_bytes: after.kernel_since(&before),
            process_bytes: process_bytes(client.helper.pid())? - process,
            peer_process_bytes: processes_bytes(&servers)? - peer_processes,
            machine_bytes: after.all - before.all,
            noise_bytes: before.kernel_since(&first).abs(),
            machine_noise_bytes: (before.all - first.all).abs(),
        };
        Ok(Self {
            kind,
            client,
            servers,
            made,
            used,
        })
    }

    /// WRITEs 8 bytes over all connections in turn for so long in each way to wait that the system
    /// has, and answers how many a second were done in the better one.
    pub fn writes_per_sec(&mut self, time: Duration) -> Result<f64> {
        let time_ms = u64::try_from(time.as_millis())?;
        let ways: &[bool] = match self.kind {
            Kind::Verbs => &[false, true],
            Kind::Weft | Kind::Handles => &[true],
        };
        let mut best = 0f64;
        for &sleeps in ways {
            let answer = self.client.order(&Order::Write { time_ms, sleeps })?;
            let Waves { writes, time_ns } = answer.waves;
            best = best.max(writes as f64 * 1e9 / (time_ns as f64).max(1.0));
        }
        Ok(best)
    }

    /// Ends the processes, and lets the kernel free what they had.
    pub fn end(mut self) {
        self.client.helper.let_go();
        self.servers
            .iter_mut()
            .for_each(|process| process.helper.let_go());
        drop(self);
        thread::sleep(REST);
    }
}

/// Makes connections, some at a time to each peer in turn.
fn connect_all(
    kind: Kind,
    peers: &[Node],
    client: &mut Process,
    servers: &mut [Process],
    count: usize,
) -> Result<Made> {
    let mut made = Made {
        count: 0,
        limit: None,
        calls: Times::new(),
        first_writes: Times::new(),
        time: Duration::ZERO,
    };
    let begin = Instant::now();
    let mut turns = (0..servers.len()).cycle();
    while made.count < count && made.limit.is_none() {
        let step = STEP.min(count - made.count);
        let at = turns.next().context("there is no peer")?;
        let (node, region) = (peers[at].0, servers[at].region);
        let answer = match kind {
            Kind::Verbs => join(client, &mut servers[at], step)?,
            Kind::Weft | Kind::Handles => client.order(&Order::Connect {
                count: step,
                node,
                region,
                by_handle: kind == Kind::Handles,
            })?,
        };
        // Those that were made before the limit was reached are held too.
        made.count += answer.count();
        made.calls.merge(&(&answer.calls).into());
        made.first_writes.merge(&(&answer.first_writes).into());
        made.limit = answer.limit;
    }
    made.time = begin.elapsed();
    Ok(made)
}

/// Connects queue pairs of a client with ones of a peer, which both make at the same time: as
/// many as both could make. The client's answer, with the limit that either has reached.
fn join(client: &mut Process, server: &mut Process, count: usize) -> Result<Answer> {
    let offer = |sends| Order::Offer { count, sends };
    server.helper.tell(&offer(false))?;
    client.helper.tell(&offer(true))?;
    let mut theirs: Answer = server.helper.hear()?;
    let mut ours: Answer = client.helper.hear()?;
    theirs.endpoints.truncate(ours.endpoints.len());
    ours.endpoints.truncate(theirs.endpoints.len());
    // The peer first: a queue pair may only be written to once it is connected.
    let joined = server.order(&Order::Join {
        endpoints: ours.endpoints,
        region: None,
    })?;
    if joined.limit.is_some() {
        return Ok(Answer {
            limit: joined.limit,
            ..Answer::default()
        });
    }
    let answer = client.order(&Order::Join {
        endpoints: theirs.endpoints,
        region: Some(server.region),
    })?;
    Ok(Answer {
        limit: answer.limit.or(ours.limit).or(theirs.limit),
        ..answer
    })
}
