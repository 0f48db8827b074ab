// SPDX-License-Identifier: GPL-2.0

//! The `rc_lanes` parameter: how many RC queue pairs a node uses to a peer. Processors take
//! them in turn, so that those of a host do not share one queue pair, its locks and its order.
//! A node also answers offers of lanes that it does not use itself, up to `MAX_LANES`: their
//! number is the concern of the peer, whose processors are to use them.
//!
//! A VQP takes the queue pair of the processor that it first posts from, as it does with DC's
//! streams, and stays there. The first queue pair to a peer is the connection, and everybody's
//! until another one is up. Further ones are made once requests come from their processors.

use kernel::prelude::*;
use weft_core::rc::MAX_LANES;

use crate::sync::cpu;
use crate::{module_parameters, parameter};

/// How many there are on a device that says nothing else: as many as take the locks of a queue
/// pair off most hosts' way, and few beside the queue pairs that an adapter keeps at hand.
const USUAL: u8 = 4;
/// On soft-RoCE the queue pairs of a host share its threads.
const OF_SOFTWARE: u8 = 1;

/// 0: it was not given.
fn given() -> u8 {
    parameter(module_parameters::rc_lanes.value())
}

/// Queue pairs to a peer that a node asks for, at most, of a device that is software or not.
pub(crate) fn lanes(is_software: bool) -> u8 {
    match (given(), is_software) {
        (0, true) => OF_SOFTWARE,
        (0, false) => USUAL,
        (given, _) => given,
    }
}

/// The one of so many that this processor takes.
pub(crate) fn lane_of_this_cpu(lanes: u8) -> u8 {
    // Smaller than `lanes`.
    (cpu() % usize::from(lanes.max(1))) as u8
}

/// Judges the parameter.
///
/// # Errors
///
/// `EINVAL`: there cannot be so many.
pub(crate) fn check_parameter() -> Result {
    let given = given();
    if given <= MAX_LANES {
        return Ok(());
    }
    pr_err!("rc_lanes={given}: it has to be 1 to {MAX_LANES}, or 0 for the default\n");
    Err(EINVAL)
}
