// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes that say anything at all to the device, while a bystander checks
//! its own traffic: all is answered, nobody else notices, nothing is left behind.

mod arena;
mod live;
mod mutate;
mod stats;
mod worker;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context, Result};
use weft_shim::{Device, MemoryRegion};
use weft_testkit::pace::patient;

use crate::isolation::users::NOBODY;
use crate::rc::pin;
use crate::traffic::{Neighbour, Traffic, SLICE};
use crate::world::{counter, full_access, wait_for, worker, Baseline, Transport};
use weft_testkit::report::Report;

use stats::Stats;

pub use worker::{work, WorkerArgs};

const PROCESSES: u64 = 3;
/// A process that reports nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(60);
/// Contexts of DC that nobody uses are gone after that.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// No batch of the bystander may take longer.
const SLOWEST: Duration = Duration::from_secs(10);

/// What a fuzzing run is told.
#[derive(clap::Args)]
pub struct Args {
    /// Operations of all processes together.
    #[arg(long, default_value_t = 20_000)]
    ops: u64,
    /// Repeats a run, as `weft-check --seed` does.
    #[arg(long)]
    pub seed: Option<u64>,
}

/// The whole run: one half with requests by DC, the other with those by RC that
/// can go so.
pub fn run(report: &mut Report, args: &Args, seed: u64) {
    let ops = args.ops.div_ceil(2);
    for (by, seed) in [
        (Transport::Usual, seed),
        (Transport::Rc, seed.wrapping_add(1)),
    ] {
        if by == Transport::Rc
            && report
                .need("a pinned peer is connected by RC", pin)
                .is_none()
        {
            return;
        }
        if let Err(error) = with_bystanders(report, by, ops, seed) {
            report.check(&named(by, "all of it could be tried"), || Err(error));
        }
    }
}

/// A check's name in one of the halves.
fn named(by: Transport, name: &str) -> String {
    match by {
        Transport::Usual => name.to_owned(),
        Transport::Rc => format!("{name}, by RC"),
    }
}

fn with_bystanders(report: &mut Report, by: Transport, ops: u64, seed: u64) -> Result<()> {
    if by == Transport::Rc {
        // Contexts from before would go meanwhile, by themselves.
        wait_for("DC's contexts are forgotten", FORGOTTEN, || {
            Ok(counter("contexts")? == 0)
        })?;
    }
    // Before the bystander and its sessions, which go again before the comparison: a session
    // remembers the peer that it connected to last, and a peer keeps the streams that
    // anybody has used.
    let baseline = Baseline::take(2)?;
    let (near, far) = (Device::open_on(0)?, Device::open_on(1)?);
    let region = MemoryRegion::allocate(&far, 2 * SLICE, full_access())?;
    let mut traffic = Traffic::new(&near, 1, region.remote(), seed)?;
    near.flush_dccache()?;
    // It is the first that connects, and the fuzzers are the same user, so that they share
    // its streams.
    let mut neighbour = Neighbour::start(region.remote().offset(SLICE as u64), seed, NOBODY)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let bystander = scope.spawn(|| bystander(&mut traffic, &stop));
        let fuzzed = fuzz(ops, seed);
        stop.store(true, Ordering::Relaxed);
        report.check(&named(by, "every operation was answered"), || {
            let stats = fuzzed?;
            show(&stats);
            reached_deep(&stats, by, ops)
        });
        report.check(&named(by, "the bystander noticed nothing"), || {
            let (rounds, slowest) = bystander.join().map_err(|_| anyhow!("it panicked"))??;
            println!("# bystander: {rounds} batches, the slowest took {slowest:?}");
            ensure!(rounds > 0, "it did nothing");
            ensure!(slowest < patient(SLOWEST), "a batch took {slowest:?}");
            Ok(())
        });
    });
    report.check(
        &named(by, "nor did the one that shares their streams"),
        || neighbour.works(),
    );
    drop((neighbour, traffic, region, near, far));
    report.check(&named(by, "all of it leaves nothing behind"), || {
        baseline.is_back()
    });
    Ok(())
}

fn bystander(traffic: &mut Traffic, stop: &AtomicBool) -> Result<(usize, Duration)> {
    let (mut rounds, mut slowest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        traffic
            .patient_round()
            .with_context(|| format!("round {rounds}"))?;
        slowest = slowest.max(start.elapsed());
        rounds += 1;
        thread::sleep(Duration::from_millis(5));
    }
    Ok((rounds, slowest))
}

/// Runs all processes to their end.
fn fuzz(ops: u64, seed: u64) -> Result<Stats> {
    let mut children = Vec::new();
    for n in 0..PROCESSES {
        children.push(
            worker(&["fuzz"])?
                .args(["--ops", &ops.div_ceil(PROCESSES).to_string()])
                .args(["--seed", &seed.wrapping_add(1000 * n).to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()?,
        );
    }
    let (sender, lines) = channel();
    for child in &mut children {
        let (stdout, sender) = (child.stdout.take().context("no output")?, sender.clone());
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
    }
    drop(sender);
    let outcome = collect(&lines, ops);
    for mut child in children {
        if outcome.is_err() {
            child.kill()?;
        }
        let status = child.wait()?;
        ensure!(outcome.is_err() || status.success(), "a process: {status}");
    }
    outcome
}

/// Adds the processes' lines up, and shows how far they are.
fn collect(lines: &Receiver<String>, ops: u64) -> Result<Stats> {
    let (mut stats, mut done) = (Stats::default(), 0);
    loop {
        match lines.recv_timeout(patient(SILENCE)) {
            Ok(line) => match line.strip_prefix("progress ") {
                Some(more) => {
                    let before = done;
                    done += more.parse::<u64>()?;
                    if before * 10 / ops != done * 10 / ops {
                        println!("# {done} of {ops} operations");
                    }
                }
                None => stats.take_line(&line),
            },
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Ok(stats),
            Err(_) => bail!("no progress within {SILENCE:?}, after {done} operations"),
        }
    }
}

fn show(stats: &Stats) {
    for line in stats.lines() {
        println!("# {line}");
    }
}

/// A fuzz in which everything is refused at the door is worth nothing.
fn reached_deep(stats: &Stats, by: Transport, ops: u64) -> Result<()> {
    let (all, good) = (stats.count("operations"), stats.count("errno none"));
    ensure!(all >= ops, "only {all} operations of {ops}");
    ensure!(3 * good >= all, "only {good} of {all} operations succeeded");
    for status in ["Success", "LocProtErr", "RemAccessErr", "WrFlushErr"] {
        let count = stats.count(&format!("status {status}"));
        ensure!(count > 0, "no request ended with {status}");
    }
    let wanted = [
        "messages received",
        "senders accepted",
        "ports bound",
        "VQPs on shared rings",
        "requests to peers",
    ];
    for what in wanted {
        ensure!(stats.count(what) > 0, "no {what}");
    }
    let ran = stats.count("requests run");
    ensure!(
        (by == Transport::Rc) == (ran > 0),
        "{ran} requests were run in the call"
    );
    Ok(())
}
