// SPDX-License-Identifier: MIT OR Apache-2.0

//! The few results that README and page open with: what there is without Weft, with
//! it, and how they compare. Sums are compared with sums, calls with calls.

use anyhow::{ensure, Result};

use crate::chart::{Chart, Unit};
use crate::figure::ratio;
use crate::own;
use crate::paper::krcore::{cold_worker, cold_workers, largest_mesh, MeshTime};
use crate::rows::{Best, Row, Rows, Selection};
use crate::systems::System;

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Headline {
    pub what: String,
    pub without: String,
    pub with: String,
    pub ratio: String,
}

/// A line of the table, or what it would be of, if rows for it lack.
type Line = Result<Headline, String>;

/// Two numbers of one kind, and which of two is the better one.
struct Pair {
    without: Option<f64>,
    with: Option<f64>,
    unit: Unit,
    best: Best,
}

impl Pair {
    fn times(without: Option<f64>, with: Option<f64>) -> Self {
        Self {
            without,
            with,
            unit: Unit::Us,
            best: Best::Least,
        }
    }

    fn gb_per_s(without: Option<f64>, with: Option<f64>) -> Self {
        Self {
            without,
            with,
            unit: Unit::GbPerS,
            best: Best::Most,
        }
    }

    /// Both have to be there.
    fn named(&self, what: String) -> Line {
        let Some((without, with)) = self.without.zip(self.with) else {
            return Err(what);
        };
        let gain = match self.best {
            Best::Least => ratio(Some(without), Some(with)),
            Best::Most => ratio(Some(with), Some(without)),
        };
        Ok(Headline {
            what,
            without: self.unit.show(without),
            with: self.unit.show(with),
            ratio: gain.map_or_else(String::new, |gain| Unit::Times.show(gain)),
        })
    }
}

/// All that the rows give.
pub fn all(rows: &Rows) -> Vec<Headline> {
    lines(rows).into_iter().flatten().collect()
}

/// All that there can be, if the rows give it.
pub fn complete(rows: &Rows) -> Result<Vec<Headline>> {
    let lines = lines(rows);
    let absent: Vec<_> = lines
        .iter()
        .filter_map(|line| line.as_ref().err())
        .collect();
    ensure!(
        absent.is_empty(),
        "the results lack these lines of the table: {absent:?}"
    );
    Ok(lines.into_iter().flatten().collect())
}

fn lines(rows: &Rows) -> Vec<Line> {
    let mut all = control(rows);
    all.extend(data(rows));
    all.extend(replication(rows));
    all
}

fn control(rows: &Rows) -> Vec<Line> {
    let sum = |case: &str| {
        let of = |system: &str| {
            let own = rows.of("connect").is("system", system).is("case", case);
            own.eq("clients", 1.0).least("total_us_p50")
        };
        Pair::times(of("verbs"), of("weft"))
    };
    let workers = rows.of("worker").most("workers");
    let [verbs, weft] = cold_workers(rows, workers, "round_us_p50");
    let (mesh, [verbs_mesh, weft_mesh]) = largest_mesh(rows, MeshTime::Written);
    let count = |of: Option<f64>| of.map_or_else(|| "many".to_owned(), |of| of.to_string());
    vec![
        sum("cold").named("a new process, to its first WRITE".to_owned()),
        sum("warm").named("device open, a peer not seen before, to the first WRITE".to_owned()),
        sum("cached").named("connections or records cached, to the first WRITE".to_owned()),
        Pair::times(verbs, weft).named(format!(
            "{} processes that start at once, to the last one's first WRITE",
            count(workers)
        )),
        Pair::times(verbs_mesh, weft_mesh).named(format!(
            "a mesh of {} processes, each link written to",
            count(mesh)
        )),
    ]
}

fn data(rows: &Rows) -> Vec<Line> {
    let mut all = Vec::new();
    let alone = |mode: &str, bytes: f64| {
        let rows = rows.of("datapath").is("op", "read").is("mode", mode);
        rows.eq("clients", 1.0).eq("bytes", bytes)
    };
    let systems = [(System::WeftDc, "DC"), (System::WeftRc, "RC")];
    for (bytes, pause, words) in [
        (8.0, 0.0, ", one behind the other"),
        (8.0, 100.0, ", 100 µs between"),
        (65_536.0, 0.0, ""),
        (1_048_576.0, 0.0, ""),
    ] {
        for (system, name) in systems {
            let at = alone("sync", bytes).eq("pause_us", pause);
            let of = |system: System| system.of(at.clone()).least("lat_us_p50");
            let what = format!("READ of {} over {name}{words}", Unit::Bytes.show(bytes));
            all.push(Pair::times(of(System::Verbs), of(system)).named(what));
        }
    }
    for (system, name) in systems {
        let at = alone("async", 1_048_576.0);
        let of = |system: System| system.of(at.clone()).most("gb_per_s");
        let what = format!("READs of 1 MiB over {name}, in batches");
        all.push(Pair::gb_per_s(of(System::Verbs), of(system)).named(what));
    }
    all
}

