// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench multicast`: the experiments of the Spindle paper (spindle §IV), on
//! groups whose members are processes, and beside them what the same fabric moves
//! without multicast. Every message is written in full by its sender and read in full
//! by every member, which compares a sum, but where a row says otherwise.
//!
//! Each case is measured for a slice of time in each round, all cases in turn, so
//! that whatever else the machine does hits all of them. Rates are medians of the
//! rounds, latencies those of all rounds together.

mod args;
mod case;
mod load;
mod lone;
mod member;
mod payload;
mod plan;
mod raw;
mod result;
mod seen;
mod session;
mod stores;

pub use args::{MemberArgs, MulticastArgs};
pub use member::run as be_member;

use std::thread;

use anyhow::{ensure, Context as _, Result};

use crate::report::{progress, JsonLines};
use case::Case;
use result::{Results, Table};

/// Runs the benchmark.
pub fn run(args: &MulticastArgs) -> Result<()> {
    let mut json = JsonLines::create(&args.common)?;
    let processors = thread::available_parallelism()?.get();
    let mut cases = plan::plan(args, processors);
    ensure!(!cases.is_empty(), "nothing is left to measure");
    stores::choose(&mut cases, args.pace())?;
    let slices = cases.len() as u64 * u64::from(args.rounds());
    let bar = progress("multicast".to_owned(), slices);
    let mut results = Results::new(&cases);
    for _ in 0..args.rounds() {
        for (at, case) in cases.iter().enumerate() {
            let seen = session::slice(case, args.pace());
            results.add(at, seen.with_context(|| name(case))?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut table = Table::new();
    for row in results.rows() {
        json.write(&row)?;
        table.add(&row);
    }
    table.print();
    Ok(())
}

fn name(case: &Case) -> String {
    format!(
        "{:?} over {}: {} members, {} bytes, {}",
        case.experiment, case.fabric, case.members, case.bytes, case.opts
    )
}
