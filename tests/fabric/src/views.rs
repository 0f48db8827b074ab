// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups in a simulation: each seed is two runs, of a fixed group and of one with views, in
//! which members may crash, leave or lose links, and after which all oracles have to hold.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Result};
use weft::multicast::simulation::{run as simulate, shrink, Plan, Summary};
use weft_testkit::report::Report;

/// Any number of runs ends within this.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The runs to do.
#[derive(clap::Args)]
pub struct Args {
    /// Runs, each with a seed of its own.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
}

/// Runs after which it says how far it is.
const REPORT_EVERY: u64 = 100_000;

/// Does them, on all processors.
pub fn run(report: &mut Report, args: &Args) {
    report.check_within(
        "groups in a simulation keep their promises",
        LONGEST,
        || {
            let next = AtomicU64::new(args.first);
            let end = args.first.saturating_add(args.seeds);
            let began = Instant::now();
            let processors = thread::available_parallelism().map_or(1, usize::from);
            let all = thread::scope(|scope| {
                let some = || scope.spawn(|| some_runs(&next, end));
                let running: Vec<_> = (0..processors).map(|_| some()).collect();
                let ended = running.into_iter().map(|thread| thread.join());
                ended.collect::<Vec<_>>()
            });
            let (mut sent, mut delivered, mut views) = (0, 0, 0);
            for some in all {
                let some = some.map_err(|_| anyhow!("a member panicked"))??;
                sent += some.sent;
                delivered += some.delivered;
                views += some.views;
            }
            let seconds = began.elapsed().as_secs_f64();
            println!(
                "# {} seeds, {:.0} a second; {sent} messages, {delivered} deliveries, {views} changes of view",
                args.seeds,
                args.seeds as f64 / seconds
            );
            ensure!(delivered > 0 || args.seeds < 100, "nothing was delivered");
            Ok(())
        },
    );
}

/// Runs until none is left, or one has failed.
fn some_runs(next: &AtomicU64, end: u64) -> Result<Summary> {
    let mut all = Summary::default();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return Ok(all);
        }
        if seed % REPORT_EVERY == 0 {
            println!("# seed {seed}");
        }
        for plan in [Plan::of(seed), Plan::with_views(seed)] {
            match simulate(&plan) {
                Ok(summary) => {
                    all.sent += summary.sent;
                    all.delivered += summary.delivered;
                    all.views += summary.views;
                }
                Err(failure) => {
                    // The others need not go on.
                    next.store(end, Ordering::Relaxed);
                    return Err(anyhow!("seed {seed}\n{}", shrink(failure)));
                }
            }
        }
    }
}
