// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups in which members that hang are suspected, and one is stopped.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use super::{end, found, member, Change, Ground, Measured, Resumed, ViewsArgs};
use crate::child::Helper;

/// How long nobody hangs, and nobody should be suspected.
const LOADED: Duration = Duration::from_secs(1);

/// So many groups.
pub fn measure(args: &ViewsArgs, ground: Ground, groups: u32) -> Result<Measured> {
    let mut hangs = Measured::new(ground, Change::Hang);
    let mut wrong = 0;
    for number in 0..groups {
        wrong += u64::from(!is_right(args, number, &mut hangs)?);
    }
    hangs.wrong = Some(wrong);
    Ok(hangs)
}

/// One group. Answers whether nobody was suspected who ran.
fn is_right(args: &ViewsArgs, number: u32, hangs: &mut Measured) -> Result<bool> {
    let (_, mut members) = found(args, hangs.ground)?;
    std::thread::sleep(LOADED);
    let stopped_ns = member::now_ns()?;
    let victim = usize::try_from(number)? % members.len();
    let victim = members.remove(victim);
    kill(Pid::from_raw(victim.pid().try_into()?), Signal::SIGSTOP)?;
    let is_right = go_on(&mut members, hangs, stopped_ns);
    members.push(victim);
    end(&mut members)?;
    Ok(is_right)
}

/// Waits until the others have delivered without the one that was stopped. False if they had
/// before, or one of them was put out itself.
fn go_on(members: &mut [Helper], hangs: &mut Measured, stopped_ns: u64) -> bool {
    let mut all = Vec::with_capacity(members.len());
    for member in members {
        match member.hear::<Resumed>() {
            Ok(resumed) if resumed.at_ns > stopped_ns => all.push(resumed),
            Ok(_) | Err(_) => return false,
        }
    }
    let last_ns = all.iter().map(|resumed| resumed.at_ns).max();
    let pause_ns = all.iter().map(|resumed| resumed.pause_ns).max();
    let since_ns = last_ns.map(|last_ns| last_ns - stopped_ns);
    let took = Duration::from_nanos(since_ns.unwrap_or_default());
    hangs.resumed.record(took);
    hangs
        .pauses
        .record(Duration::from_nanos(pause_ns.unwrap_or_default()));
    true
}
