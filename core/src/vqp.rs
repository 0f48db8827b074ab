// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A virtual queue pair's bookkeeping: which requests it takes, and which
//! completions it owes (krcore §4.4, alg. 2).

mod check;
mod queues;

pub use check::{check, check_recv, ATOMIC_BYTES};
pub use queues::Queues;
