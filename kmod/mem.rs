// SPDX-License-Identifier: GPL-2.0

//! Memory that sessions register: pages that are pinned or lent, their registration with
//! the RDMA device, the table of those that a node's requests may touch, and the table
//! of those that peers may.

mod blocks;
mod deferred;
mod device;
mod pages;
mod region;
mod table;
mod valid;

pub(crate) use device::{Place, RcUse, Unregistered};
pub(crate) use pages::{Charge, Lender, UserPages};
pub(crate) use region::{Access, RegionUse};
pub(crate) use table::{is_writable, MrTable, NewRegion, NotHeld};
pub(crate) use valid::TableInfo;
