// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `datapath` reports: a row for each system and operation, and how the
//! systems compare.

use serde::Serialize;

use super::args::{Contender, Mode};
use super::clients::Lane;
use super::plan::Work;
use crate::report::{cdf, number, rounded, Sheet};
use crate::round_robin::Outcome;
use crate::stats::median;

/// How much worse than perftest our client of verbs may be before a reader is told.
const TOLERANCE: f64 = 0.15;

/// What a system did at a work, in one turn or as the median of several. Times are
/// in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Requests that were measured.
    pub requests: u64,
    pub lat_us_min: Option<f64>,
    pub lat_us_p50: Option<f64>,
    pub lat_us_avg: Option<f64>,
    pub lat_us_p99: Option<f64>,
    /// See [`Times::cdf_us`](crate::stats::Times::cdf_us); empty of a batch.
    pub lat_us_cdf: Vec<f64>,
    pub ops_per_sec: Option<f64>,
}

impl Figures {
    /// Ours: of a batch there is no latency, of a ping-pong no rate.
    pub fn of(outcome: &Outcome, work: Work) -> Self {
        let requests = work.requests();
        let times = (work.mode == Mode::Sync).then_some(&outcome.call);
        let percentile = |percent| times.and_then(|times| times.percentile_us(percent));
        let rate = outcome.per_sec() * f64::from(requests);
        Self {
            requests: outcome.call.count() * u64::from(requests),
            lat_us_min: times.and_then(|times| times.min_us()),
            lat_us_p50: percentile(50.0),
            lat_us_avg: times.and_then(|times| times.mean_us()),
            lat_us_p99: percentile(99.0),
            lat_us_cdf: times.map_or_else(Vec::new, |times| times.cdf_us()),
            ops_per_sec: (!work.op.is_ping_pong()).then_some(rate),
        }
    }

    /// The median of each figure over several turns, and all their requests.
    pub fn median(turns: &[Self]) -> Self {
        let each = |figure: fn(&Self) -> Option<f64>| {
            let values: Vec<_> = turns.iter().filter_map(figure).collect();
            median(&values)
        };
        Self {
            requests: turns.iter().map(|turn| turn.requests).sum(),
            lat_us_min: each(|turn| turn.lat_us_min),
            lat_us_p50: each(|turn| turn.lat_us_p50),
            lat_us_avg: each(|turn| turn.lat_us_avg),
            lat_us_p99: each(|turn| turn.lat_us_p99),
            lat_us_cdf: Self::median_cdf(turns),
            ops_per_sec: each(|turn| turn.ops_per_sec),
        }
    }

    /// The median of each percentile, as far as all turns have it.
    fn median_cdf(turns: &[Self]) -> Vec<f64> {
        let common = turns.iter().map(|turn| turn.lat_us_cdf.len()).min();
        let at = |index: usize| {
            let values: Vec<_> = turns.iter().map(|turn| turn.lat_us_cdf[index]).collect();
            median(&values)
        };
        (0..common.unwrap_or(0)).filter_map(at).collect()
    }
}

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
    /// How a client learns that its request is done.
    wait: &'static str,
    path_mtu: Option<u32>,
    /// Requests that were measured.
    requests: u64,
    lat_us_min: Option<f64>,
    lat_us_p50: Option<f64>,
    lat_us_avg: Option<f64>,
    lat_us_p99: Option<f64>,
    /// The distribution of single requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lat_us_cdf: Vec<(f64, f64)>,
    ops_per_sec: Option<f64>,
    gb_per_s: Option<f64>,
    /// Weft's p50 over that of verbs at the same work, which is the lower one of
    /// polling and sleeping.
    #[serde(skip_serializing_if = "Option::is_none")]
    lat_to_verbs: Option<f64>,
    /// Weft's rate over that of verbs, the higher one. That of bandwidths is the
    /// same.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_to_verbs: Option<f64>,
    /// Its p50 over perftest's, of verbs and of Weft.
    #[serde(skip_serializing_if = "Option::is_none")]
    lat_to_perftest: Option<f64>,
    /// Its rate over perftest's.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_to_perftest: Option<f64>,
}

impl Row {
    /// What was measured.
    pub fn new(lane: Lane, work: Work, figures: &Figures) -> Self {
        let bytes = f64::from(work.bytes);
        let rate = figures.ops_per_sec;
        Self {
            bench: "datapath",
            system: lane.system.name(),
            transport: lane.transport.name(),
            op: work.op.name(),
            mode: work.mode.name(),
            bytes: work.bytes,
            clients: work.clients,
            pause_us: work.pause_us,
            wait: lane.wait.name(),
            path_mtu: lane.path_mtu,
            requests: figures.requests,
            lat_us_min: rounded(figures.lat_us_min),
            lat_us_p50: rounded(figures.lat_us_p50),
            lat_us_avg: rounded(figures.lat_us_avg),
            lat_us_p99: rounded(figures.lat_us_p99),
            lat_us_cdf: cdf(&figures.lat_us_cdf),
            ops_per_sec: rate.map(|rate| (rate * 10.0).round() / 10.0),
            gb_per_s: rate.map(|rate| (rate * bytes / 1e3).round() / 1e6),
            lat_to_verbs: None,
            rate_to_verbs: None,
            lat_to_perftest: None,
            rate_to_perftest: None,
        }
    }

