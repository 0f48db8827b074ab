// SPDX-License-Identifier: GPL-2.0

//! The meta servers: which there are, a node's connections to them, looking
//! peers up and making the node known (krcore §4.2).

mod config;
mod directory;
mod link;

pub(crate) use config::{add, load_parameter, remove};
pub(crate) use directory::{Directory, Uplink};
