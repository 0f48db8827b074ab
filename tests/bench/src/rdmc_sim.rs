// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench rdmc-sim`: the experiments of the RDMC paper (rdmc §5), and more
//! nodes than its clusters had, on simulated links. Schedules are those that the
//! library computes; time is simulated, so that a run says the same on any
//! machine, and the same again for the same seed.
//!
//! [`network`] says what links are, [`member`] how members keep to schedules.

mod args;
mod case;
mod member;
mod network;
mod plan;
mod result;
mod simulation;
#[cfg(test)]
mod tests;

pub use args::RdmcSimArgs;

use anyhow::{Context as _, Result};

use crate::report::{progress, JsonLines};
use plan::Panel;
use result::{Row, Table};
use simulation::simulate;

/// Runs the simulations.
pub fn run(args: &RdmcSimArgs) -> Result<()> {
    let panels = plan::plan(args)?;
    let mut json = JsonLines::create(&args.common)?;
    println!("seed {}", args.seed);
    for panel in &panels {
        let rows = rows(panel)?;
        for row in &rows {
            json.write(row)?;
        }
        print(panel, &rows);
    }
    Ok(())
}

fn rows(panel: &Panel) -> Result<Vec<Row>> {
    let bar = progress(panel.name.to_owned(), panel.points.len() as u64);
    let mut rows = Vec::new();
    for point in &panel.points {
        let outcome = simulate(&point.case)
            .with_context(|| format!("{}, {} at {}", panel.name, point.series, point.x))?;
        rows.push(Row::new(panel, point, &outcome));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn print(panel: &Panel, rows: &[Row]) {
    println!("\n{}: {}", panel.name, panel.title);
    let mut table = Table::new(panel.x.column);
    for (point, row) in panel.points.iter().zip(rows) {
        table.add(point.x, row);
    }
    table.print();
}
