// SPDX-License-Identifier: MIT OR Apache-2.0

//! One member of a case, in a process of its own: it says that it has met the
//! others, waits to be told to go on, measures, tells what it saw, and keeps
//! sending until its input ends, so that nobody's measurement ends before
//! another's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context as _, Result};
use clap::ValueEnum as _;
use nix::sched::{sched_setaffinity, CpuSet};
use nix::time::{clock_gettime, ClockId};
use nix::unistd::Pid;
use weft::fabric::NodeSet;
use weft::multicast::Builder;
use weft::{Ending, Group, SendError, Subgroup, SubgroupHandle};
use weft_testkit::place::{Kind, Placed};

use super::args::{MemberArgs, Pace};
use super::case::{Case, Experiment};
use super::load::{self, Clock, Load, Receiver};
use super::seen::Seen;
use super::{lone, raw};
use crate::child::{say_ready, wait_for_end, wait_for_word};
use crate::stats::{Recorded, Times};

/// How long members wait for one another, and for what was sent.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A thread that sends.
type Sending = JoinHandle<Result<(), SendError>>;

/// Is a member.
pub fn run(args: &MemberArgs) -> Result<()> {
    let case: Case = serde_json::from_str(&args.case).context("no case")?;
    let fabric = Kind::from_str(&case.fabric, false).map_err(|error| anyhow!(error))?;
    if case.bound {
        bind(args.rank)?;
    }
    let node = Placed::new(fabric, args.rank, case.members, args.meeting);
    match case.experiment {
        Experiment::Raw => raw::run(node, &case, args.pace),
        Experiment::Lone => lone::messages(node, &case, args.pace),
        Experiment::Idle => lone::idle(node, &case),
        _ => stream(node, &case, args.pace),
    }
}

/// Begins the group of a case, with the subgroup that is active, and others that are there and
/// silent.
pub fn begin(
    node: Placed,
    case: &Case,
) -> Result<(Builder<Placed>, SubgroupHandle, Vec<SubgroupHandle>)> {
    let mut builder = Group::builder(node).timeout(PATIENCE);
    if case.views {
        builder = builder.with_views();
    }
    let options = case.options()?;
    let mut add = |name: &str| {
        let subgroup = Subgroup::new(name)
            .senders(0..case.senders.of(case.members))
            .window(case.window)
            .max_message(case.bytes)
            .options(options);
        builder.subgroup(subgroup)
    };
    let active = add("active");
    let silent = (1..case.subgroups).map(|at| add(&format!("silent-{at}")));
    let silent = silent.collect();
    Ok((builder, active, silent))
}

/// Keeps this process, and the threads that it will have, to one processor.
fn bind(rank: usize) -> Result<()> {
    let mut processors = CpuSet::new();
    processors.set(rank)?;
    sched_setaffinity(Pid::from_raw(0), &processors)
        .with_context(|| format!("cannot be bound to processor {rank}"))
}

/// Processor time of this process so far.
pub fn cpu_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    Ok(time.into())
}