fn replication(rows: &Rows) -> Vec<Line> {
    let own = rows
        .of("multicast")
        .is("experiment", "single")
        .is("fabric", "shm");
    let own = own
        .is("touch", "full")
        .eq("bytes", 10_240.0)
        .eq("members", 2.0);
    // With a polling thread beside the one that sends, or with one thread for both.
    let (polled, stepped) = (own.clone().without("note"), own.is("note", "stepped"));
    let stream = |own: &Selection<'_>, senders: &str| {
        let own = own.clone().is("senders", senders);
        Pair::gb_per_s(own.most("raw_write_gb_per_s"), own.most("gb_per_s"))
    };
    let (bytes, members) = (64.0 * 1_048_576.0, 4.0);
    let rdmc = rows
        .of("rdmc")
        .is("experiment", "single")
        .is("fabric", "shm");
    let rdmc = rdmc.eq("bytes", bytes).eq("members", members);
    let us = |own: Selection<'_>| own.least("seconds_p50").map(|seconds| seconds * 1e6);
    let by_mpi = |how: &str| us(rdmc.clone().is("system", "mpi").is("algorithm", how));
    let by_rdmc = us(rdmc.clone().is("system", "weft"));
    vec![
        stream(&polled, "one").named(
            "multicast of 10 KiB messages in memory, beside plain writes and reads".to_owned(),
        ),
        stream(&stepped, "one")
            .named("the same, with one thread that sends and delivers".to_owned()),
        stream(&polled, "all").named("the same, both members sending".to_owned()),
        stream(&stepped, "all").named("the same, both members sending, one thread each".to_owned()),
        Pair::times(by_mpi("bcast"), by_rdmc)
            .named("64 MiB to three others in memory, beside MPI_Bcast".to_owned()),
        Pair::times(by_mpi("shared_window"), by_rdmc)
            .named("the same, beside plain copies from a window that MPI shares".to_owned()),
    ]
}

/// The picture that README opens with.
pub fn picture(rows: &Rows) -> Vec<Chart> {
    let mut charts = vec![cold_worker(rows), own::read_latency(rows)];
    charts.retain(Chart::has_data);
    charts
}

/// The benchmarks that table and picture need, as `scripts/bench` names them, and options that
/// leave out what neither of them shows.
pub const RUNS: [(&str, &str); 6] = [
    ("connect", "--clients 1"),
    ("worker", "--workers 64"),
    ("mesh", "--workers 64 --run-as processes"),
    ("datapath", "--clients 1 --ops read"),
    (
        "multicast",
        "--fabrics shm --experiments raw,single --members 2 --sizes 10240",
    ),
    (
        "rdmc",
        "--fabrics shm --experiments single --members 4 --sizes 67108864",
    ),
];

/// Whether table or picture may need a row: only those are kept beside README.
pub fn needs(row: &Row) -> bool {
    let alone = row.number("clients").is_none_or(|clients| clients == 1.0);
    match row.text("bench") {
        Some("connect") => alone,
        Some("datapath") => alone && row.text("op") == Some("read"),
        Some("worker" | "mesh") => true,
        Some("multicast") => {
            row.text("experiment") == Some("single")
                && row.text("fabric") == Some("shm")
                && row.number("bytes") == Some(10_240.0)
                && row.number("members") == Some(2.0)
        }
        Some("rdmc") => {
            row.text("experiment") == Some("single")
                && row.text("fabric") == Some("shm")
                && row.number("members") == Some(4.0)
                && row.number("bytes") == Some(64.0 * 1_048_576.0)
        }
        _ => false,
    }
}

