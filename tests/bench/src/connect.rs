// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench connect` (krcore §5.1): what it takes until a connection has carried
//! its first 8-byte WRITE, and in which part of that.
//!
//! A case is one experiment, and all columns of its row are from the same samples.
//! The same names mean the same for both systems:
//!
//! - `cold`: a process that has just started, from its first statement on; nothing is
//!   left of other processes but what the host keeps (verbs: nothing; Weft: the
//!   module, which does not know the peer). See [`crate::newcomer`].
//! - `warm`: device open, memory registered, completion queue made; the peer is unknown.
//!   Verbs makes a queue pair, exchanges addresses, connects. Weft makes and connects a
//!   queue pair in one call, for which the module asks the meta server.
//! - `cached`: what was needed for this peer before is still there, and peers take
//!   turns. Verbs has whole connections in a table that the process's threads share:
//!   it takes the peer's, which is the most that a verbs program can reuse. Weft makes
//!   a new queue pair; the module knows the peer.
//! - `same` (Weft alone): as `cached`, with the peer that the session connected to
//!   last.
//!
//! In `uncached`, `call_cached` and `call_same` a VQP with queues of its own is made,
//! and connected by a second call, without a WRITE, one after the other, like the null
//! system calls that they are compared with: a WRITE leaves the node's threads at work
//! for a while.
//!
//! In `in_a_row` one client makes and connects 5,000 queue pairs one behind the other in
//! one session, each by one call, to peers that the module knows. None is dropped
//! meanwhile. As many null ioctls in a row (`null_in_a_row`) take turns with that.
//!
//! Verbs' clients poll for their WRITE, or sleep until it is done, in cases of their own.
//!
//! The clients are on node 0, the peers on the nodes behind it, the meta server on
//! another one.

mod choose;
mod result;
mod verbs_cases;
mod weft_cases;

use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use crate::cli::{ConnectArgs, ConnectSystem};
use crate::newcomer::Task;
use crate::nodes::Node;
use crate::peer::Peer;
use crate::report::JsonLines;
use crate::round_robin::{self, Amount, Case, MakeCase, Sample};
use crate::turns::Turns;
use crate::verbs::REGION_BYTES;
use crate::wait::Wait;
use result::{Results, Row, Setting};
pub use verbs_cases::faster_cold;
use verbs_cases::VerbsCases;
pub use weft_cases::meta_server;
use weft_cases::WeftCases;

/// Rounds that a run is cut into; each case has a block in each.
const ROUNDS: u32 = 100;
/// The fewest, however many clients there are.
const MIN_ROUNDS: u32 = 5;
/// After a block of a slow case. The peer destroys its queue pairs when it sees
/// that the client has, and the next case shall not suffer for it.
const REST: Duration = Duration::from_millis(5);
/// The shortest block of a fast case: its first samples find the caches as the case
/// before left them, and are to be the few.
const MIN_BLOCK: u32 = 50;
/// Slow cases take this much fewer samples.
const SLOW: u32 = 10;
/// Samples of each of several clients, at least.
const MIN_FAST_SAMPLES: u32 = 50;
const MIN_SLOW_SAMPLES: u32 = 2;
/// Connections that one session makes in a row, and sessions that do so.
const IN_A_ROW: u32 = 5000;
const SESSIONS: u32 = 5;

/// How long a sample of a case takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Microseconds.
    Fast,
    /// Milliseconds.
    Slow,
}

/// A case and what it is called.
struct Named<'a> {
    system: ConnectSystem,
    case: &'static str,
    /// How verbs peers exchange addresses, where they do.
    exchange: Option<&'static str>,
    /// How a client waits for its WRITE.
    wait: Wait,
    pace: Pace,
    make: MakeCase<'a>,
}

/// The peers, by node.
type Peers = [(Node, Peer)];

/// Runs the benchmark.
pub fn run(args: &ConnectArgs) -> Result<()> {
    let wants = |system| args.systems.contains(&system);
    ensure!(!args.systems.is_empty(), "--systems: name at least one");
    let mut json = JsonLines::create(&args.common)?;
    let nodes: Vec<_> = (1..=args.peers).map(Node).collect();
    let needs_module = wants(ConnectSystem::Weft) || wants(ConnectSystem::Ref);
    let meta = match needs_module {
        true => Some(weft_cases::meta_server(&nodes)?),
        false => None,
    };
    let start = |node| Ok((node, Peer::start(node, needs_module, REGION_BYTES)?));
    let peers = nodes.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    let verbs = match wants(ConnectSystem::Verbs) || wants(ConnectSystem::Ref) {
        true => Some(VerbsCases::open(&peers, args.exchange)?),
        false => None,
    };
    let weft = match needs_module {
        true => Some(WeftCases::open(&peers)?),
        false => None,
    };

    let quick = args.common.quick;
    let samples = args.samples.unwrap_or(if quick { 1000 } else { 5000 });
    let clients = match (&args.clients[..], quick) {
        ([], true) => &[1][..],
        ([], false) => &[1, 4, 16, 64],
        (list, _) => list,
    };
    let mut results = Results::default();
    for &clients in clients {
        let mut cases = Vec::new();
        cases.extend(verbs.iter().flat_map(VerbsCases::cases));
        cases.extend(weft.iter().flat_map(WeftCases::cases));
        cases.retain(|named| wants(named.system));
        let setting = Setting {
            clients,
            peers: args.peers,
            meta_server: meta,
        };
        let mut rows = measure(cases, setting, |pace| amount(samples, pace, clients))?;
        if clients == 1 {
            let mut cases: Vec<_> = weft.iter().flat_map(WeftCases::in_a_row).collect();
            cases.retain(|named| wants(named.system));
            rows.extend(measure(cases, setting, |_| in_a_row())?);
        }
        for row in rows {
            json.write(&row)?;
            results.add(row);
        }
    }
    results.print();
    Ok(())
}

