// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench worker`: workers that start, from before `fork` and `exec` until each
//! has done its first WRITE, so many at once.
//!
//! That is what an elastic application pays for one more worker (krcore §2, §5.3).
//! The processes are those of [`crate::newcomer`]; what a process takes until its
//! first statement is a column of its own, and the same for both systems, because it
//! is the same program.
//!
//! In `cold` the host knows nothing of the peer: Weft's DCCache is emptied before each
//! round. Verbs' workers poll for their WRITE, or sleep until it is done. In `cached` (Weft
//! alone) a worker that started before connected to it. Cases take turns, a round of each in
//! an order that is drawn anew each time.

use std::time::Duration;
use std::{iter, thread};

use anyhow::{ensure, Context as _, Result};
use clap::Args;
use serde::Serialize;
use weft_shim::Device;

use crate::cli::{Common, ExchangeKind, System, MAX_CLIENTS};
use crate::connect::{faster_cold, meta_server};
use crate::newcomer::{Arrival, Newcomer, Task};
use crate::nodes::{CLIENT, SERVER};
use crate::peer::{Peer, Ready};
use crate::report::{number, progress, rounded, JsonLines, Sheet};
use crate::round_robin::{Order, Outcome, Part};
use crate::stats::{median, Times};
use crate::verbs::{Exchange, REGION_BYTES};
use crate::wait::Wait;
use crate::weft::device;

/// Processes of each case, at least, unless told.
const SAMPLES: u32 = 200;
const QUICK_SAMPLES: u32 = 16;
/// Rounds, however many processes one has.
const MIN_ROUNDS: u32 = 11;
/// Numbers of processes that start at once, unless told. A quick run has time for the rounds of
/// few.
const WORKERS: [u16; 7] = [1, 2, 4, 8, 16, 32, 64];
const QUICK_WORKERS: [u16; 3] = [1, 8, 16];
/// After a round, for the peer to destroy its queue pairs.
const REST: Duration = Duration::from_millis(20);

#[derive(Args)]
pub struct WorkerArgs {
    #[command(flatten)]
    pub common: Common,
    /// What to measure.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_values_t = [System::Verbs, System::Weft], value_enum)]
    pub systems: Vec<System>,
    /// Numbers of processes that start at once, each 1 to 64.
    /// [default: 1,2,4,8,16,32,64; quick: 1,8,16]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_CLIENTS)))]
    pub workers: Vec<u16>,
    /// Processes of each case, at least; eleven rounds have to be. [default: 200;
    /// quick: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub samples: Option<u32>,
    /// How verbs peers exchange addresses. [default: the faster, by measurement]
    #[arg(long, value_enum)]
    pub exchange: Option<ExchangeKind>,
}

/// One case with one number of processes at once. Times are in microseconds.
#[derive(Serialize)]
struct Row {
    bench: &'static str,
    system: &'static str,
    case: &'static str,
    workers: u16,
    /// Processes that were started.
    samples: u64,
    /// Until its first statement.
    start_us_p50: Option<f64>,
    open_us_p50: Option<f64>,
    register_us_p50: Option<f64>,
    create_us_p50: Option<f64>,
    call_us_p50: Option<f64>,
    first_write_us_p50: Option<f64>,
    /// From before it was made until its first WRITE was done.
    total_us_p50: Option<f64>,
    total_us_p99: Option<f64>,
    /// From the first start of a round until the last WRITE.
    round_us_p50: Option<f64>,
    /// How a worker waits for its WRITE.
    wait: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<&'static str>,
}

/// A case, and what was measured of it.
struct Case {
    system: System,
    name: &'static str,
    task: Task,
    wait: Wait,
    exchange: Option<ExchangeKind>,
    before: Before,
    found: Found,
}

/// The preparation of a round.
enum Before {
    Nothing,
    /// The DCCache is emptied.
    Forget(Device),
    /// A worker that does not count connects, so that the node knows the peer.
    Meet,
}

struct Found {
    start: Times,
    total: Times,
    rounds_us: Vec<f64>,
    parts: Outcome,
}

