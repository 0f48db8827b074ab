// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pictures that no paper has: latency and bandwidth by size, distributions, the parts
//! of a cold worker, numbers of clients, the hybrid pool, the ladder of multicast, changes of
//! views.

mod pool;
mod views;

use crate::chart::{Axis, Bars, Chart, Line, Lines, Plot, Stack, Unit};
use crate::figure::{no_numbers, ratio, Compared, Recipe};
use crate::paper::krcore::{cold_worker, distributions};
use crate::paper::spindle::ladders;
use crate::rows::{Best, Rows, Selection};
use crate::sim;
use crate::systems::{self, System};

/// Sizes that are told in words.
const SIZES: [f64; 4] = [8.0, 4096.0, 65_536.0, 1_048_576.0];

/// All of them.
pub fn figures() -> Vec<Recipe> {
    vec![
        Recipe {
            id: "latency",
            title: "Latency by size",
            limits:
                "perftest is a witness that our clients of verbs are as good as they can be: both \
                     run on the same nodes in turn.",
            benches: &["datapath"],
            charts: |rows| {
                vec![
                    read_latency(rows),
                    latency(
                        rows,
                        "read",
                        100.0,
                        "latency-read-pause",
                        "READ, 100 µs between requests",
                    ),
                    latency(
                        rows,
                        "write",
                        0.0,
                        "latency-write",
                        "WRITE, in a tight loop",
                    ),
                    latency(
                        rows,
                        "write_pp",
                        0.0,
                        "latency-write-pp",
                        "WRITE, half of a ping-pong",
                    ),
                    latency(
                        rows,
                        "send_pp",
                        0.0,
                        "latency-send-pp",
                        "SEND, half of a ping-pong",
                    ),
                ]
            },
            compare: witness,
        },
        Recipe {
            id: "bandwidth",
            title: "Bandwidth by size",
            limits: "A batch of 32 requests is posted at a time and waited for, by perftest too.",
            benches: &["datapath"],
            charts: |rows| {
                let of = |op, title| bandwidth(rows, op, title);
                vec![of("read", "READ"), of("write", "WRITE"), of("send", "SEND")]
            },
            compare: bandwidth_numbers,
        },
        Recipe {
            id: "distribution",
            title: "Distribution of latencies",
            limits:
                "What makes some requests slow here is mostly the host, which takes the virtual \
                     machine's processors away for a while.",
            benches: &["datapath"],
            charts: |rows| {
                vec![
                    distribution(rows, 0.0, "cdf-loop", "READ of 8 bytes, in a tight loop"),
                    distribution(rows, 100.0, "cdf-pause", "READ of 8 bytes, 100 µs between"),
                ]
            },
            compare: no_numbers,
        },
        Recipe {
            id: "cold-worker",
            title: "A cold worker, part by part",
            limits:
                "A new process opens the device, registers memory, connects and writes; parts are \
                     medians of their own, so that their sum is not exactly the median of sums.",
            benches: &["connect"],
            charts: |rows| vec![cold_worker(rows)],
            compare: no_numbers,
        },
        Recipe {
            id: "clients",
            title: "More clients",
            limits: "All clients, and soft-RoCE's threads, share the processors.",
            benches: &["datapath"],
            charts: |rows| {
                let of = |bytes, name| clients(rows, bytes, name);
                vec![
                    of(8.0, "clients-8"),
                    of(4096.0, "clients-4096"),
                    of(65_536.0, "clients-65536"),
                ]
            },
            compare: no_numbers,
        },
        Recipe {
            id: "fanout",
            title: "Many peers in one call",
            limits:
                "soft-RoCE has no DC, so that verbs has a queue pair for each peer, and posts to \
                     each by a system call of its own.",
            benches: &["fanout"],
            charts: |rows| vec![fanout(rows, 8.0), fanout(rows, 4096.0)],
            compare: fanout_numbers,
        },
        pool::recipe(),
        Recipe {
            id: "ladder",
            title: "The multicast ladder",
            limits:
                "Every message is written in full by its sender and read in full by every member.",
            benches: &["multicast"],
            charts: ladders,
            compare: no_numbers,
        },
        views::recipe(),
        Recipe {
            id: "registration",
            title: "Registration of memory",
            limits:
                "soft-RoCE lists pages where an adapter writes tables, so that verbs' registration \
                     is cheaper here than on adapters.",
            benches: &["mr"],
            charts: |rows| vec![registration(rows)],
            compare: no_numbers,
        },
        Recipe {
            id: "schedules",
            title: "RDMC's schedules under trouble",
            limits:
                "Simulated: the paper says without a figure how schedules behave in racks and with \
                     slow nodes.",
            benches: &["rdmc-sim"],
            charts: |rows| {
                let mut panels = sim::panels(rows);
                panels.retain(|panel| !panel.name.contains("figure"));
                panels
            },
            compare: no_numbers,
        },
    ]
}

