// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `two-sided` reports.

use serde::Serialize;

use super::Lane;
use crate::cli::{System, Transport};
use crate::report::{number, rounded, Sheet};
use crate::round_robin::Outcome;

/// One lane at one size. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    system: &'static str,
    transport: &'static str,
    bytes: u32,
    clients: u16,
    /// Of verbs' queue pairs.
    path_mtu: Option<u32>,
    zero_copy: bool,
    /// How the server waits.
    wait: &'static str,
    /// How a client does.
    client_wait: &'static str,
    echoes: u64,
    echo_us_p50: Option<f64>,
    echo_us_p99: Option<f64>,
    ops_per_sec: f64,
    /// Packets that went by an RC queue pair for each echo, both ends', if Weft's were to.
    #[serde(skip_serializing_if = "Option::is_none")]
    rc_packets_per_echo: Option<f64>,
    /// Its p50 over that of verbs, with the clients and the server that are fastest.
    #[serde(skip_serializing_if = "Option::is_none")]
    echo_to_verbs: Option<f64>,
}

impl Row {
    /// What was measured.
    pub fn new(
        lane: Lane,
        bytes: u32,
        (clients, path_mtu): (u16, Option<u32>),
        outcome: &Outcome,
    ) -> Self {
        let echo = &outcome.call;
        Self {
            bench: "two-sided",
            system: lane.system.name(),
            transport: lane.transport.name(),
            bytes,
            clients,
            path_mtu: path_mtu.filter(|_| lane.system != System::Weft),
            zero_copy: lane.zero_copy,
            wait: if lane.polls { "poll" } else { "event" },
            client_wait: lane.client.name(),
            echoes: echo.count(),
            echo_us_p50: rounded(echo.percentile_us(50.0)),
            echo_us_p99: rounded(echo.percentile_us(99.0)),
            ops_per_sec: outcome.per_sec().round(),
            rc_packets_per_echo: None,
            echo_to_verbs: None,
        }
    }

    /// Tells the row of Weft's messages by RC how many packets went so.
    pub fn note_rc_packets(&mut self, packets: u64) {
        if self.system == System::Weft.name() && self.transport == Transport::Rc.name() {
            let echoes = self.echoes.max(1) as f64;
            self.rc_packets_per_echo = rounded(Some(packets as f64 / echoes));
        }
    }

    /// Compares Weft's rows with the best of verbs.
    pub fn compare(rows: &mut [Self]) {
        let is_verbs = |row: &Self| row.system == System::Verbs.name();
        let all = rows.iter().filter(|row| is_verbs(row));
        let Some(best) = all.filter_map(|row| row.echo_us_p50).reduce(f64::min) else {
            return;
        };
        for row in rows.iter_mut().filter(|row| !is_verbs(row)) {
            row.echo_to_verbs = rounded(row.echo_us_p50.map(|own| own / best.max(1e-3)));
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            self.system.to_owned(),
            self.transport.to_owned(),
            self.client_wait.to_owned(),
            self.wait.to_owned(),
            if self.zero_copy { "yes" } else { "no" }.to_owned(),
            self.clients.to_string(),
            self.bytes.to_string(),
            self.echoes.to_string(),
            number(self.echo_us_p50),
            number(self.echo_us_p99),
            format!("{:.0}", self.ops_per_sec),
            number(self.echo_to_verbs),
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
        let columns = [
            "system",
            "transport",
            "client",
            "server",
            "zero-copy",
            "#clients",
            "#bytes",
            "#iterations",
            "t_typical[usec]",
            "99% percentile[usec]",
            "per sec",
            "t/verbs",
        ];
        let mut sheet = Sheet::new(&columns, 5);
        for row in &self.0 {
            sheet.row(row.cells());
        }
        sheet.print();
    }
}

#[cfg(test)]
mod tests {
    use super::super::LANES;
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_row_has_the_contracts_fields() {
        let row = Row::new(LANES[0], 8, (1, Some(4096)), &Outcome::empty());
        let json = serde_json::to_value(row).unwrap();
        for field in [
            "system",
            "transport",
            "bytes",
            "zero_copy",
            "echo_us_p50",
            "echo_us_p99",
            "ops_per_sec",
            "path_mtu",
        ] {
            assert!(json.get(field).is_some(), "{field}");
        }
    }

    #[test]
    fn weft_is_compared_with_the_fastest_clients_and_server_of_verbs() {
        let times = [100, 90, 80, 120, 40, 60, 70];
        let rows = LANES.iter().zip(times);
        let mut rows: Vec<_> = rows
            .map(|(lane, us)| {
                let mut outcome = Outcome::empty();
                outcome.call.record(Duration::from_micros(us));
                Row::new(*lane, 8, (1, None), &outcome)
            })
            .collect();
        Row::compare(&mut rows);
        assert_eq!(rows[1].echo_to_verbs, None);
        assert_eq!(rows[3].echo_to_verbs, None);
        assert!((rows[4].echo_to_verbs.unwrap() - 0.5).abs() < 0.01);
    }
}
