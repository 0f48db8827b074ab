// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench connect` (krcore §5.1): the connecting call, and the time from it
//! until the connection has carried its first 8-byte WRITE.

mod choose;
mod cold;
mod result;
mod verbs_cases;
mod weft_cases;

pub use cold::{connect_once, ColdArgs};

use std::time::Duration;

use anyhow::{ensure, Context as _, Result};

use crate::cli::{ConnectArgs, System};
use crate::nodes::SERVER;
use crate::peer::Peer;
use crate::report::{JsonLines, Sheet};
use crate::round_robin::{self, Amount, MakeCase};
use crate::verbs::REGION_BYTES;
use result::{Results, Row};
use verbs_cases::VerbsCases;
use weft_cases::WeftCases;

/// Rounds that a run is cut into; each case has a block in each.
const ROUNDS: u32 = 100;
/// After a block of a slow case. The peer destroys its queue pairs when it sees
/// that the client has, and the next case shall not suffer for it.
const REST: Duration = Duration::from_millis(5);
/// The fewest, however many clients there are.
const MIN_ROUNDS: u32 = 5;
/// The shortest block of a case that is not slow: its first samples find the
/// caches as the case before left them, and are to be the few.
const MIN_BLOCK: u32 = 50;
/// Slow cases take this much fewer samples.
const SLOW: u32 = 10;

/// A case and what it is called.
struct Named<'a> {
    system: System,
    case: &'static str,
    /// How verbs peers exchange addresses, where they do.
    exchange: Option<&'static str>,
    slow: bool,
    make: MakeCase<'a>,
    /// The same, call after call with nothing between them, as the null ioctl is
    /// measured: the case's times of calls are these.
    calls: Option<MakeCase<'a>>,
}

/// Runs the benchmark.
pub fn run(args: &ConnectArgs) -> Result<()> {
    let wants = |system| args.systems.contains(&system);
    ensure!(!args.systems.is_empty(), "--systems: name at least one");
    let mut json = JsonLines::create(args.common.json.as_deref())?;
    let needs_module = wants(System::Weft) || wants(System::Ref);
    let weft = match needs_module {
        true => Some(WeftCases::open()?),
        false => None,
    };
    let peer = Peer::start(SERVER, needs_module, REGION_BYTES)?;
    let verbs = VerbsCases::open(&peer.ready, args.exchange)?;

    let quick = args.common.quick;
    let samples = args.samples.unwrap_or(if quick { 1000 } else { 5000 });
    let clients = match (&args.clients[..], quick) {
        ([], true) => &[1][..],
        ([], false) => &[1, 4, 16, 64],
        (list, _) => list,
    };
    let mut results = Results::default();
    for &count in clients {
        let mut cases = verbs.cases(&args.systems);
        if let Some(weft) = &weft {
            cases.extend(weft.cases(&args.systems, &peer.ready)?);
        }
        for row in measure(cases, count, samples)? {
            json.write(&row)?;
            results.add(row);
        }
    }
    results.print();
    Ok(())
}

/// Measures all cases, interleaved, with this many clients.
fn measure(cases: Vec<Named<'_>>, clients: u16, samples: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut makers = Vec::new();
    for named in cases {
        let amount = amount(samples, named.slow, clients);
        let row = Row::new(named.system, named.case, named.exchange, clients);
        rows.push((row, named.calls.is_some()));
        makers.push((named.make, amount));
        makers.extend(named.calls.map(|make| (make, amount)));
    }
    let mut outcomes = round_robin::run("connect", &makers, clients)?.into_iter();
    let mut next = || outcomes.next().context("a case has no outcome");
    rows.into_iter()
        .map(|(row, has_calls)| {
            let row = row.filled(&next()?);
            Ok(if has_calls {
                row.with_calls(&next()?)
            } else {
                row
            })
        })
        .collect()
}

/// Blocks that together give about `samples` of all clients. Many clients have
/// fewer and longer blocks, so that they run side by side for most of each.
fn amount(samples: u32, slow: bool, clients: u16) -> Amount {
    let (share, at_least, block) = if slow {
        (SLOW, 2, 1)
    } else {
        (1, 50, MIN_BLOCK)
    };
    let of_each = match u32::from(clients) {
        1 => (samples / share).max(1),
        many => (samples / share / many).max(at_least),
    };
    let most = (ROUNDS / u32::from(clients))
        .min(of_each / block)
        .max(MIN_ROUNDS);
    let rounds = of_each.min(most);
    Amount {
        block: of_each.div_ceil(rounds),
        rounds,
        rest: if slow { REST } else { Duration::ZERO },
    }
}

/// The table's columns, perftest's where it has them.
fn sheet() -> Sheet {
    Sheet::new(
        &[
            "system",
            "case",
            "#clients",
            "#iterations",
            "t_min[usec]",
            "t_typical[usec]",
            "t_avg[usec]",
            "99% percentile[usec]",
            "99.9% percentile[usec]",
            "first write[usec]",
            "per sec",
        ],
        2,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_over_rounds_and_clients() {
        let fast = amount(5000, false, 1);
        assert_eq!((fast.block, fast.rounds), (50, 100));
        let slow = amount(5000, true, 1);
        assert_eq!((slow.block, slow.rounds), (5, 100));
        let quick = amount(1000, false, 1);
        assert_eq!((quick.block, quick.rounds), (50, 20));
        let crowd = amount(5000, false, 64);
        assert_eq!((crowd.block, crowd.rounds), (16, 5));
        assert_eq!(amount(1, true, 64).rounds, 2);
    }
}
