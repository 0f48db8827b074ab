// SPDX-License-Identifier: MIT OR Apache-2.0

//! Members are killed, or put out by another one, and others join at the same time.

use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use weft_testkit::place::{Kind, Meeting};
use weft_testkit::rng::Rng;

use super::{check_same, members_of, Process, Said};
use crate::process::patience;

const SEATS: usize = 6;
const FOUNDERS: usize = 3;
/// Changes in a group, each a newcomer, one who goes, or both.
const CHANGES: usize = 8;

/// Until there were so many of both.
pub fn run(kind: Kind, changes: usize, rng: &mut Rng) -> Result<()> {
    let (mut joins, mut kills, mut put_out, mut groups) = (0, 0, 0, 0);
    while joins.min(kills) < changes {
        let mut group = Group::found(kind)?;
        for _ in 0..CHANGES {
            group.change(rng)?;
        }
        (joins, kills, groups) = (joins + group.joins, kills + group.kills, groups + 1);
        put_out += group.put_out;
        group.end()?;
    }
    println!("# {groups} groups, {joins} joins, {kills} kills, {put_out} put out");
    Ok(())
}

struct Group {
    kind: Kind,
    meeting: Meeting,
    members: Vec<Process>,
    /// Of those who are there no more.
    said: Vec<Said>,
    joins: usize,
    kills: usize,
    put_out: usize,
}

impl Group {
    fn found(kind: Kind) -> Result<Self> {
        let meeting = Meeting::call();
        let start = |rank: usize| {
            let role = [
                format!("--person={rank}"),
                format!("--rank={rank}"),
                format!("--founders={FOUNDERS}"),
                format!("--seats={SEATS}"),
            ];
            Process::start(kind, meeting, kind.node_of(rank), &role)
        };
        let members = (0..FOUNDERS).map(start).collect::<Result<_>>()?;
        let mut group = Self {
            kind,
            meeting,
            members,
            said: Vec::new(),
            joins: 0,
            kills: 0,
            put_out: 0,
        };
        group.settle()?;
        Ok(group)
    }

    /// The RDMA node with an empty seat for the next newcomer: seats are on nodes in turn.
    fn roomy_node(&self) -> usize {
        let room = |node: usize| {
            let seats = (0..SEATS).filter(|&seat| self.kind.node_of(seat) == node);
            let taken = self.members.iter().filter(|member| member.node == node);
            seats.count().saturating_sub(taken.count())
        };
        let nodes = 0..=self.kind.node_of(1);
        nodes.max_by_key(|&node| room(node)).unwrap_or(0)
    }

    fn change(&mut self, rng: &mut Rng) -> Result<()> {
        let mut chance = |of_4: usize| rng.below(4) < of_4;
        let count = self.members.len();
        if count <= FOUNDERS || count < SEATS - 1 && chance(3) {
            let person = FOUNDERS + self.joins;
            let role = [format!("--person={person}"), format!("--seats={SEATS}")];
            let node = self.roomy_node();
            let newcomer = Process::start(self.kind, self.meeting, node, &role)?;
            self.members.push(newcomer);
            self.joins += 1;
        }
        let (loses_one, kills) = (chance(3), chance(3));
        // A newcomer is in after some milliseconds, on a machine that has time.
        std::thread::sleep(Duration::from_micros(rng.below(20_000) as u64));
        // Not the first founders' majority: one of at least four.
        let count = self.members.len();
        if count > FOUNDERS && loses_one {
            let one = rng.below(count);
            match kills {
                true => self.kill(one)?,
                false => self.have_one_put_out(one)?,
            }
        }
        self.settle()
    }

    fn kill(&mut self, victim: usize) -> Result<()> {
        self.members[victim].check_alive()?;
        self.said.extend(self.members.swap_remove(victim).kill()?);
        self.kills += 1;
        Ok(())
    }

    /// One member suspects another one, unless its own seat is the highest, and that one, which
    /// runs, finds itself out.
    fn have_one_put_out(&mut self, by: usize) -> Result<()> {
        if self.members[by].asks("suspect")? != "SUSPECTS 1" {
            return Ok(());
        }
        let end = Instant::now() + patience();
        loop {
            for at in 0..self.members.len() {
                if self.members[at].has_ended()? {
                    let mut member = self.members.swap_remove(at);
                    // One that the others have cut off before it can read why is alone.
                    member.ends(&["OUT Excluded", "OUT Minority"])?;
                    self.said.extend(member.all_said());
                    self.put_out += 1;
                    return Ok(());
                }
            }
            ensure!(Instant::now() < end, "nobody was put out");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until all are in the same view, which has as many members.
    fn settle(&mut self) -> Result<()> {
        let end = Instant::now() + patience();
        loop {
            let last = self.members.iter().map(|member| member.said().pop());
            let last: Vec<_> = last.collect();
            let count = members_of(last[0].as_ref());
            if count == last.len() && last.iter().all(|view| *view == last[0]) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{last:?}");
            self.members.iter_mut().try_for_each(Process::check_alive)?;
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// All leave. Everybody has to have said the same of each view.
    fn end(mut self) -> Result<()> {
        for member in self.members {
            self.said.extend(member.leave()?);
        }
        check_same(self.said)
    }
}
