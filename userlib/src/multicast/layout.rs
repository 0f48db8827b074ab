// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where everything is in each node's region, computed from the settings, so
//! that nobody has to tell it to others.
//!
//! The tables are at the same place everywhere. Behind them each node has the
//! rings of all senders of the subgroups that it is a member of.

use super::config::{Kind, Order, Spec};
use super::error::ConfigError;
use super::rows::{AckRow, NodeRow, SubgroupRow};
use super::views::rows::{RingRow, SeatRow, SequenceRow, StateRow, ViewRow, WelcomeRow};
use super::views::state;
use crate::fabric::MAX_REGION_BYTES;
use crate::sst::Table;

const LINE: usize = 64;

/// The places of one subgroup.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) table: usize,
    /// Of the unordered acknowledgements, if there are any.
    pub(super) acks: usize,
    /// The ring of sender `s` at node `n` is at `rings[n]` plus `s` strides, if
    /// the node is a member.
    rings: Vec<Option<usize>>,
    stride: usize,
    /// Rings have two sides.
    pub(super) two_sides: bool,
}

impl Places {
    /// The ring of a sender, by its index, at a member.
    pub(super) fn ring(&self, node: usize, sender: usize) -> Option<usize> {
        Some(self.rings.get(node).copied().flatten()? + sender * self.stride)
    }
}

/// The tables of a group with views, each of two by the parity of the view's number.
#[derive(Clone, Debug)]
pub(super) struct ViewTables {
    pub(super) seats: usize,
    pub(super) welcomes: usize,
    pub(super) views: [usize; 2],
    /// Those of each subgroup.
    pub(super) subgroups: Vec<[usize; 2]>,
    /// One table of sequences for each subgroup.
    pub(super) sequences: Vec<usize>,
    /// Those of each subgroup's rings.
    pub(super) rings: Vec<[usize; 2]>,
    /// Those of each subgroup's state.
    pub(super) part_states: Vec<[usize; 2]>,
    /// Where that goes.
    pub(super) part_areas: Vec<usize>,
    /// Where the application's state goes, if newcomers are given one.
    pub(super) state: usize,
}

impl ViewTables {
    /// Behind the tables of all groups; answers with their end as well.
    fn new(
        specs: &[Spec],
        subgroups: &[(usize, usize)],
        begin: usize,
        nodes: usize,
        state_bytes: Option<usize>,
    ) -> (Self, usize) {
        let mut end = begin;
        let mut add = |bytes| {
            let at = end;
            // One that cannot be counted is too long for a region, whatever follows.
            end = end.saturating_add(bytes);
            at
        };
        let seats = add(Table::<SeatRow>::bytes(nodes));
        let welcomes = add(Table::<WelcomeRow>::bytes(nodes));
        let views = [(); 2].map(|()| add(Table::<ViewRow>::bytes(nodes)));
        let second = |&(first, _): &(usize, usize)| {
            let second = add(Table::<SubgroupRow>::bytes(nodes));
            [second, first]
        };
        let sequences = subgroups.len();
        let subgroups = subgroups.iter().map(second).collect();
        let sequences = (0..sequences).map(|_| add(Table::<SequenceRow>::bytes(nodes)));
        let sequences = sequences.collect();
        let rings = specs
            .iter()
            .map(|_| [(); 2].map(|()| add(Table::<RingRow>::bytes(nodes))));
        let rings = rings.collect();
        let part_states = specs
            .iter()
            .map(|_| [(); 2].map(|()| add(Table::<StateRow>::bytes(nodes))));
        let part_states = part_states.collect();
        let area_bytes = |bytes| state::area_bytes(bytes).unwrap_or(usize::MAX);
        let mut area = |bytes: Option<usize>| add(bytes.map_or(0, area_bytes));
        let state = area(state_bytes);
        let part_areas = specs.iter().map(|spec| area(spec.state_bytes)).collect();
        let tables = Self {
            seats,
            welcomes,
            views,
            subgroups,
            sequences,
            rings,
            part_states,
            part_areas,
            state,
        };
        (tables, end)
    }
}

/// The places of a group.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// The table of the nodes.
    pub(super) nodes: usize,
    pub(super) subgroups: Vec<Places>,
    /// If the group has views.
    pub(super) views: Option<ViewTables>,
    /// Bytes of each node's region.
    pub(super) region_bytes: Vec<usize>,
}

impl Layout {
    /// `sees`: nodes can look into one another's memory. Then the rings of a group with views
    /// have two sides, unless that is more than a region may have.
    pub(super) fn new(
        specs: &[Spec],
        nodes: usize,
        views: Kind,
        sees: bool,
    ) -> Result<Self, ConfigError> {
        let two_sides = sees && views.has_views();
        match Self::with_rings(specs, nodes, views, two_sides) {
            Err(ConfigError::TooLarge(_)) if two_sides => {
                Self::with_rings(specs, nodes, views, false)
            }
            layout => layout,
        }
    }

    fn with_rings(
        specs: &[Spec],
        nodes: usize,
        views: Kind,
        two_sides: bool,
    ) -> Result<Self, ConfigError> {
        let mut end = Table::<NodeRow>::bytes(nodes);
        let mut tables = Vec::with_capacity(specs.len());
        for spec in specs {
            let table = end;
            let acks = table + Table::<SubgroupRow>::bytes(nodes);
            end = acks;
            if spec.order == Order::PerSender {
                end += Table::<AckRow>::bytes(nodes);
            }
            tables.push((table, acks));
        }
        let (views, end) = match views {
            Kind::Fixed => (None, end),
            Kind::Views { state_bytes, .. } => {
                let (views, end) = ViewTables::new(specs, &tables, end, nodes, state_bytes);
                (Some(views), end)
            }
        };
        if end > MAX_REGION_BYTES {
            return Err(ConfigError::TooLarge(end));
        }
        let mut region_bytes = vec![end; nodes];
        let mut subgroups = Vec::with_capacity(specs.len());
        for (spec, (table, acks)) in specs.iter().zip(tables) {
            let ring_bytes = match two_sides {
                true => spec.shape.two_sides_bytes(),
                false => spec.shape.ring_bytes(),
            };
            let stride = ring_bytes.next_multiple_of(LINE);
            let mut rings = vec![None; nodes];
            for &member in &spec.members {
                rings[member] = Some(region_bytes[member]);
                // Senders, rings and subgroups are few enough not to overflow.
                region_bytes[member] += stride * spec.senders.len();
                if region_bytes[member] > MAX_REGION_BYTES {
                    return Err(ConfigError::TooLarge(region_bytes[member]));
                }
            }
            subgroups.push(Places {
                table,
                acks,
                rings,
                stride,
                two_sides,
            });
        }
        Ok(Self {
            nodes: 0,
            subgroups,
            views,
            region_bytes,
        })
    }
}
