// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs of a simulation, one for each seed, on all processors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, Result};

/// Any number of runs ends within this.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The runs to do.
#[derive(clap::Args)]
pub struct Args {
    /// Runs, each with a seed of its own.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
}

/// Runs after which it says how far it is.
const REPORT_EVERY: u64 = 100_000;

/// What runs have done, each thread's added up, and how many there were in a second.
pub struct Outcome<S> {
    pub parts: Vec<S>,
    pub seeds_per_second: f64,
}

/// Does them. `run` does those of one seed and adds up what they have done.
pub fn run<S: Default + Send>(
    args: &Args,
    run: impl Fn(u64, &mut S) -> Result<()> + Sync,
) -> Result<Outcome<S>> {
    let next = AtomicU64::new(args.first);
    let end = args.first.saturating_add(args.seeds);
    let began = Instant::now();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let ended: Vec<_> = thread::scope(|scope| {
        let some = || scope.spawn(|| some_runs(&next, end, &run));
        let running: Vec<_> = (0..processors).map(|_| some()).collect();
        running.into_iter().map(|thread| thread.join()).collect()
    });
    let parts = ended
        .into_iter()
        .map(|some| some.map_err(|_| anyhow!("a member panicked"))?);
    Ok(Outcome {
        parts: parts.collect::<Result<_>>()?,
        seeds_per_second: args.seeds as f64 / began.elapsed().as_secs_f64(),
    })
}

/// Runs until none is left, or one has failed.
fn some_runs<S: Default>(
    next: &AtomicU64,
    end: u64,
    run: &impl Fn(u64, &mut S) -> Result<()>,
) -> Result<S> {
    let mut all = S::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return Ok(all);
        }
        if seed % REPORT_EVERY == 0 {
            println!("# seed {seed}");
        }
        if let Err(failure) = run(seed, &mut all) {
            // The others need not go on.
            next.store(end, Ordering::Relaxed);
            return Err(failure.context(format!("seed {seed}")));
        }
    }
}
