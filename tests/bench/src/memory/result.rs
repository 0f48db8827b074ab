// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `memory` reports.

use serde::Serialize;

use super::Kind;
use crate::report::Sheet;
use crate::stats::median;

/// What one measurement found, in bytes.
#[derive(Clone, Debug, Default)]
pub struct Used {
    /// Connections that were made.
    pub made: usize,
    /// Why there are no more.
    pub limit: Option<String>,
    pub module_bytes: i64,
    pub process_bytes: i64,
    pub peer_process_bytes: i64,
    pub machine_bytes: i64,
    pub noise_bytes: i64,
    pub machine_noise_bytes: i64,
}

/// One system with one number of connections.
#[derive(Serialize)]
pub struct Row {
    bench: &'static str,
    system: &'static str,
    case: &'static str,
    /// Queue pairs or handles that were made: in the measurement that made the fewest.
    connections: usize,
    wanted: u32,
    peers: u16,
    measurements: usize,
    /// The kernel's memory of both ends.
    module_bytes: i64,
    /// Of the clients' processes and the peers'.
    process_bytes: i64,
    /// The part of that which is the peers'.
    peer_process_bytes: i64,
    /// The kernel's and the processes'.
    total_bytes: i64,
    machine_bytes: i64,
    noise_bytes: i64,
    machine_noise_bytes: i64,
    /// Why there are no more connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
}

impl Row {
    /// Medians of the measurements that made the fewest connections.
    pub fn new(kind: Kind, wanted: u32, peers: u16, used: &[Used]) -> Self {
        let fewest = used.iter().min_by_key(|one| one.made);
        let made = fewest.map_or(0, |one| one.made);
        let middle = |bytes: fn(&Used) -> i64| {
            let those = used.iter().filter(|one| one.made == made);
            // Exact below 2^53.
            let values: Vec<_> = those.map(|one| bytes(one) as f64).collect();
            median(&values).map_or(0, |value| value.round() as i64)
        };
        let worst = |bytes: fn(&Used) -> i64| used.iter().map(bytes).max().unwrap_or(0);
        Self {
            bench: "memory",
            system: kind.system().name(),
            case: kind.case(),
            connections: made,
            wanted,
            peers,
            measurements: used.len(),
            module_bytes: middle(|one| one.module_bytes),
            process_bytes: middle(|one| one.process_bytes + one.peer_process_bytes),
            peer_process_bytes: middle(|one| one.peer_process_bytes),
            total_bytes: middle(|one| {
                one.module_bytes + one.process_bytes + one.peer_process_bytes
            }),
            machine_bytes: middle(|one| one.machine_bytes),
            noise_bytes: worst(|one| one.noise_bytes),
            machine_noise_bytes: worst(|one| one.machine_noise_bytes),
            limit: fewest.and_then(|one| one.limit.clone()),
        }
    }

    /// Of one connection.
    fn each(&self, bytes: i64) -> f64 {
        bytes as f64 / self.connections.max(1) as f64
    }

    fn cells(&self) -> Vec<String> {
        let mib = |bytes: i64| format!("{:.2}", bytes as f64 / f64::from(1 << 20));
        let each = |bytes| format!("{:.0}", self.each(bytes));
        vec![
            self.system.to_owned(),
            self.case.to_owned(),
            self.connections.to_string(),
            each(self.module_bytes),
            each(self.process_bytes),
            each(self.machine_bytes),
            mib(self.module_bytes),
            mib(self.process_bytes),
            mib(self.total_bytes),
            mib(self.machine_bytes),
            mib(self.noise_bytes),
            mib(self.machine_noise_bytes),
        ]
    }
}

const COLUMNS: [&str; 12] = [
    "system",
    "case",
    "#connections",
    "kernel[B each]",
    "processes[B each]",
    "machine[B each]",
    "kernel[MiB]",
    "processes[MiB]",
    "both[MiB]",
    "machine[MiB]",
    "noise: kernel[MiB]",
    "machine[MiB]",
];

/// All rows of a run.
#[derive(Default)]
pub struct Results(Vec<Row>);

impl Results {
    /// Adds a row.
    pub fn add(&mut self, row: Row) {
        self.0.push(row);
    }

    /// Prints the table, what was not reached, and how the systems compare.
    pub fn print(&self) {
        let mut sheet = Sheet::new(&COLUMNS, 2);
        for row in &self.0 {
            sheet.row(row.cells());
        }
        sheet.print();
        println!();
        for row in &self.0 {
            if let Some(limit) = &row.limit {
                let (made, wanted) = (row.connections, row.wanted);
                println!("{}: {made} of {wanted} connections: {limit}", row.system);
            }
        }
        if let Some((connections, ratio)) = self.ratio() {
            println!("kernel memory of a connection, {connections}: verbs / Weft: {ratio:.2}");
        }
    }

    /// The kernel's memory of a connection by verbs over that by Weft, for the most
    /// connections that both made.
    fn ratio(&self) -> Option<(usize, f64)> {
        let of = |kind: Kind| {
            let name = (kind.system().name(), kind.case());
            self.0
                .iter()
                .filter(move |row| (row.system, row.case) == name)
        };
        let pairs = of(Kind::Verbs).filter_map(|verbs| {
            let weft = of(Kind::Weft).find(|weft| weft.connections == verbs.connections)?;
            let under = weft.each(weft.module_bytes);
            (under > 0.0).then(|| (verbs.connections, verbs.each(verbs.module_bytes) / under))
        });
        pairs.max_by_key(|&(connections, _)| connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(made: usize, module_bytes: i64) -> Used {
        Used {
            made,
            module_bytes,
            process_bytes: 10,
            peer_process_bytes: 5,
            noise_bytes: module_bytes / 10,
            ..Used::default()
        }
    }

    #[test]
    fn a_row_has_medians_and_the_worst_noise() {
        let row = Row::new(
            Kind::Weft,
            10,
            4,
            &[used(10, 900), used(10, 100), used(10, 500)],
        );
        let json = serde_json::to_value(&row).unwrap();
        for (field, value) in [
            ("connections", 10),
            ("module_bytes", 500),
            ("process_bytes", 15),
            ("total_bytes", 515),
            ("noise_bytes", 90),
            ("measurements", 3),
        ] {
            assert_eq!(json[field], value, "{field}");
        }
        assert!(json.get("limit").is_none());
    }

    #[test]
    fn a_limit_is_told_and_such_rows_are_not_compared() {
        let mut results = Results::default();
        let short = Used {
            limit: Some("no more".to_owned()),
            ..used(7, 700)
        };
        let row = Row::new(Kind::Verbs, 10, 4, &[used(10, 2000), short]);
        assert_eq!(
            (row.connections, row.limit.as_deref()),
            (7, Some("no more"))
        );
        assert_eq!(row.module_bytes, 700);
        results.add(row);
        results.add(Row::new(Kind::Weft, 10, 4, &[used(10, 100)]));
        assert_eq!(results.ratio(), None);
        results.add(Row::new(Kind::Verbs, 10, 4, &[used(10, 2000)]));
        assert_eq!(results.ratio(), Some((10, 20.0)));
    }
}
