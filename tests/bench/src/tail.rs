// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench tail` (krcore §5.2, figure 14b): many clients READ 8 bytes from few
//! servers, each time from one drawn at random, and wait for it. Each client has a
//! connection to each server. Verbs' clients poll, or sleep until a READ is done.

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use crate::cli::{Common, System, Transport, MAX_CLIENTS};
use crate::nodes::Node;
use crate::peer::Peer;
use crate::readers::{VerbsReader, WeftReader};
use crate::report::{cdf, number, rounded, JsonLines, Sheet};
use crate::round_robin::{self, Amount, MakeCase, Outcome};
use crate::wait::Wait;
use crate::weft::Way;

/// As in the paper.
const CLIENTS: u16 = 50;
const SERVERS: u16 = 5;
/// READs of each client, unless told.
const SAMPLES: u32 = 1000;
const QUICK_SAMPLES: u32 = 60;
/// Blocks that they are cut into.
const ROUNDS: u32 = 5;

#[derive(Args)]
pub struct TailArgs {
    #[command(flatten)]
    pub common: Common,
    /// Client threads, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = CLIENTS,
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CLIENTS)))]
    pub clients: u16,
    /// Servers, on the nodes behind the clients'.
    #[arg(long, value_name = "N", default_value_t = SERVERS,
          value_parser = clap::value_parser!(u16).range(1..=63))]
    pub servers: u16,
    /// READs of each client. [default: 1000; quick: 60]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub samples: Option<u32>,
}

/// One system. Times are in microseconds.
#[derive(Serialize)]
struct Row {
    bench: &'static str,
    system: &'static str,
    transport: &'static str,
    /// How a client learns that its READ is done.
    wait: &'static str,
    clients: u16,
    servers: u16,
    reads: u64,
    lat_us_p50: Option<f64>,
    lat_us_p99: Option<f64>,
    lat_us_p999: Option<f64>,
    lat_us_max: Option<f64>,
    lat_us_cdf: Vec<(f64, f64)>,
    ops_per_sec: f64,
}

impl Row {
    fn new(system: System, wait: Wait, args: &TailArgs, outcome: &Outcome) -> Self {
        let transport = match system {
            System::Weft => Transport::Dc,
            System::Verbs => Transport::Rc,
        };
        let percentile = |percent| rounded(outcome.call.percentile_us(percent));
        Self {
            bench: "tail",
            system: system.name(),
            transport: transport.name(),
            wait: wait.name(),
            clients: args.clients,
            servers: args.servers,
            reads: outcome.call.count(),
            lat_us_p50: percentile(50.0),
            lat_us_p99: percentile(99.0),
            lat_us_p999: percentile(99.9),
            lat_us_max: rounded(outcome.call.max_us()),
            lat_us_cdf: cdf(&outcome.call.cdf_us()),
            ops_per_sec: outcome.per_sec().round(),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.system.to_owned(),
            self.transport.to_owned(),
            self.wait.to_owned(),
            self.clients.to_string(),
            self.servers.to_string(),
            self.reads.to_string(),
            number(self.lat_us_p50),
            number(self.lat_us_p99),
            number(self.lat_us_p999),
            number(self.lat_us_max),
            format!("{:.0}", self.ops_per_sec),
        ]
    }
}

/// Runs the benchmark.
pub fn run(args: &TailArgs) -> Result<()> {
    let mut json = JsonLines::create(&args.common)?;
    let samples = args.samples.unwrap_or(match args.common.quick {
        true => QUICK_SAMPLES,
        false => SAMPLES,
    });
    let servers = (1..=args.servers)
        .map(|node| Ok((Node(node), Peer::start(Node(node), true, 4096)?)))
        .collect::<Result<Vec<_>>>()?;
    let _ways = Way::force_all((1..=args.servers).map(Node), Transport::Dc)?;
    let rounds = samples.min(ROUNDS);
    let amount = Amount {
        block: samples.div_ceil(rounds),
        rounds,
        ..Amount::of(1)
    };
    let mut lanes = Vec::new();
    let mut cases: Vec<(MakeCase<'_>, Amount)> = Vec::new();
    for wait in Wait::OF_VERBS {
        let servers = &servers;
        let make: MakeCase<'_> = Box::new(move || {
            let peers = servers.iter().map(|(_, peer)| &peer.ready);
            Ok(Box::new(VerbsReader::connect_all(peers, wait)?))
        });
        lanes.push((System::Verbs, wait));
        cases.push((make, amount));
    }
    let weft: MakeCase<'_> = Box::new(|| {
        let peers = servers.iter().map(|(node, peer)| (*node, &peer.ready));
        Ok(Box::new(WeftReader::connect_all(peers)?))
    });
    lanes.push((System::Weft, Wait::Call));
    cases.push((weft, amount));
    let outcomes = round_robin::run("tail", &cases, args.clients)?;

    let columns = [
        "system",
        "transport",
        "wait",
        "#clients",
        "#servers",
        "#iterations",
        "t_typical[usec]",
        "99% percentile[usec]",
        "99.9% percentile[usec]",
        "t_max[usec]",
        "per sec",
    ];
    let mut sheet = Sheet::new(&columns, 3);
    for ((system, wait), outcome) in lanes.into_iter().zip(&outcomes) {
        let row = Row::new(system, wait, args, outcome);
        json.write(&row)?;
        sheet.row(row.cells());
    }
    sheet.print();
    Ok(())
}