/// Rows for the whole table.
#[cfg(test)]
pub fn all_rows() -> String {
    let both = ["verbs", "weft"];
    let row = |bench: &str, fields: &str| {
        let from = r#""commit":"abc","run":"r","quick":false,"cpus":2,"accel":"tcg","kernel":"7""#;
        format!("{{\"bench\":\"{bench}\",{fields},{from}}}\n")
    };
    let mut all = String::new();
    for (case, system) in ["cold", "warm", "cached"]
        .into_iter()
        .flat_map(|case| both.map(|system| (case, system)))
    {
        let us = if system == "verbs" { 36000 } else { 1400 };
        all += &row(
            "connect",
            &format!(
                r#""system":"{system}","case":"{case}","clients":1,"total_us_p50":{us},"open_us_p50":{us}"#
            ),
        );
    }
    for system in both {
        all += &row(
            "worker",
            &format!(r#""system":"{system}","case":"cold","workers":64,"round_us_p50":5"#),
        );
    }
    for (system, meets) in [("verbs", true), ("weft", false)] {
        all += &row(
            "mesh",
            &format!(
                r#""system":"{system}","case":"warm","workers":8,"processes":8,"meets":{meets},"written_us":5"#
            ),
        );
    }
    for (system, transport) in [("verbs", "rc"), ("weft", "rc"), ("weft", "dc")] {
        let of =
            format!(r#""system":"{system}","transport":"{transport}","op":"read","clients":1"#);
        for (bytes, pause) in [(8, 0), (8, 100), (65_536, 0), (1_048_576, 0)] {
            all += &row(
                "datapath",
                &format!(r#"{of},"mode":"sync","bytes":{bytes},"pause_us":{pause},"lat_us_p50":9"#),
            );
        }
        all += &row(
            "datapath",
            &format!(r#"{of},"mode":"async","bytes":1048576,"gb_per_s":2"#),
        );
    }
    for (senders, note) in [
        ("one", "null"),
        ("one", r#""stepped""#),
        ("all", "null"),
        ("all", r#""stepped""#),
    ] {
        all += &row(
            "multicast",
            &format!(
                r#""experiment":"single","fabric":"shm","touch":"full","bytes":10240,"members":2,"senders":"{senders}","note":{note},"gb_per_s":1,"raw_write_gb_per_s":2"#
            ),
        );
    }
    for (system, algorithm) in [("weft", "auto"), ("mpi", "bcast"), ("mpi", "shared_window")] {
        all += &row(
            "rdmc",
            &format!(
                r#""experiment":"single","fabric":"shm","system":"{system}","algorithm":"{algorithm}","members":4,"bytes":67108864,"seconds_p50":0.01"#
            ),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"bench":"connect","system":"verbs","case":"cold","clients":1,"total_us_p50":36000,"open_us_p50":36000}
{"bench":"connect","system":"weft","case":"cold","clients":1,"total_us_p50":1400,"open_us_p50":1400}
{"bench":"connect","system":"weft","case":"warm","clients":1,"total_us_p50":100}
{"bench":"datapath","system":"verbs","transport":"rc","op":"read","mode":"async","bytes":1048576,"clients":1,"gb_per_s":0.08}
{"bench":"datapath","system":"weft","transport":"dc","op":"read","mode":"async","bytes":1048576,"clients":1,"gb_per_s":0.2}
{"bench":"mesh","system":"weft","workers":8,"total_us":5}
"#;

    #[test]
    fn a_ratio_says_how_many_times_as_good_weft_is() {
        let all = all(&Rows::parse(ROWS).unwrap());
        let told: Vec<_> = all
            .iter()
            .map(|one| (&*one.without, &*one.with, &*one.ratio))
            .collect();
        assert_eq!(
            told,
            [
                ("36 ms", "1.4 ms", "25.7 ×"),
                ("0.08 GB/s", "0.2 GB/s", "2.5 ×")
            ]
        );
    }

    #[test]
    fn a_table_without_all_its_lines_is_an_error() {
        let error = complete(&Rows::parse(ROWS).unwrap())
            .unwrap_err()
            .to_string();
        assert!(error.contains("a mesh of many processes"), "{error}");
        assert!(error.contains("MPI_Bcast"), "{error}");
        assert!(!error.contains("a new process"), "{error}");
        let rows = Rows::parse(&all_rows()).unwrap();
        let told = complete(&rows).unwrap();
        assert_eq!(told, all(&rows));
        assert_eq!(told.len(), 21);
    }

    #[test]
    fn the_benchmarks_that_are_needed_are_those_whose_rows_are_kept() {
        let rows = Rows::parse(&all_rows()).unwrap();
        let kept = rows.kept(needs);
        assert_eq!(kept.all().rows().len(), rows.all().rows().len());
        assert_eq!(kept.all().texts("bench"), RUNS.map(|(bench, _)| bench));
        for other in [
            r#"{"bench":"tail","system":"weft","clients":1}"#,
            r#"{"bench":"multicast","experiment":"ladder","fabric":"shm","bytes":10240,"members":2}"#,
        ] {
            assert!(Rows::parse(other).unwrap().kept(needs).is_empty());
        }
    }

    #[test]
    fn what_is_kept_makes_the_same_table_and_picture() {
        let rows = Rows::parse(ROWS).unwrap();
        let kept = rows.kept(needs);
        assert_eq!(all(&kept), all(&rows));
        assert_eq!(picture(&kept).len(), picture(&rows).len());
        assert!(!picture(&rows).is_empty());
    }
}
