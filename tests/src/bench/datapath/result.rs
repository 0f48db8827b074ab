// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `datapath` reports: a row for each system and operation, and how the
//! systems compare.

use serde::Serialize;

use super::Work;
use crate::cli::{Mode, System};
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
    /// Requests that were measured.
    requests: u64,
    lat_us_min: Option<f64>,
    lat_us_p50: Option<f64>,
    lat_us_avg: Option<f64>,
    lat_us_p99: Option<f64>,
    ops_per_sec: f64,
    gb_per_s: f64,
}

impl Row {
    /// What was measured.
    pub fn new(system: System, work: Work, clients: u16, outcome: &Outcome) -> Self {
        let requests = work.requests();
        let ops_per_sec = outcome.per_sec() * f64::from(requests);
        let times = (work.mode == Mode::Sync).then_some(&outcome.call);
        let percentile = |percent| rounded(times.and_then(|times| times.percentile_us(percent)));
        Self {
            bench: "datapath",
            system: system.name(),
            transport: transport(system),
            op: work.op.name(),
            mode: work.mode.name(),
            bytes: work.bytes,
            clients,
            requests: outcome.call.count() * u64::from(requests),
            lat_us_min: rounded(times.and_then(|times| times.min_us())),
            lat_us_p50: percentile(50.0),
            lat_us_avg: rounded(times.and_then(|times| times.mean_us())),
            lat_us_p99: percentile(99.0),
            ops_per_sec: (ops_per_sec * 10.0).round() / 10.0,
            gb_per_s: (ops_per_sec * f64::from(work.bytes) / 1e3).round() / 1e6,
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
        ]
    }

    /// Whether `other` is the same work.
    fn compares_with(&self, other: &Self) -> bool {
        let work = |row: &Self| (row.op, row.mode, row.bytes, row.clients);
        work(self) == work(other)
    }
}

/// What a system's requests run over.
fn transport(system: System) -> &'static str {
    match system {
        System::Weft => "dc",
        System::Verbs | System::Ref => "rc",
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

    /// Prints the table and the ratios.
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
            ],
            4,
        );
        for row in &self.0 {
            sheet.row(row.cells());
        }
        sheet.print();
        let ratios = self.ratios();
        if !ratios.is_empty() {
            println!();
        }
        for ratio in ratios {
            println!("{ratio}");
        }
    }

    /// A line for each work that both systems did.
    fn ratios(&self) -> Vec<String> {
        let of = |system: System| self.0.iter().filter(move |row| row.system == system.name());
        of(System::Weft)
            .filter_map(|weft| {
                let verbs = of(System::Verbs).find(|verbs| verbs.compares_with(weft))?;
                Some(ratio(weft, verbs))
            })
            .collect()
    }
}

/// How the two compare: in latency where it was measured, and in rate, which is
/// bandwidth too.
fn ratio(weft: &Row, verbs: &Row) -> String {
    let mut line = format!(
        "weft/verbs {} {} {} B, {} clients: ",
        weft.op, weft.mode, weft.bytes, weft.clients
    );
    if let Some((weft, verbs)) = weft.lat_us_p50.zip(verbs.lat_us_p50) {
        line += &format!("t_typical {:.2}, ", weft / verbs.max(1e-3));
    }
    let rate = weft.ops_per_sec / verbs.ops_per_sec.max(1e-3);
    line + &format!("rate {rate:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Operation;
    use std::time::Duration;

    fn row(system: System, mode: Mode, us: u64) -> Row {
        let work = Work {
            op: Operation::Read,
            mode,
            bytes: 4096,
        };
        let mut outcome = Outcome::empty();
        outcome.call.record(Duration::from_micros(us));
        Row::new(system, work, 1, &outcome)
    }

    #[test]
    fn a_row_has_the_contracts_fields() {
        let json = serde_json::to_value(row(System::Weft, Mode::Sync, 2)).unwrap();
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
        let json = serde_json::to_value(row(System::Verbs, Mode::Async, 100)).unwrap();
        assert_eq!(json["requests"], 32);
        assert!(json["lat_us_p50"].is_null());
        assert_eq!(json["transport"], "rc");
    }

    #[test]
    fn only_the_same_work_is_compared() {
        let mut results = Results::default();
        results.add(row(System::Verbs, Mode::Sync, 100));
        results.add(row(System::Weft, Mode::Async, 50));
        assert!(results.ratios().is_empty());
        results.add(row(System::Weft, Mode::Sync, 50));
        let ratios = results.ratios();
        assert_eq!(ratios.len(), 1);
        assert!(ratios[0].starts_with("weft/verbs read sync 4096 B, 1 clients: t_typical 0.50,"));
    }
}
