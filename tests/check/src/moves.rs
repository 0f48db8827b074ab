// SPDX-License-Identifier: MIT OR Apache-2.0

//! VQPs that are moved between DC and RC while they are busy: nothing is lost, done twice,
//! out of order or failed, whatever they post and whenever they are moved.

mod flow;
mod mover;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Result};
use weft_shim::{Device, MemoryRegion, Transport};
use weft_testkit::report::Report;

use crate::two_sided::Ear;
use crate::world::{counter, full_access, gid, wait_for, Baseline};
use flow::{Flow, Kind, BYTES};
use mover::Mover;

/// VQPs that are busy, each with a thread of its own.
const FLOWS: usize = 8;
/// Those of them that send messages and atomic operations too, which soft-RoCE leaves to DC.
const MIXED: usize = 2;
/// Moves are no rarer, on a stock kernel.
const LONGEST_MOVE: Duration = Duration::from_millis(200);
const UP: Duration = Duration::from_secs(30);

/// What a run is told.
#[derive(clap::Args)]
pub struct Args {
    /// Moves of VQPs, at least: the way to the peer changes until they have made so many.
    #[arg(long, default_value_t = 300)]
    moves: u32,
}

/// All of it.
pub fn run(report: &mut Report, args: &Args, seed: u64) {
    let Some(baseline) = report.need("the gauges stand still", || Baseline::take(2)) else {
        return;
    };
    report.check("requests go the way that was asked for", ways);
    let name = "nothing is lost, doubled, reordered or failed while VQPs move";
    let limit = Duration::from_secs(100) + args.moves * LONGEST_MOVE;
    report.check_within(name, limit, || under_load(args.moves, seed));
    report.check(
        "the pool gets its choice back, and closes the queue pair",
        || {
            Device::open_on(0)?.pool_use(gid(1), None)?;
            let lost = counter("rc_lost")?;
            wait_for("it is closed", UP, || Ok(counter("rc_queues")? == 0))?;
            ensure!(counter("rc_lost")? == lost, "it broke");
            Ok(())
        },
    );
    report.check("all of it leaves nothing behind", || baseline.is_back());
}

/// Has requests from node 0 to node 1 take this way, and waits until there is one.
fn use_transport(transport: Transport) -> Result<()> {
    let device = Device::open_on(0)?;
    device.pool_use(gid(1), Some(transport))?;
    wait_for("the pool has taken it up", UP, || {
        let peers = device.pool_peers()?;
        let peer = peers.iter().find(|peer| peer.gid == gid(1));
        Ok(peer.is_some_and(|peer| peer.transport == transport))
    })
}

fn ways() -> Result<()> {
    let mut ear = Ear::new(4096, 4)?;
    let device = Device::open_on(0)?;
    for (transport, by_rc) in [
        (Transport::Rc, true),
        (Transport::Dc, false),
        (Transport::Rc, true),
    ] {
        use_transport(transport)?;
        let before = counter("rc_chains")?;
        let mut vqp = ear.sender(&device, 4)?;
        let local = MemoryRegion::allocate(&device, 8, full_access())?;
        vqp.write(local.slice(0..8)?, ear.memory.remote())?;
        let chains = counter("rc_chains")? - before;
        ensure!((chains != 0) == by_rc, "{transport}: {chains} chains");
    }
    ear.is_quiet()
}

/// Flows run, while the way changes so many times.
fn under_load(moves: u32, seed: u64) -> Result<()> {
    use_transport(Transport::Rc)?;
    let (moves_before, late_before) = (counter("moves")?, counter("moves_put_off")?);
    let device = Device::open_on(0)?;
    let mut ears = Vec::new();
    for _ in 0..FLOWS {
        ears.push(Ear::new(BYTES, flow::BUFFERS)?);
    }
    let stop = AtomicBool::new(false);
    let done: Vec<u64> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, ear) in ears.iter_mut().enumerate() {
            let kind = match number < MIXED {
                true => Kind::All,
                false => Kind::OneSided,
            };
            let (device, stop) = (&device, &stop);
            threads.push(scope.spawn(move || {
                let seed = seed.wrapping_add(number as u64);
                let outcome = Flow::new(device, ear, kind, seed).and_then(|flow| flow.run(stop));
                if outcome.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                outcome
            }));
        }
        let moved = Mover::new(seed).run(moves_before + i64::from(moves), &stop);
        stop.store(true, Ordering::Relaxed);
        let done: Result<Vec<u64>> = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
            .collect();
        done.and_then(|done| moved.map(|()| done))
    })?;
    let followed = counter("moves")? - moves_before;
    let late = counter("moves_put_off")? - late_before;
    let sum: u64 = done.iter().sum();
    println!("# {followed} moves of VQPs, {late} put off, {sum} requests");
    ensure!(done.iter().all(|done| *done > 0), "a VQP did nothing");
    Ok(())
}
