// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `factors` reports.

use serde::Serialize;

use crate::report::{number, rounded, Sheet};
use crate::round_robin::Outcome;

/// What one operation takes, the same on any machine.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    /// Of the calling thread. None where the kernel does not trace them.
    pub syscalls_per_op: Option<f64>,
    /// Sent and received by the clients' node.
    pub packets_per_op: f64,
    /// Posted to the RDMA device by the module, requests of its own left out.
    pub rc_chains_per_op: f64,
    /// READs of the peer's table of regions.
    pub table_reads_per_op: f64,
    /// Sent by the module's DC.
    pub dc_requests_per_op: f64,
}

/// One factor. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    name: &'static str,
    samples: u64,
    us_p50: Option<f64>,
    us_p99: Option<f64>,
    /// What it comes on top of.
    over: Option<&'static str>,
    /// How much more its p50 is.
    delta: Option<f64>,
    #[serde(flatten)]
    counts: Counts,
}

impl Row {
    /// What was measured and counted.
    pub fn new(
        name: &'static str,
        over: Option<&'static str>,
        outcome: &Outcome,
        counts: Counts,
    ) -> Self {
        Self {
            bench: "factors",
            name,
            samples: outcome.call.count(),
            us_p50: rounded(outcome.call.percentile_us(50.0)),
            us_p99: rounded(outcome.call.percentile_us(99.0)),
            over,
            delta: None,
            counts,
        }
    }

    /// Works out how much each is more than what it comes on top of.
    pub fn compare(rows: &mut [Self]) {
        let all = rows.to_vec();
        for row in rows {
            let base = all.iter().find(|other| Some(other.name) == row.over);
            let both = row.us_p50.zip(base.and_then(|base| base.us_p50));
            row.delta = rounded(both.map(|(own, base)| own - base));
        }
    }

    fn cells(&self) -> Vec<String> {
        let counts = &self.counts;
        vec![
            self.name.to_owned(),
            self.over.unwrap_or("-").to_owned(),
            number(self.us_p50),
            number(self.delta),
            number(self.us_p99),
            number(counts.syscalls_per_op),
            number(Some(counts.packets_per_op)),
            number(Some(counts.rc_chains_per_op)),
            number(Some(counts.table_reads_per_op)),
            number(Some(counts.dc_requests_per_op)),
        ]
    }
}

/// Prints the table.
pub fn print(rows: &[Row]) {
    let columns = [
        "name",
        "over",
        "t_typical[usec]",
        "delta[usec]",
        "99% percentile[usec]",
        "system calls",
        "packets",
        "RC chains",
        "table READs",
        "DC requests",
    ];
    let mut sheet = Sheet::new(&columns, 2);
    for row in rows {
        sheet.row(row.cells());
    }
    sheet.print();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_factor_is_what_it_adds() {
        let row = |name, over, us| {
            let mut outcome = Outcome::empty();
            outcome.call.record(Duration::from_micros(us));
            Row::new(name, over, &outcome, Counts::default())
        };
        let mut rows = [row("a", None, 10), row("b", Some("a"), 14)];
        Row::compare(&mut rows);
        assert_eq!(rows[0].delta, None);
        assert!((rows[1].delta.unwrap() - 4.0).abs() < 0.1);
    }
}
