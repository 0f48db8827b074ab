// SPDX-License-Identifier: MIT OR Apache-2.0

//! Views, as a group with views agrees on them: nodes install them one behind the other, each at
//! its own time, and a group's members are those of a view.

use super::plan::{GroupPlan, Plan};
use crate::fabric::{Newcomer, NodeSet};
use crate::multicast::View;
use std::collections::BTreeMap;

/// All views so far.
pub(super) struct Views {
    all: Vec<View>,
    /// The view of each group that somebody has created.
    groups: BTreeMap<u32, View>,
}

impl Views {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            all: vec![View::first((0..nodes).collect())],
            groups: BTreeMap::new(),
        }
    }

    /// The next view of a node that has installed so many.
    pub(super) fn behind(&self, installed: usize) -> Option<&View> {
        self.all.get(installed)
    }

    /// The count of views before the last one, which a newcomer need not know.
    pub(super) fn before_last(&self) -> usize {
        self.all.len() - 1
    }

    fn last(&self) -> View {
        self.all[self.all.len() - 1].clone()
    }

    /// Somebody has died, or has gone.
    pub(super) fn lose(&mut self, seat: usize) {
        let last = self.last();
        if last.members.contains(seat) {
            let left = last.members.minus(NodeSet::EMPTY.with(seat));
            self.all.push(last.next(left, NodeSet::EMPTY, None));
        }
    }

    /// Somebody has come.
    pub(super) fn take_in(&mut self, newcomer: Newcomer) {
        let last = self.last();
        let members = last.members.with(newcomer.seat);
        let next = last.next(members, NodeSet::EMPTY, Some(newcomer));
        self.all.push(next);
    }

    /// The groups that somebody has created, and that are any.
    pub(super) fn groups<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = GroupPlan> + 'a {
        let groups = self.groups.iter();
        groups.filter_map(|(&number, view)| plan.group(number).in_view(view))
    }

    /// A group, as a node sees it that has installed a view. The first node that creates the group
    /// settles its view, and nodes in earlier views do not know it yet.
    pub(super) fn group(&mut self, plan: &Plan, number: u32, installed: &View) -> Known {
        let view = self
            .groups
            .entry(number)
            .or_insert_with(|| installed.clone());
        if view.number > installed.number {
            return Known::NotYet;
        }
        match plan.group(number).in_view(view) {
            Some(group) => Known::As(group),
            None => Known::Nobodys,
        }
    }
}

/// A group, as far as a node knows it.
pub(super) enum Known {
    NotYet,
    /// It has too few members.
    Nobodys,
    As(GroupPlan),
}
