// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench datapath` (krcore §5.2, figures 10, 11 and 13): requests over
//! connections that are there.
//!
//! In `sync` a client posts a request and waits for it. In `async` it posts a
//! batch of [`BATCH`] with one call, of which the last is signalled, and waits
//! for that; a batch has no latency of a request to report. Both systems do the
//! same: verbs posts a list that was made beforehand and polls without a pause,
//! Weft submits and waits in one system call.
//!
//! Each client has a connection, memory and completion queue of its own. Verbs
//! over RC, Weft over RC and Weft over DC take turns, block by block, on the same
//! operation. Messages of Weft go over DC always, so that they have no row of RC.
//!
//! Without a pause, requests follow one another faster than a client that uses the
//! data could send them. On soft-RoCE that is a case of its own: its thread may still
//! be up from the request before, and `--pause-us` tells how much that makes.

pub mod args;
mod clients;
mod pause;
mod plan;
mod result;
mod senders;
mod verbs_client;
mod weft_client;

use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};

pub use args::DatapathArgs;

use crate::cli::{System, Transport};
use crate::nodes::{DC_SERVER, SERVER};
use crate::peer::Peer;
use crate::report::JsonLines;
use crate::round_robin::{self, Amount, MakeCase};
use crate::weft::Pin;
use args::Operation;
use clients::{Fleet, Lane};
use pause::paused;
use plan::{slowest_us, Budget, Work, PEER_BYTES};
use result::{Results, Row};
use senders::Senders;

/// Requests of a batch.
const BATCH: u32 = 32;
/// Samples of a trial, if one takes less than `SLOW_US`.
const TRIAL_SAMPLES: u32 = 20;
const SLOW_US: f64 = 5_000.0;

/// The peers, and what is needed to reach them.
struct Sides {
    rc: Peer,
    /// Where no RC queue pair of the module leads to.
    dc: Option<Peer>,
    _pin: Option<Pin>,
}

impl Sides {
    fn start(args: &DatapathArgs) -> Result<Self> {
        let weft = args.systems.contains(&System::Weft);
        let over = |transport| weft && args.transports.contains(&transport);
        let bytes = usize::try_from(PEER_BYTES)?;
        let rc = Peer::start(SERVER, over(Transport::Rc), bytes)?;
        let pin = match rc.ready.weft {
            Some(region) => Some(Pin::up(SERVER, region.into())?),
            None => None,
        };
        Ok(Self {
            rc,
            dc: match over(Transport::Dc) {
                true => Some(Peer::start(DC_SERVER, true, bytes)?),
                false => None,
            },
            _pin: pin,
        })
    }
}

/// Runs the benchmark.
pub fn run(args: &DatapathArgs) -> Result<()> {
    check(args)?;
    let mut json = JsonLines::create(args.common.json.as_deref())?;
    let plan: Vec<_> = plan::clients(args)
        .into_iter()
        .map(|count| (count, plan::works(args, count)))
        .collect();
    let works: usize = plan.iter().map(|(_, works)| works.len()).sum();
    let budget = Budget::new(args, works * plan::systems(args));
    let mut results = Results::default();
    let mut run = Run {
        args,
        budget,
        start: Instant::now(),
        left_out: 0,
    };
    let outcome = run.all(plan, &mut |row: Row| {
        json.write(&row)?;
        results.add(row);
        Ok(())
    });
    // What there is, even if a case has failed.
    results.print();
    if run.left_out > 0 {
        println!("{} cases were left out: the time is over", run.left_out);
    }
    outcome
}

/// A run of the benchmark.
struct Run<'a> {
    args: &'a DatapathArgs,
    budget: Budget,
    start: Instant,
    /// Cases for which there was no time.
    left_out: usize,
}

impl Run<'_> {
    fn all(
        &mut self,
        plan: Vec<(u16, Vec<Work>)>,
        report: &mut dyn FnMut(Row) -> Result<()>,
    ) -> Result<()> {
        let sides = Sides::start(self.args)?;
        for (count, works) in plan {
            let fleet = Fleet::connect(self.args, &sides, count, &works)?;
            for work in works {
                if self.budget.is_over(self.start) {
                    self.left_out += 1;
                    continue;
                }
                let (op, mode) = (work.op.name(), work.mode.name());
                let rows = self.one(&fleet, work).with_context(|| {
                    format!("{mode} {op} of {} bytes, {count} clients", work.bytes)
                })?;
                rows.into_iter().try_for_each(&mut *report)?;
            }
        }
        Ok(())
    }

    fn one(&self, fleet: &Fleet, work: Work) -> Result<Vec<Row>> {
        if work.op != Operation::Send {
            return measure(fleet.cases(work), work, &self.budget);
        }
        let senders = Senders::connect(self.args, work)?;
        measure(senders.cases(work), work, &self.budget)
    }
}

/// Whether the lists name something that can be measured.
fn check(args: &DatapathArgs) -> Result<()> {
    ensure!(!args.systems.is_empty(), "--systems: name at least one");
    ensure!(
        !args.transports.is_empty(),
        "--transports: name at least one"
    );
    ensure!(!args.ops.is_empty(), "--ops: name at least one");
    ensure!(!args.modes.is_empty(), "--modes: name at least one");
    ensure!(
        !args.systems.contains(&System::Ref),
        "--systems: ref has no data path; it is `connect` that measures it"
    );
    Ok(())
}

/// Measures one operation on all systems, interleaved.
fn measure(cases: Vec<(Lane, MakeCase<'_>)>, work: Work, budget: &Budget) -> Result<Vec<Row>> {
    let (lanes, makers): (Vec<Lane>, Vec<_>) = cases.into_iter().unzip();
    let once = Amount::of(1);
    let pause = Duration::from_micros(work.pause_us.into());
    let mut cases: Vec<_> = makers
        .into_iter()
        .map(|make| (paused(make, pause), once))
        .collect();
    // Warms up, too.
    let mut trial = round_robin::run("datapath", &cases, work.clients)?;
    if budget.is_open() && slowest_us(&trial, work.clients) < SLOW_US {
        let more = Amount::of(TRIAL_SAMPLES);
        cases.iter_mut().for_each(|(_, amount)| *amount = more);
        trial = round_robin::run("datapath", &cases, work.clients)?;
    }
    let amounts = budget.amounts(&trial, work.clients);
    for ((_, amount), wanted) in cases.iter_mut().zip(amounts) {
        *amount = wanted;
    }
    let outcomes = round_robin::run("datapath", &cases, work.clients)?;
    let mut rows: Vec<_> = lanes
        .iter()
        .zip(&outcomes)
        .map(|(lane, outcome)| Row::new(*lane, work, outcome))
        .collect();
    Row::compare(&mut rows);
    Ok(rows)
}
