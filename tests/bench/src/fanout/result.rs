// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `fanout` reports.

use serde::Serialize;

use super::Shape;
use crate::report::{number, rounded, Sheet};
use crate::round_robin::Outcome;

/// What a batch takes, the same on any machine.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// Of the calling thread. None where the kernel does not trace them.
    pub syscalls_per_batch: Option<f64>,
    /// Sent and received by the clients' node, for each WRITE of a batch.
    pub packets_per_write: f64,
}

/// One case. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    system: &'static str,
    case: &'static str,
    /// Queue pairs or handles that batches go to.
    targets: usize,
    nodes: usize,
    /// WRITEs of a batch.
    batch: usize,
    bytes: u32,
    /// How the client learns that a batch is done.
    wait: &'static str,
    samples: u64,
    batch_us_p50: Option<f64>,
    batch_us_p99: Option<f64>,
    /// A WRITE's share of its batch.
    write_us_p50: Option<f64>,
    /// By how much that is more than in a batch of as many to one target.
    to_one_target: Option<f64>,
    to_one_target_p99: Option<f64>,
    #[serde(flatten)]
    counts: Counts,
}

impl Row {
    /// What was measured and counted.
    pub fn new(shape: Shape, outcome: &Outcome, counts: Counts) -> Self {
        let p50 = outcome.call.percentile_us(50.0);
        Self {
            bench: "fanout",
            system: shape.system.name(),
            case: shape.by.name(),
            targets: shape.targets,
            nodes: shape.nodes,
            batch: shape.batch,
            bytes: shape.bytes,
            wait: shape.wait.name(),
            samples: outcome.call.count(),
            batch_us_p50: rounded(p50),
            batch_us_p99: rounded(outcome.call.percentile_us(99.0)),
            write_us_p50: rounded(p50.map(|us| us / shape.batch as f64)),
            to_one_target: None,
            to_one_target_p99: None,
            counts,
        }
    }

    /// Works out how much each case takes of that with one target, waited for in the same way.
    pub fn compare(rows: &mut [Self]) {
        let all = rows.to_vec();
        for row in rows {
            let kind = |row: &Self| (row.system, row.case, row.batch, row.bytes, row.wait);
            let single = all
                .iter()
                .find(|other| other.targets == 1 && kind(other) == kind(row));
            let ratio = |us: fn(&Self) -> Option<f64>| {
                let under = single.and_then(us).filter(|&us| us > 0.0);
                rounded(us(row).zip(under).map(|(over, under)| over / under))
            };
            let (p50, p99) = (ratio(|row| row.batch_us_p50), ratio(|row| row.batch_us_p99));
            (row.to_one_target, row.to_one_target_p99) = (p50, p99);
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.system.to_owned(),
            self.case.to_owned(),
            self.targets.to_string(),
            self.nodes.to_string(),
            self.batch.to_string(),
            self.bytes.to_string(),
            self.wait.to_owned(),
            self.samples.to_string(),
            number(self.batch_us_p50),
            number(self.batch_us_p99),
            number(self.write_us_p50),
            number(self.to_one_target),
            number(self.to_one_target_p99),
            number(self.counts.syscalls_per_batch),
            number(Some(self.counts.packets_per_write)),
        ]
    }
}

const COLUMNS: [&str; 15] = [
    "system",
    "case",
    "#targets",
    "#nodes",
    "#WRITEs",
    "#bytes",
    "wait",
    "#iterations",
    "t_typical[usec]",
    "99% percentile[usec]",
    "a WRITE[usec]",
    "to one target",
    "99%",
    "system calls",
    "packets a WRITE",
];

/// All rows of a run.
pub struct Results(pub Vec<Row>);

impl Results {
    /// Prints the table.
    pub fn print(&self) {
        let mut sheet = Sheet::new(&COLUMNS, 2);
        for row in &self.0 {
            sheet.row(row.cells());
        }
        sheet.print();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::System;
    use crate::fanout::Targets;
    use crate::wait::Wait;
    use std::time::Duration;

    #[test]
    fn a_batch_is_compared_with_one_of_its_size_system_and_wait() {
        let row = |(system, wait), targets, batch, us| {
            let mut outcome = Outcome::empty();
            outcome.call.record(Duration::from_micros(us));
            let shape = Shape {
                system,
                by: Targets::Connected,
                targets,
                nodes: targets,
                batch,
                bytes: 8,
                wait,
            };
            Row::new(shape, &outcome, Counts::default())
        };
        let weft = (System::Weft, Wait::Call);
        let [polls, sleeps] = Wait::OF_VERBS.map(|wait| (System::Verbs, wait));
        let mut rows = [
            row(polls, 1, 16, 500),
            row(weft, 1, 8, 50),
            row(weft, 1, 16, 100),
            row(weft, 16, 16, 130),
            row(weft, 4, 4, 130),
            row(sleeps, 1, 16, 400),
            row(sleeps, 16, 16, 800),
        ];
        Row::compare(&mut rows);
        let near = |got: Option<f64>, want: f64| (got.unwrap() - want).abs() < 0.01;
        assert!(near(rows[3].to_one_target, 1.3));
        assert!(near(rows[3].write_us_p50, 130.0 / 16.0));
        assert_eq!(rows[4].to_one_target, None);
        assert!(near(rows[6].to_one_target, 2.0));
    }
}
