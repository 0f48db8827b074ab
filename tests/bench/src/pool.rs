// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench pool` (krcore §4.2, §4.3, §4.6, figure 15a): what the hybrid pool costs and
//! what it is good for.
//!
//! Three systems are compared: `weft` with the module as it was loaded (its pool decides by
//! itself unless it was told otherwise), `weft_rc` with the module loaded with `pool=rc`,
//! where whoever connects makes an RC queue pair and waits for it, as the paper's LITE does,
//! and `verbs`. The module is loaded anew before each measurement of Weft in the first two
//! cases, so that what a node makes for its first connection is in the figures.
//!
//! - `connections`: so many connections of a process on node 0 to processes on the nodes
//!   behind it, as in `weft-bench memory`: the client's calls for each (verbs: those that
//!   make and connect its own queue pair; the peer's come on top), how many a second are
//!   made with a WRITE over each, their memory, and how many WRITEs of 8 bytes a second they
//!   carry, 16 at once to different connections (verbs polls and sleeps in turn, and the better
//!   one counts). VQPs to one peer share an RC queue pair, so
//!   that `weft_rc` has as many queue pairs as there are peers (`rc_queues`, of both ends).
//! - `pairs`: one connection between each two nodes, to peers that the node does not know.
//!   Here each connection of `weft_rc` makes a queue pair, as each of LITE's to another node
//!   does. Verbs has one for each connection anyway: the row of `connections`.
//! - `delay`: 16 requests at once, READs and WRITEs in turn, while DC's packets take longer
//!   each way; see [`delay`].
//! - `moves`: the same while the VQP stays on DC or on RC (`still`, as long on either), and
//!   while it is moved every 20 ms (`moving`).
//! - `opening`: READs of 8 bytes from one peer over DC, while nothing else is done
//!   (`quiet`), and while a queue pair to another peer is made (`opening`).
//! - `cut`: READs from two peers while a third is cut off in the middle of what the pool
//!   does with it; see [`cut`].

mod cut;
mod delay;
mod filter;
mod flow;
mod module;
mod moves;
mod opening;
mod pairs;
mod result;
mod scale;

use anyhow::{ensure, Result};
use clap::{Args, ValueEnum};

use crate::cli::Common;
use crate::connect::meta_server;
use crate::counters::counter;
use crate::nodes::Node;
use crate::report::JsonLines;

const PEERS: u16 = 16;
const QUICK_PEERS: u16 = 6;
/// Peers that a quick run makes queue pairs to, where each takes tenths of seconds.
const QUICK_OPENED: usize = 4;

#[derive(Args)]
pub struct PoolArgs {
    #[command(flatten)]
    pub common: Common,
    /// What to measure connections of.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = [PoolSystem::Verbs, PoolSystem::Weft, PoolSystem::WeftRc], value_enum)]
    pub systems: Vec<PoolSystem>,
    /// What to measure.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum,
          default_values_t = [PoolCase::Connections, PoolCase::Pairs, PoolCase::Delay,
                              PoolCase::Moves, PoolCase::Opening, PoolCase::Cut])]
    pub cases: Vec<PoolCase>,
    /// Numbers of connections, each 1 to 20000.
    /// [default: 100,1000,2500,5000; quick: 400]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub connections: Vec<u32>,
    /// Peers, on the nodes behind the clients', 2 to 32. [default: 16; quick: 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=32))]
    pub peers: Option<u16>,
    /// Measurements of each number of connections. [default: 3; quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub repeats: Option<u32>,
    /// Bytes of a request in `moves` and `delay`.
    #[arg(long, value_name = "N", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub bytes: u32,
    /// How much longer each of DC's packets takes in `delay`, in microseconds.
    #[arg(long, value_name = "N", default_value_t = 300,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub delay_us: u32,
    /// Steps of the pool in which `cut` cuts the peer off.
    /// [default: all; quick: moving]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    pub cut_steps: Vec<CutStep>,
}

impl PoolArgs {
    fn peers(&self) -> Vec<Node> {
        let usual = match self.common.quick {
            true => QUICK_PEERS,
            false => PEERS,
        };
        (1..=self.peers.unwrap_or(usual)).map(Node).collect()
    }

