// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `connect` reports: a row a case, and the ratios that matter.

use std::net::SocketAddr;

use serde::Serialize;

use crate::cli::ConnectSystem;
use crate::report::{number, rounded, Sheet};
use crate::round_robin::{Outcome, Part};
use crate::wait::Wait;

/// What all rows of a measurement share.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Setting {
    pub clients: u16,
    pub peers: u16,
    /// Where the module's meta server is, if the module is measured.
    pub meta_server: Option<SocketAddr>,
}

/// One case with one number of clients. Times are in microseconds; a part that the
/// case does not have is absent.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    system: &'static str,
    case: &'static str,
    #[serde(flatten)]
    setting: Setting,
    samples: u64,
    open_us_p50: Option<f64>,
    register_us_p50: Option<f64>,
    create_us_p50: Option<f64>,
    call_us_min: Option<f64>,
    call_us_p50: Option<f64>,
    call_us_avg: Option<f64>,
    call_us_p99: Option<f64>,
    call_us_p999: Option<f64>,
    /// The first WRITE alone.
    first_write_us_p50: Option<f64>,
    /// Everything until the first WRITE is done.
    total_us_p50: Option<f64>,
    total_us_p99: Option<f64>,
    /// Samples a second of all clients together, letting connections go included.
    per_sec: f64,
    /// How a client waits for its WRITE.
    wait: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<&'static str>,
}

impl Row {
    /// What was measured.
    pub fn new(
        system: ConnectSystem,
        case: &'static str,
        (exchange, wait): (Option<&'static str>, Wait),
        setting: Setting,
        outcome: &Outcome,
    ) -> Self {
        let call = &outcome.call;
        let part = |part, percent| {
            let times = outcome.part(part);
            rounded(times.and_then(|times| times.percentile_us(percent)))
        };
        Self {
            bench: "connect",
            system: system.name(),
            case,
            setting,
            samples: call.count(),
            open_us_p50: part(Part::Open, 50.0),
            register_us_p50: part(Part::Register, 50.0),
            create_us_p50: part(Part::Create, 50.0),
            call_us_min: rounded(call.min_us()),
            call_us_p50: rounded(call.percentile_us(50.0)),
            call_us_avg: rounded(call.mean_us()),
            call_us_p99: rounded(call.percentile_us(99.0)),
            call_us_p999: rounded(call.percentile_us(99.9)),
            first_write_us_p50: part(Part::FirstWrite, 50.0),
            total_us_p50: part(Part::Total, 50.0),
            total_us_p99: part(Part::Total, 99.0),
            per_sec: outcome.per_sec().round(),
            wait: wait.name(),
            exchange,
        }
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.system.to_owned(),
            self.case.to_owned(),
            self.wait.to_owned(),
            self.setting.clients.to_string(),
            self.samples.to_string(),
        ];
        let times = [
            self.open_us_p50,
            self.register_us_p50,
            self.create_us_p50,
            self.call_us_p50,
            self.call_us_p99,
            self.first_write_us_p50,
            self.total_us_p50,
            self.total_us_p99,
        ];
        cells.extend(times.map(number));
        cells.push(format!("{:.0}", self.per_sec));
        cells
    }

    /// The sum of making the connecting object and connecting it, which may be one call.
    fn create_and_call(&self) -> Option<f64> {
        Some(self.create_us_p50.unwrap_or(0.0) + self.call_us_p50?)
    }
}

