// SPDX-License-Identifier: MIT OR Apache-2.0

//! A run: actions that chance chooses, and then rest.

use super::judge::{self, Outcome};
use super::{views, Failure, Fault, Oracle, Plan, Seen, Summary};
use crate::fabric::sim::{Sim, SimNode};
use crate::fabric::NodeSet;
use crate::multicast::rows::{NodeRow, SubgroupRow};
use crate::multicast::{Ending, Event, Group, SendError, Sender, Subgroup};
use crate::sst::Table;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Nobody waits that long: all nodes meet in this process.
const PATIENCE: Duration = Duration::from_secs(60);
/// Rounds in which members that are left alone come to rest.
const ROUNDS: usize = 10_000;
const NAME: &str = "simulated";
/// Actions of 16 that send a message.
const SENDING: usize = 4;

type Log = Arc<Mutex<Vec<Seen>>>;

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
        sent: run.members.iter().map(|member| member.sent).collect(),
        crashed: (0..plan.members)
            .filter(|&node| run.sim.has_crashed(node))
            .collect(),
        left: run.left,
        endings: run.members.iter().map(Member::ending).collect(),
        failures: run.failures,
        must_go_on: plan.must_go_on(),
    };
    let verdict = match rests {
        true if plan.views => views::all(&seen, &outcome),
        true => judge::all(&seen, &outcome),
        false => Err((Oracle::Rest, "the members do not come to rest".to_owned())),
    };
    let delivered = |seen: &&Seen| matches!(seen, Seen::Delivered(..));
    let delivered = seen.iter().flatten().filter(delivered).count() as u64;
    match verdict {
        Ok(()) => Ok(Summary {
            sent: outcome.sent.iter().sum(),
            delivered,
            views: views::count(&seen),
        }),
        Err((oracle, what)) => Err(Box::new(Failure {
            oracle,
            what,
            plan: plan.clone(),
            seen,
        })),
    }
}

pub(super) struct Member {
    /// Until it leaves or crashes.
    pub(super) group: Option<Group>,
    sender: Option<Sender>,
    log: Log,
    pub(super) sent: u64,
}

impl Member {
    fn join(node: SimNode, sim: &Sim, rank: usize, plan: &Plan) -> Self {
        let log = Log::default();
        let note = |log: &Log| {
            let (log, sim) = (Arc::clone(log), sim.clone());
            move |seen| {
                // Of what it does behind its crash nobody can know.
                if !sim.has_crashed(rank) {
                    log.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(seen);
                }
            }
        };
        let (delivered, told, installed) = (note(&log), note(&log), note(&log));
        let subgroup = Subgroup::new(NAME).window(plan.window).max_message(8);
        let subgroup = subgroup.options(plan.options);
        let mut builder = Group::builder(node);
        if plan.views {
            builder = builder.on_view(move |view| installed(Seen::Installed(*view)));
        }
        let group = builder
            .timeout(PATIENCE)
            .subgroup(subgroup)
            .deliver(NAME, move |batch| {
                for message in batch {
                    let number = message.value::<u64>().copied().unwrap_or(u64::MAX);
                    delivered(Seen::Delivered(message.sender, number, message.sequence));
                }
            })
            .on_event(move |event| match event {
                Event::Left(node) => told(Seen::Left(node)),
                Event::Failed(node) => told(Seen::Failed(node)),
                Event::Stopped(ending) => told(Seen::Stopped(ending)),
            })
            .join_stepped()
            .expect("they meet");
        Self {
            sender: group.sender(NAME).ok(),
            group: Some(group),
            log,
            sent: 0,
        }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        self.group.as_ref()?.ending(NAME).expect("the subgroup")
    }

