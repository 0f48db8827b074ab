// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMC: multicast of large objects as many point-to-point transfers (rdmc §4).
//!
//! A message is cut into blocks. A [`schedule`] says which member hands which
//! block to which other member, and when.

pub mod schedule;