/// Sends as fast as it can.
fn stream(node: Placed, case: &Case, pace: Pace) -> Result<()> {
    use weft::fabric::Fabric as _;
    let rank = node.rank();
    let clock = Arc::new(Clock::new());
    let latencies = Arc::new(Mutex::new(Times::new()));
    let damaged = Arc::new(AtomicU64::new(0));
    let (mut builder, active, silent) = begin(node, case)?;
    let receiver = Receiver {
        rank,
        case: case.clone(),
        clock: Arc::clone(&clock),
        latencies: Arc::clone(&latencies),
        damaged: Arc::clone(&damaged),
    };
    builder = builder.deliver(active, receiver.upcall());
    for subgroup in silent {
        builder = builder.deliver(subgroup, |_| {});
    }
    let group = Arc::new(match case.stepped {
        true => builder.join_stepped()?,
        false => builder.join()?,
    });
    say_ready(&"met")?;
    wait_for_word()?;
    let stop = Arc::new(AtomicBool::new(false));
    let load = match rank < case.senders.of(case.members) {
        true => Some(Load::new(case, rank, group.sender(active)?)),
        false => None,
    };
    let (timer, until) = (Arc::clone(&clock), Arc::clone(&stop));
    let mut sending = match (load, case.stepped) {
        (load, true) => {
            let group = Arc::clone(&group);
            Some(thread::spawn(move || {
                load::step(&group, load.as_ref(), &timer, &until)
            }))
        }
        (Some(load), false) => Some(thread::spawn(move || load.run(&timer, &until))),
        (None, false) => None,
    };
    thread::sleep(Duration::from_millis(pace.warm_up_ms));
    let lock = || latencies.lock().unwrap_or_else(PoisonError::into_inner);
    *lock() = Times::new();
    let mut seen = measure(&group, active, pace.slice())?;
    seen.latencies = Recorded::from(&*lock());
    if case.sends(rank) {
        still_sends(&mut sending)?;
    }
    let damaged = damaged.load(Ordering::Relaxed);
    ensure!(damaged == 0, "{damaged} messages are not what was sent");
    say_ready(&seen)?;
    wait_for_end()?;
    stop.store(true, Ordering::Relaxed);
    drop(group);
    if let Some(sending) = sending {
        // Others may be gone by now, which is how its last message fails.
        let _ = ended(sending)?;
    }
    Ok(())
}

/// How a thread that sends has ended.
fn ended(sending: Sending) -> Result<Result<(), SendError>> {
    sending.join().map_err(|_| anyhow!("the sender panicked"))
}

/// Fails if a thread that should send until it is stopped has ended before.
fn still_sends(sending: &mut Option<Sending>) -> Result<()> {
    if let Some(early) = sending.take_if(|sending| sending.is_finished()) {
        ended(early)?.context("a sender ended while its group was measured")?;
        bail!("a sender ended while its group was measured");
    }
    Ok(())
}

/// Fails if a group has ended, or lost a member.
fn still_goes_on(ending: Option<Ending>, gone: NodeSet) -> Result<()> {
    ensure!(
        ending.is_none() && gone.is_empty(),
        "the group ended while it was measured: {gone:?} are gone ({ending:?})"
    );
    Ok(())
}

/// What a subgroup does in a slice of time.
pub fn measure(group: &Group, active: SubgroupHandle, slice: Duration) -> Result<Seen> {
    let (calls, cpu) = (group.system_calls(), cpu_time()?);
    let (before, began) = (group.metrics(active)?, Instant::now());
    thread::sleep(slice);
    let after = group.metrics(active)?;
    still_goes_on(group.ending(active)?, group.left().union(group.failed()))?;
    let mut seen = Seen::between(&before, &after);
    seen.seconds = began.elapsed().as_secs_f64();
    seen.cpu = Some((cpu_time()? - cpu).as_secs_f64());
    let calls_now = group.system_calls();
    seen.system_calls = calls_now.zip(calls).map(|(now, then)| now - then);
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_has_ended_gives_no_row() {
        assert!(still_goes_on(None, NodeSet::EMPTY).is_ok());
        assert!(still_goes_on(Some(Ending::Agreed), NodeSet::EMPTY).is_err());
        assert!(still_goes_on(None, NodeSet::EMPTY.with(1)).is_err());
    }

    #[test]
    fn a_sender_that_has_ended_gives_no_row_but_is_told() {
        let sends = |result: Result<(), SendError>| {
            let sending = thread::spawn(move || result);
            while !sending.is_finished() {
                thread::yield_now();
            }
            still_sends(&mut Some(sending))
        };
        assert!(still_sends(&mut None).is_ok());
        assert!(sends(Ok(())).is_err());
        let error = sends(Err(SendError::Closed)).unwrap_err();
        assert!(format!("{error:#}").contains("the group was left"));
    }
}
