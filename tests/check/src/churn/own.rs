// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads with rings of their own.

use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{anyhow, ensure, Result};
use weft_core::uapi::{Pod, Wc};

use super::worker::{Ground, Lane, DEPTH, PATIENCE_NS, THREADS};
use crate::raw::Queue;

/// Runs until one of them has failed.
pub(super) fn run(ground: &Ground, seed: u64) -> Result<()> {
    thread::scope(|scope| {
        let one = |thread| scope.spawn(move || write(ground, thread, seed));
        let threads: Vec<_> = (0..THREADS).map(one).collect();
        for thread in threads {
            let outcome = thread.join().map_err(|_| anyhow!("a thread panicked"))?;
            // One that fails stops the others.
            outcome?;
        }
        Ok(())
    })
}

fn write(ground: &Ground, thread: usize, seed: u64) -> Result<()> {
    let outcome = write_on(ground, thread, seed);
    ground.stop.store(true, Ordering::Relaxed);
    outcome
}

fn write_on(ground: &Ground, thread: usize, seed: u64) -> Result<()> {
    let session = &ground.session;
    let rings = session.make_rings(DEPTH as u32, DEPTH as u32, 0)?;
    let queue = Queue::of_rings(session, &rings)?;
    let vqp = ground.vqp(rings.rings)?;
    let mut lane = Lane::new(ground, thread, vqp, seed);
    while !ground.stop.load(Ordering::Relaxed) {
        let first = lane.next();
        let (wrs, block) = lane.batch();
        let count = wrs.len();
        let taken = queue.submit(session, &wrs, rings.rings, count as u32, PATIENCE_NS)?;
        let mut wcs = [Wc::zeroed(); 2 * DEPTH];
        let done = queue.take(&mut wcs);
        ensure!(
            (taken, done) == (count, count),
            "thread {thread}: of {count} requests {taken} were taken and {done} ended"
        );
        for (at, wc) in wcs[..done].iter().enumerate() {
            ensure!(
                (wc.status, wc.vqp, wc.wr_id) == (0, vqp, first + at as u64),
                "thread {thread}: {wc:?} instead of {}",
                first + at as u64
            );
        }
        lane.look(block)?;
        ground.done.fetch_add(count as u64, Ordering::Relaxed);
    }
    Ok(())
}
