// SPDX-License-Identifier: MIT OR Apache-2.0

//! A group between the meeting and its start.

use super::super::config::Spec;
use super::super::deliverer::Deliverer;
use super::super::deliveries::Deliveries;
use super::super::error::Error;
use super::super::group::{Group, Part};
use super::super::handle::GroupId;
use super::super::layout::Layout;
use super::super::member::{Delivery, Member, Upcall};
use super::super::membership::MembersOf;
use super::super::opening::Opening;
use super::super::shared::{Shared, Status};
use super::super::stay::Presence;
use super::super::views::{Begun, Board, State, Upcalls, Views};
use super::super::watcher::{EventUpcall, Watcher};
use crate::fabric::{Endpoint, Meeting, NodeSet};
use crate::predicates::{Poller, Predicates};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The settings of a group with views that each member has for itself: the functions that say
/// subgroups' members, and subgroups' states, by the subgroups' numbers; the group's state; the
/// time for which a member may hang.
pub(super) type Own = (
    (HashMap<usize, MembersOf>, HashMap<usize, State>),
    Option<State>,
    Option<Duration>,
);

/// A group on the way to being started.
pub(super) struct Assembly {
    endpoint: Arc<dyn Endpoint>,
    status: Arc<Status>,
    /// Of a fixed group.
    presence: Option<Arc<Presence>>,
    id: GroupId,
    names: Vec<String>,
    parts: Vec<Part>,
    members: Vec<Member>,
}

impl Assembly {
    pub(super) fn new(
        id: GroupId,
        specs: Vec<Spec>,
        layout: &Layout,
        endpoint: &Arc<dyn Endpoint>,
        status: Arc<Status>,
        upcalls: &mut HashMap<usize, Upcall>,
    ) -> Result<Self, Error> {
        let rank = endpoint.rank();
        let presence = match status.has_views {
            true => None,
            false => Some(Arc::new(Presence::new(endpoint, layout.nodes)?)),
        };
        let names = specs.iter().map(|spec| spec.name.clone()).collect();
        let mut parts = Vec::new();
        let mut members = Vec::new();
        let specs = specs.into_iter().zip(&layout.subgroups);
        for (number, (spec, places)) in specs.enumerate() {
            if !spec.members.contains(&rank) {
                continue;
            }
            let index = spec.senders.iter().position(|&node| node == rank);
            let own_ring = index.and_then(|index| places.ring(rank, index));
            let upcall = upcalls.remove(&number);
            let shared = Arc::new(Shared::new(spec, Arc::clone(endpoint), Arc::clone(&status)));
            let opening = Opening::of(&shared.spec, places);
            let deliverer = Deliverer::new(Arc::clone(&shared), places, &opening)?;
            let (delivery, deliveries) = match upcall {
                Some(upcall) => (Delivery::Upcall(Box::new(deliverer), upcall), None),
                None => {
                    if let Some(presence) = &presence {
                        shared.stay.begin(Arc::clone(presence));
                    }
                    let deliveries = Deliveries::new(Arc::clone(&shared), deliverer);
                    (Delivery::Elsewhere, Some(deliveries))
                }
            };
            members.push(Member::new(
                Arc::clone(&shared),
                places,
                &opening,
                delivery,
            )?);
            parts.push(Part {
                index: number,
                shared,
                own_ring,
                deliveries: Mutex::new(deliveries),
            });
        }
        Ok(Self {
            endpoint: Arc::clone(endpoint),
            status,
            presence,
            id,
            names,
            parts,
            members,
        })
    }

    pub(super) fn start_with_views(
        self,
        layout: &Layout,
        meeting: Meeting,
        upcalls: Upcalls,
        ((members_of, states), state, term): Own,
        start: impl FnOnce(Arc<dyn Endpoint>, Predicates) -> Result<Poller, Error>,
    ) -> Result<Group, Error> {
        let board = Arc::new(Board::default());
        let begun = Begun {
            endpoint: &self.endpoint,
            meeting,
            layout,
            status: Arc::clone(&self.status),
            board: Arc::clone(&board),
            upcalls,
            group: self.id,
            members_of,
            states,
            state,
            term,
        };
        let mut views = Views::new(begun, self.members)?;
        let mut predicates = Predicates::default();
        predicates.add(move || views.step())?;
        Ok(Group {
            poller: start(Arc::clone(&self.endpoint), predicates)?,
            endpoint: self.endpoint,
            status: self.status,
            id: self.id,
            names: self.names,
            parts: self.parts,
            board: Some(board),
        })
    }

    pub(super) fn start_fixed(
        self,
        layout: &Layout,
        upcall: Option<EventUpcall>,
        start: impl FnOnce(Arc<dyn Endpoint>, Predicates) -> Result<Poller, Error>,
    ) -> Result<Group, Error> {
        let presence = match self.presence {
            Some(presence) => presence,
            None => Arc::new(Presence::new(&self.endpoint, layout.nodes)?),
        };
        let mut watcher = Watcher {
            endpoint: Arc::clone(&self.endpoint),
            presence,
            status: Arc::clone(&self.status),
            subgroups: self
                .parts
                .iter()
                .map(|part| Arc::clone(&part.shared))
                .collect(),
            upcall,
            told: NodeSet::EMPTY,
            told_failed: NodeSet::EMPTY,
        };
        let mut predicates = Predicates::default();
        predicates.add(move || watcher.step())?;
        for mut member in self.members {
            predicates.add(move || member.step())?;
        }
        let poller = start(Arc::clone(&self.endpoint), predicates)?;
        Ok(Group {
            poller,
            endpoint: self.endpoint,
            status: self.status,
            id: self.id,
            names: self.names,
            parts: self.parts,
            board: None,
        })
    }
}