    fn is_of(&self, system: Contender) -> bool {
        self.system == system.name()
    }

    /// Compares rows of the same work with what verbs reaches by our client, and
    /// with what it reaches by perftest.
    pub fn compare(rows: &mut [Self]) {
        let verbs = Best::of(Contender::Verbs, rows);
        let perftest = Best::of(Contender::Perftest, rows);
        for row in rows {
            if row.is_of(Contender::Weft) {
                (row.lat_to_verbs, row.rate_to_verbs) = verbs.ratios(row);
            }
            if !row.is_of(Contender::Perftest) {
                (row.lat_to_perftest, row.rate_to_perftest) = perftest.ratios(row);
            }
        }
    }

    /// The same work, in words.
    fn work(&self) -> String {
        let pause = match self.pause_us {
            0 => String::new(),
            us => format!(", {us} us between"),
        };
        let (mode, op, bytes) = (self.mode, self.op, self.bytes);
        format!("{mode} {op} of {bytes} bytes{pause}")
    }

    fn cells(&self) -> Vec<String> {
        let scaled = |value: Option<f64>, scale: f64, digits| match value {
            Some(value) => format!("{:.*}", digits, value / scale),
            None => "-".to_owned(),
        };
        vec![
            self.op.to_owned(),
            self.mode.to_owned(),
            self.system.to_owned(),
            self.transport.to_owned(),
            self.wait.to_owned(),
            self.clients.to_string(),
            self.pause_us.to_string(),
            self.bytes.to_string(),
            self.requests.to_string(),
            number(self.lat_us_min),
            number(self.lat_us_p50),
            number(self.lat_us_avg),
            number(self.lat_us_p99),
            scaled(self.gb_per_s, 1.0, 4),
            scaled(self.ops_per_sec, 1e6, 6),
            number(self.lat_to_verbs),
            number(self.rate_to_verbs),
            number(self.lat_to_perftest),
            number(self.rate_to_perftest),
        ]
    }
}

/// The best of a system's rows of one work.
#[derive(Clone, Copy)]
struct Best {
    lat_us: Option<f64>,
    rate: Option<f64>,
}

impl Best {
    fn of(system: Contender, rows: &[Row]) -> Self {
        let own = || rows.iter().filter(|row| row.is_of(system));
        Self {
            lat_us: own().filter_map(|row| row.lat_us_p50).reduce(f64::min),
            rate: own().filter_map(|row| row.ops_per_sec).reduce(f64::max),
        }
    }

    /// A row's latency and rate over these.
    fn ratios(self, row: &Row) -> (Option<f64>, Option<f64>) {
        let ratio = |own: Option<f64>, base: Option<f64>| {
            rounded(own.zip(base).map(|(own, base)| own / base.max(1e-3)))
        };
        (
            ratio(row.lat_us_p50, self.lat_us),
            ratio(row.ops_per_sec, self.rate),
        )
    }
}

/// All rows of a run, those of one work together.
#[derive(Default)]
pub struct Results(Vec<Vec<Row>>);

impl Results {
    /// Adds the rows of a work.
    pub fn add(&mut self, rows: Vec<Row>) {
        self.0.push(rows);
    }

    /// Prints the table, and what the witness has to say of our client of verbs.
    pub fn print(&self) {
        let columns = [
            "op",
            "mode",
            "system",
            "transport",
            "wait",
            "#clients",
            "pause[usec]",
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
            "t/perftest",
            "rate/perftest",
        ];
        let mut sheet = Sheet::new(&columns, 5);
        for row in self.0.iter().flatten() {
            sheet.row(row.cells());
        }
        sheet.print();
        self.verdict().iter().for_each(|line| println!("{line}"));
    }

