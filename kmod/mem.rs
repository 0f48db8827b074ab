// SPDX-License-Identifier: GPL-2.0

//! Memory that sessions register: pinned pages, and the table of those that a
//! node's requests may touch.

mod pages;
mod table;

pub(crate) use pages::{Charge, UserPages};
pub(crate) use table::{Access, MrTable};
