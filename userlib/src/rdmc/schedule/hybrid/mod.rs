// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two levels: between racks, and a binomial pipeline within each of them
//! (rdmc §4.3.1). A switch between racks carries each block once for each rack.

mod chain;
mod pipeline;
mod racks;

pub(super) use chain::HybridChain;
pub(super) use pipeline::HybridPipeline;
pub(super) use racks::Racks;
