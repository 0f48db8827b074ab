// SPDX-License-Identifier: MIT OR Apache-2.0

//! The few results that README and page open with: what there is without Weft, with
//! it, and how they compare. Sums are compared with sums, calls with calls.

use crate::chart::{Chart, Unit};
use crate::figure::ratio;
use crate::own;
use crate::paper::krcore::{cold_worker, cold_workers, largest_mesh, MeshTime};
use crate::paper::spindle::ladder;
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

    /// None unless both are there.
    fn named(&self, what: String) -> Option<Headline> {
        let (without, with) = self.without.zip(self.with)?;
        let gain = match self.best {
            Best::Least => ratio(Some(without), Some(with)),
            Best::Most => ratio(Some(with), Some(without)),
        };
        Some(Headline {
            what,
            without: self.unit.show(without),
            with: self.unit.show(with),
            ratio: gain.map_or_else(String::new, |gain| Unit::Times.show(gain)),
        })
    }
}

/// All that the rows give.
pub fn all(rows: &Rows) -> Vec<Headline> {
    let mut all = control(rows);
    all.extend(data(rows));
    all.extend(replication(rows));
    all
}

fn control(rows: &Rows) -> Vec<Headline> {
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
    let count = |of: Option<f64>| of.unwrap_or(0.0);
    let all = [
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
    ];
    all.into_iter().flatten().collect()
}

fn data(rows: &Rows) -> Vec<Headline> {
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
            all.extend(Pair::times(of(System::Verbs), of(system)).named(what));
        }
    }
    for (system, name) in systems {
        let at = alone("async", 1_048_576.0);
        let of = |system: System| system.of(at.clone()).most("gb_per_s");
        let what = format!("READs of 1 MiB over {name}, in batches");
        all.extend(Pair::gb_per_s(of(System::Verbs), of(system)).named(what));
    }
    all
}

fn replication(rows: &Rows) -> Vec<Headline> {
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
    let all = [
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
    ];
    all.into_iter().flatten().collect()
}

/// The picture that README opens with.
pub fn picture(rows: &Rows) -> Vec<Chart> {
    let ladder = ladder(rows, "shm", "shared memory", "ladder");
    let mut charts = vec![cold_worker(rows), own::read_latency(rows), ladder];
    charts.retain(Chart::has_data);
    charts.truncate(2);
    charts
}

/// Whether table or picture may need a row: only those are kept beside README.
pub fn needs(row: &Row) -> bool {
    let alone = row.number("clients").is_none_or(|clients| clients == 1.0);
    match row.text("bench") {
        Some("connect") => alone,
        Some("datapath") => alone && row.text("op") == Some("read"),
        Some("worker" | "mesh") => true,
        Some("multicast") => {
            let experiment = row.text("experiment");
            matches!(experiment, Some("single" | "ladder"))
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
    fn what_is_kept_makes_the_same_table_and_picture() {
        let rows = Rows::parse(ROWS).unwrap();
        let kept = rows.kept(needs);
        assert_eq!(all(&kept), all(&rows));
        assert_eq!(picture(&kept).len(), picture(&rows).len());
        assert!(!picture(&rows).is_empty());
    }
}
