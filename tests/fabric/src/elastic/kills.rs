// SPDX-License-Identifier: MIT OR Apache-2.0

//! Members are killed, one after the other.

use std::time::Duration;

use anyhow::{ensure, Result};
use weft_testkit::place::{Kind, Meeting};

use super::Process;

const MEMBERS: usize = 5;
/// Whom, in groups one after the other.
const VICTIMS: [&[usize]; 5] = [&[0, 1, 2], &[4, 0], &[2, 3, 4], &[1], &[3, 0, 1]];

pub fn run(kind: Kind, groups: usize) -> Result<()> {
    for (round, victims) in (0..groups).zip(VICTIMS.iter().cycle()) {
        kill(kind, round as u64, victims)?;
    }
    Ok(())
}

/// Kills some members under load, and lets the others leave.
fn kill(kind: Kind, round: u64, victims: &[usize]) -> Result<()> {
    let meeting = Meeting::call();
    let start = |rank: usize| {
        let role = [
            format!("--person={rank}"),
            format!("--rank={rank}"),
            format!("--founders={MEMBERS}"),
            format!("--seats={MEMBERS}"),
        ];
        Process::start(kind, meeting, kind.node_of(rank), &role).map(Some)
    };
    let mut members = (0..MEMBERS).map(start).collect::<Result<Vec<_>>>()?;
    for member in members.iter_mut().flatten() {
        member.view(1)?;
    }
    for (number, &victim) in (2..).zip(victims) {
        // In the midst of its sending.
        std::thread::sleep(Duration::from_micros(500 + 3137 * (round % 11)));
        if let Some(mut victim) = members[victim].take() {
            victim.check_alive()?;
            victim.kill()?;
        }
        let staying = members.iter_mut().flatten();
        let views = staying.map(|member| member.view(number));
        let views = views.collect::<Result<Vec<_>>>()?;
        ensure!(views.iter().all(|view| *view == views[0]), "{views:?}");
    }
    for member in members.into_iter().flatten() {
        member.leave()?;
    }
    Ok(())
}
