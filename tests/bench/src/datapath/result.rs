// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `datapath` reports: a row for each system and operation, and how the
//! systems compare.

use serde::Serialize;

use super::args::Mode;
use super::clients::Lane;
use super::plan::Work;
use crate::cli::System;
use crate::report::{number, rounded, Sheet};
use crate::round_robin::Outcome;

/// One system at one operation. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    system: &'static str,
    transport: &'static str,
    op: &'static str,
    mode: &'static str,
    bytes: u32,
    clients: u16,
    pause_us: u32,
    /// Requests that were measured.
    requests: u64,
    lat_us_min: Option<f64>,
    lat_us_p50: Option<f64>,
    lat_us_avg: Option<f64>,
    lat_us_p99: Option<f64>,
    ops_per_sec: f64,
    gb_per_s: f64,
    /// Its p50 over that of verbs at the same work.
    #[serde(skip_serializing_if = "Option::is_none")]
    lat_to_verbs: Option<f64>,
    /// Its rate over that of verbs, which is that of bandwidths too.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_to_verbs: Option<f64>,
}

impl Row {
    /// What was measured.
    pub fn new(lane: Lane, work: Work, outcome: &Outcome) -> Self {
        let requests = work.requests();
        let ops_per_sec = outcome.per_sec() * f64::from(requests);
        let times = (work.mode == Mode::Sync).then_some(&outcome.call);
        let percentile = |percent| rounded(times.and_then(|times| times.percentile_us(percent)));
        Self {
            bench: "datapath",
            system: lane.system.name(),
            transport: lane.transport.name(),
            op: work.op.name(),
            mode: work.mode.name(),
            bytes: work.bytes,
            clients: work.clients,
            pause_us: work.pause_us,
            requests: outcome.call.count() * u64::from(requests),
            lat_us_min: rounded(times.and_then(|times| times.min_us())),
            lat_us_p50: percentile(50.0),
            lat_us_avg: rounded(times.and_then(|times| times.mean_us())),
            lat_us_p99: percentile(99.0),
            ops_per_sec: (ops_per_sec * 10.0).round() / 10.0,
            gb_per_s: (ops_per_sec * f64::from(work.bytes) / 1e3).round() / 1e6,
            lat_to_verbs: None,
            rate_to_verbs: None,
        }
    }

    /// Compares rows of the same work with that of verbs, if it is among them.
    pub fn compare(rows: &mut [Self]) {
        let is_verbs = |row: &Self| row.system == System::Verbs.name();
        let Some(verbs) = rows.iter().find(|row| is_verbs(row)).cloned() else {
            return;
        };
        for row in rows.iter_mut().filter(|row| !is_verbs(row)) {
            let latencies = row.lat_us_p50.zip(verbs.lat_us_p50);
            row.lat_to_verbs = rounded(latencies.map(|(own, verbs)| own / verbs.max(1e-3)));
            row.rate_to_verbs = rounded(Some(row.ops_per_sec / verbs.ops_per_sec.max(1e-3)));
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.op.to_owned(),
            self.mode.to_owned(),
            self.system.to_owned(),
            self.transport.to_owned(),
            self.clients.to_string(),
            self.bytes.to_string(),
            self.requests.to_string(),
            number(self.lat_us_min),
            number(self.lat_us_p50),
            number(self.lat_us_avg),
            number(self.lat_us_p99),
            format!("{:.4}", self.gb_per_s),
            format!("{:.6}", self.ops_per_sec / 1e6),
            number(self.lat_to_verbs),
            number(self.rate_to_verbs),
        ]
    }
}

/// All rows of a run.
#[derive(Default)]
pub struct Results(Vec<Row>);

impl Results {
    /// Adds a row.
    pub fn add(&mut self, row: Row) {
        self.0.push(row);
    }

    /// Prints the table.
    pub fn print(&self) {
        let mut sheet = Sheet::new(
            &[
                "op",
                "mode",
                "system",
                "transport",
                "#clients",
                "#bytes",
                "#iterations",
                "t_min[usec]",
                "t_typical[usec]",
                "t_avg[usec]",
                "99% percentile[usec]",
                "BW average[GB/sec]",
                "MsgRate[Mpps]",
                "t/verbs",
                "rate/verbs",
            ],
            4,
        );
        for row in &self.0 {
            sheet.row(row.cells());
        }
        sheet.print();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Transport;
    use crate::datapath::args::Operation;
    use std::time::Duration;

    fn row(lane: Lane, mode: Mode, us: u64) -> Row {
        let work = Work {
            op: Operation::Read,
            mode,
            bytes: 4096,
            clients: 1,
            pause_us: 0,
        };
        let mut outcome = Outcome::empty();
        outcome.call.record(Duration::from_micros(us));
        Row::new(lane, work, &outcome)
    }

    #[test]
    fn a_row_has_the_contracts_fields() {
        let json = serde_json::to_value(row(Lane::weft(Transport::Dc), Mode::Sync, 2)).unwrap();
        for field in [
            "bench",
            "system",
            "transport",
            "op",
            "mode",
            "bytes",
            "clients",
            "lat_us_p50",
            "lat_us_p99",
            "ops_per_sec",
            "gb_per_s",
        ] {
            assert!(!json[field].is_null(), "{field}");
        }
        assert_eq!(
            (&json["transport"], &json["op"]),
            (&"dc".into(), &"read".into())
        );
    }

    #[test]
    fn a_batch_counts_its_requests_and_has_no_latency() {
        let json = serde_json::to_value(row(Lane::VERBS, Mode::Async, 100)).unwrap();
        assert_eq!(json["requests"], 32);
        assert!(json["lat_us_p50"].is_null());
        assert_eq!(json["transport"], "rc");
    }

    #[test]
    fn each_of_weft_is_compared_with_verbs() {
        let mut rows = [
            row(Lane::VERBS, Mode::Sync, 100),
            row(Lane::weft(Transport::Dc), Mode::Sync, 50),
            row(Lane::weft(Transport::Rc), Mode::Sync, 110),
        ];
        Row::compare(&mut rows);
        assert_eq!(rows[0].lat_to_verbs, None);
        assert!((rows[1].lat_to_verbs.unwrap() - 0.5).abs() < 0.01);
        assert!((rows[2].lat_to_verbs.unwrap() - 1.1).abs() < 0.01);
    }
}
