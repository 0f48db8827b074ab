// SPDX-License-Identifier: MIT OR Apache-2.0

//! Workers that are killed, between any two calls and at any moment: what they had
//! goes with them, and nobody else notices.

mod sequence;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, Remote, SendWr, Wc, WcStatus};

use crate::isolation::users::ROOT;
use crate::rng::Rng;
use crate::traffic::{self, Neighbour, Traffic, SLICE};
use crate::world::{connect, full_access, Baseline, Holder, Transport};
use weft_testkit::report::Report;

pub use sequence::{sequence, SequenceArgs};

/// Workers that are killed at the same time.
const TOGETHER: usize = 3;

/// All checks of death, with a bystander that goes on all the while; workers are
/// killed at any moment in so many rounds. `rc` has its own check of what the dead
/// leave to those who know it.
pub fn run(report: &mut Report, seed: u64, rounds: usize, transport: Transport) {
    if let Err(error) = with_bystander(report, seed, rounds, transport) {
        report.check("all of it could be tried", || Err(error));
    }
}

fn with_bystander(
    report: &mut Report,
    seed: u64,
    rounds: usize,
    transport: Transport,
) -> Result<()> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let region = MemoryRegion::allocate(&far, (TOGETHER + 1) * SLICE, full_access())?;
    let remote = region.remote();
    let mut traffic = Traffic::new(&near, 1, remote, seed)?;
    // The bystander's peer is then its own, and no worker adds a stream to it.
    near.flush_dccache()?;
    if transport == Transport::Rc {
        // The bystander's requests would count too: it does not send yet.
        report.check("workers' requests go by RC", || {
            workers_go_by(transport, remote.offset(SLICE as u64), seed)
        });
    }
    let baseline = Baseline::take(2)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let bystander = scope.spawn(|| traffic.until(&stop, Duration::from_millis(10)));
        // soft-RoCE's RC takes longer.
        let step = if transport == Transport::Rc { 3 } else { 1 };
        sequence::run(report, &baseline, remote.offset(SLICE as u64), step);
        if transport == Transport::Usual {
            report.check("a dead process's memory: RemAccessErr", dead_memory);
            report.check("which leaves nothing behind", || baseline.is_back());
        }
        let name = format!(
            "{} workers killed at any moment leave nothing behind",
            rounds * TOGETHER
        );
        report.check(&name, || at_any_moment(&baseline, &region, seed, rounds));
        stop.store(true, Ordering::Relaxed);
        report.check("the bystander noticed nothing", || {
            bystander.join().map_err(|_| anyhow!("it panicked"))?
        });
    });
    Ok(())
}

/// Both kinds of workers, if nobody kills them.
fn workers_go_by(transport: Transport, remote: Remote, seed: u64) -> Result<()> {
    let baseline = Baseline::take(2)?;
    transport.observe(|| sequence::run_to_its_end(remote))?;
    transport.observe(|| Neighbour::start(remote, seed, ROOT).map(drop))?;
    baseline.is_back()
}

/// Requests to memory whose owner has just been killed.
fn dead_memory() -> Result<()> {
    let holder = Holder::start()?;
    let device = Device::open_on(0)?;
    let local = MemoryRegion::allocate(&device, 1 << 16, full_access())?;
    let mut vqp = connect(&device, 1, 64)?;
    vqp.write(local.slice(0..8)?, holder.remote)?;
    let remote = holder.remote;
    let wrs = [SendWr::read(local.slice(0..1 << 16)?, remote).signaled(); 32];
    vqp.post_send(&wrs)?;
    holder.kill()?;
    let mut wcs = [Wc::default(); 64];
    let bound = Duration::from_secs(10);
    let done = vqp
        .enter(&wrs[..1], &mut wcs, wrs.len() + 1, bound)?
        .completed;
    ensure!(
        done == wrs.len() + 1,
        "{done} completions of {}",
        wrs.len() + 1
    );
    let statuses: Vec<_> = wcs[..done].iter().map(Wc::status).collect();
    let good = statuses
        .iter()
        .take_while(|s| **s == Some(WcStatus::Success))
        .count();
    let first = statuses.get(good).copied().flatten();
    ensure!(
        first == Some(WcStatus::RemAccessErr),
        "the first failure is {first:?}"
    );
    Ok(())
}

fn at_any_moment(
    baseline: &Baseline,
    region: &MemoryRegion,
    seed: u64,
    rounds: usize,
) -> Result<()> {
    let mut rng = Rng::new(seed);
    for round in 0..rounds {
        let mut children = Vec::new();
        for i in 0..TOGETHER {
            let remote = region.remote().offset(((i + 1) * SLICE) as u64);
            let mut child = traffic::process(remote, rng.below(1000) as u64)?
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?;
            // Half of them die while they start.
            let late = rng.below(2) == 0;
            let mut stdout = BufReader::new(child.stdout.take().context("no output")?);
            if late {
                stdout.read_line(&mut String::new())?;
            }
            children.push((child, stdout));
        }
        for (mut child, _stdout) in children {
            thread::sleep(Duration::from_micros(rng.below(12_000) as u64));
            let ended = child.try_wait()?;
            ensure!(
                ended.is_none(),
                "round {round}: a worker ended by itself: {ended:?}"
            );
            child.kill()?;
            child.wait()?;
        }
        baseline
            .is_back()
            .with_context(|| format!("round {round}"))?;
    }
    Ok(())
}
