// SPDX-License-Identifier: MIT OR Apache-2.0

//! A subgroup of a group with views, and its rows.

use super::ring::OwnRing;
use super::rows::{RingRow, SequenceRow, StateRow};
use super::state::{State, Transfer};
use super::View;
use crate::fabric::{Endpoint, FabricError, NodeSet};
use crate::multicast::layout::{Layout, Places, ViewTables};
use crate::multicast::member::{Member, Resumption};
use crate::multicast::membership::{MembersOf, Membership, SubgroupView};
use crate::multicast::rows::SubgroupRow;
use crate::sst::{Row, Table};
use std::collections::HashMap;
use std::sync::Arc;

/// A subgroup.
pub(super) struct Part {
    pub(super) member: Member,
    pub(super) places: Places,
    /// Its rows, by the view's parity, and where they are.
    pub(super) tables: [Table<SubgroupRow>; 2],
    pub(super) table_places: [usize; 2],
    /// The rows of its rings, in the same way.
    pub(super) rings: [Table<RingRow>; 2],
    pub(super) ring_places: [usize; 2],
    pub(super) ring: OwnRing,
    pub(super) sequences: Table<SequenceRow>,
    /// If its members follow from the view: how.
    pub(super) members_of: Option<MembersOf>,
    /// Its members and senders in the view.
    pub(super) membership: Membership,
    /// This node is one of the members.
    pub(super) takes_part: bool,
    /// Members of the view that were in the subgroup in the view before, and have delivered
    /// all of it.
    pub(super) before: NodeSet,
    /// The members' words about its state, by the view's parity.
    pub(super) states: [Table<StateRow>; 2],
    /// Its state, if those who enter are given it.
    pub(super) transfer: Option<Transfer>,
    /// Members to whom it is given in this view.
    pub(super) lacking: NodeSet,
    /// Messages and nulls that were delivered in earlier views.
    pub(super) sequence: u64,
    pub(super) resumption: Resumption,
}

impl Part {
    /// Before the next view, of whose members these have the group's state, and these the
    /// subgroup's, if it has one.
    pub(super) fn note_before(&mut self, go_on: NodeSet, have_state: NodeSet) {
        let before = self.membership.members.and(go_on);
        self.before = match self.transfer {
            Some(_) => before.and(have_state),
            None => before,
        };
    }

    /// The next view is this one.
    pub(super) fn lay_out(&mut self, view: &View, rank: usize) {
        let spec = &self.member.shared().spec;
        self.membership = Membership::of(spec, self.members_of.as_ref(), view);
        self.lacking = NodeSet::EMPTY;
        if let Some(transfer) = &mut self.transfer {
            transfer.begin_anew();
            self.membership = self.membership.keeping(self.before);
            if !self.before.is_empty() {
                self.lacking = self.membership.members.minus(self.before);
            }
        }
        self.takes_part = self.membership.members.contains(rank);
        let sends = self.membership.senders.contains(rank);
        self.member.shared().set_sending(sends);
    }

    /// The subgroup in the form in which the application is told of it.
    pub(super) fn to_view(&self) -> SubgroupView {
        SubgroupView {
            members: self.membership.members,
            senders: self.membership.senders,
            before: self.before,
            sequence: self.sequence,
        }
    }
}

/// All subgroups of the layout, in its order.
///
/// # Errors
///
/// Those of [`Table::new`].
pub(super) fn all(
    endpoint: &Arc<dyn Endpoint>,
    layout: &Layout,
    tables: &ViewTables,
    members: Vec<Member>,
    (mut members_of, mut states): (HashMap<usize, MembersOf>, HashMap<usize, State>),
) -> Result<Vec<Part>, FabricError> {
    let mut part = |(at, member): (usize, Member)| {
        Ok(Part {
            member,
            places: layout.subgroups[at].clone(),
            tables: both(endpoint, tables.subgroups[at])?,
            table_places: tables.subgroups[at],
            rings: both(endpoint, tables.rings[at])?,
            ring_places: tables.rings[at],
            ring: OwnRing::new(layout.subgroups[at].two_sides),
            sequences: Table::new(Arc::clone(endpoint), tables.sequences[at])?,
            members_of: members_of.remove(&at),
            membership: Membership::all_send(NodeSet::EMPTY),
            takes_part: false,
            before: NodeSet::EMPTY,
            states: both(endpoint, tables.part_states[at])?,
            transfer: states
                .remove(&at)
                .map(|state| Transfer::new(state, tables.part_areas[at])),
            lacking: NodeSet::EMPTY,
            sequence: 0,
            resumption: Resumption::default(),
        })
    };
    members.into_iter().enumerate().map(&mut part).collect()
}

/// Two tables, by a view's parity.
pub(super) fn both<R: Row>(
    endpoint: &Arc<dyn Endpoint>,
    places: [usize; 2],
) -> Result<[Table<R>; 2], FabricError> {
    let table = |at| Table::new(Arc::clone(endpoint), at);
    Ok([table(places[0])?, table(places[1])?])
}
