// SPDX-License-Identifier: MIT OR Apache-2.0

//! Small models, enumerated: a group with views in which each member has sent a message and
//! one thing goes wrong, perhaps while a newcomer joins, in every order in which members may
//! step, single writes arrive, the newcomer calls and news of a failure spread.
//!
//! Nothing is left to chance, so a path of actions leads to the same state whenever it is
//! walked. The search walks on from each state that it has not seen, depth first; members
//! cannot be copied, so another branch is walked from the beginning again.

use super::judge::Outcome;
use super::run::Run;
use super::{views, Fault, Oracle, Plan, Shape};
use crate::fabric::NodeSet;
use crate::multicast::Options;
use std::collections::hash_map::DefaultHasher;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};

/// A model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) members: usize,
    pub(super) arrival: Arrival,
    /// Somebody joins, in a seat behind theirs.
    pub(super) newcomer: bool,
    /// The members of its subgroup.
    pub(super) shape: Shape,
    /// Those who send a message before anything goes wrong.
    pub(super) senders: NodeSet,
    /// What goes wrong, at any time; a crash counts its posts from the beginning.
    pub(super) fault: Fault,
}

/// When what a member posts to another arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// When it is posted, as over shared memory.
    AtOnce,
    /// At any time, all together that is under way between the two.
    Together,
    /// At any time, one write behind the other.
    OneByOne,
}

/// What there was to see.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    pub(super) states: usize,
    /// States in which nothing more can happen.
    pub(super) ends: usize,
}

/// Members by bytes: there are many paths of many actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Step(u8),
    Arrive(u8, u8),
    /// A node learns that another one is down.
    Notice(u8, u8),
    /// The newcomer's call of a node comes a step further.
    Call(u8, u8),
    Fault,
}

/// Where a walk is.
struct Walk<'a> {
    model: &'a Model,
    run: Run<'a>,
    /// Members whose last step found nothing to do, and to which nothing has happened since.
    idle: NodeSet,
    fault_is_due: bool,
}

/// The plan that a model's members are made by.
fn plan(model: &Model) -> Plan {
    Plan {
        seed: 0,
        views: true,
        members: model.members,
        seats: model.members + usize::from(model.newcomer),
        state: model.newcomer,
        subgroups: vec![model.shape],
        window: 1,
        sees: model.arrival == Arrival::AtOnce,
        options: Options::FULL,
        // Room for the messages in the state.
        actions: model.members,
        faults: vec![(0, model.fault)],
    }
}

/// Walks all of a model; answers with what failed, and the way there.
pub(super) fn enumerate(model: &Model) -> Result<Extent, String> {
    let plan = plan(model);
    let mut seen: HashSet<u64> = HashSet::new();
    let mut extent = Extent::default();
    let mut branches: Vec<Vec<Action>> = vec![Vec::new()];
    while let Some(mut path) = branches.pop() {
        let mut walk = Walk::start(model, &plan);
        for &action in &path {
            walk.take(action);
        }
        while seen.insert(walk.fingerprint()) {
            extent.states += 1;
            let actions = walk.actions();
            let Some((&first, others)) = actions.split_first() else {
                extent.ends += 1;
                let verdict = walk.judge(&plan);
                verdict.map_err(|(oracle, what)| format!("{oracle:?}: {what}\n{path:?}"))?;
                break;
            };
            for &other in others {
                let branch = path.iter().copied().chain([other]);
                branches.push(branch.collect());
            }
            walk.take(first);
            path.push(first);
        }
    }
    Ok(extent)
}

impl<'a> Walk<'a> {
    fn start(model: &'a Model, plan: &'a Plan) -> Self {
        let mut run = Run::new(plan);
        run.sim.be_still();
        run.keeps_all = true;
        assert!(run.settle(), "the first view is opened");
        for sender in model.senders.iter() {
            run.members[sender].send(0);
        }
        if model.newcomer {
            run.fault(Fault::Join {
                seat: model.members,
            });
        }
        let mut walk = Self {
            model,
            run,
            idle: NodeSet::EMPTY,
            fault_is_due: true,
        };
        if let Fault::Crash { .. } = model.fault {
            // It counts posts: when it is said makes no difference.
            walk.take(Action::Fault);
        }
        walk
    }

