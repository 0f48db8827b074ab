// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench fanout`: small WRITEs to many peers in one system call, beside a batch of
//! as many to one peer.
//!
//! One sample is one batch: from its post until all of it is done. Each WRITE makes a
//! completion, to one peer too, so that both cases have as many. Peers are on the nodes
//! behind the clients', the meta server on another one.
//!
//! - `connected`: a queue pair a target, all on the same queues. Weft posts a batch to any
//!   number of them in one call. Verbs posts to each queue pair by a call of its own, and
//!   a batch to one peer as a list, of which only the last makes a completion. Verbs polls,
//!   or sleeps until the completion channel tells of one.
//! - `unconnected` (Weft alone: the nodes' devices have no DC): one queue pair, whose
//!   requests each name a handle. Batches go to the targets in turn.
//!
//! Requests of a few bytes to one node share packets, those to several nodes cannot; of
//! 4,096 bytes each has a packet of its own in any case. Both are measured over queue
//! pairs, 8 bytes over handles.
//!
//! `targets` are queue pairs or handles; `nodes` is what they are spread over. A first
//! WRITE to each target is made before and does not count. The memory of handles is
//! measured by `weft-bench memory`.

mod result;
mod verbs_fan;
mod weft_fan;

use anyhow::{ensure, Context as _, Result};
use clap::Args;
use weft_shim::Remote;

use crate::cli::{Common, System, Transport};
use crate::connect::meta_server;
use crate::counters::packets;
use crate::nodes::Node;
use crate::peer::Peer;
use crate::report::JsonLines;
use crate::round_robin::{self, Amount, Case, MakeCase};
use crate::trace::Syscalls;
use crate::verbs::REGION_BYTES;
use crate::wait::Wait;
use crate::weft::Way;
use result::{Counts, Results, Row};
use verbs_fan::VerbsFan;
use weft_fan::WeftFan;

/// Batches of each case, unless told.
const SAMPLES: u32 = 2000;
const QUICK_SAMPLES: u32 = 300;
/// Batches between two changes of the case.
const BLOCK: u32 = 20;
/// Batches that are counted, and those before, so that nothing of the first one counts.
const COUNTED: u32 = 50;
const WARM_UP: u32 = 3;
/// Batches to queue pairs: as many WRITEs as there are peers.
const MAX_PEERS: u16 = 32;
/// Most WRITEs of a batch.
const MAX_BATCH: u16 = 1024;

#[derive(Args)]
pub struct FanoutArgs {
    #[command(flatten)]
    pub common: Common,
    /// What to measure.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = [System::Verbs, System::Weft], value_enum)]
    pub systems: Vec<System>,
    /// Peers, on the nodes behind the clients', 2 to 32: also the WRITEs of a batch to
    /// queue pairs.
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_PEERS)))]
    pub peers: u16,
    /// Handles of an unconnected queue pair.
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub handles: u32,
    /// WRITEs of a batch to handles, each 1 to 1024.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [16, 125],
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_BATCH)))]
    pub batches: Vec<u16>,
    /// Bytes of a WRITE to a queue pair, each 1 to 4096; to a handle the first of them.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [8, 4096],
          value_parser = clap::value_parser!(u32).range(1..=REGION_BYTES as i64))]
    pub sizes: Vec<u32>,
    /// Batches of each case. [default: 2000; quick: 300]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub samples: Option<u32>,
}

/// How requests name their targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Targets {
    /// By a queue pair each.
    Connected,
    /// By a handle each.
    Unconnected,
}

impl Targets {
    fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Unconnected => "unconnected",
        }
    }
}

/// What one case does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    system: System,
    by: Targets,
    targets: usize,
    /// That the targets are spread over.
    nodes: usize,
    /// WRITEs of a batch.
    batch: usize,
    /// Bytes of a WRITE.
    bytes: u32,
    /// How the client learns that a batch is done.
    wait: Wait,
}

/// The peers, and where Weft's clients find their memory.
struct Peers {
    all: Vec<(Node, Peer)>,
    weft: Vec<(Node, Remote)>,
}

impl Peers {
    fn start(count: u16, weft: bool) -> Result<Self> {
        let nodes = (1..=count).map(Node);
        let start = |node| Ok((node, Peer::start(node, weft, REGION_BYTES)?));
        let all = nodes.map(start).collect::<Result<Vec<_>>>()?;
        let memory = all.iter().filter(|_| weft).map(|(node, peer)| {
            let region = peer.ready.weft.context("a peer does not serve Weft")?;
            Ok((*node, region.into()))
        });
        Ok(Self {
            weft: memory.collect::<Result<_>>()?,
            all,
        })
    }
}