impl Found {
    fn nothing() -> Self {
        Self {
            start: Times::new(),
            total: Times::new(),
            rounds_us: Vec::new(),
            parts: Outcome::empty(),
        }
    }

    fn add(&mut self, arrivals: &[Arrival]) {
        for arrival in arrivals {
            self.start.record(arrival.start);
            self.total.record(arrival.all());
            self.parts.add(arrival.sample);
        }
        self.rounds_us.push(span(arrivals).as_secs_f64() * 1e6);
    }
}

/// From the first start until the last end.
fn span(arrivals: &[Arrival]) -> Duration {
    let first = arrivals.iter().map(|arrival| arrival.started_ns).min();
    let last = arrivals.iter().map(|arrival| arrival.ended_ns).max();
    Duration::from_nanos(first.zip(last).map_or(0, |(first, last)| last - first))
}

impl Case {
    fn round(&mut self, workers: u16) -> Result<()> {
        match &self.before {
            Before::Nothing => {}
            Before::Forget(device) => device.flush_dccache()?,
            Before::Meet => {
                self.task.start()?.wait()?;
            }
        }
        let start = || self.task.start();
        let started = iter::repeat_with(start).take(usize::from(workers));
        let started: Vec<_> = started.collect::<Result<_>>()?;
        let arrivals: Vec<_> = started
            .into_iter()
            .map(Newcomer::wait)
            .collect::<Result<_>>()?;
        self.found.add(&arrivals);
        thread::sleep(REST);
        Ok(())
    }

    /// What was measured, which is forgotten.
    fn row(&mut self, workers: u16) -> Row {
        let found = std::mem::replace(&mut self.found, Found::nothing());
        let part = |part| {
            let times = found.parts.part(part);
            rounded(times.and_then(|times| times.percentile_us(50.0)))
        };
        let p50 = |times: &Times| rounded(times.percentile_us(50.0));
        Row {
            bench: "worker",
            system: self.system.name(),
            case: self.name,
            workers,
            samples: found.total.count(),
            start_us_p50: p50(&found.start),
            open_us_p50: part(Part::Open),
            register_us_p50: part(Part::Register),
            create_us_p50: part(Part::Create),
            call_us_p50: p50(&found.parts.call),
            first_write_us_p50: part(Part::FirstWrite),
            total_us_p50: p50(&found.total),
            total_us_p99: rounded(found.total.percentile_us(99.0)),
            round_us_p50: rounded(median(&found.rounds_us)),
            wait: self.wait.name(),
            exchange: self.exchange.map(ExchangeKind::name),
        }
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.system.to_owned(),
            self.case.to_owned(),
            self.wait.to_owned(),
            self.workers.to_string(),
            self.samples.to_string(),
        ];
        let times = [
            self.start_us_p50,
            self.open_us_p50,
            self.register_us_p50,
            self.create_us_p50,
            self.call_us_p50,
            self.first_write_us_p50,
            self.total_us_p50,
            self.total_us_p99,
            self.round_us_p50,
        ];
        cells.extend(times.map(number));
        cells
    }
}

/// The table's columns. Each is a p50 unless it says otherwise.
const COLUMNS: [&str; 14] = [
    "system",
    "case",
    "wait",
    "#workers",
    "#processes",
    "fork, exec[usec]",
    "open",
    "register",
    "create",
    "connect",
    "first WRITE",
    "sum",
    "99%",
    "all of a round",
];

