// SPDX-License-Identifier: MIT OR Apache-2.0

//! RC queue pairs that the processors of two nodes have each for themselves (`rc_lanes=2`).

mod ends;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use weft_shim::{Device, Error, MemoryRegion, PoolPeer, Remote, Transport, WcStatus};
use weft_testkit::report::Report;

use crate::traffic::{Traffic, SLICE};
use crate::world::{connect, counter, full_access, gid, wait_for, Baseline, Holder, Link};

/// Longer than anything takes on the slowest machine.
const BOUND: Duration = Duration::from_secs(60);
/// Processors, and queue pairs to a peer.
const LANES: u32 = 2;
/// Rounds of traffic, between two of which a thread changes processors.
const HOPS: u32 = 200;

/// All of it.
pub fn run(report: &mut Report, seed: u64) {
    let Some(baseline) = report.need("the gauges stand still", || Baseline::take(2)) else {
        return;
    };
    report.check("one processor's requests make one queue pair", one_alone);
    report.check("another one's make another, and move to it", another);
    report.check("the peer's requests take the same ones", back);
    report.check("a thread that changes processors keeps its order", || {
        hops(seed)
    });
    report.check("a region that goes is used by neither any more", revoked);
    report.check("its owner's death ends requests by both", killed);
    report.check("when the first one is closed the others are too", || {
        let lost = counter("rc_lost")?;
        Device::open_on(0)?.pool_use(gid(1), None)?;
        Device::open_on(1)?.pool_use(gid(0), None)?;
        wait_for("all are closed", BOUND, || Ok(counter("rc_queues")? == 0))?;
        ensure!(counter("rc_lost")? == lost, "one broke");
        Ok(())
    });
    ends::run(report, seed);
    report.check("all of it leaves nothing behind", || baseline.is_back());
}

/// This thread runs on this processor from now on.
fn run_on(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// Runs `body` on each processor at a time, with its number.
fn on_each(body: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let pinned = |cpu| run_on(cpu).and_then(|()| body(cpu));
        let threads: Vec<_> = (0..LANES as usize)
            .map(|cpu| scope.spawn(move || pinned(cpu)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let ended = thread.join();
            ended.map_err(|_| anyhow!("the thread panicked"))?
        })
    })
}

/// The queue pairs from one node to the other.
fn queue_pairs(from: u32, to: u8) -> Result<u32> {
    let peers = Device::open_on(from)?.pool_peers()?;
    let known = peers.iter().find(|peer| peer.gid == gid(to));
    Ok(known.map_or(0, |peer| peer.queue_pairs))
}

fn use_rc(from: u32, to: u8) -> Result<()> {
    let device = Device::open_on(from)?;
    device.pool_use(gid(to), Some(Transport::Rc))?;
    let is_rc = |peer: &PoolPeer| peer.gid == gid(to) && peer.transport == Transport::Rc;
    wait_for("requests go by RC", BOUND, || {
        Ok(device.pool_peers()?.iter().any(is_rc))
    })
}

fn one_alone() -> Result<()> {
    use_rc(0, 1)?;
    run_on(0)?;
    let mut link = Link::new(1, 4096, 4)?;
    for round in 0..50 {
        link.works(round)?;
        thread::sleep(Duration::from_millis(20));
    }
    ensure!(queue_pairs(0, 1)? == 1, "it has {}", queue_pairs(0, 1)?);
    Ok(())
}

/// Requests from a node's processors, until there are as many queue pairs as processors.
fn until_all_are_up(from: u8, to: u8) -> Result<()> {
    on_each(|_| {
        let mut link = Link::between(from, to, 4096, 4)?;
        let mut round = 0;
        wait_for("each has its own", BOUND, || {
            round += 1;
            link.works(round)?;
            Ok(queue_pairs(u32::from(from), to)? == LANES)
        })
    })
}