/// The table's columns, perftest's where it has them. Each is a p50 unless it says
/// otherwise.
const COLUMNS: [&str; 14] = [
    "system",
    "case",
    "wait",
    "#clients",
    "#iterations",
    "open[usec]",
    "register",
    "create",
    "connect",
    "99%",
    "first WRITE",
    "sum",
    "99%",
    "per sec",
];

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
        let mut sheet = Sheet::new(&COLUMNS, 3);
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

    /// A figure of a case with one client. Of verbs, which polls and sleeps, the smaller one.
    fn figure(
        &self,
        system: ConnectSystem,
        case: &str,
        figure: fn(&Row) -> Option<f64>,
    ) -> Option<f64> {
        let rows = self.0.iter().filter(|row| {
            row.setting.clients == 1 && row.system == system.name() && row.case == case
        });
        rows.filter_map(figure).reduce(f64::min)
    }

    /// How the systems compare, of what was measured: sums with sums, calls with
    /// calls.
    fn ratios(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let sum = |system, case| self.figure(system, case, |row| row.total_us_p50);
        let call = |system, case| self.figure(system, case, |row| row.call_us_p50);
        let made = |system| self.figure(system, "warm", Row::create_and_call);
        let (verbs, weft, reference) = (
            ConnectSystem::Verbs,
            ConnectSystem::Weft,
            ConnectSystem::Ref,
        );
        let nop = call(reference, "null_ioctl");
        let rc_read = call(reference, "read8");
        let read_and_nop = rc_read.zip(nop).map(|(read, nop)| read + nop);
        [
            (
                "sums: verbs cold / Weft cold",
                sum(verbs, "cold"),
                sum(weft, "cold"),
            ),
            (
                "sums: verbs cold / Weft cold, where the node knows the peer",
                sum(verbs, "cold"),
                sum(weft, "cold_known"),
            ),
            (
                "sums: verbs warm / Weft warm",
                sum(verbs, "warm"),
                sum(weft, "warm"),
            ),
            (
                "sums: verbs cached / Weft cached",
                sum(verbs, "cached"),
                sum(weft, "cached"),
            ),
            (
                "sums: verbs warm / Weft cached",
                sum(verbs, "warm"),
                sum(weft, "cached"),
            ),
            (
                "create and connect: verbs warm / Weft warm",
                made(verbs),
                made(weft),
            ),
            (
                "calls: Weft create and connect, in a row / null ioctl",
                call(weft, "in_a_row"),
                call(reference, "null_in_a_row"),
            ),
            (
                "calls: Weft create and connect, in a row, 99% / null ioctl, typical",
                self.figure(weft, "in_a_row", |row| row.call_us_p99),
                call(reference, "null_in_a_row"),
            ),
            (
                "calls: Weft qconnect, cached / null ioctl",
                call(weft, "call_cached"),
                nop,
            ),
            (
                "calls: Weft qconnect, the last peer again / null ioctl",
                call(weft, "call_same"),
                nop,
            ),
            (
                "calls: Weft qconnect, uncached / (RC READ + null ioctl)",
                call(weft, "uncached"),
                read_and_nop,
            ),
            (
                "calls: Weft DC READ / verbs RC READ",
                call(weft, "dc_read8"),
                rc_read,
            ),
        ]
        .into_iter()
        .filter_map(|(what, over, under)| Some((what, over? / under.filter(|&us| us > 0.0)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round_robin::{self, Amount, Case, MakeCase, Parts, Sample};
    use std::time::Duration;

    const SETTING: Setting = Setting {
        clients: 1,
        peers: 2,
        meta_server: None,
    };

    /// A connection that takes so long in all, half of it the call.
    struct Took(Duration);

    impl Case for Took {
        fn sample(&mut self) -> anyhow::Result<Sample> {
            let half = self.0 / 2;
            Ok(Sample {
                call: half,
                parts: Parts::default()
                    .with(Part::FirstWrite, half)
                    .with(Part::Total, self.0),
                ..Sample::default()
            })
        }
    }

    fn row(system: ConnectSystem, case: &'static str, us: u64) -> Row {
        let make: MakeCase<'_> = Box::new(move || Ok(Box::new(Took(Duration::from_micros(us)))));
        let outcomes = round_robin::run("test", &[(make, Amount::of(1))], 1).unwrap();
        Row::new(system, case, (None, Wait::Call), SETTING, &outcomes[0])
    }

    #[test]
    fn a_row_has_the_contracts_fields() {
        let json = serde_json::to_value(row(ConnectSystem::Weft, "cached", 4)).unwrap();
        for field in [
            "bench",
            "system",
            "case",
            "clients",
            "peers",
            "meta_server",
            "open_us_p50",
            "register_us_p50",
            "create_us_p50",
            "call_us_p50",
            "call_us_p99",
            "call_us_p999",
            "first_write_us_p50",
            "total_us_p50",
            "per_sec",
        ] {
            assert!(json.get(field).is_some(), "{field}");
        }
        assert_eq!(json["call_us_p50"], 2.0);
        assert!(json["open_us_p50"].is_null());
        assert!((json["total_us_p50"].as_f64().unwrap() - 4.0).abs() < 0.01);
    }

    #[test]
    fn what_is_compared_is_of_one_kind_and_was_measured() {
        let mut results = Results::default();
        results.add(row(ConnectSystem::Verbs, "cold", 1000));
        results.add(row(ConnectSystem::Weft, "cached", 2));
        assert_eq!(results.ratios().count(), 0);
        results.add(row(ConnectSystem::Weft, "cold", 100));
        let ratios: Vec<_> = results.ratios().collect();
        assert_eq!(ratios.len(), 1);
        assert!((ratios[0].1 - 10.0).abs() < 0.1);
        // Another way to wait, which is faster.
        results.add(row(ConnectSystem::Verbs, "cold", 500));
        assert!((results.ratios().next().unwrap().1 - 5.0).abs() < 0.1);
    }
}
