// SPDX-License-Identifier: MIT OR Apache-2.0

//! Members are stopped, which no connection shows: the others go on without them.

use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use nix::sys::signal::Signal;
use weft_testkit::pace::patient;
use weft_testkit::place::{Kind, Meeting};

use super::Process;

const MEMBERS: usize = 4;

/// How long a member may hang. Long enough for a busy machine.
fn term() -> Duration {
    patient(Duration::from_secs(3))
}

pub fn run(kind: Kind, stops: usize) -> Result<()> {
    (0..stops).try_for_each(|round| stop(kind, round % MEMBERS))
}

fn stop(kind: Kind, victim: usize) -> Result<()> {
    let meeting = Meeting::call();
    let start = |rank: usize| {
        let role = [
            format!("--person={rank}"),
            format!("--rank={rank}"),
            format!("--founders={MEMBERS}"),
            // One is empty: where there are none, nobody can be cut off.
            format!("--seats={}", MEMBERS + 1),
            format!("--term-ms={}", term().as_millis()),
        ];
        Process::start(kind, meeting, kind.node_of(rank), &role)
    };
    let mut members = (0..MEMBERS).map(start).collect::<Result<Vec<_>>>()?;
    for member in &mut members {
        member.view(1)?;
    }
    let mut stopped = members.remove(victim);
    stopped.signal(Signal::SIGSTOP)?;
    let began = Instant::now();
    let views = members.iter_mut().map(|member| member.view(2));
    let views = views.collect::<Result<Vec<_>>>()?;
    println!("# {kind}: without it after {:?}", began.elapsed());
    ensure!(views.iter().all(|view| *view == views[0]), "{views:?}");
    let (before, first) = (stopped.said().len(), stopped.said().pop());
    stopped.signal(Signal::SIGCONT)?;
    // One that the others have cut off before it can read why is alone.
    stopped.ends(&["OUT Excluded", "OUT Minority"])?;
    ensure!(
        stopped.said().len() == before,
        "it has said more than {first:?}: {:?}",
        stopped.said()
    );
    for member in members {
        member.leave()?;
    }
    Ok(())
}
