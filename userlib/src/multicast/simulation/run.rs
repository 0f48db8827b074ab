// SPDX-License-Identifier: MIT OR Apache-2.0

//! A run: actions that chance chooses, and then rest.

use super::judge::{self, Outcome};
use super::member::Member;
use super::{views, Failure, Fault, Oracle, Plan, Seen, Summary};
use crate::fabric::sim::Sim;
use crate::fabric::{NodeSet, MAX_NODES};
use crate::multicast::rows::{NodeRow, SubgroupRow};
use crate::sst::Table;
use std::collections::BTreeMap;

/// Rounds in which members that are left alone come to rest.
const ROUNDS: usize = 10_000;
/// Actions of 16 that send a message.
const SENDING: usize = 4;

/// Does a run, and judges it.
///
/// # Errors
///
/// The oracle that failed.
///
/// # Panics
///
/// If a member does.
pub fn run(plan: &Plan) -> Result<Summary, Box<Failure>> {
    let mut run = Run::new(plan);
    let rests = run.act();
    let seen: Vec<_> = run.members.iter().map(Member::seen).collect();
    let outcome = Outcome {
        sent: run
            .members
            .iter()
            .map(|member| member.sent.clone())
            .collect(),
        flushed: run.members.iter().map(Member::has_flushed).collect(),
        accepts: run.members.iter().map(Member::accepts).collect(),
        seats: run.members.iter().map(|member| member.seat).collect(),
        incarnations: run
            .members
            .iter()
            .map(|member| member.incarnation)
            .collect(),
        crashed: run.crashed,
        left: run.left,
        endings: run.members.iter().map(Member::ending).collect(),
        failures: run.failures,
        must_go_on: plan.must_go_on(),
        must_admit: plan.must_admit(),
    };
    let verdict = match rests {
        true if plan.views => views::all(&seen, &outcome, plan),
        true => judge::all(&seen, &outcome),
        false => Err((Oracle::Rest, "the members do not come to rest".to_owned())),
    };
    let delivered = |seen: &&Seen| matches!(seen, Seen::Delivered(_));
    let delivered = seen.iter().flatten().filter(delivered).count() as u64;
    match verdict {
        Ok(()) => Ok(Summary {
            sent: outcome.sent.iter().flatten().sum(),
            delivered,
            views: views::count(&seen),
            joins: views::joins(&seen, plan.members),
            states: views::states(&seen),
        }),
        Err((oracle, what)) => Err(Box::new(Failure {
            oracle,
            what,
            plan: plan.clone(),
            seen,
        })),
    }
}