fn another() -> Result<()> {
    run_on(1)?;
    let mut link = Link::new(1, 4096, 4)?;
    let chains = counter("rc_chains")?;
    link.works(1)?;
    ensure!(counter("rc_chains")? > chains, "it does not go by RC");
    until_all_are_up(0, 1)?;
    // The threads' VQPs, which may have moved too, are gone.
    let moves = counter("moves")?;
    let mut round = 1;
    wait_for("its requests take it", BOUND, || {
        round += 1;
        link.works(round)?;
        Ok(counter("moves")? > moves)
    })?;
    let ends = counter("rc_queues")?;
    ensure!(
        ends == i64::from(2 * LANES),
        "there are {ends} ends of queue pairs"
    );
    Ok(())
}

fn back() -> Result<()> {
    use_rc(1, 0)?;
    until_all_are_up(1, 0)?;
    let ends = counter("rc_queues")?;
    ensure!(
        ends == i64::from(2 * LANES),
        "there are {ends} ends of queue pairs"
    );
    Ok(())
}

/// Each READ sees the WRITEs before it, whichever processor posts.
fn hops(seed: u64) -> Result<()> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let chains = counter("rc_chains")?;
    on_each(|first| {
        let region = MemoryRegion::allocate(&far, SLICE, full_access())?;
        let mut traffic = Traffic::new(&near, 1, region.remote(), seed + first as u64)?;
        for hop in 0..HOPS as usize {
            run_on((first + hop) % LANES as usize)?;
            traffic.round()?;
        }
        Ok(())
    })?;
    ensure!(counter("rc_chains")? > chains, "nothing went by RC");
    Ok(())
}

/// Both processors' VQPs write to a region until that ends badly, as it must when the region
/// has gone: neither queue pair breaks, and other VQPs go on.
fn until_refused(region: &Remote, begun: &Sender<()>) -> Result<()> {
    let near = Device::open_on(0)?;
    let mut vqp = connect(&near, 1, 4)?;
    let local = MemoryRegion::allocate(&near, 8, full_access())?;
    vqp.write(local.slice(0..8)?, *region)?;
    begun.send(())?;
    loop {
        match vqp.write(local.slice(0..8)?, *region) {
            Ok(_) => {}
            Err(Error::Completion(error)) => {
                ensure!(error.status == Some(WcStatus::RemAccessErr), "{error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Has both processors use a region, which goes then.
fn goes(region: Remote, take_away: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let lost = counter("rc_lost")?;
    let stop = AtomicBool::new(false);
    let (begun, both_have_begun) = channel();
    let begun = Mutex::new(begun);
    thread::scope(|scope| {
        let users = scope.spawn(|| {
            on_each(|_| {
                let begun = begun.lock().map_err(|_| anyhow!("poisoned"))?.clone();
                until_refused(&region, &begun)
            })
        });
        let others = scope.spawn(|| {
            on_each(|_| {
                let mut link = Link::new(1, 4096, 4)?;
                let mut rounds = (0..).take_while(|_| !stop.load(Ordering::Relaxed));
                rounds.try_for_each(|round| link.works(round))
            })
        });
        let taken = (0..LANES)
            .try_for_each(|_| {
                let said = both_have_begun.recv_timeout(BOUND);
                said.context("a processor's requests do not begin")
            })
            .and_then(|()| take_away());
        let users = users.join().map_err(|_| anyhow!("a thread panicked"))?;
        stop.store(true, Ordering::Relaxed);
        let others = others.join().map_err(|_| anyhow!("a thread panicked"))?;
        taken.and(users).and(others)
    })?;
    ensure!(counter("rc_lost")? == lost, "a queue pair broke");
    ensure!(queue_pairs(0, 1)? == LANES, "a queue pair has gone");
    Ok(())
}

fn revoked() -> Result<()> {
    let far = Device::open_on(1)?;
    let region = MemoryRegion::allocate(&far, 4096, full_access())?;
    goes(region.remote(), move || {
        drop(region);
        Ok(())
    })
}

fn killed() -> Result<()> {
    let holder = Holder::start()?;
    goes(holder.remote, move || holder.kill())
}
