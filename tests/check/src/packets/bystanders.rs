// SPDX-License-Identifier: MIT OR Apache-2.0

//! Those who go on with their own affairs while packets pour in: one-sided traffic by RC
//! and by DC, and messages to a port that the attacker knows too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use weft_shim::{Device, MemoryRegion};
use weft_testkit::pace::patient;

use crate::messenger::{Messenger, Others};
use crate::traffic::{Traffic, SLICE};
use crate::world::full_access;

/// Between rounds, for the attacker to have the processor too.
const PAUSE: Duration = Duration::from_millis(2);

/// Runs `body` while traffic goes on, by RC from node 0 to node 1 and by DC from node 0
/// to node 2, and messages from node 0 to node 1. Answers what else came to their port.
pub fn among_bystanders(seed: u64, body: impl FnOnce() -> Result<()>) -> Result<Others> {
    let near = Device::open_on(0)?;
    let mut traffics = Vec::new();
    for to in [1, 2] {
        let far = Device::open_on(u32::from(to))?;
        let region = MemoryRegion::allocate(&far, SLICE, full_access())?;
        let traffic = Traffic::new(&near, to, region.remote(), seed)?;
        traffics.push((to, region, traffic));
    }
    let mut messenger = Messenger::new(seed)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let mut bystanders = Vec::new();
        for (to, _, traffic) in &mut traffics {
            let name = format!("traffic to node {to}");
            bystanders.push(scope.spawn(move || repeat(name, stop, || traffic.patient_round())));
        }
        let messages = || repeat("messages to node 1".into(), stop, || messenger.round());
        bystanders.push(scope.spawn(messages));
        let outcome = body();
        stop.store(true, Ordering::Relaxed);
        for bystander in bystanders {
            bystander.join().map_err(|_| anyhow!("it panicked"))??;
        }
        outcome
    })?;
    println!(
        "# the bystander's port got {:?} of others",
        messenger.others
    );
    Ok(messenger.others)
}

/// A bystander's rounds, until it is told to stop.
fn repeat(name: String, stop: &AtomicBool, mut round: impl FnMut() -> Result<()>) -> Result<()> {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        round().with_context(|| format!("{name}, round {rounds}"))?;
        rounds += 1;
        thread::sleep(patient(PAUSE));
    }
    println!("# {name}: {rounds} rounds");
    ensure!(rounds > 0, "{name}: nothing was done");
    Ok(())
}
