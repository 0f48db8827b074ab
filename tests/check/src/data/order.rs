// SPDX-License-Identifier: MIT OR Apache-2.0

//! Order, and what a queue holds.

use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use weft_shim::{Error, SendWr, Vqp, Wc};
use weft_testkit::pace::patient;

use crate::rng::Rng;
use crate::world::{wait_for, Link};

const PATIENCE: Duration = Duration::from_secs(30);

/// Posts all of `wrs` and collects the `wr_id`s of `expected` completions.
pub fn drive(vqp: &mut Vqp, wrs: &[SendWr<'_>], expected: usize) -> Result<Vec<u64>> {
    let start = Instant::now();
    let mut ids = Vec::new();
    let mut taken = 0;
    let mut wcs = [Wc::default(); 64];
    while taken < wrs.len() || ids.len() < expected {
        let min = usize::from(ids.len() < expected);
        let progress = match vqp.enter(&wrs[taken..], &mut wcs, min, PATIENCE) {
            // Requests hold all places: completions make room, if there are any.
            Err(Error::QueueFull) => vqp.enter(&[], &mut wcs, 0, Duration::ZERO)?,
            other => other?,
        };
        ensure!(
            start.elapsed() < patient(PATIENCE),
            "{taken} taken, {} completed",
            ids.len()
        );
        taken += progress.submitted;
        for wc in &wcs[..progress.completed] {
            wc.result()
                .with_context(|| format!("request {}", wc.wr_id()))?;
            ids.push(wc.wr_id());
        }
    }
    ensure!(
        vqp.poll_cq(&mut wcs)? == 0,
        "more completions than signalled requests"
    );
    Ok(ids)
}

fn ascending(ids: &[u64], expected: impl Iterator<Item = u64>) -> Result<()> {
    let expected: Vec<u64> = expected.collect();
    let wrong = ids.iter().zip(&expected).position(|(a, b)| a != b);
    ensure!(wrong.is_none(), "completion {wrong:?} is out of order");
    ensure!(
        ids.len() == expected.len(),
        "{} completions, not {}",
        ids.len(),
        expected.len()
    );
    Ok(())
}

/// 1,000 WRITEs, every tenth signalled.
pub fn batches() -> Result<()> {
    let mut link = Link::new(1, 8000, 128)?;
    let mut wrs = Vec::new();
    for i in 0..1000u64 {
        let at = i as usize * 8;
        link.local.store_u64(at, i * 3)?;
        let wr = SendWr::write(
            link.local.slice(at..at + 8)?,
            link.remote.remote().offset(i * 8),
        );
        wrs.push(if i % 10 == 9 {
            wr.signaled().wr_id(i)
        } else {
            wr.wr_id(i)
        });
    }
    let mut ids = Vec::new();
    // 40 at a time: every chunk ends with a signalled one.
    for chunk in wrs.chunks(40) {
        ids.extend(drive(&mut link.vqp, chunk, chunk.len() / 10)?);
    }
    ascending(&ids, (0..1000).filter(|i| i % 10 == 9))?;
    for i in 0..1000u64 {
        ensure!(
            link.remote.load_u64(i as usize * 8)? == i * 3,
            "WRITE {i} is not there"
        );
    }
    Ok(())
}

/// WRITEs of random sizes, each followed by a READ of what it wrote, all in flight
/// at once. No place is written twice: a READ that is repeated may see a WRITE
/// that was posted after it, as on any reliable connection without fences.
pub fn mixed(seed: u64) -> Result<()> {
    const PAIRS: usize = 60;
    const ROOM: usize = 9000;
    let mut rng = Rng::new(seed);
    let mut link = Link::new(1, PAIRS * 2 * ROOM, 256)?;
    let mut wrs = Vec::new();
    let mut sent = Vec::new();
    for i in 0..PAIRS {
        let bytes = {
            let len = rng.below(ROOM) + 1;
            rng.bytes(len)
        };
        let (from, back) = (i * 2 * ROOM, (i * 2 + 1) * ROOM);
        link.local.copy_in(from, &bytes)?;
        let (remote, id) = (link.remote.remote().offset(from as u64), i as u64 * 2);
        let write = SendWr::write(link.local.slice(from..from + bytes.len())?, remote);
        let read = SendWr::read(link.local.slice(back..back + bytes.len())?, remote);
        wrs.push(write.signaled().wr_id(id));
        wrs.push(read.signaled().wr_id(id + 1));
        sent.push(bytes);
    }
    let ids = drive(&mut link.vqp, &wrs, wrs.len())?;
    ascending(&ids, 0..PAIRS as u64 * 2)?;
    for (i, bytes) in sent.iter().enumerate() {
        let mut read = vec![0; bytes.len()];
        link.local.copy_out((i * 2 + 1) * ROOM, &mut read)?;
        ensure!(read == *bytes, "READ {i} has not got what WRITE {i} wrote");
    }
    Ok(())
}

/// Completions that nobody has taken hold their places.
pub fn queue_full() -> Result<()> {
    let mut link = Link::new(1, 4096, 16)?;
    let remote = link.remote.remote();
    let mut wrs = Vec::new();
    for id in 0..40 {
        wrs.push(
            SendWr::write(link.local.slice(0..8)?, remote)
                .signaled()
                .wr_id(id),
        );
    }
    let taken = link.vqp.post_send(&wrs)?;
    ensure!(taken == 16, "{taken} of 40 were taken by a queue of 16");
    ensure!(
        link.vqp.post_send(&wrs) == Err(Error::QueueFull),
        "a full queue took more"
    );
    let mut wcs = [Wc::default(); 5];
    let reaped = link.vqp.enter(&[], &mut wcs, 5, PATIENCE)?.completed;
    ensure!(reaped == 5, "{reaped} completions, not 5");
    let taken = link.vqp.post_send(&wrs[16..])?;
    ensure!(taken == 5, "{taken} were taken by 5 free places");
    let mut wcs = [Wc::default(); 64];
    let reaped = link.vqp.enter(&[], &mut wcs, 16, PATIENCE)?.completed;
    ensure!(reaped == 16, "{reaped} completions, not 16");
    let ids: Vec<u64> = wcs[..reaped].iter().map(Wc::wr_id).collect();
    ascending(&ids, 5..21)
}

/// Completions are handed out even if the same call finds no room for requests.
pub fn full_and_reaping() -> Result<()> {
    let mut link = Link::new(1, 4096, 16)?;
    let wr = SendWr::write(link.local.slice(0..8)?, link.remote.remote()).signaled();
    let taken = link.vqp.post_send(&[wr; 16])?;
    ensure!(taken == 16, "{taken} were taken by a queue of 16");
    let mut wcs = [Wc::default(); 16];
    let progress = link.vqp.enter(&[wr], &mut wcs, 16, PATIENCE)?;
    ensure!(
        progress.completed == 16,
        "{} completions, not 16",
        progress.completed
    );
    Ok(())
}

/// Unsignalled requests hold theirs until they are done.
pub fn queue_drains() -> Result<()> {
    let mut link = Link::new(1, 4096, 16)?;
    let remote = link.remote.remote();
    for _ in 0..20 {
        let wrs = [SendWr::write(link.local.slice(0..8)?, remote); 16];
        let mut left = wrs.len();
        wait_for("there is room again", PATIENCE, || {
            left -= match link.vqp.post_send(&wrs[..left]) {
                Err(Error::QueueFull) => 0,
                other => other?,
            };
            Ok(left == 0)
        })?;
    }
    Ok(())
}

/// 1,024 requests of several chunks in one call: more than a stream holds.
pub fn large_batch() -> Result<()> {
    let mut link = Link::new(1, 16 << 10, 1024)?;
    let remote = link.remote.remote();
    let mut wrs = Vec::new();
    for id in 0..1024 {
        wrs.push(
            SendWr::write(link.local.slice(0..5000)?, remote)
                .signaled()
                .wr_id(id),
        );
    }
    let ids = drive(&mut link.vqp, &wrs, wrs.len())?;
    ascending(&ids, 0..1024)
}