/// Rows of one client at this operation.
fn alone<'a>(rows: &'a Rows, op: &str, mode: &str) -> Selection<'a> {
    rows.of("datapath")
        .is("op", op)
        .is("mode", mode)
        .eq("clients", 1.0)
}

/// READs one at a time, by size.
pub fn read_latency(rows: &Rows) -> Chart {
    latency(rows, "read", 0.0, "latency-read", "READ, in a tight loop")
}

fn latency(rows: &Rows, op: &str, pause: f64, name: &str, title: &str) -> Chart {
    let rows = alone(rows, op, "sync").eq("pause_us", pause);
    Chart {
        name: name.to_owned(),
        title: title.to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::places("size", Unit::Bytes),
            y: Axis::log("latency, median", Unit::Us),
            lines: systems::lines(&rows, "bytes", "lat_us_p50", Best::Least),
        }),
    }
}

fn bandwidth(rows: &Rows, op: &str, title: &str) -> Chart {
    let rows = alone(rows, op, "async");
    Chart {
        name: format!("bandwidth-{op}"),
        title: format!("{title}, in batches of 32"),
        plot: Plot::Lines(Lines {
            x: Axis::places("size", Unit::Bytes),
            y: Axis::log("GB/s", Unit::Plain),
            lines: systems::lines(&rows, "bytes", "gb_per_s", Best::Most),
        }),
    }
}

fn distribution(rows: &Rows, pause: f64, name: &str, title: &str) -> Chart {
    let rows = alone(rows, "read", "sync")
        .eq("bytes", 8.0)
        .eq("pause_us", pause);
    Chart {
        name: name.to_owned(),
        title: title.to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::log("latency", Unit::Us),
            y: Axis::linear("share of requests", Unit::Percent),
            lines: distributions(&rows),
        }),
    }
}

fn clients(rows: &Rows, bytes: f64, name: &str) -> Chart {
    let rows = rows
        .of("datapath")
        .is("op", "read")
        .is("mode", "async")
        .eq("bytes", bytes);
    Chart {
        name: name.to_owned(),
        title: format!(
            "READs of {} by several clients, in batches",
            Unit::Bytes.show(bytes)
        ),
        plot: Plot::Lines(Lines {
            x: Axis::places("clients", Unit::Plain),
            y: Axis::linear("requests a second", Unit::Plain),
            lines: systems::lines(&rows, "clients", "ops_per_sec", Best::Most),
        }),
    }
}

fn registration(rows: &Rows) -> Chart {
    let line = |(system, name): (&str, &str), (case, words): (&str, &str)| {
        let rows = rows.of("mr").is("system", system).is("case", case);
        Line::new(
            format!("{name}, {words}"),
            rows.points("bytes", "us_p50", Best::Least),
        )
    };
    let systems = [("verbs", "verbs"), ("weft", "Weft")];
    let cases = [("register", "registered"), ("deregister", "let go")];
    let each = systems
        .into_iter()
        .flat_map(|system| cases.map(|case| line(system, case)));
    Chart {
        name: "registration".to_owned(),
        title: "Registration of memory".to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::places("size", Unit::Bytes),
            y: Axis::log("time, median", Unit::Us),
            lines: each.collect(),
        }),
    }
}

/// Kinds of batches to many targets, and their names. Of verbs, which polls and sleeps, the row
/// whose WRITEs take less, because its numbers belong together.
fn fanouts(rows: &Rows, bytes: f64) -> Vec<(String, Selection<'_>)> {
    let all = rows.of("fanout").eq("bytes", bytes);
    let mut kinds = Vec::new();
    for (system, name) in [("verbs", "verbs"), ("weft", "Weft")] {
        for (case, words) in [("connected", "queue pairs"), ("unconnected", "handles")] {
            let own = all.clone().is("system", system).is("case", case);
            for batch in own.values("batch") {
                let own = own.clone().eq("batch", batch);
                for targets in own.values("targets") {
                    let own = own.clone().eq("targets", targets);
                    for nodes in own.values("nodes") {
                        let words = match targets {
                            1.0 => words.trim_end_matches('s'),
                            _ => words,
                        };
                        let name = format!("{name}, {batch} to {targets} {words}, {nodes} nodes");
                        let own = own.clone().eq("nodes", nodes);
                        kinds.push((name, own.with_least("write_us_p50")));
                    }
                }
            }
        }
    }
    kinds
}

fn fanout(rows: &Rows, bytes: f64) -> Chart {
    let stack = |(name, row): (String, Selection<'_>)| Stack {
        name,
        parts: vec![row.least("write_us_p50")],
    };
    Chart {
        name: format!("fanout-{bytes}"),
        title: format!("A WRITE of {} in a batch", Unit::Bytes.show(bytes)),
        plot: Plot::Bars(Bars {
            y: Axis::linear("time of a batch over its WRITEs, median", Unit::Us),
            parts: vec!["time".to_owned()],
            stacks: fanouts(rows, bytes).into_iter().map(stack).collect(),
            is_sum: false,
        }),
    }
}

