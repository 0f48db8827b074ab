// SPDX-License-Identifier: MIT OR Apache-2.0

//! One call again and again, each time with another point that fails.

use anyhow::{anyhow, ensure, Context, Result};
use nix::errno::Errno;

use super::elsewhere::{Elsewhere, Kind, Outcome};
use super::inject::Injection;
use super::{Attempt, Step, LONGEST, MAX_POINTS};
use crate::rc::wait_until_up;
use crate::world::{Baseline, Transport};
use weft_testkit::report::Report;

/// Rounds of a sweep at most, of those elsewhere.
const ROUNDS: u32 = 300;

/// Fails each point of the calling thread in turn, and answers how many have. Requests go
/// by `seen`.
pub fn thread(report: &mut Report, name: &str, step: &Step, seen: Transport) -> u32 {
    let mut points = 0;
    report.check_within(name, LONGEST, || {
        wait_until_goes_by(seen)?;
        seen.observe(|| {
            // The first call may allocate something for good, which the others do not leave
            // behind again.
            try_once(step, 0)?;
            let baseline = Baseline::take(2)?;
            while try_once(step, points + 1).with_context(|| format!("point {}", points + 1))? {
                points += 1;
                ensure!(points < MAX_POINTS, "there is no end of points");
            }
            baseline.is_back()
        })
    });
    println!("# {name}: {points} points");
    points
}

/// Waits until requests go by `seen`: a slow kernel loses a queue pair now and then, and
/// requests go by DC until there is another.
fn wait_until_goes_by(seen: Transport) -> Result<()> {
    match seen {
        Transport::Usual => Ok(()),
        Transport::Rc => wait_until_up(),
    }
}

/// Tries a step with its `nth` point failing (0: none). Answers whether there is one.
fn try_once(step: &Step, nth: u32) -> Result<bool> {
    let mut attempt = (step.prepare)().context("preparing it")?;
    let injection = Injection::arm(nth)?;
    let outcome = attempt();
    let hit = injection.disarm()?;
    judge(step, &mut attempt, outcome, hit)?;
    Ok(hit)
}

/// Fails allocations of the module's own, whoever makes them, and answers how many have.
/// Requests go by `seen`.
pub fn elsewhere(report: &mut Report, name: &str, step: &Step, seen: Transport) -> u32 {
    let mut points = 0;
    report.check_within(&format!("{name}, elsewhere"), LONGEST, || {
        let baseline = Baseline::take(2)?;
        for kind in Kind::ALL {
            wait_until_goes_by(seen)?;
            seen.observe(|| each(kind, &mut points, |space| one_of(step, kind, space)))?;
        }
        baseline.is_back()
    });
    println!("# {name}, elsewhere: {points} points");
    points
}

/// Tries a step with the first allocation failing that has no space.
fn one_of(step: &Step, kind: Kind, space: u32) -> Result<Outcome> {
    let mut attempt = (step.prepare)().context("preparing it")?;
    let injection = Elsewhere::arm(kind, space)?;
    let outcome = attempt();
    let round = injection.disarm()?;
    judge(step, &mut attempt, outcome, round.failed)?;
    Ok(round)
}

/// Calls `round` with an endless space, and then with more and more of what it took.
pub fn each(
    kind: Kind,
    points: &mut u32,
    mut round: impl FnMut(u32) -> Result<Outcome>,
) -> Result<()> {
    let whole = round(Elsewhere::ENDLESS).context("nothing fails")?.had;
    let stride = kind.stride().max(whole / ROUNDS);
    for space in (0..=whole).step_by(stride as usize) {
        let outcome =
            round(space).with_context(|| format!("after {space} of {whole} {}", kind.unit()))?;
        *points += u32::from(outcome.failed);
    }
    Ok(())
}

/// A call that fails says so by a documented errno, and works the next time.
fn judge(step: &Step, attempt: &mut Attempt, outcome: Result<(), Errno>, hit: bool) -> Result<()> {
    let Err(errno) = outcome else {
        return Ok(());
    };
    ensure!(hit, "{errno:?} although nothing failed");
    ensure!(
        step.errnos.contains(&errno),
        "{errno:?} is none of {:?}",
        step.errnos
    );
    attempt().map_err(|errno| anyhow!("the next try: {errno:?}"))
}
