// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench datapath` (krcore §5.2, figure 10): one-sided READs and WRITEs
//! over connections that are there.
//!
//! In `sync` a client posts a request and waits for it. In `async` it posts a
//! batch of [`BATCH`] with one call, of which the last is signalled, and waits
//! for that; a batch has no latency of a request to report. Both systems do the
//! same: verbs posts a list that was made beforehand and polls without a pause,
//! Weft submits and waits in one system call.
//!
//! Each client has a connection, memory and completion queue of its own. The two
//! systems take turns, block by block, on the same operation.

mod pool;
mod result;
mod verbs_client;
mod weft_client;

use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use crate::cli::{DatapathArgs, Mode, Operation, System, MAX_REQUEST_BYTES};
use crate::nodes::SERVER;
use crate::peer::Peer;
use crate::report::JsonLines;
use crate::round_robin::{self, Amount, MakeCase, Outcome};
use result::{Results, Row};
use verbs_client::VerbsClients;
use weft_client::WeftClients;

/// Requests of a batch.
const BATCH: u32 = 32;
/// The peer's memory. Clients use it side by side as far as it goes.
const PEER_BYTES: u32 = 4 * MAX_REQUEST_BYTES;
/// Sizes, in bytes, unless told.
const SIZES: [u32; 7] = [8, 64, 512, 4096, 65536, 1 << 20, 4 << 20];
const QUICK_SIZES: [u32; 4] = [8, 4096, 65536, 1 << 20];
/// How long each system is at a case.
const CASE_TIME: Duration = Duration::from_secs(2);
/// In a quick run at most so long, and all cases together at most so long. The
/// rest of the minute is for trials and for samples that take longer.
const QUICK_CASE_TIME: Duration = Duration::from_secs(1);
const QUICK_TIME: Duration = Duration::from_secs(24);
/// Blocks that a case is cut into.
const ROUNDS: u32 = 20;
/// The fewest samples, however long they take.
const MIN_SAMPLES: u32 = 2;
/// Samples of a trial, if one takes less than `SLOW_US`.
const TRIAL_SAMPLES: u32 = 20;
const SLOW_US: f64 = 10_000.0;

/// What a case does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    op: Operation,
    mode: Mode,
    bytes: u32,
}

impl Work {
    /// Requests of a sample.
    fn requests(self) -> u32 {
        match self.mode {
            Mode::Sync => 1,
            Mode::Async => BATCH,
        }
    }

    /// Where in the peer's `memory` bytes the client with this index works:
    /// beside the others, or on top of one if there are too many.
    fn offset(self, client: u16, memory: u32) -> u64 {
        let places = (memory / self.bytes).max(1);
        u64::from(u32::from(client) % places) * u64::from(self.bytes)
    }
}

/// The clients of each system that is measured.
struct Fleet {
    verbs: Option<VerbsClients>,
    weft: Option<WeftClients>,
}

/// Runs the benchmark.
pub fn run(args: &DatapathArgs) -> Result<()> {
    check(args)?;
    let wants = |system| args.systems.contains(&system);
    let mut json = JsonLines::create(args.common.json.as_deref())?;
    let all = works(args);
    let longest = all.iter().map(|work| work.bytes).max().unwrap_or(1);
    let one = [1];
    let counts = if args.clients.is_empty() {
        &one[..]
    } else {
        &args.clients
    };
    let time = case_time(args.common.quick, all.len() * counts.len() * 2);
    let bytes = usize::try_from(PEER_BYTES)?;
    let peer = Peer::start(SERVER, wants(System::Weft), bytes)?;

    let mut results = Results::default();
    for &clients in counts {
        let fleet = Fleet {
            verbs: match wants(System::Verbs) {
                true => Some(VerbsClients::connect(&peer.ready, clients, longest)?),
                false => None,
            },
            weft: match wants(System::Weft) {
                true => Some(WeftClients::connect(&peer.ready, clients, longest)?),
                false => None,
            },
        };
        for &work in &all {
            let rows = measure(&fleet, work, clients, args.samples, time).with_context(|| {
                let (op, mode) = (work.op.name(), work.mode.name());
                format!("{mode} {op} of {} bytes, {clients} clients", work.bytes)
            })?;
            for row in rows {
                json.write(&row)?;
                results.add(row);
            }
        }
    }
    results.print();
    Ok(())
}

/// Whether the lists name something that can be measured.
fn check(args: &DatapathArgs) -> Result<()> {
    ensure!(!args.systems.is_empty(), "--systems: name at least one");
    ensure!(!args.ops.is_empty(), "--ops: name at least one");
    ensure!(!args.modes.is_empty(), "--modes: name at least one");
    ensure!(
        !args.systems.contains(&System::Ref),
        "--systems: ref has no data path; it is `connect` that measures it"
    );
    Ok(())
}