fn fanout_numbers(rows: &Rows) -> Vec<Compared> {
    let many = fanouts(rows, 8.0).into_iter().filter_map(|(name, row)| {
        row.clone()
            .least("targets")
            .filter(|&targets| targets > 1.0)?;
        let calls = row.least("syscalls_per_batch");
        Some([
            Compared::new(
                format!("{name}: over a batch to one"),
                "",
                row.least("to_one_target"),
                Unit::Times,
            ),
            Compared::text(
                format!("{name}: system calls"),
                "",
                calls.map(|calls| Unit::Plain.show(calls)),
            ),
        ])
    });
    many.flatten().collect()
}

/// How our verbs, and Weft, stand beside perftest.
fn witness(rows: &Rows) -> Vec<Compared> {
    let mut all = Vec::new();
    for bytes in SIZES {
        let at = alone(rows, "read", "sync")
            .eq("pause_us", 0.0)
            .eq("bytes", bytes);
        let base = System::Perftest.of(at.clone()).least("lat_us_p50");
        for system in [System::Verbs, System::WeftRc, System::WeftDc] {
            let own = system.of(at.clone()).least("lat_us_p50");
            all.push(Compared::new(
                format!(
                    "READ of {}: {} over perftest",
                    Unit::Bytes.show(bytes),
                    system.name()
                ),
                "",
                ratio(own, base),
                Unit::Times,
            ));
        }
    }
    all
}

fn bandwidth_numbers(rows: &Rows) -> Vec<Compared> {
    let mut all = Vec::new();
    for (op, bytes) in ["read", "write"]
        .into_iter()
        .flat_map(|op| SIZES.map(|bytes| (op, bytes)))
    {
        let at = alone(rows, op, "async").eq("bytes", bytes);
        let base = System::Verbs.of(at.clone()).most("ops_per_sec");
        for system in [System::WeftRc, System::WeftDc, System::Perftest] {
            let own = system.of(at.clone()).most("ops_per_sec");
            all.push(Compared::new(
                format!(
                    "{op} of {}: {} over verbs",
                    Unit::Bytes.show(bytes),
                    system.name()
                ),
                "",
                ratio(own, base),
                Unit::Times,
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_to_many_peers_stand_beside_those_to_one() {
        let rows = Rows::parse(
            r#"
{"bench":"fanout","system":"weft","case":"connected","targets":1,"nodes":1,"batch":16,"bytes":8,"write_us_p50":10,"to_one_target":1}
{"bench":"fanout","system":"weft","case":"connected","targets":16,"nodes":16,"batch":16,"bytes":8,"write_us_p50":12,"to_one_target":1.2,"syscalls_per_batch":1}
"#,
        );
        let rows = rows.unwrap();
        let all = fanout_numbers(&rows);
        assert_eq!(
            all[0].what,
            "Weft, 16 to 16 queue pairs, 16 nodes: over a batch to one"
        );
        assert_eq!(all[0].here.as_deref(), Some("1.2 ×"));
        assert_eq!(all.len(), 2);
        assert!(fanout(&rows, 8.0).has_data());
    }

    #[test]
    fn the_numbers_of_a_batch_by_verbs_are_of_the_client_that_waits_better() {
        let row = |wait: &str, us: u32, ratio: u32, calls: u32| {
            format!(
                r#"{{"bench":"fanout","system":"verbs","case":"connected","targets":16,"nodes":16,"batch":16,"bytes":8,"wait":"{wait}","write_us_p50":{us},"to_one_target":{ratio},"syscalls_per_batch":{calls}}}"#
            )
        };
        let rows = [row("poll", 12, 3, 16), row("event", 10, 5, 40)].join("\n");
        let rows = Rows::parse(&rows).unwrap();
        let here = |at: usize| fanout_numbers(&rows)[at].here.clone();
        assert_eq!(here(0).as_deref(), Some("5 ×"));
        assert_eq!(here(1).as_deref(), Some("40"));
        assert_eq!(fanout_numbers(&rows).len(), 2);
    }

    #[test]
    fn a_witness_stands_beside_each_size() {
        let rows = Rows::parse(
            r#"
{"bench":"datapath","system":"verbs","transport":"rc","op":"read","mode":"sync","bytes":8,"clients":1,"pause_us":0,"lat_us_p50":44}
{"bench":"datapath","system":"perftest","transport":"rc","op":"read","mode":"sync","bytes":8,"clients":1,"pause_us":0,"lat_us_p50":40}
"#,
        );
        let rows = rows.unwrap();
        assert_eq!(witness(&rows)[0].here.as_deref(), Some("1.1 ×"));
        assert!(read_latency(&rows).has_data());
        assert!(!bandwidth(&rows, "read", "READ").has_data());
    }
}
