// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a stranger's flood costs a bystander: phases with and without it in turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Result};
use weft_shim::{Device, MemoryRegion};

use super::grammar::{stranger, Target};
use super::network::Sender;
use super::pace;
use crate::rng::Rng;
use crate::traffic::{Traffic, SLICE};
use crate::world::{counters, full_access};

/// How long each of the phases lasts.
const PHASE: Duration = Duration::from_secs(2);
/// Pairs of phases, without and with the flood.
const PHASES: usize = 5;
/// A stranger's packets in a second; and how many of them have to arrive.
const PER_SECOND: u64 = 10_000;
const ARRIVE_PER_SECOND: f64 = 9_000.0;
/// How many times longer a bystander's batch may take meanwhile.
const RATIO: f64 = 2.0;

/// A flood of one node, while a bystander's requests go from node 0 to node 2.
pub fn flood(target: &Target, seed: u64) -> Result<()> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(2)?);
    let region = MemoryRegion::allocate(&far, SLICE, full_access())?;
    let mut traffic = Traffic::new(&near, 2, region.remote(), seed)?;
    let mut times = [Vec::new(), Vec::new()];
    // Made once: that takes longer than a phase.
    let mut stranger = Stranger {
        sender: Sender::new()?,
        target,
        rng: Rng::new(seed),
    };
    let (mut arrived, mut flooded_for) = (0, Duration::ZERO);
    for phase in 0..2 * PHASES {
        let flooded = phase % 2 == 1;
        let (before, start) = (refusals()?, Instant::now());
        beside(flooded.then_some(&mut stranger), || {
            while start.elapsed() < PHASE {
                let begin = Instant::now();
                traffic.round()?;
                times[usize::from(flooded)].push(begin.elapsed());
            }
            Ok(())
        })?;
        if flooded {
            arrived += refusals()? - before;
            flooded_for += start.elapsed();
        }
    }
    let rate = arrived as f64 / flooded_for.as_secs_f64();
    let [quiet, flooded] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let ratio = flooded.as_secs_f64() / quiet.as_secs_f64();
    println!("# {rate:.0} packets a second arrive");
    println!("# a batch takes {quiet:?}, with the flood {flooded:?}: {ratio:.2} times");
    ensure!(
        rate >= ARRIVE_PER_SECOND,
        "{rate:.0} packets a second arrive, which is no flood"
    );
    ensure!(ratio <= RATIO, "{ratio:.2} times as long");
    Ok(())
}

/// Requests that nodes have refused. A bystander's are not among them.
fn refusals() -> Result<i64> {
    let all = counters()?;
    let of = |name| all.get(name).copied().unwrap_or(0);
    Ok(of("refusals_sent") + of("refusals_suppressed"))
}

/// Sends requests with a wrong key.
struct Stranger<'a> {
    sender: Sender,
    target: &'a Target,
    rng: Rng,
}

impl Stranger<'_> {
    /// At the rate that is judged.
    fn flood(&mut self, stop: &AtomicBool) {
        let (start, mut sent) = (Instant::now(), 0);
        while !stop.load(Ordering::Relaxed) {
            self.sender.send(&stranger(&mut self.rng, self.target));
            sent += 1;
            pace(start, sent, PER_SECOND);
        }
    }
}

/// Runs `body` beside a stranger, if there is one.
fn beside(stranger: Option<&mut Stranger<'_>>, body: impl FnOnce() -> Result<()>) -> Result<()> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stranger = stranger.map(|stranger| scope.spawn(|| stranger.flood(&stop)));
        let outcome = body();
        stop.store(true, Ordering::Relaxed);
        if let Some(stranger) = stranger {
            stranger.join().map_err(|_| anyhow!("it panicked"))?;
        }
        outcome
    })
}
