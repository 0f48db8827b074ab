// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench datapath` (krcore §5.2, figures 10, 11 and 13): requests over
//! connections that are there.
//!
//! In `sync` a client posts a request and waits for it. In `async` it posts a
//! batch of [`BATCH`] with one call, of which the last is signalled, and waits
//! for that; a batch has no latency of a request to report. Both systems do the
//! same: verbs posts a list that was made beforehand, Weft submits and waits in one
//! system call. Verbs is measured polling and sleeping, and the better one is what
//! Weft is compared with.
//!
//! `write_pp` and `send_pp` are ping-pongs: each end waits until what it sent is
//! done (of a message: until there is an answer) and until the other's bytes are
//! there, and sends them back. Their latency is half of a round trip, which is what
//! perftest's `ib_write_lat` and `ib_send_lat` report; `write` and `send` in `sync`
//! are something else, the time until a request's completion.
//!
//! Each client has a connection, memory and completion queue of its own. Verbs
//! over RC, Weft over RC and Weft over DC take turns, block by block, on the same
//! operation. Messages of Weft go over DC always, so that they have no row of RC.
//! perftest takes turns with all of these, on the same nodes.
//!
//! Requests follow one another in a tight loop, as perftest's, or with a pause in
//! which the client computes (`--pause-us`): see [`crate::pace`].

pub mod args;
mod clients;
mod perftest;
mod ping_pong;
mod plan;
mod result;
mod senders;
mod verbs_client;
mod weft_client;

use std::time::Instant;

use anyhow::{ensure, Context as _, Result};

pub use args::DatapathArgs;
pub use ping_pong::{bounce, BouncerArgs};

use crate::cli::Transport;
use crate::nodes::{CLIENT, DC_SERVER, SERVER};
use crate::peer::Peer;
use crate::report::JsonLines;
use crate::round_robin::{self, Amount, MakeCase};
use crate::weft::Way;
use args::{Contender, Operation};
use clients::{Fleet, Lane};
use ping_pong::PingPong;
use plan::{slowest_us, Budget, Work, PEER_BYTES};
use result::{Figures, Results, Row};
use senders::Senders;

/// Requests of a batch.
const BATCH: u32 = 32;
/// Samples of a trial, if one takes less than `SLOW_US`.
const TRIAL_SAMPLES: u32 = 20;
const SLOW_US: f64 = 5_000.0;

/// The peers, and what is needed to reach them.
struct Sides {
    rc: Peer,
    /// To be reached over DC.
    dc: Option<Peer>,
    /// The path MTU of the module's RC queue pairs: what both ports have active.
    rc_mtu: u32,
    _ways: Vec<Way>,
}

impl Sides {
    fn start(args: &DatapathArgs) -> Result<Self> {
        let weft = args.systems.contains(&Contender::Weft);
        let over = |transport| weft && args.transports.contains(&transport);
        let bytes = usize::try_from(PEER_BYTES)?;
        let rc = Peer::start(SERVER, over(Transport::Rc), bytes)?;
        let mut ways = Vec::new();
        for (node, transport) in [(SERVER, Transport::Rc), (DC_SERVER, Transport::Dc)] {
            if over(transport) {
                ways.push(Way::force(CLIENT, node, transport)?);
            }
        }
        Ok(Self {
            rc,
            dc: match over(Transport::Dc) {
                true => Some(Peer::start(DC_SERVER, true, bytes)?),
                false => None,
            },
            rc_mtu: CLIENT.active_mtu()?.min(SERVER.active_mtu()?).bytes(),
            _ways: ways,
        })
    }
}

/// Runs the benchmark.
pub fn run(args: &DatapathArgs) -> Result<()> {
    check(args)?;
    let mut json = JsonLines::create(&args.common)?;
    if args.systems.contains(&Contender::Perftest) {
        json.name_version("perftest", perftest::version()?);
    }
    let plan: Vec<_> = plan::clients(args)
        .into_iter()
        .map(|count| (count, plan::works(args, count)))
        .collect();
    let works = plan.iter().flat_map(|(_, works)| works);
    let rows = works.map(|work| plan::rows(args, *work)).sum();
    let mut results = Results::default();
    let mut run = Run {
        args,
        budget: Budget::new(args, rows),
        start: Instant::now(),
        left_out: 0,
    };
    let outcome = run.all(plan, &mut |rows: Vec<Row>| {
        rows.iter().try_for_each(|row| json.write(row))?;
        results.add(rows);
        Ok(())
    });
    // What there is, even if a case has failed.
    results.print();
    outcome?;
    let left_out = run.left_out;
    ensure!(
        left_out == 0,
        "{left_out} cases were left out, because the time was over"
    );
    Ok(())
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
        report: &mut dyn FnMut(Vec<Row>) -> Result<()>,
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
                let rows = self.one(&sides, &fleet, work).with_context(|| {
                    format!("{mode} {op} of {} bytes, {count} clients", work.bytes)
                })?;
                report(rows)?;
            }
        }
        Ok(())
    }

    fn one(&self, sides: &Sides, fleet: &Fleet, work: Work) -> Result<Vec<Row>> {
        match work.op {
            Operation::Send => {
                let senders = Senders::connect(self.args, sides.rc_mtu, work)?;
                self.measure(senders.cases(work), work)
            }
            Operation::WritePp | Operation::SendPp => {
                let ping_pong = PingPong::connect(self.args, sides.rc_mtu, work)?;
                self.measure(ping_pong.cases(), work)
            }
            _ => self.measure(fleet.cases(work), work),
        }
    }

    /// Measures one operation on all systems, interleaved.
    fn measure(&self, cases: Vec<(Lane, MakeCase<'_>)>, work: Work) -> Result<Vec<Row>> {
        let (lanes, makers): (Vec<Lane>, Vec<_>) = cases.into_iter().unzip();
        let once = Amount::of(1);
        let mut cases: Vec<_> = makers.into_iter().map(|make| (make, once)).collect();
        // Warms up, too.
        let mut trial = round_robin::run("datapath", &cases, work.clients)?;
        if self.budget.is_open() && slowest_us(&trial, work.clients) < SLOW_US {
            let more = Amount::of(TRIAL_SAMPLES);
            cases.iter_mut().for_each(|(_, amount)| *amount = more);
            trial = round_robin::run("datapath", &cases, work.clients)?;
        }
        let schedule = self.budget.schedule(&trial, work);
        for ((_, amount), wanted) in cases.iter_mut().zip(schedule.amounts()) {
            *amount = wanted;
        }
        let witness = self.args.systems.contains(&Contender::Perftest) && perftest::can(work);
        let mut turns = vec![Vec::new(); cases.len()];
        let mut theirs = Vec::new();
        for _ in 0..schedule.turns {
            if witness {
                theirs.push(perftest::run(work, schedule.perftest)?);
            }
            let outcomes = round_robin::run("datapath", &cases, work.clients)?;
            for (turns, outcome) in turns.iter_mut().zip(&outcomes) {
                turns.push(Figures::of(outcome, work));
            }
        }
        let ours = lanes.into_iter().zip(turns);
        let mut rows: Vec<_> = ours
            .map(|(lane, turns)| Row::new(lane, work, &Figures::median(&turns)))
            .collect();
        let (lanes, turns): (Vec<Lane>, Vec<_>) = theirs.into_iter().unzip();
        if let Some(&lane) = lanes.first() {
            rows.push(Row::new(lane, work, &Figures::median(&turns)));
        }
        Row::compare(&mut rows);
        Ok(rows)
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
    Ok(())
}
