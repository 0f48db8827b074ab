// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions that peers have looked up and that go: nobody reaches them any more, and
//! their memory is given back (krcore §4.2).

use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, WcStatus};

use crate::world::{connect, counter, full_access, wait_for, Holder, Link};

/// How long a region may stay.
const BOUND: Duration = Duration::from_secs(20);

/// Deregistered at its owner, and known to the peer: when that returns, requests are
/// refused, and the queue pair is not broken.
pub fn forgotten() -> Result<()> {
    let lost = counter("rc_lost")?;
    for _ in 0..3 {
        let mut link = Link::new(1, 4096, 16)?;
        link.works(1)?;
        let Link {
            vqp,
            local,
            remote: region,
            ..
        } = &mut link;
        let other = MemoryRegion::allocate(&Device::open_on(1)?, 4096, full_access())?;
        let remote = std::mem::replace(region, other);
        let gone = remote.remote();
        drop(remote);
        match vqp.write(local.slice(0..8)?, gone) {
            Err(weft_shim::Error::Completion(error)) => {
                let status = error.status;
                ensure!(status == Some(WcStatus::RemAccessErr), "it is {status:?}");
            }
            other => anyhow::bail!("it is {other:?}"),
        }
    }
    ensure!(counter("rc_lost")? == lost, "the queue pair broke");
    Ok(())
}

/// The owner is killed: requests work for a while, or not, and then are refused, and
/// no queue pair breaks; the memory is given back.
pub fn of_dead_process() -> Result<()> {
    let device = Device::open_on(0)?;
    let local = MemoryRegion::allocate(&device, 4096, full_access())?;
    let (before, lost) = (counter("pinned_pages")?, counter("rc_lost")?);
    for _ in 0..3 {
        let holder = Holder::start()?;
        let remote = holder.remote;
        let mut vqp = connect(&device, 1, 16)?;
        vqp.write(local.slice(0..8)?, remote)?;
        let start = Instant::now();
        holder.kill()?;
        let status = loop {
            match vqp.write(local.slice(0..8)?, remote) {
                Ok(_) => ensure!(start.elapsed() < BOUND, "it goes on working"),
                Err(weft_shim::Error::Completion(error)) => break error.status,
                Err(error) => return Err(error.into()),
            }
        };
        ensure!(status == Some(WcStatus::RemAccessErr), "it is {status:?}");
        wait_for("its pages are given back", BOUND, || {
            Ok(counter("pinned_pages")? == before)
        })?;
    }
    ensure!(counter("rc_lost")? == lost, "the queue pair broke");
    Ok(())
}

/// KiB that this process is charged for pinned memory.
fn pinned_kib() -> Result<i64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.context("no VmPin")?.parse().context("VmPin")
}

/// Two parties pin the same pages; they are charged for once.
pub fn charge() -> Result<()> {
    const BYTES: usize = 1 << 20;
    let device = Device::open_on(1)?;
    let before = pinned_kib()?;
    let region = MemoryRegion::allocate(&device, BYTES, full_access())?;
    let charged = pinned_kib()? - before;
    ensure!(charged == BYTES as i64 >> 10, "charged {charged} KiB");
    drop(region);
    let left = pinned_kib()? - before;
    ensure!(left == 0, "{left} KiB are charged afterwards");
    Ok(())
}
