// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `connect` reports: a row a case, and the ratios that matter.

use serde::Serialize;

use super::sheet;
use crate::cli::System;
use crate::report::{number, rounded};
use crate::round_robin::Outcome;

/// One case with one number of clients. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    system: &'static str,
    case: &'static str,
    clients: u16,
    samples: u64,
    call_us_min: Option<f64>,
    call_us_p50: Option<f64>,
    call_us_avg: Option<f64>,
    call_us_p99: Option<f64>,
    call_us_p999: Option<f64>,
    first_write_us_p50: Option<f64>,
    per_sec: f64,
    /// Making the VQP, which is a call before `qconnect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    create_us_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<&'static str>,
}

impl Row {
    /// A row with nothing measured yet.
    pub fn new(
        system: System,
        case: &'static str,
        exchange: Option<&'static str>,
        clients: u16,
    ) -> Self {
        Self {
            bench: "connect",
            system: system.name(),
            case,
            clients,
            samples: 0,
            call_us_min: None,
            call_us_p50: None,
            call_us_avg: None,
            call_us_p99: None,
            call_us_p999: None,
            first_write_us_p50: None,
            per_sec: 0.0,
            create_us_p50: None,
            exchange,
        }
    }

    /// The row with what was measured.
    pub fn filled(self, outcome: &Outcome) -> Self {
        Self {
            first_write_us_p50: rounded(outcome.first_write.percentile_us(50.0)),
            create_us_p50: rounded(outcome.create.percentile_us(50.0)),
            per_sec: outcome.per_sec().round(),
            ..self.with_calls(outcome)
        }
    }

    /// The row with the times of calls that were measured apart.
    pub fn with_calls(self, outcome: &Outcome) -> Self {
        let call = &outcome.call;
        Self {
            samples: call.count(),
            call_us_min: rounded(call.min_us()),
            call_us_p50: rounded(call.percentile_us(50.0)),
            call_us_avg: rounded(call.mean_us()),
            call_us_p99: rounded(call.percentile_us(99.0)),
            call_us_p999: rounded(call.percentile_us(99.9)),
            ..self
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.system.to_owned(),
            self.case.to_owned(),
            self.clients.to_string(),
            self.samples.to_string(),
            number(self.call_us_min),
            number(self.call_us_p50),
            number(self.call_us_avg),
            number(self.call_us_p99),
            number(self.call_us_p999),
            number(self.first_write_us_p50),
            format!("{:.0}", self.per_sec),
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

    /// Prints the table and, for one client, the ratios.
    pub fn print(&self) {
        let mut sheet = sheet();
        for row in &self.0 {
            sheet.row(row.cells());
        }
        sheet.print();
        let ratios: Vec<_> = self.ratios().collect();
        if !ratios.is_empty() {
            println!();
        }
        for (what, ratio) in ratios {
            println!("{what}: {ratio:.2}");
        }
    }

    /// p50 of a case's call with one client.
    fn p50(&self, system: System, case: &str) -> Option<f64> {
        let row = self
            .0
            .iter()
            .find(|row| row.clients == 1 && row.system == system.name() && row.case == case)?;
        row.call_us_p50
    }

    /// How the systems compare, of what was measured.
    fn ratios(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let uncached = self.p50(System::Weft, "uncached");
        let cached = self.p50(System::Weft, "cached");
        let cold = self.p50(System::Verbs, "cold");
        let nop = self.p50(System::Ref, "null_ioctl");
        let rc_read = self.p50(System::Ref, "read8");
        let dc_read = self.p50(System::Weft, "dc_read8");
        let read_and_nop = rc_read.zip(nop).map(|(read, nop)| read + nop);
        [
            ("verbs cold / weft uncached", cold, uncached),
            ("verbs cold / weft cached", cold, cached),
            ("weft cached / null ioctl", cached, nop),
            (
                "weft uncached / (RC READ + null ioctl)",
                uncached,
                read_and_nop,
            ),
            ("weft DC READ / verbs RC READ", dc_read, rc_read),
        ]
        .into_iter()
        .filter_map(|(what, over, under)| Some((what, over? / under.filter(|&us| us > 0.0)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn row(system: System, case: &'static str, us: u64) -> Row {
        let mut outcome = Outcome::empty();
        outcome.call.record(Duration::from_micros(us));
        Row::new(system, case, None, 1).filled(&outcome)
    }

    #[test]
    fn a_row_has_the_contracts_fields() {
        let json = serde_json::to_value(row(System::Weft, "cached", 2)).unwrap();
        for field in [
            "bench",
            "system",
            "case",
            "clients",
            "call_us_p50",
            "call_us_p99",
            "call_us_p999",
            "first_write_us_p50",
            "per_sec",
        ] {
            assert!(json.get(field).is_some(), "{field}");
        }
        assert_eq!(json["call_us_p50"], 2.0);
        assert!(json["first_write_us_p50"].is_null());
    }

    #[test]
    fn only_what_was_measured_is_compared() {
        let mut results = Results::default();
        results.add(row(System::Verbs, "cold", 1000));
        assert_eq!(results.ratios().count(), 0);
        results.add(row(System::Weft, "cached", 2));
        let ratios: Vec<_> = results.ratios().collect();
        assert_eq!(ratios.len(), 1);
        assert!((ratios[0].1 - 500.0).abs() < 1.0);
    }
}
