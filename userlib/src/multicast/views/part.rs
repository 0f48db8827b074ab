// SPDX-License-Identifier: MIT OR Apache-2.0

//! A subgroup of a group with views, and its rows.

use super::rows::SequenceRow;
use crate::fabric::{Endpoint, FabricError};
use crate::multicast::layout::{Layout, Places, ViewTables};
use crate::multicast::member::{Member, Resumption};
use crate::multicast::rows::SubgroupRow;
use crate::sst::{Row, Table};
use std::sync::Arc;

/// A subgroup.
pub(super) struct Part {
    pub(super) member: Member,
    pub(super) places: Places,
    /// Its rows, by the view's parity, and where they are.
    pub(super) tables: [Table<SubgroupRow>; 2],
    pub(super) table_places: [usize; 2],
    pub(super) sequences: Table<SequenceRow>,
    /// Messages and nulls that were delivered in earlier views.
    pub(super) sequence: u64,
    pub(super) resumption: Resumption,
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
) -> Result<Vec<Part>, FabricError> {
    let part = |(at, member): (usize, Member)| {
        Ok(Part {
            member,
            places: layout.subgroups[at].clone(),
            tables: both(endpoint, tables.subgroups[at])?,
            table_places: tables.subgroups[at],
            sequences: Table::new(Arc::clone(endpoint), tables.sequences[at])?,
            sequence: 0,
            resumption: Resumption::default(),
        })
    };
    members.into_iter().enumerate().map(part).collect()
}

/// Two tables, by a view's parity.
pub(super) fn both<R: Row>(
    endpoint: &Arc<dyn Endpoint>,
    places: [usize; 2],
) -> Result<[Table<R>; 2], FabricError> {
    let table = |at| Table::new(Arc::clone(endpoint), at);
    Ok([table(places[0])?, table(places[1])?])
}
