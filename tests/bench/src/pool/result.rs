// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `pool` reports.

use std::time::Duration;

use serde::Serialize;
use weft_shim::{PoolPeer, TransportCost};

use super::{PoolCase, PoolSystem};
use crate::cli::Transport;
use crate::report::{number, rounded, Sheet};
use crate::stats::{median, Times};

impl PoolCase {
    /// Its name in results.
    fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Pairs => "pairs",
            Self::Opening => "opening",
            Self::Moves => "moves",
            Self::Delay => "delay",
            Self::Cut => "cut",
        }
    }
}

/// What one measurement of connections found.
pub struct Measured {
    pub made: usize,
    /// Why there are no more.
    pub limit: Option<String>,
    pub calls: Times,
    pub first_writes: Times,
    pub per_sec: f64,
    pub writes_per_sec: Option<f64>,
    pub module_bytes: i64,
    pub process_bytes: i64,
    pub machine_bytes: i64,
    pub noise_bytes: i64,
    pub rc_queues: u64,
}

/// Connections of one system. Times are in microseconds.
#[derive(Serialize)]
pub struct Scale {
    bench: &'static str,
    case: &'static str,
    system: &'static str,
    /// That were made: in the measurement that made the fewest.
    connections: usize,
    wanted: u32,
    peers: u16,
    measurements: usize,
    /// The client's calls that make and connect one, of all measurements.
    call_us_p50: Option<f64>,
    call_us_p99: Option<f64>,
    call_us_max: Option<f64>,
    /// The WRITE over each that follows.
    first_write_us_p50: Option<f64>,
    first_write_us_p99: Option<f64>,
    /// Made in a second on both sides, with a WRITE over each.
    per_sec: Option<f64>,
    /// WRITEs of 8 bytes over all of them.
    writes_per_sec: Option<f64>,
    /// The kernel's memory of both ends.
    module_bytes: i64,
    /// Of the processes at both ends.
    process_bytes: i64,
    machine_bytes: i64,
    noise_bytes: i64,
    /// RC queue pairs of the module when all were made, at both ends.
    rc_queues: u64,
    /// Why there are no more connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
}

impl Scale {
    /// Medians of several measurements; memory, of those that made the fewest. `of`: how many
    /// connections are wanted, and peers.
    pub fn new(case: PoolCase, system: PoolSystem, of: (u32, u16), found: &[Measured]) -> Self {
        let (wanted, peers) = of;
        let rate = |value: fn(&Measured) -> Option<f64>| {
            median(&found.iter().filter_map(value).collect::<Vec<_>>()).map(f64::round)
        };
        let fewest = found.iter().min_by_key(|one| one.made);
        let made = fewest.map_or(0, |one| one.made);
        let those = || found.iter().filter(|one| one.made == made);
        // Exact below 2^53.
        let bytes = |value: fn(&Measured) -> i64| {
            let values: Vec<_> = those().map(|one| value(one) as f64).collect();
            median(&values).map_or(0, |value| value.round() as i64)
        };
        let mut calls = Times::new();
        let mut writes = Times::new();
        for one in found {
            calls.merge(&one.calls);
            writes.merge(&one.first_writes);
        }
        Self {
            bench: "pool",
            case: case.name(),
            system: system.name(),
            connections: made,
            wanted,
            peers,
            measurements: found.len(),
            call_us_p50: rounded(calls.percentile_us(50.0)),
            call_us_p99: rounded(calls.percentile_us(99.0)),
            call_us_max: rounded(calls.max_us()),
            first_write_us_p50: rounded(writes.percentile_us(50.0)),
            first_write_us_p99: rounded(writes.percentile_us(99.0)),
            per_sec: rate(|one| Some(one.per_sec)),
            writes_per_sec: rate(|one| one.writes_per_sec),
            module_bytes: bytes(|one| one.module_bytes),
            process_bytes: bytes(|one| one.process_bytes),
            machine_bytes: bytes(|one| one.machine_bytes),
            noise_bytes: found.iter().map(|one| one.noise_bytes).max().unwrap_or(0),
            rc_queues: those().map(|one| one.rc_queues).max().unwrap_or(0),
            limit: fewest.and_then(|one| one.limit.clone()),
        }
    }