    /// Sends its next message, if it may.
    pub(super) fn send(&mut self) {
        let Some(sender) = self.sender.as_ref().filter(|_| self.group.is_some()) else {
            return;
        };
        match sender.try_send(|slot| slot.put(&self.sent.to_ne_bytes())) {
            Ok(()) => self.sent += 1,
            Err(
                SendError::Full
                | SendError::Wedged { .. }
                | SendError::Stopped { .. }
                | SendError::Closed,
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

pub(super) struct Run<'a> {
    plan: &'a Plan,
    pub(super) sim: Sim,
    rng: fastrand::Rng,
    pub(super) members: Vec<Member>,
    /// Who is still to learn that who is down.
    pub(super) notices: Vec<(usize, usize)>,
    pub(super) left: NodeSet,
    /// Somebody may take somebody for failed.
    failures: bool,
    /// Those who crash when they have installed a view.
    doomed: NodeSet,
    /// What a node that crashes had under way is not lost by chance.
    pub(super) keeps_all: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let (sim, nodes) = Sim::new(plan.members, plan.seed, plan.sees);
        sim.meet_at_once();
        let nodes = nodes.into_iter().enumerate();
        let members = nodes.map(|(rank, node)| Member::join(node, &sim, rank, plan));
        let members = members.collect();
        Self {
            plan,
            sim,
            rng: fastrand::Rng::with_seed(plan.seed ^ (1 << 63)),
            members,
            notices: Vec::new(),
            left: NodeSet::EMPTY,
            failures: false,
            doomed: NodeSet::EMPTY,
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
            draw if draw < sending => self.members[member].send(),
            0..=9 => {
                self.step(member);
            }
            10 if !self.notices.is_empty() => {
                let at = self.rng.usize(0..self.notices.len());
                self.notice(at);
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
        match fault {
            Fault::Crash { node, posts } => {
                self.failures = true;
                self.sim.crash_after(node, posts);
            }
            Fault::CrashAtView { node } => {
                self.failures = true;
                self.doomed = self.doomed.with(node);
            }
            Fault::Leave { node, posts } if self.members[node].group.is_some() => {
                if let Some(posts) = posts {
                    self.failures = true;
                    self.sim.crash_after(node, posts);
                }
                if self.plan.views {
                    // Until all have agreed on it, it goes on.
                    if let Some(group) = &self.members[node].group {
                        group.ask_to_leave();
                    }
                    return;
                }
                // It says so in its last posts.
                self.members[node].group = None;
                self.left = self.left.with(node);
                self.bury(node);
            }
            Fault::Leave { .. } => {}
            Fault::Scribble { node, of } => {
                self.failures = true;
                // The nodes' rows are first, then those of the one subgroup.
                let rows = Table::<NodeRow>::bytes(self.members.len());
                let word = rows + of * size_of::<SubgroupRow>();
                self.sim.scribble(node, word, self.rng.u64(..));
            }
            Fault::Suspect { node, of } => {
                self.failures = true;
                self.sim.suspect(node, of);
            }
            Fault::Partition { side } => {
                self.failures = true;
                let members: NodeSet = (0..self.members.len()).collect();
                let others = members.minus(side);
                for (a, b) in side.iter().flat_map(|a| others.iter().map(move |b| (a, b))) {
                    self.notices.extend([(a, b), (b, a)]);
                }
            }
            Fault::Break { a, b } => {
                self.failures = true;
                self.notices.extend([(a, b), (b, a)]);
            }
        }
    }

    pub(super) fn step(&mut self, member: usize) -> bool {
        let Some(group) = &self.members[member].group else {
            return false;
        };
        let view = group.view();
        let fired = group.step();
        if self.doomed.contains(member) && group.view() != view {
            self.sim.crash(member);
        }
        let has_left = group.is_out() && self.members[member].ending().is_none();
        if self.sim.has_crashed(member) {
            self.bury(member);
        } else if has_left {
            self.left = self.left.with(member);
            self.bury(member);
        }
        fired
    }

    /// A node is gone: its process has ended, or its endpoint is closed.
    pub(super) fn bury(&mut self, node: usize) {
        self.members[node].group = None;
        if self.sim.has_crashed(node) && !self.keeps_all {
            self.sim.lose(node);
        }
        let others = (0..self.members.len()).filter(|&other| other != node);
        self.notices.extend(others.map(|other| (other, node)));
    }

    fn notice(&mut self, at: usize) {
        let (node, down) = self.notices.swap_remove(at);
        if self.left.contains(down) && !self.sim.has_crashed(down) {
            // Who leaves closes its connections behind what it has sent.
            while self.sim.busy_links().contains(&(down, node)) {
                self.sim.advance(down, node);
            }
        }
        self.sim.notice(node, down);
    }

    /// Everything arrives, everybody learns what there is to learn, and the members do
    /// what is left to do.
    pub(super) fn rest(&mut self) -> bool {
        for &(_, fault) in &self.plan.faults {
            if let Fault::Crash { node, .. } = fault {
                // It may have had nothing to post.
                self.sim.crash(node);
                if self.members[node].group.is_some() {
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
            let steps = 0..self.members.len();
            let fired = steps.fold(false, |fired, member| self.step(member) | fired);
            if !fired && self.notices.is_empty() && self.sim.busy_links().is_empty() {
                return true;
            }
        }
        false
    }
}
