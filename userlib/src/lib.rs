// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weft: replicated tables and atomic multicast for the workers that link it.

pub mod fabric;
mod futex;
pub mod smc;
pub mod sst;
mod sync;