    fn cells(&self) -> Vec<String> {
        let mib = |bytes: i64| format!("{:.2}", bytes as f64 / f64::from(1 << 20));
        let whole =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
        let each = self.module_bytes as f64 / self.connections.max(1) as f64;
        vec![
            self.case.to_owned(),
            self.system.to_owned(),
            self.connections.to_string(),
            number(self.call_us_p50),
            number(self.call_us_p99),
            number(self.first_write_us_p50),
            number(self.first_write_us_p99),
            whole(self.per_sec),
            whole(self.writes_per_sec),
            self.rc_queues.to_string(),
            format!("{each:.0}"),
            mib(self.module_bytes),
            mib(self.process_bytes),
            mib(self.machine_bytes),
            mib(self.noise_bytes),
        ]
    }
}

const SCALE_COLUMNS: [&str; 15] = [
    "case",
    "system",
    "#connections",
    "call: t_typical[usec]",
    "99% percentile[usec]",
    "first WRITE[usec]",
    "99% percentile[usec]",
    "made per sec",
    "WRITEs per sec",
    "#RC queue pairs",
    "kernel[B each]",
    "kernel[MiB]",
    "processes[MiB]",
    "machine[MiB]",
    "noise: kernel[MiB]",
];

/// Prints rows of connections, and what was not reached.
pub fn print_scale(rows: &[Scale]) {
    let mut sheet = Sheet::new(&SCALE_COLUMNS, 2);
    rows.iter().for_each(|row| sheet.row(row.cells()));
    sheet.print();
    for row in rows {
        if let Some(limit) = &row.limit {
            let (made, wanted) = (row.connections, row.wanted);
            println!("{}: {made} of {wanted} connections: {limit}", row.system);
        }
    }
    println!();
}

/// Requests beside something. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latencies {
    bench: &'static str,
    case: &'static str,
    system: &'static str,
    /// What is done meanwhile.
    beside: &'static str,
    samples: u64,
    lat_us_p50: Option<f64>,
    lat_us_p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lat_us_max: Option<f64>,
    ops_per_sec: Option<f64>,
    /// Times that a peer was cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    cuts: Option<u32>,
    /// Queue pairs that were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    opened: Option<u64>,
    /// Moves of the VQP, and those that it has put off.
    #[serde(skip_serializing_if = "Option::is_none")]
    moves: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moves_put_off: Option<u64>,
    /// Over those with nothing beside.
    p50_ratio: Option<f64>,
    move_p99_ratio: Option<f64>,
}

impl Latencies {
    /// What was measured.
    pub fn new(case: PoolCase, beside: &'static str, times: &Times) -> Self {
        Self {
            bench: "pool",
            case: case.name(),
            system: PoolSystem::Weft.name(),
            beside,
            samples: times.count(),
            lat_us_p50: rounded(times.percentile_us(50.0)),
            lat_us_p99: rounded(times.percentile_us(99.0)),
            lat_us_max: None,
            ops_per_sec: None,
            cuts: None,
            opened: None,
            moves: None,
            moves_put_off: None,
            p50_ratio: None,
            move_p99_ratio: None,
        }
    }

    /// Shows the longest of them too.
    pub fn with_longest(self, times: &Times) -> Self {
        Self {
            lat_us_max: rounded(times.max_us()),
            ..self
        }
    }

    /// A peer was cut off so often.
    pub fn with_cuts(self, cuts: u32) -> Self {
        Self {
            cuts: Some(cuts),
            ..self
        }
    }

    /// So many queue pairs were made.
    pub fn with_opened(self, opened: u64) -> Self {
        Self {
            opened: Some(opened),
            ..self
        }
    }

    /// So many requests ended in a second.
    pub fn with_per_sec(self, per_sec: Option<f64>) -> Self {
        Self {
            ops_per_sec: per_sec.map(f64::round),
            ..self
        }
    }

