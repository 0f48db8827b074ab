// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench factors` (krcore §5.2, figure 12a): where the time of one 8-byte
//! READ goes.
//!
//! Each factor is measured by itself, interleaved with the others, and stands
//! beside the one that it comes on top of:
//!
//! - `verbs_rc_read`: user-space verbs.
//! - `null_ioctl`: a system call of the module that does nothing.
//! - `enter_empty`: the call that submits, with nothing to submit.
//! - `enter_refused`: a request that is copied, checked and completed, and never
//!   sent, because its VQP is in error.
//! - `weft_rc_read`, `weft_dc_read`: the READ, over RC and over DC.
//! - `weft_rc_read_new_key`: over RC, of a region that the module has to look up in
//!   the peer's table.
//!
//! What does not depend on the machine is counted: system calls of the caller,
//! packets of its node, chains posted to the RDMA device, DC's requests.

mod cases;
mod result;

use anyhow::{Context as _, Result};
use clap::Args;
use weft_shim::Remote;

use crate::cli::{Common, Transport};
use crate::counters::{counter, packets};
use crate::mr::NEW_KEYS;
use crate::nodes::{CLIENT, DC_SERVER, SERVER};
use crate::peer::Peer;
use crate::readers::{VerbsReader, WeftReader};
use crate::report::JsonLines;
use crate::round_robin::{self, Amount, Case, MakeCase};
use crate::trace::Syscalls;
use crate::weft::{NullIoctl, Way};
use cases::{EmptyEnter, Refused};
use result::{print, Counts, Row};

/// Samples of a factor, unless told.
const SAMPLES: u32 = 5000;
const QUICK_SAMPLES: u32 = 300;
/// Blocks that they are cut into.
const ROUNDS: u32 = 50;
/// Operations that are counted.
const COUNTED: u32 = 100;
/// Operations before, so that nothing of the first one counts.
const WARM_UP: u32 = 3;

#[derive(Args)]
pub struct FactorsArgs {
    #[command(flatten)]
    pub common: Common,
    /// Samples of each factor. [default: 5000; quick: 300]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub samples: Option<u32>,
}

/// A factor, and the one that it comes on top of.
struct Factor<'a> {
    name: &'static str,
    over: Option<&'static str>,
    make: MakeCase<'a>,
}

/// Runs the benchmark.
pub fn run(args: &FactorsArgs) -> Result<()> {
    let mut json = JsonLines::create(&args.common)?;
    let samples = args.samples.unwrap_or(match args.common.quick {
        true => QUICK_SAMPLES,
        false => SAMPLES,
    });
    let rc = Peer::with_keys(SERVER, NEW_KEYS)?;
    let dc = Peer::with_keys(DC_SERVER, 0)?;
    let known: Remote = rc
        .ready
        .weft
        .context("the peer does not serve Weft")?
        .into();
    let _rc = Way::force(CLIENT, SERVER, Transport::Rc)?;
    let _dc = Way::force(CLIENT, DC_SERVER, Transport::Dc)?;

    let factors = factors(&rc, &dc, known);
    let rounds = samples.min(ROUNDS);
    let amount = Amount {
        block: samples.div_ceil(rounds),
        rounds,
        ..Amount::of(1)
    };
    let cases: Vec<(MakeCase<'_>, Amount)> = factors
        .iter()
        .map(|factor| -> (MakeCase<'_>, Amount) { (Box::new(|| (factor.make)()), amount) })
        .collect();
    let outcomes = round_robin::run("factors", &cases, 1)?;
    let mut rows = Vec::new();
    for (factor, outcome) in factors.iter().zip(&outcomes) {
        let counts = count(&mut *(factor.make)()?)?;
        rows.push(Row::new(factor.name, factor.over, outcome, counts));
    }
    Row::compare(&mut rows);
    for row in &rows {
        json.write(row)?;
    }
    print(&rows);
    Ok(())
}

fn factors<'a>(rc: &'a Peer, dc: &'a Peer, known: Remote) -> Vec<Factor<'a>> {
    let (rc, dc) = (&rc.ready, &dc.ready);
    let factor = |name, over, make| Factor { name, over, make };
    vec![
        factor(
            "verbs_rc_read",
            None,
            Box::new(|| Ok(Box::new(VerbsReader::connect(rc)?))),
        ),
        factor(
            "null_ioctl",
            None,
            Box::new(|| Ok(Box::new(NullIoctl::open()?))),
        ),
        factor(
            "enter_empty",
            Some("null_ioctl"),
            Box::new(move || Ok(Box::new(EmptyEnter::connect(known)?))),
        ),
        factor(
            "enter_refused",
            Some("enter_empty"),
            Box::new(move || Ok(Box::new(Refused::connect(known)?))),
        ),
        factor(
            "weft_rc_read",
            Some("verbs_rc_read"),
            Box::new(|| Ok(Box::new(WeftReader::connect(SERVER, rc, Transport::Rc)?))),
        ),
        factor(
            "weft_dc_read",
            Some("verbs_rc_read"),
            Box::new(|| Ok(Box::new(WeftReader::connect(DC_SERVER, dc, Transport::Dc)?))),
        ),
        factor(
            "weft_rc_read_new_key",
            Some("weft_rc_read"),
            Box::new(|| Ok(Box::new(WeftReader::of_keys(SERVER, rc, Transport::Rc)?))),
        ),
    ]
}

/// Counts what operations take, one after the other, with nothing beside them.
fn count(case: &mut dyn Case) -> Result<Counts> {
    for _ in 0..WARM_UP {
        case.sample()?;
    }
    let before = Totals::read()?;
    let syscalls = Syscalls::count();
    for _ in 0..COUNTED {
        case.sample()?;
    }
    let calls = syscalls.map(Syscalls::stop).transpose()?;
    let after = Totals::read()?;
    let per_op = |n: u64| n as f64 / f64::from(COUNTED);
    Ok(Counts {
        syscalls_per_op: calls.map(per_op),
        packets_per_op: per_op(after.packets - before.packets),
        rc_chains_per_op: per_op(after.rc_chains - before.rc_chains),
        table_reads_per_op: per_op(after.table_reads - before.table_reads),
        dc_requests_per_op: per_op(after.dc_requests - before.dc_requests),
    })
}

/// What is counted, at a moment.
struct Totals {
    packets: u64,
    rc_chains: u64,
    table_reads: u64,
    dc_requests: u64,
}

impl Totals {
    fn read() -> Result<Self> {
        Ok(Self {
            packets: packets()?,
            rc_chains: counter("rc_chains")?,
            table_reads: counter("rc_mr_reads")?,
            dc_requests: counter("requests_sent")?,
        })
    }
}
