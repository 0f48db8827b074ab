// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads that submit from rings of their own, and whose completions all go to one ring,
//! from which another thread takes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::{Pod, SendWr, Wc};

use super::worker::{Ground, Lane, DEPTH, PATIENCE_NS, THREADS};
use crate::raw::Queue;

/// Places for completions: fewer than the threads may have under way, so that they have to
/// wait for one another.
const ROOM: u32 = (THREADS * DEPTH / 2) as u32;
const NAP: Duration = Duration::from_millis(20);

/// A thread that waits for its requests, and how many have ended.
struct Waiter {
    thread: Thread,
    done: AtomicU64,
}

/// Runs until something has gone wrong.
pub(super) fn run(ground: &Ground, seed: u64) -> Result<()> {
    let rings = ground.session.make_rings(0, ROOM, 0)?;
    let queue = Queue::of_rings(&ground.session, &rings)?;
    thread::scope(|scope| {
        let (mut lanes, mut waiters) = (Vec::new(), HashMap::new());
        for thread in 0..THREADS {
            let vqp = ground.vqp(rings.rings)?;
            let (sender, receiver) = std::sync::mpsc::channel();
            let handle = scope.spawn(move || {
                let waiter: std::sync::Arc<Waiter> = receiver.recv()?;
                let lane = Lane::new(ground, thread, vqp, seed);
                let outcome = write(ground, lane, rings.rings, &waiter)
                    .with_context(|| format!("thread {thread}"));
                ground.stop.store(true, Ordering::Relaxed);
                outcome
            });
            let waiter = std::sync::Arc::new(Waiter {
                thread: handle.thread().clone(),
                done: AtomicU64::new(0),
            });
            sender.send(waiter.clone())?;
            waiters.insert(vqp, waiter);
            lanes.push(handle);
        }
        let taken = take_all(ground, &queue, &waiters);
        ground.stop.store(true, Ordering::Relaxed);
        for lane in lanes {
            lane.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        taken
    })
}

/// Takes completions, each of which has to be its VQP's next one.
fn take_all(
    ground: &Ground,
    queue: &Queue,
    waiters: &HashMap<u32, std::sync::Arc<Waiter>>,
) -> Result<()> {
    let rings = queue.said.of_rings.rings;
    while !ground.stop.load(Ordering::Relaxed) {
        let mut wcs = [Wc::zeroed(); 64];
        ground
            .session
            .enter_rings(rings, 0, 1, NAP.as_nanos() as u64)?;
        let count = queue.take(&mut wcs);
        for wc in &wcs[..count] {
            let waiter = waiters.get(&wc.vqp).context("a completion of no VQP")?;
            let wanted = waiter.done.load(Ordering::Relaxed);
            ensure!(
                (wc.status, wc.wr_id) == (0, wanted),
                "{wc:?} instead of {wanted}"
            );
            waiter.done.store(wanted + 1, Ordering::Release);
            waiter.thread.unpark();
        }
    }
    Ok(())
}

fn write(ground: &Ground, mut lane: Lane<'_>, cq: u32, waiter: &Waiter) -> Result<()> {
    let session = &ground.session;
    let rings = session.make_rings(DEPTH as u32, 0, 0)?;
    let queue = Queue::of_rings(session, &rings)?;
    while !ground.stop.load(Ordering::Relaxed) {
        let (wrs, block) = lane.batch();
        post(ground, &queue, &wrs, cq)?;
        if !wait(ground, waiter, lane.next())? {
            return Ok(());
        }
        lane.look(block)?;
        ground.done.fetch_add(wrs.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Posts all of them, however often there is no room.
fn post(ground: &Ground, queue: &Queue, wrs: &[SendWr], cq: u32) -> Result<()> {
    let (start, mut posted) = (Instant::now(), 0);
    while posted < wrs.len() && !ground.stop.load(Ordering::Relaxed) {
        posted += match queue.submit(&ground.session, &wrs[posted..], cq, 0, 0) {
            Err(Errno::ENOSPC) => {
                thread::yield_now();
                0
            }
            taken => taken?,
        };
        let waited = start.elapsed().as_nanos() as u64;
        ensure!(waited < PATIENCE_NS, "{posted} of {} were taken", wrs.len());
    }
    Ok(())
}

/// Waits until so many have ended; not, if something has gone wrong.
fn wait(ground: &Ground, waiter: &Waiter, wanted: u64) -> Result<bool> {
    let start = Instant::now();
    loop {
        let done = waiter.done.load(Ordering::Acquire);
        if done >= wanted {
            ensure!(done == wanted, "{done} have ended, of {wanted}");
            return Ok(true);
        }
        if ground.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        thread::park_timeout(NAP);
        let waited = start.elapsed().as_nanos() as u64;
        ensure!(waited < PATIENCE_NS, "{done} of {wanted} have ended");
    }
}
