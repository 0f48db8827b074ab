// SPDX-License-Identifier: MIT OR Apache-2.0

//! Compare-and-swap and fetch-and-add: once each, whatever else goes on.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure, Result};
use weft_core::uapi::WcStatus;
use weft_shim::{Access, Device, LocalSlice, MemoryRegion, Remote, SendWr, Wc};

use crate::world::{connect, full_access, Link};

/// Threads with a VQP each add 1 to one word. Each former value must be answered
/// to exactly one of them.
pub fn additions(threads: usize, each: usize) -> Result<()> {
    let far = Device::open_on(1)?;
    let counter = MemoryRegion::allocate(&far, 8, full_access())?;
    let remote = counter.remote();
    let answers = thread::scope(|scope| {
        let adders: Vec<_> = (0..threads)
            .map(|_| scope.spawn(move || add(remote, each)))
            .collect();
        let mut answers = Vec::new();
        for adder in adders {
            answers.extend(adder.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        Ok::<_, anyhow::Error>(answers)
    })?;
    let total = (threads * each) as u64;
    ensure!(
        counter.load_u64(0)? == total,
        "the sum is {}, not {total}",
        counter.load_u64(0)?
    );
    let different: BTreeSet<_> = answers.iter().copied().collect();
    ensure!(
        different.len() == answers.len(),
        "a former value came twice"
    );
    ensure!(
        different.iter().copied().eq(0..total),
        "a former value is missing"
    );
    Ok(())
}

/// Adds 1 `times`, in batches; answers what was there before each.
fn add(remote: Remote, times: usize) -> Result<Vec<u64>> {
    const BATCH: usize = 24;
    let near = Device::open_on(0)?;
    let local = MemoryRegion::allocate(&near, 8 * times, Access::LOCAL_WRITE)?;
    let mut vqp = connect(&near, 1, 64)?;
    let mut wrs = Vec::new();
    for i in 0..times {
        wrs.push(SendWr::fetch_add(local.slice(8 * i..8 * i + 8)?, remote, 1).signaled());
    }
    for batch in wrs.chunks(BATCH) {
        let mut wcs = [Wc::default(); BATCH];
        let (mut posted, mut done) = (0, 0);
        while done < batch.len() {
            let wait = (batch.len() - done).min(1);
            let progress = vqp.enter(&batch[posted..], &mut wcs, wait, Duration::MAX)?;
            posted += progress.submitted;
            done += progress.completed;
            for wc in &wcs[..progress.completed] {
                ensure!(
                    wc.result()? == 8,
                    "an addition moved {:?} bytes",
                    wc.result()
                );
            }
        }
    }
    (0..times).map(|i| Ok(local.load_u64(8 * i)?)).collect()
}

/// One swap that fits, one that does not.
pub fn swaps() -> Result<()> {
    let mut link = Link::new(1, 64, 16)?;
    link.remote.store_u64(8, 5)?;
    let word = Remote {
        addr: link.remote.addr() + 8,
        ..link.remote.remote()
    };
    let steps = [(5, 9, 5, 9), (5, 7, 9, 9), (9, u64::MAX, 9, u64::MAX)];
    for (expected, new, was, is) in steps {
        let wr = SendWr::compare_swap(link.local.slice(16..24)?, word, expected, new);
        link.vqp.run(wr)?;
        let (answered, stands) = (link.local.load_u64(16)?, link.remote.load_u64(8)?);
        ensure!(
            (answered, stands) == (was, is),
            "swapping {expected} for {new} answered {answered} and left {stands}"
        );
    }
    Ok(())
}

/// How one request on a fresh VQP ends, to a region with this access.
fn outcome(
    access: Access,
    make: fn(LocalSlice<'_>, Remote) -> SendWr<'_>,
    len: usize,
) -> Result<WcStatus> {
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let target = MemoryRegion::allocate(&far, 64, access)?;
    let local = MemoryRegion::allocate(&near, 64, Access::LOCAL_WRITE)?;
    let mut vqp = connect(&near, 1, 16)?;
    let mut wcs = [Wc::default()];
    let wr = make(local.slice(0..len)?, target.remote()).signaled();
    let progress = vqp.enter(&[wr], &mut wcs, 1, Duration::from_secs(5))?;
    ensure!(progress.completed == 1, "no completion");
    wcs[0].status().ok_or_else(|| anyhow!("an unknown status"))
}

fn add_one(local: LocalSlice<'_>, remote: Remote) -> SendWr<'_> {
    SendWr::fetch_add(local, remote, 1)
}

fn add_at_odd_address(local: LocalSlice<'_>, remote: Remote) -> SendWr<'_> {
    let addr = remote.addr + 4;
    SendWr::fetch_add(local, Remote { addr, ..remote }, 1)
}

fn swap(local: LocalSlice<'_>, remote: Remote) -> SendWr<'_> {
    SendWr::compare_swap(local, remote, 0, 1)
}

/// Without the right, at an odd address, with another length.
pub fn refusals() -> Result<()> {
    let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let refused = outcome(writable, add_one, 8)?;
    ensure!(
        refused == WcStatus::RemAccessErr,
        "without the right: {refused:?}"
    );
    let refused = outcome(full_access(), add_at_odd_address, 8)?;
    ensure!(
        refused == WcStatus::RemInvReqErr,
        "at an odd address: {refused:?}"
    );
    let refused = outcome(full_access(), swap, 16)?;
    ensure!(refused == WcStatus::LocLenErr, "16 bytes: {refused:?}");
    Ok(())
}
