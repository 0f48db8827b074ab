// SPDX-License-Identifier: GPL-2.0 OR MIT

//! A virtual queue pair's bookkeeping: which requests it takes, and which
//! completions it owes (krcore §4.4, alg. 2).

mod check;
mod direct;
mod queues;

pub use check::{check, check_recv, check_run, ATOMIC_BYTES};
pub use direct::Direct;
pub use queues::Queues;
