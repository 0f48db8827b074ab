// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completions that are there at once because nobody had the time to look.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use weft_shim::{SendWr, Wc};

use crate::world::{counter, Link};

/// What keeps the processors busy, so that polls come late.
const HOGS: usize = 4;
const ROUNDS: usize = 300;
/// The longest burst: more than are taken from a queue pair under one lock.
const LONGEST: usize = 40;
/// Sooner than a queue pair without progress is given up.
const BOUND: Duration = Duration::from_secs(8);

/// Bursts of any length, each request signalled, and nothing after them: all end.
pub fn end() -> Result<()> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..HOGS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let outcome = one_after_another();
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

fn one_after_another() -> Result<()> {
    let mut link = Link::new(1, 4096, LONGEST as u32)?;
    link.works(1)?;
    let Link {
        vqp, local, remote, ..
    } = &mut link;
    let chains = counter("rc_chains")?;
    for round in 0..ROUNDS {
        let count = 1 + round % LONGEST;
        let wr = SendWr::write(local.slice(0..8)?, remote.remote()).signaled();
        let mut wcs = [Wc::default(); LONGEST];
        let progress = vqp.enter(&[wr; LONGEST][..count], &mut wcs, 0, Duration::ZERO)?;
        ensure!(progress.submitted == count, "there is room for all");
        let (mut done, start) = (progress.completed, Instant::now());
        while done < count && start.elapsed() < BOUND {
            done += vqp.enter(&[], &mut wcs[done..count], 1, BOUND)?.completed;
        }
        ensure!(done == count, "{done} of {count} ended, in round {round}");
        for wc in &wcs[..count] {
            wc.result()?;
        }
    }
    ensure!(counter("rc_chains")? > chains, "they went by DC");
    Ok(())
}
