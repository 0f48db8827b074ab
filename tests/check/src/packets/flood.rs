// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a stranger's flood costs a bystander: phases without it, with the same packets to a
//! port where nobody is, and with it, in turn. The second are what such packets cost on this
//! machine, at this time, whatever the module does.

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
/// Phases of each kind.
const PHASES: usize = 5;
/// The last kind of them.
const FLOODED: usize = 2;
/// A port where nobody is.
const NOBODYS: u16 = 9;
/// A stranger's packets in a second, as far as the machine can send them; and how many are a
/// flood.
const PER_SECOND: u64 = 10_000;
const LEAST_PER_SECOND: f64 = 5_000.0;
/// Of those that were sent so many arrive.
const ARRIVE: f64 = 0.9;
/// How many times longer a bystander's batch may take because of what the module does.
const RATIO: f64 = 2.0;

/// A flood of one node, while a bystander's requests go from node 0 to node 2.
pub fn flood(target: &Target, seed: u64) -> Result<()> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(2)?);
    let region = MemoryRegion::allocate(&far, SLICE, full_access())?;
    let mut traffic = Traffic::new(&near, 2, region.remote(), seed)?;
    let elsewhere = Target {
        port: NOBODYS,
        ..*target
    };
    let kinds = [None, Some(&elsewhere), Some(target)];
    let mut times = [const { Vec::new() }; 3];
    // Made once: that takes longer than a phase.
    let mut stranger = Stranger {
        sender: Sender::new()?,
        rng: Rng::new(seed),
    };
    let (mut sent, mut arrived, mut flooded_for) = (0, 0, Duration::ZERO);
    for phase in 0..kinds.len() * PHASES {
        let kind = phase % kinds.len();
        let (before, start) = (refusals()?, Instant::now());
        let packets = beside(kinds[kind].map(|target| (&mut stranger, target)), || {
            while start.elapsed() < PHASE {
                let begin = Instant::now();
                traffic.round()?;
                times[kind].push(begin.elapsed());
            }
            Ok(())
        })?;
        if kind == FLOODED {
            sent += packets;
            arrived += refusals()? - before;
            flooded_for += start.elapsed();
        }
    }
    let rate = arrived as f64 / flooded_for.as_secs_f64();
    let [quiet, elsewhere, flooded] = times.map(median);
    println!("# {rate:.0} packets a second arrive, {arrived} of {sent}");
    println!("# a batch takes {quiet:?}, beside packets to nobody {elsewhere:?}, with the flood {flooded:?}");
    ensure!(
        rate >= LEAST_PER_SECOND && arrived as f64 >= ARRIVE * sent as f64,
        "{rate:.0} packets a second arrive, {arrived} of {sent}, which is no flood"
    );
    let more = flooded.saturating_sub(elsewhere);
    let ratio = (quiet + more).as_secs_f64() / quiet.as_secs_f64();
    ensure!(ratio <= RATIO, "{ratio:.2} times as long");
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Requests that nodes have refused. A bystander's are not among them.
fn refusals() -> Result<i64> {
    let all = counters()?;
    let of = |name| all.get(name).copied().unwrap_or(0);
    Ok(of("refusals_sent") + of("refusals_suppressed"))
}

/// Sends requests with a wrong key.
struct Stranger {
    sender: Sender,
    rng: Rng,
}

impl Stranger {
    /// At the rate that is judged. Answers how many the network has taken.
    fn flood(&mut self, target: &Target, stop: &AtomicBool) -> u64 {
        let (start, mut tried, mut taken) = (Instant::now(), 0, 0);
        while !stop.load(Ordering::Relaxed) {
            let is_taken = self.sender.send(&stranger(&mut self.rng, target));
            taken += u64::from(is_taken);
            tried += 1;
            pace(start, tried, PER_SECOND);
        }
        taken
    }
}

/// Runs `body` beside a stranger, if there is one. Answers how many packets it has sent.
fn beside(
    stranger: Option<(&mut Stranger, &Target)>,
    body: impl FnOnce() -> Result<()>,
) -> Result<u64> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stranger =
            stranger.map(|(stranger, target)| scope.spawn(|| stranger.flood(target, &stop)));
        let outcome = body();
        stop.store(true, Ordering::Relaxed);
        let sent = stranger.map_or(Ok(0), |stranger| {
            stranger.join().map_err(|_| anyhow!("it panicked"))
        });
        outcome.and(sent)
    })
}
