// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench memory` (krcore §2, §5.1): what connections that are there take of the
//! kernel's memory and of processes'.
//!
//! Both ends of all connections are in one kernel, and both are counted. Clients are
//! on node 0 and connect to peers on the nodes behind it in turn; each connection has
//! carried an 8-byte WRITE. Verbs has a queue pair at either end (16 requests at the
//! client's, one at the peer's), made and connected directly; both ends' programs
//! share a completion queue among all. Weft has a VQP for 16 requests.
//!
//! What is reported is what was in use with the connections, less what was before
//! they were made, with the same processes at work:
//!
//! - `module_bytes`: the kernel, by `/proc/meminfo`: Slab, VmallocUsed (rings), Percpu
//!   and PageTables.
//! - `process_bytes`: the processes on both sides, by the PSS of all mappings in
//!   `smaps` but those of the devices, which are the kernel's memory and counted above.
//! - `machine_bytes`: all that is neither free (in `/proc/meminfo` or, page by page, at
//!   a processor, in `/proc/zoneinfo`) nor a cache of files. It should be about the sum
//!   of both; pages that a driver takes from the page allocator show here alone.
//! - `noise_bytes`, `machine_noise_bytes`: by how much the kernel's and the machine's
//!   memory changed, at most, before each measurement while nothing was done for as long
//!   as a look takes.
//!
//! A first measurement of each system does not count: what a node makes once, such as
//! its tables, is not a connection's. A system's figures are medians over several
//! measurements, each with new processes.
//!
//! A user of Weft may have 4,096 VQPs on a node. So a process holds at most 2,500
//! connections, and each of Weft's processes is another user's.

mod holder;
mod result;
mod usage;

use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use clap::Args;

use crate::child::Helper;
use crate::cli::{Common, System};
use crate::connect::meta_server;
use crate::nodes::{Node, CLIENT};
use crate::peer::Region;
use crate::report::{progress, JsonLines};
pub use holder::{hold, HolderArgs};
use holder::{Answer, Order};
use result::{Results, Row, Used};
use usage::{drop_caches, process_bytes, Machine};

/// Connections that a process holds at most.
const PER_PROCESS: usize = 2500;
/// Connections that are made at a time, so that what the processes tell one another
/// takes little memory.
const STEP: usize = 50;
/// Measurements, unless told.
const REPEATS: u32 = 3;
/// The first of Weft's other users.
const FIRST_UID: u32 = 60_000;
/// After a measurement, for the kernel to free what was left to its workers.
const REST: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct MemoryArgs {
    #[command(flatten)]
    pub common: Common,
    /// What to measure.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = [System::Verbs, System::Weft], value_enum)]
    pub systems: Vec<System>,
    /// Numbers of connections, each 1 to 20000.
    /// [default: 100,1000,2500,5000; quick: 100,1000]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub connections: Vec<u32>,
    /// Peers, on the nodes behind the clients', 1 to 32.
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=32))]
    pub peers: u16,
    /// Measurements of each. [default: 3; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: Option<u32>,
}

