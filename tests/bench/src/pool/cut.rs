// SPDX-License-Identifier: MIT OR Apache-2.0

//! READs from two peers, one by DC and one by RC, while a third peer is cut off in the middle
//! of what the pool does with it.
//!
//! Its node is taken off the network at a random moment while its queue pair is made
//! (`opening`), while a VQP to it is moved every 20 ms (`moving`), and shortly before or while
//! the pool closes its queue pair (`closing`). It stays away for longer than requests are
//! sent again. Before each such time comes one as long in which nothing happens (`quiet`).
//! The READs have to end well: errors are for those who talk to the third peer.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Result};
use weft_testkit::rng::Rng;

use super::filter::shell;
use super::flow::{Flow as _, WeftFlow};
use super::moves::while_moved;
use super::opening::{read, wait_until_closed, Beside, Now, QUIET};
use super::result::Latencies;
use super::{CutStep, PoolArgs, PoolCase};
use crate::cli::Transport;
use crate::counters::counter;
use crate::nodes::{Node, CLIENT};
use crate::peer::{Peer, KEY_BYTES};
use crate::readers::WeftReader;
use crate::report::progress;
use crate::stats::Times;
use crate::weft::Way;

/// Times that the peer is cut off in each step.
const ROUNDS: u32 = 8;
const QUICK_ROUNDS: u32 = 1;
/// How long it is away.
const AWAY: Duration = Duration::from_millis(1_500);
/// Moves go on for at most so long before it is.
const MOVING: Duration = Duration::from_millis(100);
/// It is cut off so long at most before its queue pair would be closed.
const CLOSING: Duration = Duration::from_millis(200);
/// Bytes of a request of the VQP that is moved.
const BYTES: u32 = 64;

/// The names, in results, of what happens beside the READs.
const BESIDE: [&str; 4] = ["quiet", "opening", "moving", "closing"];
const OPENING: u8 = 1;
const MOVED: u8 = 2;
const CLOSED: u8 = 3;

/// READs beside each thing.
type Found = [Times; BESIDE.len()];

/// The peer that is cut off.
struct Victim {
    node: Node,
    peer: Peer,
    rng: Rng,
    /// Queue pairs of the module without it.
    queues: u64,
    /// Of its queue pairs.
    life: Life,
}

/// How long things take in the life of a queue pair.
#[derive(Clone, Copy, Default)]
struct Life {
    /// It is made.
    opening: Duration,
    /// It stays when nobody uses it.
    closing: Duration,
}

/// Measures READs from the first peer and the second, while the third is cut off, where there
/// are so many queue pairs without the benchmark's.
pub fn measure(peers: &[Node], args: &PoolArgs, queues: u64) -> Result<Vec<Latencies>> {
    let [by_dc, by_rc, node, ..] = *peers else {
        bail!("`cut` needs three peers: --peers 3")
    };
    let rounds = if args.common.quick {
        QUICK_ROUNDS
    } else {
        ROUNDS
    };
    let steps = args.cut_steps();
    // Later rounds begin when there are as many queue pairs as now: those of others have to be
    // away by then.
    if rounds as usize * steps.len() > 1 {
        wait_until_closed(queues)?;
    }
    let served = |node| Peer::start(node, true, KEY_BYTES as usize);
    let (dc, rc, peer) = (served(by_dc)?, served(by_rc)?, served(node)?);
    let _ways = [
        Way::force(CLIENT, by_dc, Transport::Dc)?,
        Way::force(CLIENT, by_rc, Transport::Rc)?,
    ];
    let mut readers = [
        WeftReader::connect(by_dc, &dc.ready, Transport::Dc)?,
        WeftReader::connect(by_rc, &rc.ready, Transport::Rc)?,
    ];
    let mut victim = Victim::new(node, peer, steps)?;
    let beside = Beside::new();
    let found = thread::scope(|scope| -> Result<Found> {
        let read = |reader| scope.spawn(|| read::<{ BESIDE.len() }>(reader, &beside));
        let reads = readers.each_mut().map(read);
        let done = victim.cut_often(rounds, steps, &beside);
        beside.set(Now::Over);
        let mut all: Found = std::array::from_fn(|_| Times::new());
        for read in reads {
            let found = read.join().map_err(|_| anyhow!("a reader panicked"))??;
            all.iter_mut()
                .zip(&found)
                .for_each(|(all, one)| all.merge(one));
        }
        done.map(|()| all)
    })?;
    Ok(rows(&found, rounds, steps))
}