/// Measures all cases, interleaved. How much of each depends on its pace.
fn measure(
    cases: Vec<Named<'_>>,
    setting: Setting,
    amount: impl Fn(Pace) -> Amount,
) -> Result<Vec<Row>> {
    let mut names = Vec::new();
    let mut makers = Vec::new();
    for named in cases {
        names.push((named.system, named.case, (named.exchange, named.wait)));
        makers.push((named.make, amount(named.pace)));
    }
    let outcomes = round_robin::run("connect", &makers, setting.clients)?;
    let both = names.into_iter().zip(&outcomes);
    Ok(both
        .map(|((system, case, how), outcome)| Row::new(system, case, how, setting, outcome))
        .collect())
}

impl Pace {
    /// Samples of each client, of about `samples` that all clients take of a fast case.
    fn of_each(self, samples: u32, clients: u16) -> u32 {
        let (all, at_least) = match self {
            Self::Fast => (samples, MIN_FAST_SAMPLES),
            Self::Slow => (samples / SLOW, MIN_SLOW_SAMPLES),
        };
        match u32::from(clients) {
            1 => all.max(1),
            many => (all / many).max(at_least),
        }
    }

    fn rest(self) -> Duration {
        match self {
            Self::Fast => Duration::ZERO,
            Self::Slow => REST,
        }
    }
}

/// Blocks that together give a client's samples, as many of each case, so that all are
/// interleaved until the end.
fn amount(samples: u32, pace: Pace, clients: u16) -> Amount {
    let rounds = rounds(samples, clients);
    Amount {
        block: pace.of_each(samples, clients).div_ceil(rounds),
        rounds,
        rest: pace.rest(),
    }
}

/// Many clients have fewer and longer blocks, so that they run side by side for most of each.
fn rounds(samples: u32, clients: u16) -> u32 {
    let [fast, slow] = [Pace::Fast, Pace::Slow].map(|pace| pace.of_each(samples, clients));
    let wanted = (ROUNDS / u32::from(clients)).min(fast / MIN_BLOCK);
    wanted.max(MIN_ROUNDS).min(fast).min(slow)
}

/// One block a session.
fn in_a_row() -> Amount {
    Amount {
        rounds: SESSIONS,
        ..Amount::of(IN_A_ROW)
    }
}

/// A process that has just started, for each sample; `before` is done before it.
struct Cold<F> {
    tasks: Vec<Task>,
    turns: Turns,
    before: F,
}

impl<F: FnMut() -> Result<()>> Cold<F> {
    fn new(tasks: Vec<Task>, before: F) -> Self {
        Self {
            turns: Turns::in_turn(tasks.len()),
            tasks,
            before,
        }
    }
}

impl<F: FnMut() -> Result<()>> Case for Cold<F> {
    fn sample(&mut self) -> Result<Sample> {
        let begin = Instant::now();
        (self.before)()?;
        let arrival = self.tasks[self.turns.turn()].start()?.wait()?;
        Ok(Sample {
            outside: begin.elapsed().saturating_sub(arrival.own()),
            ..arrival.sample
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_over_rounds_and_clients() {
        let fast = amount(5000, Pace::Fast, 1);
        assert_eq!((fast.block, fast.rounds), (50, 100));
        let slow = amount(5000, Pace::Slow, 1);
        assert_eq!((slow.block, slow.rounds), (5, 100));
        let quick = amount(1000, Pace::Fast, 1);
        assert_eq!((quick.block, quick.rounds), (50, 20));
        let crowd = amount(5000, Pace::Fast, 64);
        assert_eq!((crowd.block, crowd.rounds), (16, 5));
        assert_eq!(amount(1, Pace::Slow, 64).rounds, 2);
    }

    #[test]
    fn fast_and_slow_cases_are_interleaved_until_the_end() {
        for (samples, clients) in [(1000, 1), (5000, 1), (5000, 4), (5000, 64), (20, 2), (1, 1)] {
            let [fast, slow] = [Pace::Fast, Pace::Slow].map(|pace| amount(samples, pace, clients));
            assert_eq!(fast.rounds, slow.rounds, "{samples}, {clients}");
            assert!(fast.block >= slow.block && slow.block > 0);
        }
        let quick = amount(1000, Pace::Slow, 1);
        assert_eq!((quick.block, quick.rounds), (5, 20));
    }
}