    /// The VQP was moved so often, and has put off so many moves.
    pub fn with_moves(self, moves: u64, put_off: u64) -> Self {
        Self {
            moves: Some(moves),
            moves_put_off: Some(put_off),
            ..self
        }
    }

    /// Compares with a row that has nothing beside.
    pub fn over(self, plain: &Self) -> Self {
        let ratio = |over: Option<f64>, under: Option<f64>| {
            let under = under.filter(|&us| us > 0.0);
            rounded(over.zip(under).map(|(over, under)| over / under))
        };
        Self {
            p50_ratio: ratio(self.lat_us_p50, plain.lat_us_p50),
            move_p99_ratio: ratio(self.lat_us_p99, plain.lat_us_p99),
            ..self
        }
    }

    fn cells(&self) -> Vec<String> {
        let count = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        vec![
            self.case.to_owned(),
            self.beside.to_owned(),
            self.samples.to_string(),
            number(self.lat_us_p50),
            number(self.lat_us_p99),
            number(self.lat_us_max),
            number(self.p50_ratio),
            number(self.move_p99_ratio),
            self.ops_per_sec
                .map_or("-".to_owned(), |value| format!("{value:.0}")),
            count(self.cuts.map(u64::from)),
            count(self.opened),
            count(self.moves),
            count(self.moves_put_off),
        ]
    }
}

const LATENCY_COLUMNS: [&str; 13] = [
    "case",
    "beside",
    "#iterations",
    "t_typical[usec]",
    "99% percentile[usec]",
    "t_max[usec]",
    "p50 ratio",
    "p99 ratio",
    "per sec",
    "#cuts",
    "#opened",
    "#moves",
    "#put off",
];

/// Prints rows of requests beside something.
pub fn print_latencies(rows: &[Latencies]) {
    let mut sheet = Sheet::new(&LATENCY_COLUMNS, 2);
    rows.iter().for_each(|row| sheet.row(row.cells()));
    sheet.print();
    println!();
}

/// What the pool did when DC became slow.
#[derive(Debug, Serialize)]
pub struct Delay {
    bench: &'static str,
    case: &'static str,
    system: &'static str,
    bytes: u32,
    delay_us: u32,
    /// What it had chosen before, and when it was asked during the delay.
    before: Option<&'static str>,
    during: Option<&'static str>,
    /// How long nothing changed, in seconds, and moves meanwhile.
    equal_s: f64,
    equal_moves: u32,
    /// What a request takes by DC and by RC as the pool has seen it last, then.
    dc_us: Option<f64>,
    rc_us: Option<f64>,
    /// The same during the delay, when it has chosen RC or nobody waits for that any longer.
    delayed_dc_us: Option<f64>,
    delayed_rc_us: Option<f64>,
    /// How long it took until it was on RC, and on DC again, in seconds.
    to_rc_s: Option<f64>,
    to_dc_s: Option<f64>,
    /// Queue pairs of the module that broke.
    rc_lost: u64,
    /// During the delay.
    ops_per_sec: Option<f64>,
    verbs_ops_per_sec: Option<f64>,
    over_verbs: Option<f64>,
}

impl Delay {
    /// `chosen`: before the delay, and during it. `equal`: how long nothing changed, and
    /// moves meanwhile. `took`: until it was on RC, and on DC again.
    pub fn new(
        chosen: (Option<Transport>, Option<Transport>),
        equal: (Duration, u32),
        took: (Option<Duration>, Option<Duration>),
        rc_lost: u64,
    ) -> Self {
        let seconds = |time: Option<Duration>| rounded(time.map(|time| time.as_secs_f64()));
        Self {
            bench: "pool",
            case: PoolCase::Delay.name(),
            system: PoolSystem::Weft.name(),
            bytes: 0,
            delay_us: 0,
            before: chosen.0.map(Transport::name),
            during: chosen.1.map(Transport::name),
            equal_s: equal.0.as_secs_f64(),
            equal_moves: equal.1,
            dc_us: None,
            rc_us: None,
            delayed_dc_us: None,
            delayed_rc_us: None,
            to_rc_s: seconds(took.0),
            to_dc_s: seconds(took.1),
            rc_lost,
            ops_per_sec: None,
            verbs_ops_per_sec: None,
            over_verbs: None,
        }
    }

