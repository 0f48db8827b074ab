// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fail-nth: each allocation and each user copy on the way of a call fails in turn.
//! The call has to answer a documented errno, the next try has to work, and nothing
//! may be left behind: the gauges go back, and where the kernel has kmemleak
//! (`--kernel leaks`), it finds nothing.
//!
//! The kernel does it (`Documentation/fault-injection`): a thread writes `n` to its
//! `fail-nth`, and the n-th point that can fail, does. What runs in a softirq or in a
//! work item is not the thread's, and does not count: [`elsewhere`] reaches it. There a
//! failure may cost a packet or a moment, but not the call. Page pins have no such point:
//! a registration meets a hole at each of its pages instead.
//!
//! All of it by DC, then, where that makes a difference, with an RC queue pair.

mod elsewhere;
mod inject;
mod leaks;
mod module;
mod pins;
mod spared;
mod steps;
mod sweep;

use std::time::Duration;

use anyhow::{ensure, Result};
use nix::errno::Errno;

use crate::choice::Choice;
use crate::rc::pin;
use crate::world::Transport;
use inject::prepare_kernel;
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
    /// What requests are to go by while it is tried.
    by: &'static [Transport],
    /// It posts requests, or its preparation does.
    posts: bool,
}

/// Points that have failed, of the calling threads and elsewhere.
#[derive(Default)]
struct Failed {
    thread: u32,
    elsewhere: u32,
}

impl Failed {
    /// Checks that there were some of both kinds. A choice of steps may have none.
    fn check(&self, report: &mut Report, pass: &str, args: &Args) {
        let Self { thread, elsewhere } = self;
        println!("# {pass}: {thread} points of threads failed in turn, {elsewhere} elsewhere");
        if args.only.is_some() {
            return;
        }
        report.check(&format!("{pass}: points of both kinds fail"), || {
            ensure!(*thread > 0, "no point of a thread has failed");
            ensure!(*elsewhere > 0, "no point elsewhere has failed");
            Ok(())
        });
    }
}

/// All checks.
pub fn run(report: &mut Report, args: &Args) {
    let ready = report.need("the kernel injects faults", prepare_kernel);
    if ready.is_none() {
        return;
    }
    let choice = Choice::new(args.only.as_deref().unwrap_or_default());
    let wanted = |name: &str| choice.wants(name);
    if let Some(module) = &args.module {
        let failed = module::run(report, module, &args.module_args, &wanted);
        failed.check(report, "the module", args);
    } else {
        calls(report, Transport::Usual, &wanted).check(report, "calls", args);
        if wanted("pins") {
            pins::run(report);
        }
        if report
            .need("a pinned peer is connected by RC", pin)
            .is_some()
        {
            calls(report, Transport::Rc, &wanted).check(report, "calls by RC", args);
        }
    }
    choice.report(report);
    if leaks::are_looked_for() {
        report.check_within("kmemleak finds no leak", LONGEST, leaks::none);
    } else {
        println!("# kmemleak is off: memory that nobody counts may have leaked unseen");
    }
}

/// Fails each point of each call, the thread's own and those elsewhere.
fn calls(report: &mut Report, by: Transport, wanted: &impl Fn(&str) -> bool) -> Failed {
    let mut failed = Failed::default();
    for step in STEPS
        .iter()
        .filter(|step| step.by.contains(&by) && wanted(step.name))
    {
        let name = match by {
            Transport::Usual => step.name.to_owned(),
            Transport::Rc => format!("{}, by RC", step.name),
        };
        let seen = if step.posts { by } else { Transport::Usual };
        failed.thread += sweep::thread(report, &name, step, seen);
        failed.elsewhere += sweep::elsewhere(report, &name, step, seen);
    }
    failed
}
