// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench mr`: what registered memory costs (krcore §4.2, §5.2).
//!
//! `register` and `deregister` are the calls, on memory that is there and was
//! touched; `deregister_leased` is the end of a region that peers may use, on a node
//! that RC queue pairs lead to: they are told, and answer. `read_known_key` is an 8-byte READ of a region whose key was used
//! before, `read_new_key` one of a region whose key was not: over RC the module
//! has to READ the peer's table of regions first. Verbs' and DC's keys are checked
//! by the peer, and need no READ.

mod keys;
mod register;

pub use keys::NEW_KEYS;

use anyhow::{ensure, Result};
use clap::Args;
use serde::Serialize;

use crate::cli::{Common, System};
use crate::report::{number, rounded, JsonLines, Sheet};
use crate::round_robin::{self, Amount, MakeCase, Outcome};

/// Sizes of regions, in bytes, unless told.
const SIZES: [u32; 4] = [4096, 65536, 1 << 20, 16 << 20];
/// Samples of a case, unless told.
const SAMPLES: u32 = 1000;
const QUICK_SAMPLES: u32 = 100;
/// Blocks that they are cut into.
const ROUNDS: u32 = 10;

#[derive(Args)]
pub struct MrArgs {
    #[command(flatten)]
    pub common: Common,
    /// Bytes of a region, each 4096 to 67108864.
    /// [default: 4096,65536,1048576,16777216]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(4096..=64 << 20))]
    pub sizes: Vec<u32>,
    /// Samples of a case. [default: 1000; quick: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub samples: Option<u32>,
}

/// One case of one system. Times are in microseconds.
#[derive(Serialize)]
struct Row {
    bench: &'static str,
    system: &'static str,
    /// Of READs.
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<&'static str>,
    case: &'static str,
    /// Of the region that is registered, or read from.
    bytes: u32,
    samples: u64,
    us_p50: Option<f64>,
    us_p99: Option<f64>,
    /// READs of the peer's table that a request took.
    #[serde(skip_serializing_if = "Option::is_none")]
    table_reads_per_op: Option<f64>,
}

/// A case to be measured.
struct Named<'a> {
    system: System,
    transport: Option<&'static str>,
    case: &'static str,
    bytes: u32,
    make: MakeCase<'a>,
}

impl Row {
    fn new(named: &Named<'_>, outcome: &Outcome) -> Self {
        Self {
            bench: "mr",
            system: named.system.name(),
            transport: named.transport,
            case: named.case,
            bytes: named.bytes,
            samples: outcome.call.count(),
            us_p50: rounded(outcome.call.percentile_us(50.0)),
            us_p99: rounded(outcome.call.percentile_us(99.0)),
            table_reads_per_op: None,
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.case.to_owned(),
            self.system.to_owned(),
            self.transport.unwrap_or("-").to_owned(),
            self.bytes.to_string(),
            self.samples.to_string(),
            number(self.us_p50),
            number(self.us_p99),
            number(self.table_reads_per_op),
        ]
    }
}

/// Runs the benchmark.
pub fn run(args: &MrArgs) -> Result<()> {
    let mut json = JsonLines::create(&args.common)?;
    let samples = args.samples.unwrap_or(match args.common.quick {
        true => QUICK_SAMPLES,
        false => SAMPLES,
    });
    let sizes = match &args.sizes[..] {
        [] => &SIZES[..],
        list => list,
    };
    // First, while no peer can have read of a region: one that was read of stays
    // pinned for a while after it is deregistered.
    let mut rows = Vec::new();
    for &bytes in sizes {
        rows.extend(measure(register::cases(bytes)?, samples)?);
    }
    rows.extend(keys::measure(samples)?);
    let columns = [
        "case",
        "system",
        "transport",
        "#bytes",
        "#iterations",
        "t_typical[usec]",
        "99% percentile[usec]",
        "table READs",
    ];
    let mut sheet = Sheet::new(&columns, 3);
    for row in rows {
        json.write(&row)?;
        sheet.row(row.cells());
    }
    sheet.print();
    Ok(())
}

/// Measures cases, interleaved, one client at a time.
fn measure(named: Vec<Named<'_>>, samples: u32) -> Result<Vec<Row>> {
    ensure!(samples > 0, "no samples");
    let rounds = samples.min(ROUNDS);
    let amount = Amount {
        block: samples.div_ceil(rounds),
        rounds,
        ..Amount::of(1)
    };
    let cases: Vec<(MakeCase<'_>, Amount)> = named
        .iter()
        .map(|named| -> (MakeCase<'_>, Amount) { (Box::new(|| (named.make)()), amount) })
        .collect();
    let outcomes = round_robin::run("mr", &cases, 1)?;
    let both = named.iter().zip(&outcomes);
    Ok(both
        .map(|(named, outcome)| Row::new(named, outcome))
        .collect())
}
