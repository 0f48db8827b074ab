// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The bookkeeping of virtual queue pairs and of the rings that they share: which
//! requests are taken, and which completions are owed (krcore §4.4, alg. 2).

mod check;
mod completions;
mod direct;
mod in_flight;
mod moderation;
mod places;
mod receives;
mod surplus;

pub use check::{check, check_recv, check_run, ATOMIC_BYTES};
pub use completions::Completions;
pub use direct::Direct;
pub use in_flight::InFlight;
pub use moderation::{Moderation, Telling};
pub use places::{PlaceEntry, PlaceTable};
pub use receives::{ReceiveUse, Receives};
pub use surplus::Surplus;