    /// What can happen now.
    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for member in 0..self.run.members.len() {
            if self.run.members[member].group.is_some() && !self.idle.contains(member) {
                actions.push(Action::Step(byte(member)));
            }
        }
        let calls = self.run.calls().into_iter();
        actions.extend(calls.map(|(newcomer, node)| Action::Call(byte(newcomer), byte(node))));
        let busy = self.run.sim.busy_links().into_iter();
        actions.extend(busy.map(|(from, to)| Action::Arrive(byte(from), byte(to))));
        let notices = self.run.notices.iter();
        actions.extend(notices.map(|&(node, down)| Action::Notice(byte(node), byte(down))));
        if self.fault_is_due {
            actions.push(Action::Fault);
        }
        actions
    }

    fn take(&mut self, action: Action) {
        match action {
            Action::Step(member) => {
                let member = usize::from(member);
                if self.run.step(member) {
                    // Where writes arrive at once, it may be at anybody.
                    self.idle = NodeSet::EMPTY;
                } else {
                    self.idle = self.idle.with(member);
                }
            }
            Action::Arrive(from, to) => {
                let (from, to) = (usize::from(from), usize::from(to));
                self.run.sim.arrive(from, to);
                while self.model.arrival == Arrival::Together
                    && self.run.sim.busy_links().contains(&(from, to))
                {
                    self.run.sim.arrive(from, to);
                }
                self.idle = self.idle.minus(NodeSet::EMPTY.with(to));
            }
            Action::Notice(node, down) => {
                let (node, down) = (usize::from(node), usize::from(down));
                self.run.notices.retain(|&notice| notice != (node, down));
                if self.run.sim.has_crashed(down) {
                    // All that it still hears of it has arrived before.
                    self.run.sim.lose_all(down, node);
                }
                let incarnation = self.run.members[down].incarnation;
                self.run.sim.notice_of(node, down, incarnation);
                self.idle = self.idle.minus(NodeSet::EMPTY.with(node));
            }
            Action::Call(newcomer, node) => {
                let (newcomer, node) = (usize::from(newcomer), usize::from(node));
                self.run.sim.call(newcomer, node);
                self.idle = self.idle.minus(NodeSet::EMPTY.with(node));
            }
            Action::Fault => {
                self.fault_is_due = false;
                self.run.fault(self.model.fault);
                self.idle = NodeSet::EMPTY;
            }
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.run.sim.fingerprint(&mut hasher);
        for member in &self.run.members {
            let group = member.group.as_ref();
            group
                .map(crate::multicast::Group::fingerprint)
                .hash(&mut hasher);
            member.seen().hash(&mut hasher);
        }
        let mut notices = self.run.notices.clone();
        notices.sort_unstable();
        (notices, self.idle, self.fault_is_due).hash(&mut hasher);
        hasher.finish()
    }

    fn judge(&self, plan: &Plan) -> Result<(), (Oracle, String)> {
        let members = &self.run.members;
        let seen: Vec<_> = members.iter().map(|member| member.seen()).collect();
        let crashed = (0..members.len()).filter(|&node| self.run.sim.has_crashed(node));
        let outcome = Outcome {
            sent: members.iter().map(|member| member.sent.clone()).collect(),
            flushed: members.iter().map(|member| member.has_flushed()).collect(),
            accepts: members.iter().map(|member| member.accepts()).collect(),
            seats: members.iter().map(|member| member.seat).collect(),
            incarnations: members.iter().map(|member| member.incarnation).collect(),
            crashed: crashed.collect(),
            left: self.run.left,
            endings: Vec::new(),
            failures: true,
            must_go_on: plan.must_go_on(),
            must_admit: false,
        };
        views::all(&seen, &outcome, plan)
    }
}

fn byte(member: usize) -> u8 {
    // Models are small.
    u8::try_from(member).unwrap_or(u8::MAX)
}

/// Posts that a node makes if nothing goes wrong, and some more: crashes are tried at each.
pub(super) fn posts(model: &Model, node: usize) -> u64 {
    let mut calm = *model;
    // It never comes to that.
    let node_posts = u64::MAX;
    calm.fault = Fault::Crash {
        node,
        posts: node_posts,
    };
    let plan = plan(&calm);
    let mut walk = Walk::start(&calm, &plan);
    while let Some(&action) = walk.actions().first() {
        walk.take(action);
    }
    walk.run.sim.posted_by(node)
}