/// Runs the benchmark.
pub fn run(args: &MemoryArgs) -> Result<()> {
    ensure!(!args.systems.is_empty(), "--systems: name at least one");
    let quick = args.common.quick;
    let counts = match (&args.connections[..], quick) {
        ([], true) => &[100, 1000][..],
        ([], false) => &[100, 1000, 2500, 5000],
        (list, _) => list,
    };
    let repeats = args.repeats.unwrap_or(if quick { 1 } else { REPEATS });
    let mut json = JsonLines::create(args.common.json.as_deref())?;
    let peers: Vec<_> = (1..=args.peers).map(Node).collect();
    if args.systems.contains(&System::Weft) {
        meta_server(&peers)?;
    }
    for &system in &args.systems {
        measure(system, &peers, STEP)?;
    }
    let mut results = Results::default();
    for &count in counts {
        let mut found: Vec<_> = args.systems.iter().map(|&one| (one, Vec::new())).collect();
        let bar = progress(
            format!("{count} connections"),
            u64::from(repeats) * found.len() as u64,
        );
        for _ in 0..repeats {
            for (system, used) in &mut found {
                used.push(measure(*system, &peers, usize::try_from(count)?)?);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        for (system, used) in found {
            let row = Row::new(system, count, args.peers, &used);
            json.write(&row)?;
            results.add(row);
        }
    }
    results.print();
    Ok(())
}

/// A process that holds connections.
struct Process {
    helper: Helper,
    region: Region,
}

impl Process {
    fn start(system: System, node: Node, uid: u32) -> Result<Self> {
        let words = [
            "holder".to_owned(),
            format!("--system={}", system.name()),
            format!("--node={}", node.0),
            format!("--uid={uid}"),
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

/// Makes so many connections in new processes, and looks how much memory they take.
fn measure(system: System, peers: &[Node], count: usize) -> Result<Used> {
    let clients = (0..count.div_ceil(PER_PROCESS)).map(|index| {
        let uid = match (system, index) {
            (System::Weft, 1..) => FIRST_UID + u32::try_from(index)?,
            _ => 0,
        };
        Process::start(system, CLIENT, uid)
    });
    let mut clients = clients.collect::<Result<Vec<_>>>()?;
    let servers = peers.iter().map(|&node| Process::start(system, node, 0));
    let mut servers = servers.collect::<Result<Vec<_>>>()?;

    drop_caches()?;
    let first = Machine::settled()?;
    let before = Machine::settled()?;
    let processes = processes_bytes(&clients)?;
    let peer_processes = processes_bytes(&servers)?;
    let (made, limit) = connect_all(system, peers, &mut clients, &mut servers, count)?;
    let after = Machine::settled()?;
    let used = Used {
        made,
        limit,
        processes: clients.len(),
        module_bytes: after.kernel - before.kernel,
        process_bytes: processes_bytes(&clients)? - processes,
        peer_process_bytes: processes_bytes(&servers)? - peer_processes,
        machine_bytes: after.all - before.all,
        noise_bytes: (before.kernel - first.kernel).abs(),
        machine_noise_bytes: (before.all - first.all).abs(),
    };
    for process in clients.iter_mut().chain(&mut servers) {
        process.helper.let_go();
    }
    drop((clients, servers));
    thread::sleep(REST);
    Ok(used)
}

/// Makes connections, some at a time to each peer in turn. Answers how many there
/// are, and what kept it from making more.
fn connect_all(
    system: System,
    peers: &[Node],
    clients: &mut [Process],
    servers: &mut [Process],
    count: usize,
) -> Result<(usize, Option<String>)> {
    let mut made = 0;
    let mut turn = 0;
    while made < count {
        let client = clients.get_mut(made / PER_PROCESS).context("no process")?;
        // No step is across two processes.
        let step = STEP.min(count - made).min(PER_PROCESS - made % PER_PROCESS);
        let at = turn % servers.len();
        turn += 1;
        let failure = match system {
            System::Weft => {
                let region = servers[at].region;
                let node = peers[at].0;
                let order = Order::Connect {
                    count: step,
                    node,
                    region,
                };
                client.order(&order)?.failure
            }
            System::Verbs => join(client, &mut servers[at], step)?,
        };
        if failure.is_some() {
            return Ok((made, failure));
        }
        made += step;
    }
    Ok((made, None))
}

/// Connects queue pairs of a client with ones of a peer. Answers why it cannot.
fn join(client: &mut Process, server: &mut Process, count: usize) -> Result<Option<String>> {
    let offer = |sends| Order::Offer { count, sends };
    let theirs = server.order(&offer(false))?;
    let ours = client.order(&offer(true))?;
    if let Some(failure) = theirs.failure.or(ours.failure) {
        return Ok(Some(failure));
    }
    // The peer first: a queue pair may only be written to once it is connected.
    let answer = server.order(&Order::Join {
        endpoints: ours.endpoints,
        region: None,
    })?;
    if answer.failure.is_some() {
        return Ok(answer.failure);
    }
    let answer = client.order(&Order::Join {
        endpoints: theirs.endpoints,
        region: Some(server.region),
    })?;
    Ok(answer.failure)
}
