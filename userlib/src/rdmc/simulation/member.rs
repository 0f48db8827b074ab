// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node and its groups, as the simulation holds them.

use super::app::App;
use super::plan::{GroupPlan, Plan};
use super::views::{Known, Views};
use super::Summary;
use crate::fabric::sim::SimNode;
use crate::fabric::Newcomer;
use crate::multicast::View;
use crate::rdmc::engine::Driver;
use crate::rdmc::layout::Layout;
use crate::rdmc::node::Start;
use crate::rdmc::{Buffer, Error, Group, Node};
use std::time::Duration;

/// Nobody waits that long: all nodes meet in this process.
const PATIENCE: Duration = Duration::from_secs(60);
/// Enough for all messages and first blocks, and little enough to run out of.
const MEMORY_BYTES: usize = 24 * 4096;

/// A group that the node is in.
struct Joined {
    group: Group,
    plan: GroupPlan,
    /// Messages that the root has sent.
    sent: usize,
    /// A message that was not refused and is not handed over yet: a thread may be stopped
    /// there while the group goes on.
    pending: Option<(Buffer, usize)>,
    is_left: bool,
}

pub(super) struct Member {
    rank: usize,
    // Groups before the node, the node before what drives it, as applications do it.
    groups: Vec<Joined>,
    node: Option<Node>,
    driver: Option<Driver>,
    pub(super) app: App,
    /// The number of the next group.
    next: u32,
    /// 0 of a founder.
    incarnation: u64,
    /// The view that it has installed last, and how many there are before the next.
    view: Option<View>,
    views: usize,
}

impl Member {
    pub(super) fn join(plan: &Plan, node: SimNode, rank: usize) -> Self {
        let builder = Node::builder(node).groups(plan.places).memory(MEMORY_BYTES);
        let (node, driver) = builder.timeout(PATIENCE).join_stepped().expect("they meet");
        let layout = Layout {
            nodes: plan.nodes,
            groups: plan.places,
        };
        Self {
            rank,
            app: App::new(plan, rank, node.memory(), layout.memory()),
            groups: Vec::new(),
            next: 1,
            incarnation: node.newcomer().map_or(0, |newcomer| newcomer.incarnation),
            view: None,
            views: 0,
            node: Some(node),
            driver: Some(driver),
        }
    }