    /// Whether our client of verbs is as good as perftest, in words. A work's better
    /// row of polling and sleeping counts, by its latency or, if it has none to
    /// compare, by its rate.
    fn verdict(&self) -> Vec<String> {
        let mut compared = 0;
        let mut lines = Vec::new();
        for rows in &self.0 {
            let ours = || rows.iter().filter(|row| row.is_of(Contender::Verbs));
            let lat = ours()
                .filter_map(|row| row.lat_to_perftest)
                .reduce(f64::min);
            let rate = ours()
                .filter_map(|row| row.rate_to_perftest)
                .reduce(f64::max);
            let Some(work) = ours().next().map(Row::work) else {
                continue;
            };
            compared += u32::from(lat.or(rate).is_some());
            let worse = match (lat, rate) {
                (Some(lat), _) if lat > 1.0 + TOLERANCE => format!("{lat:.2} times its latency"),
                (None, Some(rate)) if rate < 1.0 - TOLERANCE => format!("{rate:.2} of its rate"),
                _ => continue,
            };
            let percent = TOLERANCE * 100.0;
            lines.push(format!(
                "verbs is more than {percent:.0} % worse than perftest at {work}: {worse}"
            ));
        }
        if compared > 0 && lines.is_empty() {
            lines.push(format!(
                "verbs is as good as perftest, or at most {:.0} % worse, in all {compared} cases that both have",
                TOLERANCE * 100.0
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Transport;
    use crate::datapath::args::Operation;
    use crate::wait::Wait;
    use std::time::Duration;

    fn work(mode: Mode) -> Work {
        Work {
            op: Operation::Read,
            mode,
            bytes: 4096,
            clients: 1,
            pause_us: 0,
        }
    }

    fn row(lane: Lane, mode: Mode, us: u64) -> Row {
        let mut outcome = Outcome::empty();
        outcome.call.record(Duration::from_micros(us));
        Row::new(lane, work(mode), &Figures::of(&outcome, work(mode)))
    }

    fn polling() -> Lane {
        Lane::verbs(Wait::Poll, 4096)
    }

    fn weft(transport: Transport) -> Lane {
        Lane::weft(transport, Wait::Call, 4096)
    }

    #[test]
    fn a_row_has_the_contracts_fields() {
        let json = serde_json::to_value(row(weft(Transport::Rc), Mode::Sync, 2)).unwrap();
        for field in [
            "bench",
            "system",
            "transport",
            "op",
            "mode",
            "bytes",
            "clients",
            "pause_us",
            "path_mtu",
            "lat_us_p50",
            "lat_us_p99",
            "ops_per_sec",
            "gb_per_s",
        ] {
            assert!(!json[field].is_null(), "{field}");
        }
        assert_eq!(
            (&json["transport"], &json["op"], &json["wait"]),
            (&"rc".into(), &"read".into(), &"call".into())
        );
    }

    #[test]
    fn a_batch_counts_its_requests_and_has_no_latency() {
        let json = serde_json::to_value(row(polling(), Mode::Async, 100)).unwrap();
        assert_eq!(json["requests"], 32);
        assert!(json["lat_us_p50"].is_null());
        assert_eq!(json["transport"], "rc");
    }

    #[test]
    fn each_of_weft_is_compared_with_the_better_of_verbs() {
        let mut rows = [
            row(polling(), Mode::Sync, 100),
            row(Lane::verbs(Wait::Event, 4096), Mode::Sync, 80),
            row(weft(Transport::Dc), Mode::Sync, 40),
            row(weft(Transport::Rc), Mode::Sync, 88),
            row(Lane::perftest(4096), Mode::Sync, 50),
        ];
        Row::compare(&mut rows);
        assert_eq!(rows[0].lat_to_verbs, None);
        assert_eq!(rows[4].lat_to_perftest, None);
        let close = |got: Option<f64>, want: f64| (got.unwrap() - want).abs() < 0.01;
        assert!(close(rows[2].lat_to_verbs, 0.5));
        assert!(close(rows[3].lat_to_verbs, 1.1));
        assert!(close(rows[2].lat_to_perftest, 0.8));
        assert!(close(rows[1].lat_to_perftest, 1.6));
    }

    #[test]
    fn a_reader_is_told_where_our_verbs_are_worse_than_perftest() {
        let verdict = |ours: u64, theirs: u64| {
            let mut rows = vec![
                row(polling(), Mode::Sync, ours),
                row(Lane::verbs(Wait::Event, 4096), Mode::Sync, 10_000),
                row(Lane::perftest(4096), Mode::Sync, theirs),
            ];
            Row::compare(&mut rows);
            Results(vec![rows]).verdict().join("\n")
        };
        assert!(verdict(130, 100).contains("worse than perftest at sync read of 4096 bytes: 1.30"));
        assert!(verdict(110, 100).contains("in all 1 cases"));
        let alone = Results(vec![vec![row(polling(), Mode::Sync, 10)]]);
        assert!(alone.verdict().is_empty());
    }

    #[test]
    fn figures_are_the_median_of_the_turns() {
        let turn = |us, rate| Figures {
            requests: 10,
            lat_us_p50: Some(us),
            lat_us_cdf: vec![us, us + 1.0],
            ops_per_sec: rate,
            ..Figures::default()
        };
        let turns = [turn(9.0, Some(1.0)), turn(1.0, None), turn(2.0, Some(4.0))];
        let all = Figures::median(&turns);
        assert_eq!((all.requests, all.lat_us_p50), (30, Some(2.0)));
        assert_eq!((all.ops_per_sec, all.lat_us_min), (Some(2.5), None));
        assert_eq!(all.lat_us_cdf, [2.0, 3.0]);
        assert_eq!(Figures::median(&[]), Figures::default());
    }
}