/// Runs the benchmark.
pub fn run(args: &FanoutArgs) -> Result<()> {
    ensure!(!args.systems.is_empty(), "--systems: name at least one");
    let weft = args.systems.contains(&System::Weft);
    if weft {
        meta_server(&(1..=args.peers).map(Node).collect::<Vec<_>>())?;
    }
    let peers = Peers::start(args.peers, weft)?;
    // Handles are over DC alone; what is beside them has to be too.
    let reached = (1..=args.peers).filter(|_| weft).map(Node);
    let _ways = Way::force_all(reached, Transport::Dc)?;
    let mut shapes = shapes(args);
    shapes.retain(|shape| args.systems.contains(&shape.system));
    let samples = args.samples.unwrap_or(match args.common.quick {
        true => QUICK_SAMPLES,
        false => SAMPLES,
    });
    let amount = Amount {
        rounds: samples.div_ceil(BLOCK),
        ..Amount::of(BLOCK.min(samples))
    };
    let cases: Vec<_> = shapes
        .iter()
        .map(|&shape| (make(shape, &peers), amount))
        .collect();
    let outcomes = round_robin::run("fanout", &cases, 1)?;
    let mut json = JsonLines::create(&args.common)?;
    let mut rows = Vec::new();
    for ((shape, (make, _)), outcome) in shapes.iter().zip(&cases).zip(&outcomes) {
        let counts = count(&mut *make()?, shape.batch)?;
        rows.push(Row::new(*shape, outcome, counts));
    }
    Row::compare(&mut rows);
    for row in &rows {
        json.write(row)?;
    }
    Results(rows).print();
    Ok(())
}

/// All cases: each with many targets has one with a single target beside it.
fn shapes(args: &FanoutArgs) -> Vec<Shape> {
    let (peers, handles) = (usize::from(args.peers), args.handles as usize);
    let connected = |(system, wait), targets, nodes, bytes| Shape {
        system,
        wait,
        by: Targets::Connected,
        targets,
        nodes,
        batch: peers,
        bytes,
    };
    let unconnected = |targets: usize, nodes: usize, batch| Shape {
        system: System::Weft,
        by: Targets::Unconnected,
        targets,
        nodes: nodes.min(targets),
        batch,
        bytes: args.sizes.first().copied().unwrap_or(8),
        wait: Wait::Call,
    };
    let mut shapes = Vec::new();
    for &bytes in &args.sizes {
        for wait in Wait::OF_VERBS {
            let verbs = (System::Verbs, wait);
            shapes.extend([
                connected(verbs, 1, 1, bytes),
                connected(verbs, peers, peers, bytes),
            ]);
        }
        let weft = (System::Weft, Wait::Call);
        shapes.extend([
            connected(weft, 1, 1, bytes),
            connected(weft, peers, 1, bytes),
            connected(weft, peers, peers, bytes),
        ]);
    }
    for &batch in &args.batches {
        let batch = usize::from(batch);
        shapes.extend([
            unconnected(1, 1, batch),
            unconnected(handles, 1, batch),
            unconnected(handles, peers, batch),
        ]);
    }
    shapes
}

fn make(shape: Shape, peers: &Peers) -> MakeCase<'_> {
    Box::new(move || {
        Ok(match shape.system {
            System::Verbs => Box::new(VerbsFan::connect(shape, &peers.all)?),
            System::Weft => Box::new(WeftFan::open(shape, &peers.weft)?),
        })
    })
}

/// Counts what a batch takes, one after the other, with nothing beside.
fn count(case: &mut dyn Case, batch: usize) -> Result<Counts> {
    for _ in 0..WARM_UP {
        case.sample()?;
    }
    let before = packets()?;
    let syscalls = Syscalls::count();
    for _ in 0..COUNTED {
        case.sample()?;
    }
    let calls = syscalls.map(Syscalls::stop).transpose()?;
    let per_batch = |n: u64| n as f64 / f64::from(COUNTED);
    Ok(Counts {
        syscalls_per_batch: calls.map(per_batch),
        packets_per_write: per_batch(packets()? - before) / batch as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;
    use clap::Parser as _;

    #[test]
    fn each_case_has_one_with_a_single_target_beside_it() {
        let words = ["weft-bench", "fanout", "--peers", "3", "--batches", "5"];
        let Command::Fanout(args) = crate::cli::Cli::parse_from(words).command else {
            panic!("another command");
        };
        let shapes = shapes(&args);
        assert_eq!(shapes.len(), 17);
        for shape in &shapes {
            let single = Shape {
                targets: 1,
                nodes: 1,
                ..*shape
            };
            assert!(shapes.contains(&single), "{shape:?}");
        }
        let waiting = |wait| shapes.iter().filter(|shape| shape.wait == wait).count();
        let verbs = Wait::OF_VERBS.map(waiting);
        assert_eq!(verbs, [4, 4]);
        assert_eq!(waiting(Wait::Call), 9);
    }
}
