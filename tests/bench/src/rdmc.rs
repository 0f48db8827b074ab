// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench rdmc`: the experiments of the RDMC paper (rdmc §5), on groups whose
//! members are processes, over shared memory, VQPs or plain verbs; over shared memory
//! beside MPI_Bcast between as many.
//!
//! In each round each load is carried by RDMC in all its variants, and by each
//! MPI, in turn, so that whatever else the machine does hits all of them. The first
//! round tries each MPI with all its algorithms; the later ones, or the same one if it
//! is the only one, have the fastest of them, and the best is what RDMC is compared
//! with. A message's time is from the root's send to the last member's completion, by the
//! machine's clock.

mod args;
mod board;
mod load;
mod member;
mod mpi;
mod plan;
mod result;
mod session;
mod side;
mod summary;

pub use args::{RdmcArgs, RdmcMemberArgs};
pub use member::run as be_member;

use anyhow::{ensure, Context as _, Result};

use crate::report::{progress, JsonLines};
use load::Load;
use mpi::{Extent, Implementation};
use plan::Round;
use result::{size, Results, Table};
use weft_testkit::place::Kind;

/// Runs the benchmark.
pub fn run(args: &RdmcArgs) -> Result<()> {
    let mut json = JsonLines::create(&args.common)?;
    let rounds = plan::plan(args);
    ensure!(!rounds.is_empty(), "nothing is left to measure");
    let steps = rounds.len() as u64 * u64::from(args.rounds());
    let bar = progress("rdmc".to_owned(), steps);
    let mut results = Results::default();
    for nth in 0..args.rounds() {
        for round in &rounds {
            measure(args, round, nth, &mut results).with_context(|| name(&round.load))?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let (rows, mut table) = (results.rows(), Table::new());
    for row in &rows {
        json.write(row)?;
        table.add(row);
    }
    table.print();
    println!();
    for line in summary::lines(&rows) {
        println!("{line}");
    }
    Ok(())
}

/// Configurations of an MPI that go on after the first round.
const BEST: usize = 2;

fn measure(args: &RdmcArgs, round: &Round, nth: u32, results: &mut Results) -> Result<()> {
    let load = &round.load;
    for session in &round.sessions {
        let seen = session::run(session)?;
        for (nth, &variant) in session.variants.iter().enumerate() {
            let members = seen.iter().filter_map(|member| member.get(nth));
            results.add_weft(load, variant, members);
        }
    }
    let Some(programs) = args
        .mpi
        .as_ref()
        .filter(|_| load.fabric == Kind::Shm.to_string())
    else {
        return Ok(());
    };
    let quick = args.common.quick;
    for mpi in Implementation::ALL {
        let all = mpi.configurations(load, quick);
        for extent in extents(nth, args.rounds(), quick) {
            let some = match extent {
                Extent::Trial { .. } => all.iter().collect(),
                Extent::Whole => results.fastest(load, &all, BEST),
            };
            for (one, samples) in some.iter().zip(mpi.run(programs, load, &some, extent)?) {
                results.add_mpi(load, one, &samples);
            }
        }
    }
    Ok(())
}

/// How much an MPI does in a round: the first one is a trial, and all others are whole. If
/// there are no others, the first one is both.
fn extents(nth: u32, rounds: u32, quick: bool) -> Vec<Extent> {
    let trial = (nth == 0).then_some(Extent::Trial { quick });
    let whole = (nth > 0 || rounds == 1).then_some(Extent::Whole);
    trial.into_iter().chain(whole).collect()
}

fn name(load: &Load) -> String {
    format!(
        "{:?} over {}: {} members, {} senders, {}",
        load.experiment,
        load.fabric,
        load.members,
        load.senders,
        size(load.bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mpis_best_are_measured_whole_however_few_rounds_there_are() {
        let trial = Extent::Trial { quick: true };
        assert_eq!(extents(0, 1, true), [trial, Extent::Whole]);
        assert_eq!(extents(0, 5, true), [trial]);
        assert_eq!(extents(1, 5, true), [Extent::Whole]);
    }
}
