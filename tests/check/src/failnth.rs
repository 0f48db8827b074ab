// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fail-nth: each allocation and each user copy on the way of a call fails in turn.
//! The call has to answer a documented errno, the next try has to work, and nothing
//! may be left behind: the gauges go back, and where the kernel has kmemleak
//! (`--kernel leaks`), it finds nothing.
//!
//! The kernel does it (`Documentation/fault-injection`): a thread writes `n` to its
//! `fail-nth`, and the n-th point that can fail, does. What runs in a softirq or in a
//! work item is not the thread's, and does not count. Page pins have no such point: a
//! registration meets a hole at each of its pages instead.

mod inject;
mod leaks;
mod module;
mod pins;
mod steps;

use std::time::Duration;

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;

use crate::world::Baseline;
use inject::{prepare_kernel, Injection};
use steps::STEPS;
use weft_testkit::report::Report;

/// No call has so many points.
const MAX_POINTS: u32 = 20_000;

/// No step takes longer with all of its points.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// What to try.
#[derive(clap::Args)]
pub struct Args {
    /// Only steps whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// The module, to load and unload it too; nobody else may use it
    #[arg(long)]
    module: Option<std::path::PathBuf>,
    /// The module's arguments
    #[arg(long, default_value = "")]
    module_args: String,
}

/// One call, prepared; it may be tried again.
type Attempt = Box<dyn FnMut() -> Result<(), Errno>>;

/// A call and its documented errors.
struct Step {
    name: &'static str,
    errnos: &'static [Errno],
    prepare: fn() -> Result<Attempt>,
}

/// All checks.
pub fn run(report: &mut Report, args: &Args) {
    let ready = report.need("the kernel injects faults", prepare_kernel);
    if ready.is_none() {
        return;
    }
    let wanted = |name: &str| args.only.as_ref().is_none_or(|only| name.contains(only));
    let mut failed = 0;
    if let Some(module) = &args.module {
        module::run(report, module, &args.module_args, &mut failed, &wanted);
    } else {
        for step in STEPS.iter().filter(|step| wanted(step.name)) {
            sweep(report, step, &mut failed);
        }
        if wanted("pins") {
            pins::run(report, &mut failed);
        }
    }
    println!("# {failed} points failed in turn");
    if leaks::are_looked_for() {
        report.check_within("kmemleak finds no leak", LONGEST, leaks::none);
    } else {
        println!("# kmemleak is off: memory that nobody counts may have leaked unseen");
    }
}

/// Fails each point of a step in turn.
fn sweep(report: &mut Report, step: &Step, failed: &mut u32) {
    let mut points = 0;
    report.check_within(step.name, LONGEST, || {
        // What the first call allocates for good is not left behind by the others.
        try_once(step, 0)?;
        let baseline = Baseline::take(2)?;
        while try_once(step, points + 1).with_context(|| format!("point {}", points + 1))? {
            points += 1;
            ensure!(points < MAX_POINTS, "there is no end of points");
        }
        baseline.is_back()
    });
    *failed += points;
    println!("# {}: {points} points", step.name);
}

/// Tries a step with its `nth` point failing (0: none). Answers whether there is one.
fn try_once(step: &Step, nth: u32) -> Result<bool> {
    let mut attempt = (step.prepare)().context("preparing it")?;
    let injection = Injection::arm(nth)?;
    let outcome = attempt();
    let hit = injection.disarm()?;
    if let Err(errno) = outcome {
        ensure!(hit, "{errno:?} although nothing failed");
        ensure!(
            step.errnos.contains(&errno),
            "{errno:?} is none of {:?}",
            step.errnos
        );
        attempt().map_err(|errno| anyhow!("the next try: {errno:?}"))?;
    }
    Ok(hit)
}
