// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions of more pages than a device lists in one registration: requests that go
//! across the end of a block, on either side, go by RC in pieces, and look to their user
//! like any other.

use std::time::Duration;

use anyhow::{bail, ensure, Result};
use weft_shim::{Device, Error, MemoryRegion, Payload, SendWr, Wc, WcStatus};

use crate::rng::Rng;
use crate::world::{counter, full_access, Link};

const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a block of soft-RoCE's (512 pages, `RXE_MAX_FMR_PAGE_LIST_LEN`).
pub const BLOCK: usize = 2 << 20;
/// Four ends of blocks, wherever the region begins.
const BYTES: usize = 9 << 20;
/// Bytes of requests: within pages, within pieces, of several pieces, of several blocks.
const LENS: [usize; 6] = [2, 8, 4097, 100_000, 1_200_000, 2 * BLOCK + 17];

/// A region that is all in one block.
pub fn allocate_in_block(device: &Device, bytes: usize) -> Result<MemoryRegion> {
    let mut others = Vec::new();
    loop {
        let region = MemoryRegion::allocate(device, bytes, full_access())?;
        if first_end(&region) >= bytes {
            return Ok(region);
        }
        // Held meanwhile, so that the next one is elsewhere.
        others.push(region);
    }
}

/// Where a region's first block ends, in bytes from its start.
pub fn first_end(region: &MemoryRegion) -> usize {
    BLOCK - region.addr() as usize % BLOCK
}

/// A place for a request so that it goes across an end of a block, somewhere.
fn across(rng: &mut Rng, region: &MemoryRegion, len: usize) -> usize {
    let at = first_end(region) + rng.below(2) * BLOCK;
    at - 1 - rng.below((len - 1).min(at))
}

/// WRITEs and READs across ends of blocks here, there, and on both sides.
pub fn requests_across(seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    let Link {
        mut vqp,
        local,
        remote,
        ..
    } = Link::new(1, BYTES, 16)?;
    let (chains, lost) = (counter("rc_chains")?, counter("rc_lost")?);
    let mut requests = 0;
    for len in LENS {
        for side in 0..3 {
            let any = |rng: &mut Rng| rng.below(BYTES - len);
            let from = match side {
                0 => any(&mut rng),
                _ => across(&mut rng, &local, len),
            };
            let to = match side {
                1 => any(&mut rng),
                _ => across(&mut rng, &remote, len),
            };
            let bytes = rng.bytes(len);
            local.copy_in(from, &bytes)?;
            let there = remote.remote().offset(to as u64);
            vqp.write(local.slice(from..from + len)?, there)?;
            is(&remote, to, &bytes)?;
            let back = across(&mut rng, &local, len);
            vqp.read(local.slice(back..back + len)?, there)?;
            is(&local, back, &bytes)?;
            requests += 2;
        }
    }
    let posted = counter("rc_chains")? - chains;
    ensure!(
        posted >= requests,
        "{posted} chains for {requests} requests"
    );
    ensure!(counter("rc_lost")? == lost, "the queue pair broke");
    Ok(())
}

/// A batch in which requests that have to be cut are among others: all end, in order.
pub fn batches_across() -> Result<()> {
    let mut link = Link::new(1, BYTES, 64)?;
    let chains = counter("rc_chains")?;
    let mut wcs = [Wc::default(); 24];
    for round in 0..20_usize {
        let mut wrs = Vec::new();
        for index in 0..wcs.len() {
            let len = [8, 64, 3000][index % 3];
            let start = match index % 2 {
                0 => first_end(&link.remote) + (index % 4) / 2 * BLOCK - len / 2,
                _ => 4096 * index + round,
            };
            let range = 8192 * index..8192 * index + len;
            link.local
                .copy_in(range.start, &vec![(round + index) as u8; len])?;
            let wr = SendWr::write(
                link.local.slice(range)?,
                link.remote.remote().offset(start as u64),
            );
            wrs.push(wr.signaled().wr_id(index as u64));
        }
        let (mut posted, mut ended) = (0, 0);
        while ended < wrs.len() {
            let progress = link.vqp.enter(&wrs[posted..], &mut wcs, 1, PATIENCE)?;
            posted += progress.submitted;
            for wc in &wcs[..progress.completed] {
                ensure!(wc.wr_id() == ended as u64, "{} before {ended}", wc.wr_id());
                wc.result()?;
                ended += 1;
            }
            ensure!(
                progress.completed != 0 || progress.submitted != 0,
                "nothing ends"
            );
        }
        // Of those that overlap the last one counts.
        for index in [22, 23] {
            let len = [8, 64, 3000][index % 3];
            let start = match index % 2 {
                0 => first_end(&link.remote) + (index % 4) / 2 * BLOCK - len / 2,
                _ => 4096 * index + round,
            };
            is(&link.remote, start, &vec![(round + index) as u8; len])?;
        }
    }
    ensure!(counter("rc_chains")? - chains >= 20, "they went by DC");
    Ok(())
}

/// Bytes in the request itself cannot be cut: they arrive all the same.
pub fn inline_across() -> Result<()> {
    let mut link = Link::new(1, BYTES, 4)?;
    let to = first_end(&link.remote) - 3;
    let bytes = *b"eight by";
    link.works(1)?;
    let there = link.remote.remote().offset(to as u64);
    let wr = SendWr::write(Payload::inline(&bytes)?, there).signaled();
    let mut wcs = [Wc::default()];
    let progress = link.vqp.enter(&[wr], &mut wcs, 1, PATIENCE)?;
    ensure!(progress.completed == 1, "it does not end");
    wcs[0].result()?;
    is(&link.remote, to, &bytes)
}

/// A request past the end of a region in another block than it begins in.
pub fn past_the_end() -> Result<()> {
    let lost = counter("rc_lost")?;
    let mut link = Link::new(1, BYTES, 4)?;
    link.works(1)?;
    let to = BYTES - 8;
    let there = link.remote.remote().offset(to as u64);
    match link.vqp.write(link.local.slice(0..2 * BLOCK)?, there) {
        Err(Error::Completion(error)) => {
            let status = error.status;
            ensure!(status == Some(WcStatus::RemAccessErr), "it is {status:?}");
        }
        other => bail!("bytes beyond the region: {other:?}"),
    }
    ensure!(counter("rc_lost")? == lost, "the queue pair broke");
    Ok(())
}

fn is(region: &MemoryRegion, at: usize, wanted: &[u8]) -> Result<()> {
    let mut found = vec![0; wanted.len()];
    region.copy_out(at, &mut found)?;
    let wrong = found.iter().zip(wanted).position(|(a, b)| a != b);
    ensure!(
        wrong.is_none(),
        "byte {wrong:?} of {} is wrong",
        wanted.len()
    );
    Ok(())
}
