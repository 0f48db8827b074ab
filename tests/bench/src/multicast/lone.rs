// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups that sleep: what a message takes that wakes them, and what they use
//! while nobody sends.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use nix::time::{clock_gettime, ClockId};
use weft::fabric::Fabric as _;
use weft::{Batch, Group, SubgroupHandle};
use weft_testkit::place::Placed;

use super::args::Pace;
use super::case::Case;
use super::member::{begin, cpu_time, measure, PATIENCE};
use super::seen::Seen;
use crate::child::{say_ready, wait_for_end, wait_for_word};
use crate::stats::{Recorded, Times};

/// Rest between two messages: the polling threads sleep after one millisecond.
const REST: Duration = Duration::from_millis(4);
/// How long nothing is posted before a group counts as idle.
const SETTLED: Duration = Duration::from_millis(50);
/// How long an idle group is looked at.
const IDLE: Duration = Duration::from_secs(1);

/// Sends messages with a rest before each, and times them: at the sender until
/// its own delivery, at the others from the sending, by the machine's clock.
pub fn messages(node: Placed, case: &Case, pace: Pace) -> Result<()> {
    let rank = node.rank();
    let wakes = Arc::new(Mutex::new(Times::new()));
    let kept = Arc::clone(&wakes);
    let (group, active) = join(node, case, move |batch| {
        for message in batch {
            if let Some(sent_ns) = message.value::<u64>() {
                let mut times = kept.lock().unwrap_or_else(PoisonError::into_inner);
                times.record(Duration::from_nanos(now_ns().saturating_sub(*sent_ns)));
            }
        }
    })?;
    say_ready(&"met")?;
    wait_for_word()?;
    let began = Instant::now();
    if rank == 0 {
        let sender = group.sender(active)?;
        for _ in 0..pace.lone_messages {
            thread::sleep(REST);
            sender.send_value(&now_ns())?;
            group.flush(PATIENCE)?;
        }
    }
    delivered(&group, active, u64::from(pace.lone_messages))?;
    let times = wakes.lock().unwrap_or_else(PoisonError::into_inner);
    let metrics = group.metrics(active)?;
    let mut seen = Seen::between(&weft::Metrics::default(), &metrics);
    seen.seconds = began.elapsed().as_secs_f64();
    match rank {
        0 => seen.latencies = Recorded::from(&*times),
        _ => seen.wakes = Recorded::from(&*times),
    }
    say_ready(&seen)?;
    wait_for_end()?;
    Ok(())
}

/// All send a message. Waits until nothing is posted any more, and looks at a
/// second of it.
pub fn idle(node: Placed, case: &Case) -> Result<()> {
    let (group, active) = join(node, case, |_| {})?;
    say_ready(&"met")?;
    wait_for_word()?;
    group.sender(active)?.send_value(&0_u64)?;
    group.flush(PATIENCE)?;
    delivered(&group, active, case.senders.of(case.members) as u64)?;
    settle(&group)?;
    let (posted, cpu) = (group.posted(), cpu_time()?);
    let mut seen = measure(&group, active, IDLE)?;
    seen.posts = group.posted() - posted;
    seen.cpu = Some((cpu_time()? - cpu).as_secs_f64());
    say_ready(&seen)?;
    wait_for_end()
}

/// Waits until so many messages were delivered here.
fn delivered(group: &Group, active: SubgroupHandle, messages: u64) -> Result<()> {
    let began = Instant::now();
    while group.metrics(active)?.delivered < messages {
        ensure!(began.elapsed() < PATIENCE, "messages were lost");
        thread::sleep(REST);
    }
    Ok(())
}

/// Waits until the others' last news have come and gone.
fn settle(group: &Group) -> Result<()> {
    let began = Instant::now();
    loop {
        let before = (group.posted(), group.sleeps());
        thread::sleep(SETTLED);
        if before == (group.posted(), group.sleeps()) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "the group does not come to rest"
        );
    }
}

fn join(
    node: Placed,
    case: &Case,
    upcall: impl FnMut(&mut Batch<'_>) + Send + 'static,
) -> Result<(Group, SubgroupHandle)> {
    let (builder, active, _) = begin(node, case)?;
    Ok((builder.deliver(active, upcall).join()?, active))
}

/// The machine's clock, the same for all processes.
fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
