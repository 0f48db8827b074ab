// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ratios that matter, load by load.

use super::load::{Experiment, Wait, Way};
use super::result::{size, Row};

/// A line for each load: RDMC beside the better MPI; for one message at a time
/// also the pipeline beside other algorithms, and of two ways to wait the
/// processor time.
pub fn lines(rows: &[Row]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut rest = rows;
    while let Some(first) = rest.first() {
        let same = |row: &&Row| {
            let key = |row: &Row| (row.experiment, row.members, row.senders, row.bytes);
            key(row) == key(first) && row.fabric == first.fabric
        };
        let count = rest.iter().take_while(same).count();
        let (load, others) = rest.split_at(count);
        lines.extend(line(load));
        rest = others;
    }
    lines
}

fn line(rows: &[Row]) -> Option<String> {
    let load = rows.first()?;
    let what = format!(
        "{:?} over {}, {} members, {} senders, {}:",
        load.experiment,
        load.fabric,
        load.members,
        load.senders,
        size(load.bytes)
    );
    let best = fastest(rows.iter().filter(|row| row.variant().is_some()));
    let auto = fastest(rows.iter().filter(|row| row.is_way(Way::Auto)));
    let mpi = fastest(rows.iter().filter(|row| row.is_broadcast()));
    let window = fastest(rows.iter().filter(|row| row.is_window()));
    let mut parts = Vec::new();
    if let Some(mpi) = mpi {
        for (name, own) in [("auto", auto), ("best", best)] {
            let told = own.map(|own| format!("{name} {} x {}", ratio(mpi, own), mpi.name()));
            parts.extend(told);
        }
    }
    if let (Some(best), Some(window)) = (best, window) {
        parts.push(format!("best {} x {}", ratio(window, best), window.name()));
    }
    parts.extend(best.map(|best| format!("best is {}", best.name())));
    if load.experiment == Experiment::Single {
        let of = |way| fastest(rows.iter().filter(move |row| row.is_way(way)));
        let pipeline = of(Way::BinomialPipeline);
        for other in [Way::Sequential, Way::Chain, Way::BinomialTree] {
            if let (Some(pipeline), Some(row)) = (pipeline, of(other)) {
                parts.push(format!(
                    "pipeline {} x {}",
                    ratio(row, pipeline),
                    other.name()
                ));
            }
        }
    }
    if load.experiment == Experiment::Wait {
        let waits = |wait| {
            let is_it = move |row: &&Row| row.variant().is_some_and(|own| own.wait == wait);
            fastest(rows.iter().filter(is_it))
        };
        if let (Some(hybrid), Some(interrupt)) = (waits(Wait::Hybrid), waits(Wait::Interrupt)) {
            parts.push(format!("interrupts {} x hybrid", ratio(hybrid, interrupt)));
        }
    }
    (!parts.is_empty()).then(|| format!("{what} {}", parts.join("; ")))
}

fn fastest<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.min_by(|a, b| a.seconds_p50.total_cmp(&b.seconds_p50))
}

/// How many times as fast the second one is.
fn ratio(slow: &Row, fast: &Row) -> String {
    format!("{:.2}", slow.seconds_p50 / fast.seconds_p50)
}
