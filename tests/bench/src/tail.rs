// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench tail` (krcore §5.2, figure 14b): many clients READ 8 bytes from few
//! servers, each time from one drawn at random, and wait for it. Each client has a
//! connection to each server.

use std::time::Instant;

use anyhow::{ensure, Context as _, Result};
use clap::Args;
use serde::Serialize;
use weft_shim::Remote;
use weft_verbs::{Op, WorkRequest};

use crate::cli::{Common, ExchangeKind, System, Transport, MAX_CLIENTS};
use crate::nodes::{Node, CLIENT};
use crate::peer::Peer;
use crate::report::{cdf, number, rounded, JsonLines, Sheet};
use crate::round_robin::{self, Amount, Case, MakeCase, Outcome, Sample};
use crate::verbs::{Exchange, Link, Stack};
use crate::weft::{device, WeftLink};

/// As in the paper.
const CLIENTS: u16 = 50;
const SERVERS: u16 = 5;
/// Bytes of a READ.
const BYTES: u32 = 8;
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
    fn new(system: System, args: &TailArgs, outcome: &Outcome) -> Self {
        let transport = match system {
            System::Weft => Transport::Dc,
            System::Verbs | System::Ref => Transport::Rc,
        };
        let percentile = |percent| rounded(outcome.call.percentile_us(percent));
        Self {
            bench: "tail",
            system: system.name(),
            transport: transport.name(),
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
    let mut json = JsonLines::create(args.common.json.as_deref())?;
    let samples = args.samples.unwrap_or(match args.common.quick {
        true => QUICK_SAMPLES,
        false => SAMPLES,
    });
    let servers = (1..=args.servers)
        .map(|node| Ok((Node(node), Peer::start(Node(node), true, 4096)?)))
        .collect::<Result<Vec<_>>>()?;
    let rounds = samples.min(ROUNDS);
    let amount = Amount {
        block: samples.div_ceil(rounds),
        rounds,
        ..Amount::of(1)
    };
    let makers: [MakeCase<'_>; 2] = [
        Box::new(|| Ok(Box::new(VerbsReader::connect(&servers)?))),
        Box::new(|| Ok(Box::new(WeftReader::connect(&servers)?))),
    ];
    let cases: Vec<_> = makers.into_iter().map(|make| (make, amount)).collect();
    let outcomes = round_robin::run("tail", &cases, args.clients)?;

    let columns = [
        "system",
        "transport",
        "#clients",
        "#servers",
        "#iterations",
        "t_typical[usec]",
        "99% percentile[usec]",
        "99.9% percentile[usec]",
        "t_max[usec]",
        "per sec",
    ];
    let mut sheet = Sheet::new(&columns, 2);
    for (system, outcome) in [System::Verbs, System::Weft].into_iter().zip(&outcomes) {
        let row = Row::new(system, args, outcome);
        json.write(&row)?;
        sheet.row(row.cells());
    }
    sheet.print();
    Ok(())
}

/// Draws servers.
struct Dice(u64);

impl Dice {
    /// Every client draws a sequence of its own, the same in each run.
    fn new(seed: usize) -> Self {
        Self((seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Less than `sides`, which is not 0. (xorshift64)
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % sides
    }
}

/// A client of verbs.
struct VerbsReader {
    links: Vec<(Link, WorkRequest)>,
    dice: Dice,
}

impl VerbsReader {
    fn connect(servers: &[(Node, Peer)]) -> Result<Self> {
        let context = CLIENT.open()?;
        let local = CLIENT.local_gid(&context)?;
        let stack = Stack::on(&context)?;
        let connect = |(_, peer): &(Node, Peer)| -> Result<_> {
            let exchange = Exchange::with(ExchangeKind::Tcp, &peer.ready);
            let link = Link::warm(stack.clone(), local, exchange)?;
            let request = link.request(Op::Read, BYTES, 0);
            Ok((link, request))
        };
        let links = servers.iter().map(connect).collect::<Result<Vec<_>>>()?;
        ensure!(!links.is_empty(), "there is no server");
        let dice = Dice::new(std::ptr::from_ref(&*stack) as usize);
        Ok(Self { links, dice })
    }
}

impl Case for VerbsReader {
    fn sample(&mut self) -> Result<Sample> {
        let (link, request) = &self.links[self.dice.roll(self.links.len())];
        let start = Instant::now();
        link.run(request)?;
        Ok(Sample {
            call: start.elapsed(),
            ..Sample::default()
        })
    }
}

/// A client of Weft.
struct WeftReader {
    links: Vec<WeftLink>,
    dice: Dice,
}

impl WeftReader {
    fn connect(servers: &[(Node, Peer)]) -> Result<Self> {
        let device = device()?;
        let connect = |(node, peer): &(Node, Peer)| -> Result<_> {
            let remote: Remote = peer.ready.weft.context("a peer without Weft")?.into();
            WeftLink::with(&device, *node, (0, remote), BYTES as usize, 16)
        };
        let links = servers.iter().map(connect).collect::<Result<Vec<_>>>()?;
        ensure!(!links.is_empty(), "there is no server");
        let dice = Dice::new(links[0].memory.addr() as usize);
        Ok(Self { links, dice })
    }
}

impl Case for WeftReader {
    fn sample(&mut self) -> Result<Sample> {
        let at = self.dice.roll(self.links.len());
        let WeftLink {
            vqp,
            memory,
            remote,
        } = &mut self.links[at];
        let start = Instant::now();
        vqp.read(memory.slice(0..BYTES as usize)?, *remote)?;
        Ok(Sample {
            call: start.elapsed(),
            ..Sample::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_is_drawn() {
        let mut dice = Dice::new(7);
        let mut seen = [0_u32; 5];
        (0..1000).for_each(|_| seen[dice.roll(5)] += 1);
        assert!(
            seen.iter().all(|count| (100..300).contains(count)),
            "{seen:?}"
        );
    }
}
