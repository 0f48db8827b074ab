// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMC groups in a simulation: in each run nodes may crash, leave, lose links and suspect
//! each other, and all oracles have to hold, most of which look at memory.

use anyhow::{anyhow, ensure};
use weft::rdmc::simulation::{run as simulate, shrink, Plan, Summary};
use weft_testkit::report::Report;

use crate::seeds::{self, Args, LONGEST};

/// Does them.
pub fn run(report: &mut Report, args: &Args) {
    report.check_within(
        "transfers in a simulation give all memory back, and nobody touches it then",
        LONGEST,
        || {
            let outcome = seeds::run(args, |seed, all: &mut Summary| {
                let summary = simulate(&Plan::of(seed));
                all.add(summary.map_err(|failure| anyhow!("{}", shrink(failure)))?);
                Ok(())
            })?;
            let mut all = Summary::default();
            outcome.parts.iter().for_each(|&part| all.add(part));
            println!(
                "# {} seeds, {:.0} a second; {} messages sent, {} received, {} buffers returned, {} ends of groups",
                args.seeds, outcome.seeds_per_second, all.sent, all.received, all.returned, all.ended
            );
            ensure!(all.received > 0 || args.seeds < 100, "nothing was received");
            Ok(())
        },
    );
}
