// SPDX-License-Identifier: MIT OR Apache-2.0

//! What grows with connections and workers: memory, and the time of many that start.

use super::control::called;
use crate::chart::{Axis, Chart, Line, Lines, Plot, Unit};
use crate::figure::{ratio, Compared, Recipe};
use crate::rows::{Best, Rows, Selection};

/// Its figures.
pub fn figures() -> Vec<Recipe> {
    vec![
        Recipe {
            id: "krcore-15a",
            title: "Figure 15a: memory of connections",
            limits: "LITE is not here; verbs' queue pairs stand in for it, whose rings soft-RoCE \
                     keeps in the kernel's memory and not in an adapter's.",
            benches: &["memory"],
            charts: |rows| vec![memory(rows)],
            compare: memory_numbers,
        },
        Recipe {
            id: "krcore-16",
            title: "Figures 12b and 16: workers that are started when they are needed",
            limits:
                "RACE Hashing and the serverless platform are not here; what they wait for is: \
                     processes that start and do their first WRITE, many at a time on few \
                     processors.",
            benches: &["worker"],
            charts: |rows| vec![workers(rows)],
            compare: worker_numbers,
        },
    ]
}

/// Rows of connections, not of handles.
fn connections(rows: &Rows) -> Selection<'_> {
    let all = rows.of("memory");
    all.filter(|row| row.text("case") != Some("handles"))
}

fn memory(rows: &Rows) -> Chart {
    let mut lines = Vec::new();
    for system in connections(rows).texts("system") {
        let own = connections(rows).is("system", system);
        let mut points = Vec::new();
        for connections in own.values("connections") {
            let row = own.clone().eq("connections", connections);
            if let Some(bytes) = total_bytes(&row) {
                points.push((connections, bytes));
            }
        }
        lines.push(Line::new(called(system), points));
    }
    Chart {
        name: "memory".to_owned(),
        title: "Memory of kernel and process for connections".to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::places("connections", Unit::Plain),
            y: Axis::log("bytes", Unit::Bytes),
            lines,
        }),
    }
}

/// Of the module or the kernel and of the process.
fn total_bytes(row: &Selection<'_>) -> Option<f64> {
    let parts = [row.least("module_bytes"), row.least("process_bytes")];
    parts.into_iter().flatten().reduce(|a, b| a + b)
}

fn memory_numbers(rows: &Rows) -> Vec<Compared> {
    let memory = connections(rows);
    // Each at its most: verbs may have reached a limit before.
    let each = |system: &str| {
        let own = memory.clone().is("system", system);
        let most = own.most("connections")?;
        let bytes = total_bytes(&own.eq("connections", most))?;
        (most > 0.0).then(|| bytes / most)
    };
    let (verbs, weft) = (each("verbs"), each("weft"));
    let five_thousand = memory
        .clone()
        .is("system", "weft")
        .eq("connections", 5000.0);
    let handles = rows.of("memory").is("case", "handles");
    vec![
        Compared::new(
            "a queue pair of one's own (here verbs')",
            "156 KB (LITE)",
            verbs,
            Unit::Bytes,
        ),
        Compared::new("a connection over shared ones", "1.3 KB", weft, Unit::Bytes),
        Compared::new(
            "the former over the latter",
            "124 ×",
            ratio(verbs, weft),
            Unit::Times,
        ),
        Compared::new(
            "5,000 connections over shared ones",
            "6.3 MB",
            total_bytes(&five_thousand),
            Unit::Bytes,
        ),
        Compared::new(
            "1,000 handles of an unconnected queue pair",
            "",
            total_bytes(&handles.eq("connections", 1000.0)),
            Unit::Bytes,
        ),
    ]
}

fn workers(rows: &Rows) -> Chart {
    let worker = rows.of("worker");
    let mut lines = Vec::new();
    for system in worker.texts("system") {
        let own = worker.clone().is("system", system);
        for case in own.texts("case") {
            let own = own.clone().is("case", case);
            for (field, words) in [
                ("total_us_p50", "each, median"),
                ("round_us_p50", "the last"),
            ] {
                let name = format!("{}, {case}: {words}", called(system));
                lines.push(Line::new(name, own.points("workers", field, Best::Least)));
            }
        }
    }
    Chart {
        name: "worker".to_owned(),
        title: "From fork to the first completed WRITE".to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::places("workers that start at once", Unit::Plain),
            y: Axis::log("time", Unit::Us),
            lines,
        }),
    }
}

/// A time of so many workers that are new to everything, of verbs and of Weft.
pub fn cold_workers(rows: &Rows, workers: Option<f64>, field: &str) -> [Option<f64>; 2] {
    ["verbs", "weft"].map(|system| {
        let own = rows.of("worker").is("system", system).is("case", "cold");
        workers.and_then(|workers| own.eq("workers", workers).least(field))
    })
}

fn worker_numbers(rows: &Rows) -> Vec<Compared> {
    let worker = rows.of("worker");
    let (one, most) = (worker.least("workers"), worker.most("workers"));
    let saved =
        |[verbs, weft]: [Option<f64>; 2]| ratio(weft, verbs).map(|share| 100.0 * (1.0 - share));
    let all = cold_workers(rows, most, "round_us_p50");
    let lone = cold_workers(rows, one, "total_us_p50");
    let count = most.map_or_else(|| "the most".to_owned(), |most| format!("{most:.0}"));
    let what = format!("verbs, until the last (paper: 180 processes, here: {count})");
    vec![
        Compared::new(what, "1.4 s", all[0], Unit::Us),
        Compared::new("Weft, until the last", "244 ms", all[1], Unit::Us),
        Compared::new("less than verbs by", "83 %", saved(all), Unit::Percent),
        Compared::new(
            "the same of one at a time (figure 12b)",
            "99 %",
            saved(lone),
            Unit::Percent,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"bench":"memory","system":"weft","connections":100,"module_bytes":1000,"process_bytes":24}
{"bench":"memory","system":"weft","case":"handles","connections":1000,"module_bytes":1000,"process_bytes":24}
{"bench":"memory","system":"verbs","connections":10,"module_bytes":9216,"process_bytes":1024}
{"bench":"worker","system":"verbs","case":"cold","workers":1,"total_us_p50":40000,"round_us_p50":50000}
{"bench":"worker","system":"weft","case":"cold","workers":1,"total_us_p50":2000,"round_us_p50":10000}
"#;

    #[test]
    fn memory_is_that_of_kernel_and_process_for_a_connection() {
        let all = memory_numbers(&Rows::parse(ROWS).unwrap());
        assert_eq!(all[0].here.as_deref(), Some("1 KiB"));
        assert_eq!(all[1].here.as_deref(), Some("10.2 B"));
        assert_eq!(all[2].here.as_deref(), Some("100 ×"));
        assert_eq!(all[3].here, None);
        assert_eq!(all[4].here.as_deref(), Some("1 KiB"));
    }

    #[test]
    fn workers_are_compared_by_what_is_saved() {
        let all = worker_numbers(&Rows::parse(ROWS).unwrap());
        assert_eq!(all[2].here.as_deref(), Some("80 %"));
        assert_eq!(all[3].here.as_deref(), Some("95 %"));
    }
}
