// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `mesh` reports.

use std::time::Duration;

use serde::Serialize;

use super::worker::Span;
use super::Mesh;
use crate::cli::System;
use crate::report::{number, rounded, Sheet};
use crate::stats::Times;
use crate::wait::Wait;

/// What was measured of one mesh.
pub struct Rounds {
    connected: Times,
    written: Times,
    /// What each worker took by itself until it was connected.
    own: Times,
    /// From when the first worker set off until the last one did.
    setting_off: Times,
}

impl Rounds {
    /// Nothing yet.
    pub fn none() -> Self {
        Self {
            connected: Times::new(),
            written: Times::new(),
            own: Times::new(),
            setting_off: Times::new(),
        }
    }

    /// A mesh was made, whose workers took so long: from when the first set off until
    /// the last was done.
    pub fn add(&mut self, spans: &[Span]) {
        let start = spans.iter().map(|span| span.start_ns).min();
        let until = |end: fn(&Span) -> u64| {
            let end = spans.iter().map(end).max();
            let ns = start.zip(end).map(|(start, end)| end.saturating_sub(start));
            Duration::from_nanos(ns.unwrap_or(0))
        };
        self.connected.record(until(|span| span.connected_ns));
        self.written.record(until(|span| span.written_ns));
        self.setting_off.record(until(|span| span.start_ns));
        for span in spans {
            let ns = span.connected_ns.saturating_sub(span.start_ns);
            self.own.record(Duration::from_nanos(ns));
        }
    }
}

/// One mesh. Times are in microseconds.
#[derive(Serialize)]
pub struct Row {
    bench: &'static str,
    system: &'static str,
    case: &'static str,
    /// Whether workers met when they had connected, before they wrote.
    meets: bool,
    /// How workers wait for their WRITEs.
    wait: &'static str,
    workers: u16,
    /// That the workers are in: one, or one for each.
    processes: u16,
    nodes: u16,
    connections: u32,
    rounds: u64,
    /// Until all are connected.
    total_us: Option<f64>,
    total_us_min: Option<f64>,
    total_us_max: Option<f64>,
    /// Until each connection has carried a WRITE.
    written_us: Option<f64>,
    written_us_min: Option<f64>,
    written_us_max: Option<f64>,
    /// From when the first worker set off until the last one did: they share processors.
    setting_off_us: Option<f64>,
    /// What a worker took by itself until it was connected to all others.
    worker_us_p50: Option<f64>,
}

impl Row {
    /// The rounds of a mesh whose workers are in so many processes make this row.
    pub fn new(mesh: Mesh, (workers, processes): (u16, u16), nodes: u16, rounds: &Rounds) -> Self {
        let Rounds {
            connected,
            written,
            own,
            setting_off,
        } = rounds;
        Self {
            bench: "mesh",
            system: mesh.system.name(),
            case: mesh.case.name(),
            meets: mesh.meets,
            wait: mesh.wait.name(),
            workers,
            processes,
            nodes,
            connections: u32::from(workers) * (u32::from(workers) - 1),
            rounds: connected.count(),
            total_us: rounded(connected.percentile_us(50.0)),
            total_us_min: rounded(connected.min_us()),
            total_us_max: rounded(connected.max_us()),
            written_us: rounded(written.percentile_us(50.0)),
            written_us_min: rounded(written.min_us()),
            written_us_max: rounded(written.max_us()),
            setting_off_us: rounded(setting_off.percentile_us(50.0)),
            worker_us_p50: rounded(own.percentile_us(50.0)),
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.system.to_owned(),
            self.case.to_owned(),
            match self.meets {
                true => "yes".to_owned(),
                false => "no".to_owned(),
            },
            self.wait.to_owned(),
            self.workers.to_string(),
            self.processes.to_string(),
            self.connections.to_string(),
            self.rounds.to_string(),
            number(self.setting_off_us),
            number(self.worker_us_p50),
            number(self.total_us),
            number(self.written_us_min),
            number(self.written_us),
            number(self.written_us_max),
        ]
    }
}

const COLUMNS: [&str; 14] = [
    "system",
    "case",
    "meet",
    "wait",
    "#workers",
    "#processes",
    "#connections",
    "#iterations",
    "set off[usec]",
    "a worker",
    "connected",
    "written: min[usec]",
    "typical[usec]",
    "max[usec]",
];

/// All rows of a run.
#[derive(Default)]
pub struct Results(Vec<Row>);

impl Results {
    /// Adds a row.
    pub fn add(&mut self, row: Row) {
        self.0.push(row);
    }

