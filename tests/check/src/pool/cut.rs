// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer that is cut off while a queue pair to it is opened, used, left or closed: only the
//! requests to it fail, and nobody waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Result};
use weft_shim::{Device, Transport, WcStatus};
use weft_testkit::pace::patient;
use weft_testkit::report::Report;

use crate::rng::Rng;
use crate::world::{gid, system, wait_for, Link};

const ROUNDS: usize = 6;
/// A request ends that soon, whatever becomes of its peer.
const BOUND: Duration = Duration::from_secs(10);
/// A node is back that soon.
const BACK: Duration = Duration::from_secs(60);

fn set_link(state: &str) -> Result<()> {
    system(&format!("ip -n n2 link set v2 {state}"))
}

/// All of it.
pub fn run(report: &mut Report, seed: u64) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let bystander = scope.spawn(|| works_on(&stop));
        let name = "a peer is cut off at any moment of a queue pair's life: its requests end";
        report.check(name, || cut_off_again_and_again(seed));
        stop.store(true, Ordering::Relaxed);
        report.check("requests to another peer have not noticed", || {
            let longest = bystander.join().map_err(|_| anyhow!("it panicked"))??;
            println!("# the longest took {longest:?}");
            ensure!(longest < patient(BOUND), "one took {longest:?}");
            Ok(())
        });
    });
}

/// Uses node 1 until it is stopped; answers how long the longest request took.
fn works_on(stop: &AtomicBool) -> Result<Duration> {
    let mut link = Link::new(1, 4096, 4)?;
    let (mut longest, mut round) = (Duration::ZERO, 0);
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        link.works(round)?;
        longest = longest.max(start.elapsed());
        round += 1;
    }
    ensure!(round > 0, "it did nothing");
    Ok(longest)
}

fn cut_off_again_and_again(seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    let device = Device::open_on(0)?;
    for round in 0..ROUNDS {
        let mut link = Link::new(2, 4096, 4)?;
        link.works(round as u64)?;
        device.pool_use(gid(2), Some(Transport::Rc))?;
        // Before the queue pair is there, or after.
        thread::sleep(Duration::from_millis(rng.below(60) as u64));
        if round % 2 == 1 {
            link.works(1000 + round as u64)?;
            device.pool_use(gid(2), [None, Some(Transport::Dc)][rng.below(2)])?;
            thread::sleep(Duration::from_millis(rng.below(20) as u64));
        }
        set_link("down")?;
        let status = link.outcome(BOUND)?;
        ensure!(
            [WcStatus::RetryExcErr, WcStatus::RemAbortErr].contains(&status),
            "round {round}: a request to it ends with {status:?}"
        );
        device.pool_use(gid(2), None)?;
        set_link("up")?;
        wait_for("a new connection to it works", BACK, || {
            let link = Link::new(2, 4096, 4);
            Ok(link.and_then(|mut link| link.works(7)).is_ok())
        })?;
    }
    Ok(())
}