    /// One that has come, and whose first view is behind so many.
    pub(super) fn come(plan: &Plan, node: SimNode, rank: usize, views: usize) -> Self {
        Self {
            views,
            ..Self::join(plan, node, rank)
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let summary = self.app.lock().summary;
        let received_later = match self.incarnation {
            0 => 0,
            _ => summary.received,
        };
        Summary {
            received_later,
            ..summary
        }
    }

    /// Its seat and incarnation, if it is a newcomer.
    pub(super) fn newcomer(&self) -> Option<Newcomer> {
        self.node.as_ref()?.newcomer()
    }

    /// Whether it takes in others.
    pub(super) fn has_arrived(&self) -> bool {
        self.driver.as_ref().is_some_and(Driver::has_arrived)
    }

    /// Installs the next view, if there is one. Says whether there was.
    pub(super) fn install(&mut self, views: &Views) -> bool {
        let (Some(node), Some(view)) = (&self.node, views.behind(self.views)) else {
            return false;
        };
        node.follow(view);
        self.view = Some(view.clone());
        self.views += 1;
        true
    }

    pub(super) fn is_there(&self) -> bool {
        self.driver.is_some()
    }

    /// Whether it is there, and of this incarnation.
    pub(super) fn is_as(&self, incarnation: u64) -> bool {
        self.is_there() && self.incarnation == incarnation
    }

    /// Whether nothing is left for it to do by itself.
    pub(super) fn has_done_all(&self, plan: &Plan) -> bool {
        !self.is_there() || (self.groups.is_empty() && self.next > plan.groups)
    }

    pub(super) fn step(&mut self) -> bool {
        let fired = self.driver.as_mut().is_some_and(Driver::step);
        for joined in &self.groups {
            let mut app = self.app.lock();
            let log = app.logs.entry(joined.group.number()).or_default();
            log.was_open |= joined.group.is_open();
            log.is_over = joined.group.end().is_some();
        }
        fired
    }

    /// Creates its next group, unless it has many, or no memory. Says whether it did.
    pub(super) fn create(&mut self, plan: &Plan, views: Option<&mut Views>) -> bool {
        let Some(node) = self.node.as_ref().filter(|_| self.next <= plan.groups) else {
            return false;
        };
        let known = match (views, &self.view) {
            (None, _) => Known::As(plan.group(self.next)),
            (Some(_), None) => Known::NotYet,
            (Some(views), Some(view)) => views.group(plan, self.next, view),
        };
        let own = (self.rank, self.incarnation);
        let group = match known {
            Known::NotYet => return false,
            Known::As(group) if group.config.all_members().any(|member| member == own) => group,
            Known::As(_) | Known::Nobodys => {
                self.next += 1;
                return true;
            }
        };
        if self.groups.len() > plan.places {
            return false;
        }
        let number = self.next;
        let (asked, told) = (self.app.clone(), self.app.clone());
        let start = Start {
            memory: Box::new(move |incoming| asked.lock().memory(number, incoming)),
            tell: Box::new(move |event| told.lock().told(number, event)),
            before: 0,
            tell_over: None,
        };
        let started = node.inner().start_group(&group.config, start);
        let started = match started {
            Err(Error::NoMemory { .. }) => return false,
            other => other.expect("a group"),
        };
        self.next += 1;
        self.app.lock().logs.entry(number).or_default();
        self.groups.push(Joined {
            group: started,
            plan: group,
            sent: 0,
            pending: None,
            is_left: false,
        });
        true
    }

    /// Does something for one of its groups, the `at`th modulo their number. Says whether it
    /// did.
    pub(super) fn use_group(&mut self, at: usize, is_slow: bool) -> bool {
        let count = self.groups.len();
        if count == 0 {
            return false;
        }
        let joined = &mut self.groups[at % count];
        if !joined.group.is_open() && joined.group.end().is_none() {
            // Its application still waits for it.
            return false;
        }
        if let Some((buffer, size)) = joined.pending.take() {
            if let Err(refused) = joined.group.submit(buffer, size) {
                self.app.refused(refused.buffer);
            }
        } else if joined.group.end().is_some() {
            self.groups.swap_remove(at % count);
        } else if joined.group.is_root() && joined.sent < joined.plan.sizes.len() {
            return joined.send(&self.app, is_slow);
        } else if joined.group.is_root() && !joined.is_left {
            joined.leave(&self.app);
        } else {
            return false;
        }
        true
    }

    /// Leaves all its groups when what was begun is done.
    pub(super) fn leave(&mut self) {
        let groups = self.groups.iter_mut();
        for joined in groups.filter(|joined| joined.group.is_open()) {
            joined.leave(&self.app);
        }
    }

    /// Drops all its groups.
    pub(super) fn desert(&mut self) {
        for joined in std::mem::take(&mut self.groups) {
            joined.abandon(&self.app);
        }
    }

    /// Waits no longer for others to create a group, and drops it. Says whether there was
    /// one.
    pub(super) fn time_out(&mut self) -> bool {
        let is_late = |joined: &Joined| !joined.group.is_open() && joined.group.end().is_none();
        let Some(late) = self.groups.iter().position(is_late) else {
            return false;
        };
        self.groups.remove(late).abandon(&self.app);
        true
    }

    /// Drops everything: first the groups, then the node.
    pub(super) fn close(&mut self) {
        self.desert();
        self.driver = None;
        self.node = None;
    }
}

impl Joined {
    fn send(&mut self, app: &App, is_slow: bool) -> bool {
        let (group, size) = (&self.group, self.plan.sizes[self.sent]);
        let number = self.sent as u64 + 1;
        let Some(buffer) = app.message(group.number(), number, size) else {
            return false;
        };
        if group.refusal(&buffer, size).is_some() {
            app.refused(buffer);
            return true;
        }
        self.sent += 1;
        if is_slow {
            self.pending = Some((buffer, size));
        } else if let Err(refused) = group.submit(buffer, size) {
            app.refused(refused.buffer);
        }
        true
    }

    fn abandon(self, app: &App) {
        let mut state = app.lock();
        let log = state.logs.entry(self.group.number()).or_default();
        log.is_own = true;
        drop(state);
        if let Some((buffer, size)) = self.pending {
            // A thread that is handing a message over holds the group until it has.
            if let Err(refused) = self.group.submit(buffer, size) {
                app.refused(refused.buffer);
            }
        }
    }

    fn leave(&mut self, app: &App) {
        self.is_left = true;
        let mut app = app.lock();
        app.logs.entry(self.group.number()).or_default().is_own = true;
        drop(app);
        self.group.leave();
    }
}