    fn cut_steps(&self) -> &[CutStep] {
        match (&self.cut_steps[..], self.common.quick) {
            ([], true) => &[CutStep::Moving],
            ([], false) => CutStep::value_variants(),
            (list, _) => list,
        }
    }

    /// Those of some peers that queue pairs are made to one by one.
    fn opened<'a>(&self, peers: &'a [Node]) -> &'a [Node] {
        match self.common.quick {
            true => &peers[..peers.len().min(QUICK_OPENED)],
            false => peers,
        }
    }
}

/// Whose connections are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PoolSystem {
    /// User-space verbs.
    Verbs,
    /// Weft, with the module as it was loaded.
    Weft,
    /// Weft, with the module loaded with `pool=rc`.
    #[value(name = "weft_rc")]
    WeftRc,
}

impl PoolSystem {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Weft => "weft",
            Self::WeftRc => "weft_rc",
        }
    }
}

/// A step of the pool in which a peer is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CutStep {
    /// Its queue pair is made.
    Opening,
    /// A VQP to it is moved.
    Moving,
    /// Its queue pair is closed.
    Closing,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PoolCase {
    /// Many connections to few peers.
    Connections,
    /// A connection between each two nodes.
    Pairs,
    /// What the pool decides when DC has become slow.
    Delay,
    /// Requests while their VQP is moved.
    Moves,
    /// Requests while queue pairs to other peers are made.
    Opening,
    /// Requests while another peer is cut off.
    Cut,
}

/// Runs the benchmark.
pub fn run(args: &PoolArgs) -> Result<()> {
    ensure!(!args.systems.is_empty(), "--systems: name at least one");
    ensure!(!args.cases.is_empty(), "--cases: name at least one");
    let peers = args.peers();
    meta_server(&peers)?;
    let mut json = JsonLines::create(&args.common)?;
    let has = |case| args.cases.contains(&case);
    if has(PoolCase::Connections) || has(PoolCase::Pairs) {
        let rows = scale::measure(args, &peers, &mut json)?;
        result::print_scale(&rows);
    }
    let queues = counter("rc_queues")?;
    // Before `moves`, which shows the pool both transports to the same peer, and before those that
    // leave queue pairs behind for it to close.
    if has(PoolCase::Delay) {
        let row = delay::measure(args.bytes, args.delay_us, args.common.quick)?;
        json.write(&row)?;
        row.print();
    }
    if has(PoolCase::Moves) {
        let rows = moves::measure(args.bytes, args.common.quick)?;
        write_all(&mut json, &rows)?;
        result::print_latencies(&rows);
    }
    if has(PoolCase::Opening) {
        let rows = opening::measure(&peers, args, queues)?;
        write_all(&mut json, &rows)?;
        result::print_latencies(&rows);
    }
    if has(PoolCase::Cut) {
        let rows = cut::measure(&peers, args, queues)?;
        write_all(&mut json, &rows)?;
        result::print_latencies(&rows);
    }
    Ok(())
}

fn write_all(json: &mut JsonLines, rows: &[result::Latencies]) -> Result<()> {
    rows.iter().try_for_each(|row| json.write(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn args(list: &[&str]) -> PoolArgs {
        let all = ["weft-bench", "pool"].iter().chain(list);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Pool(args) => args,
            _ => unreachable!(),
        }
    }

    #[test]
    fn a_quick_run_makes_few_queue_pairs_and_cuts_in_one_step() {
        let peers: Vec<_> = (1..=16).map(Node).collect();
        let quick = args(&["--quick"]);
        assert_eq!(quick.peers(), &peers[..6]);
        assert_eq!(args(&["--quick", "--peers", "3"]).peers(), &peers[..3]);
        assert_eq!(quick.opened(&peers), &peers[..4]);
        assert_eq!(quick.opened(&peers[..2]), &peers[..2]);
        assert_eq!(quick.cut_steps(), [CutStep::Moving]);
        let full = args(&[]);
        assert_eq!(full.peers(), peers);
        assert_eq!(full.opened(&peers), peers);
        assert_eq!(full.cut_steps().len(), 3);
        let told = args(&["--quick", "--cut-steps", "opening,closing"]);
        assert_eq!(told.cut_steps(), [CutStep::Opening, CutStep::Closing]);
    }
}
