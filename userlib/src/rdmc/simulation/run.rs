// SPDX-License-Identifier: MIT OR Apache-2.0

//! A run: actions that chance chooses, and then rest.

use super::app::App;
use super::judge::{self, Oracle, Verdict};
use super::member::Member;
use super::plan::{Fault, Plan};
use super::views::Views;
use super::{Failure, Summary};
use crate::fabric::sim::Sim;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rounds in which nodes that are left alone come to rest.
const ROUNDS: usize = 20_000;
/// Rounds in which nothing happens, after which who waits for others does so in vain. In a
/// round an application looks at one of its groups, which chance chooses.
const PATIENCE: usize = 64;
const OF_RUN: u64 = 1 << 63;

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
    let verdict = run.act();
    run.sim.watch(|_| {});
    match verdict {
        Ok(()) => Ok(run.summary()),
        Err((oracle, what)) => Err(Box::new(Failure {
            oracle,
            what,
            plan: plan.clone(),
        })),
    }
}

struct Run<'a> {
    plan: &'a Plan,
    sim: Sim,
    rng: fastrand::Rng,
    members: Vec<Member>,
    /// Of the nodes by seat: who looks at what is done to their memory.
    apps: Arc<Mutex<Vec<App>>>,
    /// If nodes come when others have gone.
    views: Option<Views>,
    /// A node that is still to learn that another one is down: both, and the other's incarnation.
    notices: Vec<(usize, usize, u64)>,
    /// The counts of nodes whose seats others have taken.
    gone: Summary,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan) -> Self {
        let (sim, nodes) = Sim::new(plan.nodes, plan.seed, plan.sees);
        sim.meet_at_once();
        if plan.severs {
            sim.sever();
        }
        let nodes = nodes.into_iter().enumerate();
        let members: Vec<_> = nodes
            .map(|(rank, node)| Member::join(plan, node, rank))
            .collect();
        let apps: Vec<_> = members.iter().map(|member| member.app.clone()).collect();
        let apps = Arc::new(Mutex::new(apps));
        let watching = Arc::clone(&apps);
        sim.watch(move |touch| lock(&watching)[touch.node].lock().touched(touch));
        Self {
            plan,
            sim,
            rng: fastrand::Rng::with_seed(plan.seed ^ OF_RUN),
            members,
            apps,
            views: plan.has_views().then(|| Views::new(plan.nodes)),
            notices: Vec::new(),
            gone: Summary::default(),
        }
    }

    fn act(&mut self) -> Verdict {
        for action in 0..self.plan.actions {
            let due = self.plan.faults.iter().filter(|fault| fault.0 == action);
            due.for_each(|&(_, fault)| self.fault(fault));
            self.action();
            self.judge()?;
        }
        self.rest()
    }

    /// One thing that chance chooses.
    fn action(&mut self) {
        let node = self.rng.usize(0..self.members.len());
        match self.rng.usize(0..32) {
            0 => {
                self.members[node].create(self.plan, self.views.as_mut());
            }
            1..5 => {
                let (at, is_slow) = (self.rng.usize(..), self.rng.bool());
                self.members[node].use_group(at, is_slow);
            }
            5 => self.members[node].app.lock().release(),
            6 if !self.notices.is_empty() => {
                let at = self.rng.usize(0..self.notices.len());
                self.notice(at);
            }
            7 if self.views.is_some() => {
                self.install(node);
            }
            8 if self.views.is_some() => {
                let other = self.rng.usize(0..self.members.len());
                self.call(node, other);
            }
            6..20 => {
                self.members[node].step();
            }
            _ => {
                let busy = self.sim.busy_links();
                if let Some(&(from, to)) = self.rng.choice(&busy) {
                    self.sim.advance(from, to);
                }
            }
        }
        self.bury_crashed();
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Crash { node, posts } => self.sim.crash_after(node, posts),
            Fault::Close { node } if self.members[node].is_there() => {
                self.members[node].close();
                // It posts nothing any more.
                self.sim.crash(node);
                self.tell_others(node);
            }
            Fault::Desert { node } => self.members[node].desert(),
            Fault::Leave { node } => self.members[node].leave(),
            Fault::Misfit { node } => self.members[node].app.lock().is_misfit = true,
            Fault::Suspect { node, of } => self.sim.suspect(node, of),
            Fault::Break { a, b } => {
                let [of_a, of_b] = [a, b].map(|node| self.sim.incarnation(node));
                self.notices.extend([(a, b, of_b), (b, a, of_a)]);
            }
            Fault::Return { node } if !self.members[node].is_there() => self.come(node),
            Fault::Close { .. } | Fault::Return { .. } => {}
        }
    }

    /// Another node comes into the seat of one that has gone.
    fn come(&mut self, seat: usize) {
        self.gone.add(self.members[seat].summary());
        // They were for the one before.
        self.notices.retain(|&(node, ..)| node != seat);
        let node = self.sim.newcomer(seat);
        let known = self.views.as_ref().map_or(0, Views::before_last);
        let member = Member::come(self.plan, node, seat, known + 1);
        lock(&self.apps)[seat] = member.app.clone();
        if let (Some(views), Some(newcomer)) = (&mut self.views, member.newcomer()) {
            views.take_in(newcomer);
        }
        self.members[seat] = member;
    }

    fn install(&mut self, node: usize) -> bool {
        let views = self.views.as_ref();
        views.is_some_and(|views| self.members[node].install(views))
    }

    /// A newcomer that is not in yet calls one that is, if it has not. Says whether it did.
    fn call(&mut self, newcomer: usize, node: usize) -> bool {
        let [is_in, takes_in] = [newcomer, node].map(|at| self.members[at].has_arrived());
        let calls = newcomer != node
            && self.members[newcomer].is_there()
            && !is_in
            && takes_in
            && self.sim.can_call(newcomer, node);
        if calls {
            self.sim.call(newcomer, node);
        }
        calls
    }

    /// Ends the nodes that have crashed in the middle of what they did.
    fn bury_crashed(&mut self) {
        for node in 0..self.members.len() {
            if self.sim.has_crashed(node) && self.members[node].is_there() {
                self.members[node].app.lock().is_gone = true;
                self.members[node].close();
                self.sim.lose(node);
                self.tell_others(node);
            }
        }
    }

    fn tell_others(&mut self, node: usize) {
        let incarnation = self.sim.incarnation(node);
        let others = (0..self.members.len()).filter(|&other| other != node);
        let notices = others.map(|other| (other, node, incarnation));
        self.notices.extend(notices);
        if let Some(views) = &mut self.views {
            views.lose(node);
        }
    }

    fn notice(&mut self, at: usize) {
        let (node, down, incarnation) = self.notices.swap_remove(at);
        self.sim.notice_of(node, down, incarnation);
    }

    fn judge(&self) -> Verdict {
        for (node, member) in self.members.iter().enumerate() {
            let app = member.app.lock();
            if !app.is_gone {
                judge::now(node, &app)?;
            }
        }
        Ok(())
    }

    /// Everything arrives, all learn what there is to learn, and do what is left to do.
    fn rest(&mut self) -> Verdict {
        for &(_, fault) in &self.plan.faults {
            if let Fault::Crash { node, .. } = fault {
                // It may have had nothing to post.
                self.sim.crash(node);
            }
        }
        let mut quiet = 0;
        for _ in 0..ROUNDS {
            let fired = self.round();
            self.judge()?;
            quiet = if fired { 0 } else { quiet + 1 };
            let is_done = |member: &Member| member.has_done_all(self.plan);
            if !fired && self.members.iter().all(is_done) {
                return self.judge_rest();
            }
            if quiet == PATIENCE {
                quiet = 0;
                if !self.members.iter_mut().any(Member::time_out) {
                    break;
                }
            }
        }
        let busy = self.members.iter().position(|m| !m.has_done_all(self.plan));
        Err((Oracle::Rest, format!("node {busy:?} does not come to rest")))
    }

    /// A turn for everybody; says whether anything happened.
    fn round(&mut self) -> bool {
        let mut fired = !self.notices.is_empty();
        while !self.notices.is_empty() {
            self.notice(0);
        }
        for (from, to) in self.sim.busy_links() {
            self.sim.advance(from, to);
            fired = true;
        }
        for node in 0..self.members.len() {
            self.bury_crashed();
            fired |= self.install(node);
            for other in 0..self.members.len() {
                fired |= self.call(node, other);
            }
            fired |= self.members[node].create(self.plan, self.views.as_mut());
            let at = self.rng.usize(..);
            fired |= self.members[node].use_group(at, false);
            self.members[node].app.lock().release();
            fired |= self.members[node].app.lock().has_kept();
            fired |= self.members[node].step();
        }
        fired || !self.notices.is_empty()
    }

    fn judge_rest(&self) -> Verdict {
        for (node, member) in self.members.iter().enumerate() {
            if member.is_there() {
                let may_keep = judge::may_keep(self.plan, node);
                judge::at_rest(self.plan, node, &member.app.lock(), may_keep)?;
            }
        }
        match &self.views {
            Some(views) if judge::only_come_and_go(self.plan) => self.judge_groups(views),
            _ => Ok(()),
        }
    }

    /// Those all of whose members are there.
    fn judge_groups(&self, views: &Views) -> Verdict {
        for group in views.groups(self.plan) {
            let is_there = |&member: &(usize, u64)| self.members[member.0].is_as(member.1);
            if !group.config.all_members().all(|member| is_there(&member)) {
                continue;
            }
            for &node in &group.config.members {
                judge::is_complete(node, &self.members[node].app.lock(), &group)?;
            }
        }
        Ok(())
    }

    fn summary(&self) -> Summary {
        let mut all = self.gone;
        for member in &self.members {
            all.add(member.summary());
        }
        all
    }
}

fn lock(apps: &Mutex<Vec<App>>) -> MutexGuard<'_, Vec<App>> {
    apps.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Summary {
    /// Counts what another run, or another node, did as well.
    pub fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.received_later += other.received_later;
        self.returned += other.returned;
        self.ended += other.ended;
    }
}