    /// Prints the table, and how the systems compare in the largest mesh.
    pub fn print(&self) {
        let mut sheet = Sheet::new(&COLUMNS, 4);
        for row in &self.0 {
            sheet.row(row.cells());
        }
        sheet.print();
        println!();
        for (what, ratio) in self.ratios() {
            println!("{what}: {ratio:.2}");
        }
    }

    /// Verbs' time over Weft's, in the largest mesh: until all are connected, and until
    /// all connections have carried a WRITE. Verbs' is the better one of polling and sleeping.
    fn ratios(&self) -> Vec<(String, f64)> {
        let largest = self.0.iter().map(|row| row.workers).max();
        let (verbs, weft) = (System::Verbs.name(), System::Weft.name());
        let of = |system: &'static str| {
            let rows = self.0.iter();
            rows.filter(move |row| row.system == system && Some(row.workers) == largest)
        };
        let best = |over: &Row, time: fn(&Row) -> Option<f64>| {
            let same = |row: &&Row| (row.case, row.processes) == (over.case, over.processes);
            of(verbs).filter(same).filter_map(time).reduce(f64::min)
        };
        let polling = of(verbs).filter(|row| row.wait == Wait::Poll.name());
        let pairs = polling.flat_map(|over| {
            let same = move |under: &&Row| over.processes == under.processes;
            of(weft).filter(same).map(move |under| (over, under))
        });
        pairs
            .flat_map(|(over, under)| {
                let spread = match over.processes {
                    1 => "threads",
                    _ => "processes",
                };
                let what = |what: &str| {
                    let (workers, verbs, weft) = (over.workers, over.case, under.case);
                    format!("{workers} {spread}, {what}: verbs {verbs} / Weft {weft}")
                };
                // Connecting is compared where both meet after it; of verbs that is where
                // anything is connected at all.
                let connected = best(over, |row| row.total_us).zip(under.total_us);
                let written = best(over, |row| row.written_us).zip(under.written_us);
                [
                    (
                        what("connected"),
                        connected.filter(|_| over.meets && under.meets),
                    ),
                    (what("written"), written.filter(|_| !under.meets)),
                ]
            })
            .filter_map(|(what, times)| {
                let (over, under) = times.filter(|&(_, under)| under > 0.0)?;
                Some((what, over / under))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Case;

    fn rounds(us: u64) -> Rounds {
        let mut rounds = Rounds::none();
        let span = |start_ns| Span {
            start_ns,
            connected_ns: 1_000 * us / 2 + start_ns,
            written_ns: 1_000 * us,
        };
        rounds.add(&[span(0), span(500)]);
        rounds
    }

    fn row(system: System, case: Case, meets: bool, us: u64) -> Row {
        let wait = match system {
            System::Verbs => Wait::Poll,
            System::Weft => Wait::Call,
        };
        let mesh = Mesh::new(system, case, wait, meets);
        Row::new(mesh, (4, 4), 2, &rounds(us))
    }

    #[test]
    fn a_mesh_takes_from_the_first_start_to_the_last_end() {
        let json = serde_json::to_value(row(System::Weft, Case::Warm, false, 10)).unwrap();
        let near = |field: &str, us: f64| (json[field].as_f64().unwrap() - us).abs() < 0.02;
        assert!(near("total_us", 5.5) && near("written_us", 10.0), "{json}");
        assert_eq!(
            (&json["processes"], &json["connections"]),
            (&4.into(), &12.into())
        );
    }

    #[test]
    fn a_mesh_that_is_made_is_compared_until_connected_and_until_written() {
        let mut results = Results::default();
        results.add(row(System::Verbs, Case::Warm, true, 30));
        assert!(results.ratios().is_empty());
        results.add(row(System::Weft, Case::Warm, false, 10));
        results.add(row(System::Weft, Case::Warm, true, 15));
        let near = |(_, ratio): &(String, f64), wanted: f64| (ratio - wanted).abs() < 0.2;
        let ratios = results.ratios();
        assert_eq!(ratios.len(), 2);
        assert!(near(&ratios[0], 3.0) && near(&ratios[1], 2.0), "{ratios:?}");
        let sleeping = Mesh::new(System::Verbs, Case::Warm, Wait::Event, true);
        results.add(Row::new(sleeping, (4, 4), 2, &rounds(20)));
        let ratios = results.ratios();
        assert_eq!(ratios.len(), 2);
        assert!(
            near(&ratios[0], 2.0) && near(&ratios[1], 1.33),
            "{ratios:?}"
        );
        results.add(row(System::Verbs, Case::Cached, false, 20));
        let last = results.ratios().pop().unwrap();
        assert_eq!(last.0, "4 processes, written: verbs cached / Weft warm");
        assert!(near(&last, 2.0));
    }
}
