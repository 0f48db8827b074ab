// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue pair that is full all the time, and whose turn it is to post.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use weft_shim::{SendWr, Wc};

use crate::world::Link;

/// Threads that fill the queue pair, each with a VQP of its own.
const GREEDY: usize = 12;
/// WRITEs in a batch, and bytes of each. All threads' batches together are more than a queue
/// pair takes.
const BATCH: usize = 32;
const SHORT: usize = 16 << 10;
/// Bytes of the long WRITE that another thread posts and waits for, again and again.
const LONG: usize = 256 << 10;
const ROUNDS: usize = 20;
/// Batches that may end during all long WRITEs. If the threads took turns, one batch of each
/// would end during each of them.
const BOUND: u64 = 4 * (ROUNDS * GREEDY) as u64;
const PATIENCE: Duration = Duration::from_secs(60);

/// Threads that fill the queue pair with short requests let a long one have its turn.
pub fn long_ones_have_theirs() -> Result<()> {
    let (stop, batches) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let greedy: Vec<_> = (0..GREEDY)
            .map(|_| scope.spawn(|| fill(&stop, &batches)))
            .collect();
        let outcome = modest(&batches);
        stop.store(true, Ordering::Relaxed);
        for thread in greedy {
            thread.join().ok().context("a thread panicked")??;
        }
        outcome
    })
}

fn fill(stop: &AtomicBool, batches: &AtomicU64) -> Result<()> {
    let mut link = Link::new(1, SHORT, BATCH as u32)?;
    let (local, remote) = (link.local.slice(0..SHORT)?, link.remote.remote());
    let mut wrs = [SendWr::write(local, remote); BATCH];
    wrs[BATCH - 1] = wrs[BATCH - 1].signaled();
    while !stop.load(Ordering::Relaxed) {
        let (mut taken, mut wcs) = (0, [Wc::default()]);
        let start = Instant::now();
        loop {
            let progress = link.vqp.enter(&wrs[taken..], &mut wcs, 1, PATIENCE)?;
            taken += progress.submitted;
            if progress.completed == 1 {
                break;
            }
            ensure!(start.elapsed() < PATIENCE, "a batch is lost");
        }
        wcs[0].result()?;
        batches.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn modest(batches: &AtomicU64) -> Result<()> {
    let mut link = Link::new(1, LONG, 4)?;
    while batches.load(Ordering::Relaxed) < GREEDY as u64 {
        thread::sleep(Duration::from_millis(5));
    }
    let before = batches.load(Ordering::Relaxed);
    for _ in 0..ROUNDS {
        link.vqp
            .write(link.local.slice(0..LONG)?, link.remote.remote())?;
    }
    let waited = batches.load(Ordering::Relaxed) - before;
    println!("# {ROUNDS} WRITEs of {LONG} bytes waited for {waited} batches of others");
    ensure!(
        waited <= BOUND,
        "they waited for {waited} batches, {BOUND} are allowed"
    );
    Ok(())
}
