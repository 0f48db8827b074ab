// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the benchmarks and the multi-process tests share.

pub mod meta_client;
pub mod pace;
pub mod place;
pub mod report;
pub mod rng;
