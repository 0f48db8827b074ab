// SPDX-License-Identifier: MIT OR Apache-2.0

//! A network that loses packets, so that devices repeat requests: no queue pair may break.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{anyhow, ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, SendWr};

use crate::data::order;
use crate::world::{counter, full_access, system, Link};

/// Threads that keep the queue pair busy.
const BUSY: usize = 4;
/// Regions that are made meanwhile, in turn at both ends.
const REGIONS: usize = 400;
/// WRITEs of a batch, and bytes of each: several packets.
const BATCH: usize = 8;
const BYTES: usize = 16 << 10;
/// Repetitions that have to be seen, at the near end.
const FEW: u64 = 10;

const LOSS: &str = "modprobe sch_netem && tc qdisc add dev v0 root netem loss 3% limit 100000 && \
                    tc -n n1 qdisc add dev v1 root netem loss 3% limit 100000";
const NO_LOSS: &str = "tc qdisc del dev v0 root; tc -n n1 qdisc del dev v1 root";
/// How often the near device has repeated what was not answered.
const REPEATED: &str = "/sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err";

/// Users make regions, which the device learns of by requests, while those of others are
/// repeated.
pub fn regions_meanwhile() -> Result<()> {
    let (lost, before) = (counter("rc_lost")?, repeated()?);
    system(LOSS)?;
    let outcome = make_regions();
    system(NO_LOSS)?;
    let (broken, repeated) = (counter("rc_lost")? - lost, repeated()? - before);
    println!("# requests were repeated {repeated} times");
    outcome.with_context(|| format!("{broken} queue pairs broke"))?;
    ensure!(broken == 0, "{broken} queue pairs broke");
    ensure!(repeated >= FEW, "the network is too good");
    Ok(())
}

fn repeated() -> Result<u64> {
    let text = fs::read_to_string(REPEATED).context(REPEATED)?;
    Ok(text.trim().parse()?)
}

fn make_regions() -> Result<()> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let busy: Vec<_> = (0..BUSY)
            .map(|_| scope.spawn(|| write_until(&stop)))
            .collect();
        let made = (0..REGIONS).try_for_each(|n| {
            let device = if n % 2 == 0 { &near } else { &far };
            MemoryRegion::allocate(device, 4096, full_access()).map(drop)
        });
        stop.store(true, Ordering::Relaxed);
        for thread in busy {
            thread.join().map_err(|_| anyhow!("it panicked"))??;
        }
        Ok(made?)
    })
}

/// Only WRITEs: soft-RoCE does not survive the loss of part of a READ's answer (a warning
/// of `rxe_completer`).
fn write_until(stop: &AtomicBool) -> Result<()> {
    let mut link = Link::new(1, BYTES, BATCH as u32)?;
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let (local, remote) = (link.local.slice(0..BYTES)?, link.remote.remote());
        let wrs = [SendWr::write(local, remote).signaled(); BATCH];
        order::drive(&mut link.vqp, &wrs, BATCH)?;
        rounds += 1;
        link.works(rounds)
            .with_context(|| format!("round {rounds}"))?;
    }
    ensure!(rounds > 0, "it wrote nothing");
    Ok(())
}
