// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench memory` (krcore §2, §5.1): what connections that are there take of the
//! kernel's memory and of processes'.
//!
//! Both ends of all connections are in one kernel, and both are counted. The client is a
//! process on node 0 and connects to peers on the nodes behind it in turn; each connection
//! has carried an 8-byte WRITE.
//!
//! - `connected`: verbs has a queue pair at either end (16 requests at the client's, one at
//!   the peer's), made and connected directly; both ends' programs share a completion queue
//!   among all. Weft has a queue pair for 16 requests on the queues of its session.
//! - `handles` (Weft alone): as many handles, and one unconnected queue pair that has
//!   carried a WRITE to each of them.
//!
//! What is reported is what was in use with the connections, less what was before
//! they were made, with the same processes at work: so what a session and its queues take
//! is in neither.
//!
//! - `module_bytes`: the kernel: its objects, by their pages (Slab in `/proc/meminfo`) or
//!   by their number and size (`/proc/slabinfo`), whichever is more; VmallocUsed (rings,
//!   tables), Percpu and PageTables.
//! - `process_bytes`: the processes on both sides, by the PSS of all mappings in
//!   `smaps` but those of the devices, which are the kernel's memory and counted above.
//! - `total_bytes`: the sum of both.
//! - `machine_bytes`: all that is neither free (in `/proc/meminfo` or, page by page, at
//!   a processor, in `/proc/zoneinfo`) nor a cache of files. It should be about the sum
//!   of both; pages that a driver takes from the page allocator show here alone.
//! - `noise_bytes`, `machine_noise_bytes`: by how much the kernel's and the machine's
//!   memory changed, at most, before each measurement while nothing was done for as long
//!   as a look takes.
//!
//! A first measurement of each does not count: what a node makes once, such as
//! its tables, is not a connection's. The figures are medians over several
//! measurements, each with new processes.

mod held;
mod holder;
mod result;
mod usage;

use anyhow::{ensure, Result};
use clap::Args;

use crate::cli::{Common, System};
use crate::connect::meta_server;
use crate::nodes::Node;
use crate::report::{progress, JsonLines};
pub use held::Held;
use held::STEP;
pub use holder::{hold, HolderArgs};
use result::{Results, Row, Used};
pub use usage::{process_bytes, Machine};

/// Measurements, unless told.
const REPEATS: u32 = 3;

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
    /// Numbers of handles, each 1 to 100000. [default: 1000,16000; quick: 1000]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub handles: Vec<u32>,
    /// Peers, on the nodes behind the clients', 1 to 32.
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u16).range(1..=32))]
    pub peers: u16,
    /// Measurements of each. [default: 3; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: Option<u32>,
}

/// What a client holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Queue pairs of verbs.
    Verbs,
    /// Connected queue pairs of Weft.
    Weft,
    /// Handles of an unconnected one.
    Handles,
}

impl Kind {
    fn system(self) -> System {
        match self {
            Self::Verbs => System::Verbs,
            Self::Weft | Self::Handles => System::Weft,
        }
    }

    fn case(self) -> &'static str {
        match self {
            Self::Verbs | Self::Weft => "connected",
            Self::Handles => "handles",
        }
    }
}

/// Runs the benchmark.
pub fn run(args: &MemoryArgs) -> Result<()> {
    ensure!(!args.systems.is_empty(), "--systems: name at least one");
    let quick = args.common.quick;
    let connections = match (&args.connections[..], quick) {
        ([], true) => &[100, 1000][..],
        ([], false) => &[100, 1000, 2500, 5000],
        (list, _) => list,
    };
    let handles = match (&args.handles[..], quick) {
        ([], true) => &[1000][..],
        ([], false) => &[1000, 16_000],
        (list, _) => list,
    };
    let has = |kind: &Kind| args.systems.contains(&kind.system());
    let connected: Vec<_> = [Kind::Verbs, Kind::Weft].into_iter().filter(has).collect();
    let opened: Vec<_> = [Kind::Handles].into_iter().filter(has).collect();
    let repeats = args.repeats.unwrap_or(if quick { 1 } else { REPEATS });
    let mut json = JsonLines::create(&args.common)?;
    let peers: Vec<_> = (1..=args.peers).map(Node).collect();
    if args.systems.contains(&System::Weft) {
        meta_server(&peers)?;
    }
    for &kind in connected.iter().chain(&opened) {
        measure(kind, &peers, STEP)?;
    }
    let connected = connections.iter().map(|&count| (count, &connected));
    let opened = handles.iter().map(|&count| (count, &opened));
    let mut results = Results::default();
    for (count, kinds) in connected.chain(opened) {
        let mut found: Vec<_> = kinds.iter().map(|&kind| (kind, Vec::new())).collect();
        let bar = progress(
            format!("{count} connections"),
            u64::from(repeats) * found.len() as u64,
        );
        for _ in 0..repeats {
            for (kind, used) in &mut found {
                used.push(measure(*kind, &peers, usize::try_from(count)?)?);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        for (kind, used) in found {
            let row = Row::new(kind, count, args.peers, &used);
            json.write(&row)?;
            results.add(row);
        }
    }
    results.print();
    Ok(())
}

/// Makes so many connections in new processes, and looks how much memory they take.
fn measure(kind: Kind, peers: &[Node], count: usize) -> Result<Used> {
    let held = Held::make(kind, peers, count)?;
    let used = held.used.clone();
    held.end();
    Ok(used)
}
