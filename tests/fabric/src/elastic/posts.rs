// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member of four is killed at each of its posts while the view changes, because another one
//! is killed, leaves, or joins: once in a group in which nobody sends, where its posts are those
//! of the change, and once under load.

use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use weft_testkit::place::{Kind, Meeting};

use super::{check_same, Process, Said};
use crate::process::patience;

const MEMBERS: usize = 4;
/// How many posts are tried in a group under load. In one that is quiet it is as many as there are.
const LOADED: usize = 48;
/// More than a change takes.
const MOST: usize = 500;

/// Why the view changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Kill,
    Leave,
    Join,
}

/// One group.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    cause: Cause,
    victim: usize,
    post: usize,
    is_quiet: bool,
}

impl Process {
    /// Whether it lives on, and may post as often as it likes.
    fn is_spared(&mut self) -> Result<bool> {
        let told = self.tell("die 0").and_then(|()| self.hears("MORTAL"));
        if told.is_ok() {
            return Ok(true);
        }
        // It says nothing more: it has ended, or is about to.
        let end = Instant::now() + patience();
        while !self.has_ended()? {
            ensure!(Instant::now() < end, "{told:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(false)
    }
}

/// Each of so many posts.
pub fn run(kind: Kind, every: usize) -> Result<()> {
    let mut groups = 0;
    for cause in [Cause::Kill, Cause::Leave, Cause::Join] {
        for victim in 0..MEMBERS {
            for is_quiet in [true, false] {
                let most = if is_quiet { MOST } else { LOADED };
                // From another one each time, so that few show as much.
                let first = 1 + groups % every;
                for post in (first..=most).step_by(every) {
                    let case = Case {
                        kind,
                        cause,
                        victim,
                        post,
                        is_quiet,
                    };
                    groups += 1;
                    let died = case.run().with_context(|| format!("{case:?}"))?;
                    if is_quiet && !died {
                        println!("# {cause:?}, member {victim}: fewer than {post} posts");
                        break;
                    }
                }
            }
        }
    }
    println!("# {groups} groups");
    Ok(())
}

impl Case {
    fn start(self, meeting: Meeting, rank: Option<usize>) -> Result<Process> {
        let place = rank.unwrap_or(MEMBERS);
        let mut role = vec![
            format!("--person={place}"),
            format!("--seats={}", MEMBERS + 1),
        ];
        if let Some(rank) = rank {
            role.push(format!("--rank={rank}"));
            role.push(format!("--founders={MEMBERS}"));
        }
        Process::start(self.kind, meeting, self.kind.node_of(place), &role)
    }

    /// Answers whether the victim has died at the post.
    fn run(self) -> Result<bool> {
        let meeting = Meeting::call();
        let members = (0..MEMBERS).map(|rank| self.start(meeting, Some(rank)));
        let mut members = members.collect::<Result<Vec<_>>>()?;
        for member in &mut members {
            member.view(1)?;
        }
        if self.is_quiet {
            members
                .iter_mut()
                .try_for_each(|member| member.tell("pause"))?;
            for member in &mut members {
                member.hears("PAUSED")?;
            }
        }
        let mut said = Vec::new();
        let other = (self.victim + 1) % MEMBERS;
        members[self.victim].tell(&format!("die {}", self.post))?;
        members[self.victim].hears("MORTAL")?;
        let (mut victim, mut others) = take_apart(members, self.victim);
        let other = if other > self.victim {
            other - 1
        } else {
            other
        };
        let mut leaver = None;
        match self.cause {
            Cause::Kill => said.extend(others.remove(other).kill()?),
            Cause::Leave => {
                let mut member = others.remove(other);
                member.let_go();
                leaver = Some(member);
            }
            Cause::Join => others.push(self.start(meeting, None)?),
        }
        let mut died = self.wait(&mut victim, &mut others)?;
        if !died && !victim.is_spared()? {
            died = self.wait(&mut victim, &mut others)?;
        }
        match died {
            true => said.extend(victim.kill()?),
            false => others.push(victim),
        }
        if let Some(mut leaver) = leaver {
            leaver.ends(&["LEFT", "OUT Minority"])?;
            said.extend(leaver.said());
        }
        self.end(others, &mut said)?;
        check_same(said)?;
        Ok(died)
    }

    /// Waits until the change is over at all others. Answers whether the victim has died.
    fn wait(self, victim: &mut Process, others: &mut [Process]) -> Result<bool> {
        let end = Instant::now() + patience();
        let settled = |count: usize, others: &mut [Process]| -> bool {
            let last = others.iter().map(|member| member.said().pop());
            let last: Vec<_> = last.collect();
            super::members_of(last[0].as_ref()) == count && last.iter().all(|view| *view == last[0])
        };
        loop {
            let died = victim.has_ended()?;
            let count = others.len() + usize::from(!died);
            let mut all_out = true;
            for member in &mut *others {
                all_out &= member.has_ended()?;
            }
            if died && (all_out || settled(count, others)) {
                return Ok(true);
            }
            if !died && settled(count, others) && victim.said().pop() == others[0].said().pop() {
                // It may still post something behind that.
                std::thread::sleep(Duration::from_millis(2));
                if !victim.has_ended()? {
                    return Ok(false);
                }
            }
            ensure!(Instant::now() < end, "not over: {:?}", others[0].said());
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// All who are there go on and leave, or are too few.
    fn end(self, others: Vec<Process>, said: &mut Vec<Said>) -> Result<()> {
        for mut member in others {
            // One that has stopped with the others does not hear it.
            let _ = member.tell("resume");
            member.let_go();
            let hows: &[&str] = match self.cause {
                Cause::Kill => &["LEFT", "OUT Minority"],
                Cause::Leave | Cause::Join => &["LEFT"],
            };
            member.ends(hows)?;
            said.extend(member.said());
        }
        Ok(())
    }
}

fn take_apart(mut members: Vec<Process>, victim: usize) -> (Process, Vec<Process>) {
    let victim = members.remove(victim);
    (victim, members)
}
