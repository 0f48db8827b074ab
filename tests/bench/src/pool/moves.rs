// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests of a VQP that stays on a transport, and of one that is moved again and again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, Result};

use super::flow::{Flow as _, WeftFlow};
use super::result::Latencies;
use super::PoolCase;
use crate::cli::Transport;
use crate::counters::counter;
use crate::nodes::{CLIENT, SERVER};
use crate::peer::Peer;
use crate::report::progress;
use crate::stats::{median, Times};
use crate::weft::Way;

/// Between two moves.
const EVERY: Duration = Duration::from_millis(20);
/// Rounds, and how long a transport is used in each; the VQP is moved for twice as long.
const ROUNDS: u32 = 10;
const BLOCK: Duration = Duration::from_secs(1);
const QUICK_ROUNDS: u32 = 2;
const QUICK_BLOCK: Duration = Duration::from_millis(500);

/// What one kind of block gave.
struct Found {
    times: Times,
    /// Of each block.
    per_sec: Vec<f64>,
}

impl Found {
    fn new() -> Self {
        Self {
            times: Times::new(),
            per_sec: Vec::new(),
        }
    }

    fn run(&mut self, flow: &mut WeftFlow, time: Duration) -> Result<()> {
        self.per_sec.push(flow.run(time, &mut self.times)?);
        Ok(())
    }

    fn row(&self, beside: &'static str) -> Latencies {
        Latencies::new(PoolCase::Moves, beside, &self.times).with_per_sec(median(&self.per_sec))
    }
}

/// Measures all, in turn.
pub fn measure(bytes: u32, quick: bool) -> Result<Vec<Latencies>> {
    let (rounds, block) = match quick {
        true => (QUICK_ROUNDS, QUICK_BLOCK),
        false => (ROUNDS, BLOCK),
    };
    let peer = Peer::start(SERVER, true, 2 * usize::try_from(bytes)?)?;
    let way = Way::force(CLIENT, SERVER, Transport::Rc)?;
    let mut flow = WeftFlow::connect(SERVER, &peer.ready, bytes)?;
    let (mut dc, mut rc, mut moving) = (Found::new(), Found::new(), Found::new());
    let (mut moves, mut put_off) = (0, 0);
    let bar = progress("moves".to_owned(), rounds.into());
    for _ in 0..rounds {
        for (transport, found) in [(Transport::Dc, &mut dc), (Transport::Rc, &mut rc)] {
            way.take(transport)?;
            way.wait_for(transport)?;
            // The VQP follows when it posts next.
            flow.run(EVERY, &mut Times::new())?;
            found.run(&mut flow, block)?;
        }
        let before = (counter("moves")?, counter("moves_put_off")?);
        while_moved(&way, || moving.run(&mut flow, 2 * block))?;
        moves += counter("moves")? - before.0;
        put_off += counter("moves_put_off")? - before.1;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut still = dc.times.clone();
    still.merge(&rc.times);
    let still = Latencies::new(PoolCase::Moves, "still", &still);
    let moving = moving.row("moving").with_moves(moves, put_off).over(&still);
    Ok(vec![dc.row("dc"), rc.row("rc"), still, moving])
}

/// Runs `work` while the way changes.
pub(super) fn while_moved<T>(way: &Way, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mover = scope.spawn(|| change(way, &stop));
        let worked = work();
        stop.store(true, Ordering::Relaxed);
        mover.join().map_err(|_| anyhow!("the mover panicked"))??;
        worked
    })
}

fn change(way: &Way, stop: &AtomicBool) -> Result<()> {
    let mut turns = [Transport::Dc, Transport::Rc].into_iter().cycle();
    while let Some(transport) = turns.next().filter(|_| !stop.load(Ordering::Relaxed)) {
        way.take(transport)?;
        thread::sleep(EVERY);
    }
    Ok(())
}