pub(super) struct Run<'a> {
    plan: &'a Plan,
    pub(super) sim: Sim,
    rng: fastrand::Rng,
    /// All that there have been, by number: the founders, by their seats, then newcomers.
    pub(super) members: Vec<Member>,
    /// Who is still to learn that who is down.
    pub(super) notices: Vec<(usize, usize)>,
    pub(super) left: NodeSet,
    crashed: NodeSet,
    /// Somebody may take somebody for failed.
    failures: bool,
    /// Those who crash when they have installed a view.
    doomed: NodeSet,
    /// Those who hang, for so many steps.
    hung: BTreeMap<usize, usize>,
    /// What a node that crashes had under way is not lost by chance.
    pub(super) keeps_all: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let (sim, nodes) = Sim::with_seats(plan.members, plan.seats, plan.seed, plan.sees);
        sim.meet_at_once();
        let nodes = nodes.into_iter().enumerate();
        let members = nodes.map(|(rank, node)| Member::join(node, &sim, rank, rank, plan));
        let members = members.collect();
        Self {
            plan,
            sim,
            rng: fastrand::Rng::with_seed(plan.seed ^ (1 << 63)),
            members,
            notices: Vec::new(),
            left: NodeSet::EMPTY,
            crashed: NodeSet::EMPTY,
            failures: false,
            doomed: NodeSet::EMPTY,
            hung: BTreeMap::new(),
            keeps_all: false,
        }
    }

    /// All of it; answers whether the members came to rest.
    fn act(&mut self) -> bool {
        for action in 0..self.plan.actions {
            for &(_, fault) in self.plan.faults.iter().filter(|fault| fault.0 == action) {
                self.fault(fault);
            }
            self.action(SENDING);
        }
        // Time to agree in, before all goes in turn.
        for _ in 0..self.plan.members * self.plan.members * 8 {
            self.action(0);
        }
        self.rest()
    }

    /// One thing that chance chooses. `sending` of 16 are messages.
    fn action(&mut self, sending: usize) {
        let member = self.rng.usize(0..self.members.len());
        match self.rng.usize(0..16) {
            draw if draw < sending => {
                let subgroup = match self.plan.subgroups.len() {
                    1 => 0,
                    count => self.rng.usize(0..count),
                };
                self.members[member].send(subgroup);
            }
            0..=9 => match self.hung.get_mut(&member).filter(|steps| **steps > 0) {
                Some(steps) => *steps -= 1,
                None => {
                    self.step(member);
                }
            },
            10 if !self.notices.is_empty() => {
                let at = self.rng.usize(0..self.notices.len());
                self.notice(at);
            }
            11 => {
                let calls = self.calls();
                if let Some(&(newcomer, member)) = self.rng.choice(&calls) {
                    self.sim.call(newcomer, member);
                }
            }
            _ => {
                let busy = self.sim.busy_links();
                if let Some(&(from, to)) = self.rng.choice(&busy) {
                    self.sim.advance(from, to);
                    // With views there is more to tell: links have different speeds.
                    while self.plan.views && self.rng.u8(..) < 192 {
                        self.sim.advance(from, to);
                    }
                }
            }
        }
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        if let Fault::Join { seat } = fault {
            return self.join(seat);
        }
        if !fault.members().all(|member| self.is_there(member)) {
            return;
        }
        let is_harmless = matches!(fault, Fault::Leave { posts: None, .. } | Fault::Hang { .. });
        self.failures |= !is_harmless;
        match fault {
            Fault::Join { .. } => {}
            Fault::Crash { node, posts } => self.sim.crash_after(self.members[node].seat, posts),
            Fault::CrashAtView { node } => self.doomed = self.doomed.with(node),
            Fault::Close { node } => {
                self.crashed = self.crashed.with(node);
                self.bury(node);
            }
            Fault::Leave { node, posts } => self.leave(node, posts),
            Fault::Scribble { node, of } => {
                // The nodes' rows are first, then those of the first subgroup.
                let rows = Table::<NodeRow>::bytes(self.plan.seats);
                let word = rows + self.members[of].seat * size_of::<SubgroupRow>();
                let value = self.rng.u64(..);
                self.sim.scribble(self.members[node].seat, word, value);
            }
            Fault::Suspect { node, of } => {
                let seats = [node, of].map(|member| self.members[member].seat);
                self.sim.suspect(seats[0], seats[1]);
            }
            Fault::Accuse { node, of } => self.accuse(node, of),
            Fault::Partition { side } => {
                let members: NodeSet = (0..self.members.len()).collect();
                let others = members.minus(side);
                for (a, b) in side.iter().flat_map(|a| others.iter().map(move |b| (a, b))) {
                    self.notices.extend([(a, b), (b, a)]);
                }
            }
            Fault::Hang { node, steps } => {
                self.hung.insert(node, steps);
            }
            Fault::Break { a, b } => self.notices.extend([(a, b), (b, a)]),
        }
    }

    fn is_there(&self, member: usize) -> bool {
        let member = self.members.get(member);
        member.is_some_and(|member| member.group.is_some())
    }

    fn accuse(&mut self, node: usize, of: usize) {
        let seat = self.members[of].seat;
        if let Some(group) = &self.members[node].group {
            if let Some(view) = group.view() {
                // One that is not in the view is refused.
                let _ = group.suspect(seat, view.number);
            }
        }
    }

    fn leave(&mut self, node: usize, posts: Option<u64>) {
        if let Some(posts) = posts {
            self.sim.crash_after(self.members[node].seat, posts);
        }
        if self.plan.views {
            // Until all have agreed on it, it goes on.
            if let Some(group) = &self.members[node].group {
                group.ask_to_leave();
            }
            return;
        }
        // It says so in its last posts.
        self.members[node].close();
        self.left = self.left.with(node);
        self.bury(node);
    }

    /// Lets somebody join in the first seat from this one on that can be had, if there is one.
    fn join(&mut self, seat: usize) {
        let seats = self.plan.seats;
        let free = (0..seats).map(|more| (seat + more) % seats).find(|&seat| {
            let holder = self.members.iter().rev().find(|member| member.seat == seat);
            holder.is_none_or(|holder| holder.group.is_none() || holder.ending().is_some())
        });
        let person = self.members.len();
        let Some(seat) = free.filter(|_| person < MAX_NODES) else {
            return;
        };
        let holder = self.members.iter().rposition(|member| member.seat == seat);
        if let Some(stopped) = holder.filter(|&holder| self.members[holder].group.is_some()) {
            // Its application lets it go when it has ended.
            self.bury(stopped);
        }
        let node = self.sim.newcomer(seat);
        let member = Member::join(node, &self.sim, seat, person, self.plan);
        self.members.push(member);
    }

    /// The seats of newcomers that wait, with those of members that they can call.
    pub(super) fn calls(&self) -> Vec<(usize, usize)> {
        let waiting = self.members.iter().filter(|member| member.waits());
        let seats = |member: &Member| member.seat;
        let inside: Vec<usize> = self
            .members
            .iter()
            .filter(|member| member.is_in())
            .map(seats)
            .collect();
        let calls = waiting.flat_map(|newcomer| inside.iter().map(|&seat| (newcomer.seat, seat)));
        calls
            .filter(|&(newcomer, seat)| self.sim.can_call(newcomer, seat))
            .collect()
    }

    pub(super) fn step(&mut self, member: usize) -> bool {
        let Some(group) = &self.members[member].group else {
            return false;
        };
        let seat = self.members[member].seat;
        let view = group.view();
        let fired = group.step();
        if self.doomed.contains(member) && group.view() != view {
            self.sim.crash(seat);
        }
        let has_left = group.is_out() && self.members[member].ending().is_none();
        if self.sim.has_crashed(seat) {
            self.bury(member);
        } else if has_left {
            self.left = self.left.with(member);
            self.bury(member);
        }
        fired
    }

    /// A node is gone: its process has ended, or its endpoint is closed.
    pub(super) fn bury(&mut self, node: usize) {
        let seat = self.members[node].seat;
        self.members[node].close();
        if self.sim.has_crashed(seat) {
            self.crashed = self.crashed.with(node);
            if !self.keeps_all {
                self.sim.lose(seat);
            }
        }
        let others = (0..self.members.len()).filter(|&other| other != node);
        self.notices.extend(others.map(|other| (other, node)));
    }

    pub(super) fn notice(&mut self, at: usize) {
        let (node, down) = self.notices.swap_remove(at);
        let [to, from] = [node, down].map(|member| self.members[member].seat);
        if self.members[node].group.is_none() {
            return;
        }
        let incarnation = self.members[down].incarnation;
        let has_seat = self.sim.incarnation(from) == incarnation;
        if self.left.contains(down) && !self.crashed.contains(down) && has_seat {
            // Who leaves closes its connections behind what it has sent.
            while self.sim.busy_links().contains(&(from, to)) {
                self.sim.advance(from, to);
            }
        }
        self.sim.notice_of(to, from, incarnation);
    }

    /// Everything arrives, everybody learns what there is to learn, and the members do
    /// what is left to do.
    pub(super) fn rest(&mut self) -> bool {
        for &(_, fault) in &self.plan.faults {
            if let Fault::Crash { node, .. } = fault {
                // It may have had nothing to post.
                if self.is_there(node) {
                    self.sim.crash(self.members[node].seat);
                    self.bury(node);
                }
            }
        }
        self.settle()
    }

    /// As [`Self::rest`], without the crashes that are still to come.
    pub(super) fn settle(&mut self) -> bool {
        for _ in 0..ROUNDS {
            while !self.notices.is_empty() {
                self.notice(0);
            }
            for (from, to) in self.sim.busy_links() {
                self.sim.advance(from, to);
            }
            let calls = self.calls();
            for &(newcomer, member) in &calls {
                self.sim.call(newcomer, member);
            }
            let steps = 0..self.members.len();
            let fired = steps.fold(false, |fired, member| self.step(member) | fired);
            let is_quiet = self.notices.is_empty() && self.sim.busy_links().is_empty();
            if !fired && calls.is_empty() && is_quiet {
                return true;
            }
        }
        false
    }
}