/// All that is to be done, in the table's order.
fn works(args: &DatapathArgs) -> Vec<Work> {
    let sizes = match (&args.sizes[..], args.common.quick) {
        ([], true) => &QUICK_SIZES[..],
        ([], false) => &SIZES,
        (list, _) => list,
    };
    let mut works = Vec::new();
    for &op in &args.ops {
        for &mode in &args.modes {
            works.extend(sizes.iter().map(|&bytes| Work { op, mode, bytes }));
        }
    }
    works
}

/// How long to be at each of so many cases.
fn case_time(quick: bool, cases: usize) -> Duration {
    let share = QUICK_TIME / u32::try_from(cases.max(1)).unwrap_or(u32::MAX);
    if quick {
        share.min(QUICK_CASE_TIME)
    } else {
        CASE_TIME
    }
}

/// Measures one operation on all systems, interleaved.
fn measure(
    fleet: &Fleet,
    work: Work,
    clients: u16,
    samples: Option<u32>,
    time: Duration,
) -> Result<Vec<Row>> {
    let mut systems = Vec::new();
    let mut makers: Vec<MakeCase<'_>> = Vec::new();
    if let Some(verbs) = &fleet.verbs {
        systems.push(System::Verbs);
        makers.push(Box::new(move || verbs.case(work)));
    }
    if let Some(weft) = &fleet.weft {
        systems.push(System::Weft);
        makers.push(Box::new(move || weft.case(work)));
    }
    let once = Amount {
        block: 1,
        rounds: 1,
        rest: Duration::ZERO,
    };
    let mut cases: Vec<_> = makers.into_iter().map(|make| (make, once)).collect();
    // Warms up, too.
    let mut trial = round_robin::run("datapath", &cases, clients)?;
    if samples.is_none() && slowest_us(&trial, clients) < SLOW_US {
        cases.iter_mut().for_each(|(_, a)| a.block = TRIAL_SAMPLES);
        trial = round_robin::run("datapath", &cases, clients)?;
    }
    let wanted: Vec<_> = trial
        .iter()
        .map(|outcome| samples.unwrap_or_else(|| samples_in(time, sample_us(outcome, clients))))
        .collect();
    let rounds = wanted.iter().copied().min().unwrap_or(1).min(ROUNDS);
    for ((_, amount), wanted) in cases.iter_mut().zip(wanted) {
        amount.rounds = rounds;
        amount.block = wanted.div_ceil(rounds);
    }
    let outcomes = round_robin::run("datapath", &cases, clients)?;
    let rows = systems.iter().zip(&outcomes);
    Ok(rows
        .map(|(&system, outcome)| Row::new(system, work, clients, outcome))
        .collect())
}

/// How long a client is at a sample, in microseconds. The mean, not the median:
/// where clients outnumber processors, few samples take most of the time.
fn sample_us(outcome: &Outcome, clients: u16) -> f64 {
    f64::from(clients) * 1e6 / outcome.per_sec().max(1e-6)
}

fn slowest_us(outcomes: &[Outcome], clients: u16) -> f64 {
    let each = outcomes.iter().map(|outcome| sample_us(outcome, clients));
    each.fold(0.0, f64::max)
}

/// Samples of `sample_us` each that fit into `time`.
fn samples_in(time: Duration, sample_us: f64) -> u32 {
    // Saturates, if a sample takes no time at all.
    let fit = (time.as_secs_f64() * 1e6 / sample_us) as u32;
    fit.clamp(MIN_SAMPLES, 10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_stay_within_the_peers_memory() {
        let work = |bytes| Work {
            op: Operation::Write,
            mode: Mode::Sync,
            bytes,
        };
        assert_eq!(work(8).offset(63, PEER_BYTES), 63 * 8);
        for bytes in SIZES {
            let end = work(bytes).offset(63, PEER_BYTES) + u64::from(bytes);
            assert!(end <= u64::from(PEER_BYTES));
        }
        assert_eq!(work(MAX_REQUEST_BYTES).offset(4, PEER_BYTES), 0);
    }

    #[test]
    fn a_quick_run_of_the_default_sizes_fits_a_minute() {
        let cases = 2 * 2 * 2 * QUICK_SIZES.len();
        for cases in [cases, 7 * cases] {
            let all = case_time(true, cases) * u32::try_from(cases).unwrap();
            assert!(all <= QUICK_TIME);
        }
        assert_eq!(case_time(true, 1), QUICK_CASE_TIME);
        assert_eq!(case_time(false, cases), CASE_TIME);
    }

    #[test]
    fn samples_fill_the_time_and_are_never_too_few() {
        assert_eq!(samples_in(Duration::from_secs(1), 10.0), 100_000);
        assert_eq!(samples_in(Duration::from_secs(1), 5e6), MIN_SAMPLES);
        assert_eq!(samples_in(Duration::from_secs(1), 0.0), 10_000_000);
    }
}