    /// With what the pool knows of the peer, before the delay and during it.
    pub fn with_costs(self, equal: Option<PoolPeer>, delayed: Option<PoolPeer>) -> Self {
        let us = |cost: TransportCost| rounded(cost.small_ns.map(|ns| ns as f64 / 1e3));
        let requests = |peer: Option<PoolPeer>| peer.map(|peer| peer.requests);
        let (equal, delayed) = (requests(equal), requests(delayed));
        Self {
            dc_us: equal.and_then(|seen| us(seen.dc)),
            rc_us: equal.and_then(|seen| us(seen.rc)),
            delayed_dc_us: delayed.and_then(|seen| us(seen.dc)),
            delayed_rc_us: delayed.and_then(|seen| us(seen.rc)),
            ..self
        }
    }

    /// With what Weft and verbs did in a second.
    pub fn with_rates(self, weft: Option<f64>, verbs: Option<f64>) -> Self {
        Self {
            ops_per_sec: weft.map(f64::round),
            verbs_ops_per_sec: verbs.map(f64::round),
            over_verbs: rounded(weft.zip(verbs).map(|(weft, verbs)| weft / verbs.max(1.0))),
            ..self
        }
    }

    /// Of requests of so many bytes, with so much delay.
    pub fn of(self, bytes: u32, delay_us: u32) -> Self {
        Self {
            bytes,
            delay_us,
            ..self
        }
    }

    /// Prints it.
    pub fn print(&self) {
        let columns = [
            "case",
            "before",
            "during",
            "#bytes",
            "DC[usec]",
            "RC[usec]",
            "delay[usec]",
            "to RC[sec]",
            "to DC[sec]",
            "per sec",
            "verbs per sec",
            "Weft / verbs",
            "equal[sec]",
            "#moves",
            "#RC lost",
        ];
        let mut sheet = Sheet::new(&columns, 3);
        let whole =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
        sheet.row(vec![
            self.case.to_owned(),
            self.before.unwrap_or("-").to_owned(),
            self.during.unwrap_or("-").to_owned(),
            self.bytes.to_string(),
            number(self.dc_us),
            number(self.rc_us),
            self.delay_us.to_string(),
            number(self.to_rc_s),
            number(self.to_dc_s),
            whole(self.ops_per_sec),
            whole(self.verbs_ops_per_sec),
            number(self.over_verbs),
            format!("{:.0}", self.equal_s),
            self.equal_moves.to_string(),
            self.rc_lost.to_string(),
        ]);
        sheet.print();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(us: impl IntoIterator<Item = u64>) -> Times {
        let mut times = Times::new();
        us.into_iter()
            .for_each(|us| times.record(Duration::from_micros(us)));
        times
    }

    fn measured(made: usize, module_bytes: i64) -> Measured {
        Measured {
            made,
            limit: None,
            calls: times([5]),
            first_writes: times([50]),
            per_sec: 10.0,
            writes_per_sec: None,
            module_bytes,
            process_bytes: 0,
            machine_bytes: 0,
            noise_bytes: 0,
            rc_queues: 2,
        }
    }

    #[test]
    fn a_row_has_the_fewest_connections_and_their_memory() {
        let found = [measured(9, 300), measured(10, 100), measured(10, 200)];
        let row = Scale::new(PoolCase::Pairs, PoolSystem::WeftRc, (10, 4), &found);
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["system"], "weft_rc");
        assert_eq!(json["connections"], 9);
        assert_eq!(json["module_bytes"], 300);
        assert!(json["writes_per_sec"].is_null());
        assert!(json.get("limit").is_none());
    }

    #[test]
    fn requests_beside_something_are_compared_with_those_beside_nothing() {
        let quiet = Latencies::new(PoolCase::Opening, "quiet", &times([10; 100]));
        let opening = Latencies::new(PoolCase::Opening, "opening", &times([11; 100])).over(&quiet);
        assert!((opening.p50_ratio.unwrap() - 1.1).abs() < 0.01);
        assert_eq!(quiet.p50_ratio, None);
    }
}