/// A row for quiet, and one for each step.
fn rows(found: &Found, rounds: u32, steps: &[CutStep]) -> Vec<Latencies> {
    let row = |thing: u8| {
        let times = &found[usize::from(thing)];
        Latencies::new(PoolCase::Cut, BESIDE[usize::from(thing)], times).with_longest(times)
    };
    let quiet = row(QUIET);
    let each = steps.iter().map(|&step| row(thing(step)).with_cuts(rounds));
    let rows = std::iter::once(quiet.clone()).chain(each);
    rows.map(|row| row.over(&quiet)).collect()
}

/// A step's place among the things that are told apart.
fn thing(step: CutStep) -> u8 {
    match step {
        CutStep::Opening => OPENING,
        CutStep::Moving => MOVED,
        CutStep::Closing => CLOSED,
    }
}

impl Life {
    /// Of a queue pair to a node, where there are so many without it.
    fn of_one_to(node: Node, queues: u64) -> Result<Self> {
        let begin = Instant::now();
        let way = Way::force(CLIENT, node, Transport::Rc)?;
        let opening = begin.elapsed();
        drop(way);
        let begin = Instant::now();
        wait_until_closed(queues)?;
        Ok(Self {
            opening,
            closing: begin.elapsed(),
        })
    }
}

impl Victim {
    fn new(node: Node, peer: Peer, steps: &[CutStep]) -> Result<Self> {
        let queues = counter("rc_queues")?;
        let life = match steps {
            // How long it is moved is up to the benchmark.
            [CutStep::Moving] => Life::default(),
            _ => Life::of_one_to(node, queues)?,
        };
        Ok(Self {
            node,
            peer,
            rng: Rng::new(1),
            queues,
            life,
        })
    }

    fn cut_often(&mut self, rounds: u32, steps: &[CutStep], beside: &Beside) -> Result<()> {
        let bar = progress("cut".to_owned(), u64::from(rounds) * steps.len() as u64);
        let all = (0..rounds).flat_map(|_| steps);
        for (n, &step) in all.enumerate() {
            if n > 0 {
                wait_until_closed(self.queues)?;
            }
            beside.set(Now::Thing(QUIET));
            thread::sleep(AWAY);
            beside.set(Now::Other);
            self.cut(step, &|| beside.set(Now::Thing(thing(step))))?;
            beside.set(Now::Other);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Cuts it off in one step; calls `begins` when the step begins.
    fn cut(&mut self, step: CutStep, begins: &dyn Fn()) -> Result<()> {
        match step {
            CutStep::Opening => self.cut_while_opening(begins),
            CutStep::Moving => self.cut_while_moving(begins),
            CutStep::Closing => self.cut_while_closing(begins),
        }
    }

    fn cut_while_opening(&mut self, begins: &dyn Fn()) -> Result<()> {
        begins();
        let _way = Way::begin(CLIENT, self.node, Transport::Rc)?;
        thread::sleep(self.moment(self.life.opening));
        self.be_away()
    }

    fn cut_while_moving(&mut self, begins: &dyn Fn()) -> Result<()> {
        let way = Way::force(CLIENT, self.node, Transport::Rc)?;
        let mut flow = WeftFlow::connect(self.node, &self.peer.ready, BYTES)?;
        begins();
        let moment = self.moment(MOVING);
        let failed = while_moved(&way, || -> Result<bool> {
            flow.run(moment, &mut Times::new())?;
            thread::scope(|scope| {
                // Until a request has failed.
                let flow = scope.spawn(|| flow.run(10 * AWAY, &mut Times::new()).is_err());
                self.be_away()?;
                flow.join().map_err(|_| anyhow!("the flow panicked"))
            })
        })?;
        ensure!(failed, "requests to a peer that was away have ended well");
        Ok(())
    }

    fn cut_while_closing(&mut self, begins: &dyn Fn()) -> Result<()> {
        drop(Way::force(CLIENT, self.node, Transport::Rc)?);
        thread::sleep(self.life.closing.saturating_sub(CLOSING));
        begins();
        thread::sleep(self.moment(CLOSING));
        self.be_away()
    }

    /// A random moment before `limit`.
    fn moment(&mut self, limit: Duration) -> Duration {
        let us = usize::try_from(limit.as_micros()).unwrap_or(usize::MAX);
        Duration::from_micros(self.rng.below(us.max(1)) as u64)
    }

    /// Takes its node off the network for a while.
    fn be_away(&self) -> Result<()> {
        let port = format!("ip -n fabric link set p{}", self.node.0);
        shell(&format!("{port} nomaster"))?;
        thread::sleep(AWAY);
        shell(&format!("{port} master br0"))
    }
}
