// SPDX-License-Identifier: MIT OR Apache-2.0

//! Three nodes that are processes: they exchange what nodes exchange, then one
//! is killed while the others sleep.

use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use crate::phases::Phase;
use crate::process::Process;
use weft_testkit::pace::patient;
use weft_testkit::place::{Kind, Meeting};
use weft_testkit::report::Report;

/// Nodes of the story.
pub const NODES: usize = 3;
/// The node that dies.
pub const VICTIM: usize = 1;

/// How soon a death has to be known, by the contract "soon".
const SOON: Duration = Duration::from_secs(5);

/// Runs the story.
pub fn run(report: &mut Report, kind: Kind) {
    let meeting = Meeting::call();
    let name = |what: &str| format!("{kind}: {what}");
    let started = report.need(&name("processes meet"), || {
        let mut all: Vec<_> = (0..NODES)
            .map(|rank| start(kind, rank, meeting))
            .collect::<Result<_>>()?;
        all.iter_mut().try_for_each(|member| member.says("met"))?;
        Ok(all)
    });
    let Some(mut all) = started else { return };
    for phase in Phase::TOGETHER {
        report.check(&name(phase.promise()), || {
            let done = |member: &mut Process| member.says(phase.name());
            all.iter_mut().try_for_each(done)
        });
    }
    report.check(&name("a process that is killed wakes the others"), || {
        all.iter_mut()
            .try_for_each(|member| member.says("sleeping"))?;
        let mut victim = all.remove(VICTIM);
        victim.kill()?;
        let killed = Instant::now();
        all.iter_mut()
            .try_for_each(|member| member.says("noticed"))?;
        let took = killed.elapsed();
        let soon = patient(SOON);
        ensure!(took < soon, "it took {took:?}, soon is {soon:?}");
        println!("# noticed within {took:?}");
        Ok(())
    });
    report.check(&name("the living go on"), || {
        all.iter_mut().try_for_each(Process::ends_well)
    });
}

fn start(kind: Kind, rank: usize, meeting: Meeting) -> Result<Process> {
    let args = [
        "member".to_owned(),
        format!("--kind={kind}"),
        format!("--rank={rank}"),
        format!("--meeting={meeting}"),
    ];
    Process::start(rank, &args)
}