/// Runs the benchmark.
pub fn run(args: &WorkerArgs) -> Result<()> {
    ensure!(!args.systems.is_empty(), "--systems: name at least one");
    let quick = args.common.quick;
    let sizes = match (&args.workers[..], quick) {
        ([], true) => &QUICK_WORKERS[..],
        ([], false) => &WORKERS,
        (list, _) => list,
    };
    let samples = args
        .samples
        .unwrap_or(if quick { QUICK_SAMPLES } else { SAMPLES });
    let mut json = JsonLines::create(&args.common)?;
    let weft = args.systems.contains(&System::Weft);
    if weft {
        meta_server(&[SERVER])?;
    }
    let peer = Peer::start(SERVER, weft, REGION_BYTES)?;
    let mut cases = Vec::new();
    for &system in &args.systems {
        cases.extend(match system {
            System::Verbs => verbs(&peer.ready, args.exchange)?,
            System::Weft => weft_cases(&peer.ready)?,
        });
    }
    let mut sheet = Sheet::new(&COLUMNS, 3);
    for &workers in sizes {
        for row in measure(&mut cases, workers, samples)? {
            json.write(&row)?;
            sheet.row(row.cells());
        }
    }
    sheet.print();
    Ok(())
}

/// How many rounds make that many processes.
fn rounds(samples: u32, workers: u16) -> u32 {
    samples.div_ceil(u32::from(workers)).max(MIN_ROUNDS)
}

/// Starts processes of all cases in turn.
fn measure(cases: &mut [Case], workers: u16, samples: u32) -> Result<Vec<Row>> {
    let rounds = rounds(samples, workers);
    let mut order = Order::new(cases.len(), u64::from(workers));
    let bar = progress(format!("{workers} workers at once"), u64::from(rounds));
    for _ in 0..rounds {
        for &case in order.shuffled() {
            cases[case].round(workers)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(cases.iter_mut().map(|case| case.row(workers)).collect())
}

fn verbs(peer: &Ready, exchange: Option<ExchangeKind>) -> Result<Vec<Case>> {
    let local = CLIENT.local_gid(&CLIENT.open()?)?;
    let kind = match exchange {
        Some(kind) => kind,
        None => faster_cold(peer, local)?,
    };
    let case = |wait| Case {
        system: System::Verbs,
        name: "cold",
        task: Task::verbs(local, Exchange::with(kind, peer), wait),
        wait,
        exchange: Some(kind),
        before: Before::Nothing,
        found: Found::nothing(),
    };
    Ok(Wait::OF_VERBS.map(case).into())
}

fn weft_cases(peer: &Ready) -> Result<Vec<Case>> {
    let region = peer.weft.context("the peer does not serve Weft")?;
    let case = |name, before| Case {
        system: System::Weft,
        name,
        task: Task::Weft {
            node: SERVER.0,
            region,
        },
        wait: Wait::Call,
        exchange: None,
        before,
        found: Found::nothing(),
    };
    Ok(vec![
        case("cold", Before::Forget(device()?)),
        case("cached", Before::Meet),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round_robin::{Parts, Sample};

    fn arrival(started_ns: u64, ended_ns: u64) -> Arrival {
        Arrival {
            started_ns,
            ended_ns,
            start: Duration::from_nanos(1),
            sample: Sample {
                parts: Parts::default().with(Part::Open, Duration::from_micros(3)),
                ..Sample::default()
            },
        }
    }

    #[test]
    fn a_round_lasts_from_the_first_start_to_the_last_end() {
        let arrivals = [arrival(10, 70), arrival(20, 50)];
        assert_eq!(span(&arrivals), Duration::from_nanos(60));
        assert_eq!(span(&[]), Duration::ZERO);
    }

    #[test]
    fn every_process_counts_and_so_do_its_parts() {
        let mut found = Found::nothing();
        found.add(&[arrival(0, 5_000), arrival(0, 9_000)]);
        assert_eq!((found.total.count(), found.rounds_us.len()), (2, 1));
        assert_eq!(found.parts.part(Part::Open).map(Times::count), Some(2));
        assert!(found.parts.part(Part::Create).is_none());
    }

    #[test]
    fn there_are_enough_rounds_for_a_median_however_many_start_at_once() {
        for samples in [SAMPLES, QUICK_SAMPLES] {
            for workers in WORKERS.into_iter().chain(QUICK_WORKERS) {
                let rounds = rounds(samples, workers);
                assert!(rounds >= 11 && rounds * u32::from(workers) >= samples);
            }
        }
        assert_eq!(rounds(SAMPLES, 1), SAMPLES);
    }
}
