// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups in a simulation: each seed is two runs, of a fixed group and of one with views, in
//! which members may crash, leave, join or lose links, and after which all oracles have to hold.

use anyhow::{anyhow, ensure};
use weft::multicast::simulation::{run as simulate, shrink, Plan, Summary};
use weft_testkit::report::Report;

use crate::seeds::{self, Args, LONGEST};

/// Does them.
pub fn run(report: &mut Report, args: &Args) {
    report.check_within(
        "groups in a simulation keep their promises",
        LONGEST,
        || {
            let outcome = seeds::run(args, |seed, all: &mut Summary| {
                for plan in [Plan::of(seed), Plan::with_views(seed)] {
                    let summary = simulate(&plan).map_err(|failure| anyhow!("{}", shrink(failure)))?;
                    all.sent += summary.sent;
                    all.delivered += summary.delivered;
                    all.views += summary.views;
                    all.joins += summary.joins;
                    all.states += summary.states;
                }
                Ok(())
            })?;
            let sum = |of: fn(&Summary) -> u64| outcome.parts.iter().map(of).sum::<u64>();
            let (sent, delivered) = (sum(|s| s.sent), sum(|s| s.delivered));
            let (views, joins) = (sum(|s| s.views), sum(|s| s.joins));
            let states = sum(|s| s.states);
            println!(
                "# {} seeds, {:.0} a second; {sent} messages, {delivered} deliveries, {views} changes of view, {joins} joins, {states} states of subgroups",
                args.seeds, outcome.seeds_per_second
            );
            ensure!(delivered > 0 || args.seeds < 100, "nothing was delivered");
            Ok(())
        },
    );
}
