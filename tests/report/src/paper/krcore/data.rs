// SPDX-License-Identifier: MIT OR Apache-2.0

//! The data path: one-sided requests, factors, tails.

use crate::chart::{Axis, Bars, Chart, Line, Lines, Plot, Stack, Unit};
use crate::figure::{ratio, Compared, Recipe};
use crate::rows::{Best, Row, Rows, Selection};
use crate::systems::{self, System};

/// Bytes of a request where the paper says nothing else.
pub(super) const WORD: f64 = 8.0;
/// A long message: where copying costs something.
pub(super) const LONG: f64 = 65_536.0;

/// Its figures.
pub fn figures() -> Vec<Recipe> {
    vec![
        Recipe {
            id: "krcore-10",
            title: "Figure 10: one-sided requests of 8 bytes",
            limits: "soft-RoCE's threads and the clients share the processors, so that rates do not \
                     grow with clients as they do on adapters, and a system call is a small part of \
                     a request that takes tens of microseconds.",
            benches: &["datapath"],
            charts: |rows| {
                let of = |name, title, op, mode| by_clients(rows, name, title, op, mode);
                vec![
                    of("read-sync-clients", "READ, one at a time", "read", "sync"),
                    of("read-async-clients", "READ, in batches of 32", "read", "async"),
                    of("write-sync-clients", "WRITE, one at a time", "write", "sync"),
                    of("write-async-clients", "WRITE, in batches of 32", "write", "async"),
                ]
            },
            compare: one_sided,
        },
        Recipe {
            id: "krcore-12a",
            title: "Figure 12a: where the time of a READ goes",
            limits: "Under emulation a system call costs several times what it costs a processor, \
                     and a request tens of times what it costs an adapter.",
            benches: &["factors"],
            charts: |rows| vec![factors(rows)],
            compare: factor_numbers,
        },
        Recipe {
            id: "krcore-13",
            title: "Figure 13: slowdown by size",
            limits: "Above 1 Weft is slower than verbs on the same nodes; DC is below it because \
                     SoftDc takes fewer thread switches than soft-RoCE, which no adapter has.",
            benches: &["datapath"],
            charts: |rows| vec![slowdown(rows, "read", "READ"), slowdown(rows, "write", "WRITE")],
            compare: slowdown_numbers,
        },
        Recipe {
            id: "krcore-14b",
            title: "Figure 14b: tail latency of 50 clients at 5 servers",
            limits: "Fifty clients share the processors, so that the tail is that of the scheduler; \
                     SoftDc has no reconnections, which are the paper's tail.",
            benches: &["tail"],
            charts: |rows| vec![tail(rows)],
            compare: tail_numbers,
        },
        Recipe {
            id: "krcore-15b",
            title: "Figure 15b: 64-byte READs, compared with LITE",
            limits: "LITE does not build for this kernel; verbs stands in its place.",
            benches: &["datapath"],
            charts: |_| Vec::new(),
            compare: lite,
        },
    ]
}

pub(super) fn datapath<'a>(rows: &'a Rows, op: &str, mode: &str) -> Selection<'a> {
    rows.of("datapath").is("op", op).is("mode", mode)
}

pub(super) fn by_clients(rows: &Rows, name: &str, title: &str, op: &str, mode: &str) -> Chart {
    let rows = datapath(rows, op, mode)
        .eq("bytes", WORD)
        .eq("pause_us", 0.0);
    let (field, best, axis) = match mode {
        "sync" => {
            let axis = Axis::log("latency, median", Unit::Us);
            ("lat_us_p50", Best::Least, axis)
        }
        _ => {
            let axis = Axis::linear("requests a second", Unit::Plain);
            ("ops_per_sec", Best::Most, axis)
        }
    };
    Chart {
        name: name.to_owned(),
        title: format!("{title}, 8 bytes"),
        plot: Plot::Lines(Lines {
            x: Axis::places("clients", Unit::Plain),
            y: axis,
            lines: systems::lines(&rows, "clients", field, best),
        }),
    }
}

/// The best of a system at some rows, over the best of verbs.
pub(super) fn over_verbs(
    rows: &Selection<'_>,
    system: System,
    field: &str,
    best: Best,
) -> Option<f64> {
    let of = |system: System| {
        let rows = system.of(rows.clone());
        match best {
            Best::Least => rows.least(field),
            Best::Most => rows.most(field),
        }
    };
    ratio(of(system), of(System::Verbs))
}

fn one_sided(rows: &Rows) -> Vec<Compared> {
    let one = |pause: f64| {
        let rows = datapath(rows, "read", "sync")
            .eq("bytes", WORD)
            .eq("clients", 1.0);
        rows.eq("pause_us", pause)
    };
    let mut all = Vec::new();
    for (pause, words) in [(0.0, "in a tight loop"), (100.0, "100 µs between requests")] {
        let rows = one(pause);
        let of = |system| over_verbs(&rows, system, "lat_us_p50", Best::Least);
        let what = |system: &str| format!("latency of {system} over verbs, one client, {words}");
        all.push(Compared::new(
            what("RC"),
            "1.47 ×",
            of(System::WeftRc),
            Unit::Times,
        ));
        all.push(Compared::new(
            what("DC"),
            "1.51 ×",
            of(System::WeftDc),
            Unit::Times,
        ));
    }
    for (op, name, rc, dc) in [
        ("read", "READs", "1 ×", "0.86 ×"),
        ("write", "WRITEs", "1 ×", "0.91 ×"),
    ] {
        let rows = datapath(rows, op, "async").eq("bytes", WORD);
        let of = |system| over_verbs(&rows, system, "ops_per_sec", Best::Most);
        let what = |system: &str| format!("most {name} a second of {system} over verbs");
        all.push(Compared::new(
            what("RC"),
            rc,
            of(System::WeftRc),
            Unit::Times,
        ));
        all.push(Compared::new(
            what("DC"),
            dc,
            of(System::WeftDc),
            Unit::Times,
        ));
    }
    all
}

/// Factors in the order of the chart.
const FACTORS: [(&str, &str); 5] = [
    ("null_ioctl", "system call"),
    ("verbs_rc_read", "verbs, READ"),
    ("weft_rc_read", "Weft, RC"),
    ("weft_dc_read", "Weft, DC"),
    ("weft_rc_read_new_key", "RC, new key"),
];

fn factor(rows: &Rows, name: &str) -> Option<f64> {
    rows.of("factors").is("name", name).least("us_p50")
}

fn factors(rows: &Rows) -> Chart {
    let stack = |(name, words): (&str, &str)| Stack {
        name: words.to_owned(),
        parts: vec![factor(rows, name)],
    };
    Chart {
        name: "factors".to_owned(),
        title: "An 8-byte READ, and what it may cost besides".to_owned(),
        plot: Plot::Bars(Bars {
            y: Axis::linear("time, median", Unit::Us),
            parts: vec!["time".to_owned()],
            stacks: FACTORS.into_iter().map(stack).collect(),
            is_sum: false,
        }),
    }
}

fn factor_numbers(rows: &Rows) -> Vec<Compared> {
    let of = |name| factor(rows, name);
    let more = of("weft_rc_read_new_key").zip(of("weft_rc_read"));
    vec![
        Compared::new("verbs", "2.14 µs", of("verbs_rc_read"), Unit::Us),
        Compared::new(
            "with a system call (RC)",
            "3.15 µs",
            of("weft_rc_read"),
            Unit::Us,
        ),
        Compared::new("over DC", "3.24 µs", of("weft_dc_read"), Unit::Us),
        Compared::new(
            "a key not seen before, more",
            "4.5 µs",
            more.map(|(new, known)| new - known),
            Unit::Us,
        ),
    ]
}

fn slowdown(rows: &Rows, op: &str, title: &str) -> Chart {
    let all = datapath(rows, op, "sync").eq("clients", 1.0);
    let mut lines = Vec::new();
    for (pause, words) in [(0.0, "tight loop"), (100.0, "100 µs between")] {
        for system in [System::WeftDc, System::WeftRc] {
            let own = system.of(all.clone()).eq("pause_us", pause);
            let points = own.points("bytes", "lat_to_verbs", Best::Least);
            lines.push(Line::new(format!("{}, {words}", system.name()), points));
        }
    }
    Chart {
        name: format!("slowdown-{op}"),
        title: format!("{title}: latency over that of verbs"),
        plot: Plot::Lines(Lines {
            x: Axis::places("size", Unit::Bytes),
            y: Axis::linear("times verbs' latency", Unit::Times),
            lines,
        }),
    }
}

fn slowdown_numbers(rows: &Rows) -> Vec<Compared> {
    let of = |op, bytes, system: System| {
        let rows = datapath(rows, op, "sync")
            .eq("clients", 1.0)
            .eq("bytes", bytes);
        system.of(rows.eq("pause_us", 0.0)).least("lat_to_verbs")
    };
    let mib = 1_048_576.0;
    vec![
        Compared::new(
            "READ of 1 MiB by RC",
            "less than 1.07 × (256 KB and more)",
            of("read", mib, System::WeftRc),
            Unit::Times,
        ),
        Compared::new(
            "READ of 1 MiB by DC",
            "",
            of("read", mib, System::WeftDc),
            Unit::Times,
        ),
        Compared::new(
            "WRITE of 64 KiB by RC",
            "about 1 × (8 KB and more)",
            of("write", LONG, System::WeftRc),
            Unit::Times,
        ),
        Compared::new(
            "WRITE of 64 KiB by DC",
            "",
            of("write", LONG, System::WeftDc),
            Unit::Times,
        ),
    ]
}

/// How many of many clients' READs took how long.
pub fn tail(rows: &Rows) -> Chart {
    Chart {
        name: "tail".to_owned(),
        title: "READs of 8 bytes by many clients".to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::log("latency", Unit::Us),
            y: Axis::linear("share of READs", Unit::Percent),
            lines: distributions(&rows.of("tail")),
        }),
    }
}

/// The distribution of each system's row with the best median, of those that have one.
pub fn distributions(rows: &Selection<'_>) -> Vec<Line> {
    let line = |system: System| {
        let rows = system.of(rows.clone());
        let rows = rows.rows().iter();
        let with = rows.filter(|row| !row.pairs("lat_us_cdf").is_empty());
        let median = |row: &Row| row.number("lat_us_p50").unwrap_or(f64::INFINITY);
        let best = with.min_by(|a, b| median(a).total_cmp(&median(b)));
        let cdf = best.map_or_else(Vec::new, |row| row.pairs("lat_us_cdf"));
        let points = cdf.into_iter().map(|(percent, us)| (us, percent));
        Line::new(system.name(), points.collect())
    };
    System::ALL.into_iter().map(line).collect()
}

fn tail_numbers(rows: &Rows) -> Vec<Compared> {
    let of = |system: System| system.of(rows.of("tail")).least("lat_us_p999");
    let (verbs, weft) = (of(System::Verbs), of(System::WeftDc));
    vec![
        Compared::new("verbs, 99.9 % of READs within", "2.8 µs", verbs, Unit::Us),
        Compared::new("DC, 99.9 % of READs within", "6 µs", weft, Unit::Us),
        Compared::new("DC over verbs", "2.14 ×", ratio(weft, verbs), Unit::Times),
    ]
}

fn lite(rows: &Rows) -> Vec<Compared> {
    let of = |mode, field, best| {
        let rows = datapath(rows, "read", mode)
            .eq("bytes", 64.0)
            .eq("pause_us", 0.0);
        over_verbs(&rows, System::WeftDc, field, best)
    };
    let sync = of("sync", "ops_per_sec", Best::Most);
    vec![
        Compared::new(
            "one at a time: rate of DC over the other's",
            "0.8 × or more",
            sync,
            Unit::Times,
        ),
        Compared::new(
            "in batches: most a second of DC over the other's",
            "3 ×",
            of("async", "ops_per_sec", Best::Most),
            Unit::Times,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"bench":"datapath","system":"verbs","transport":"rc","wait":"poll","op":"read","mode":"sync","bytes":8,"clients":1,"pause_us":0,"lat_us_p50":50}
{"bench":"datapath","system":"verbs","transport":"rc","wait":"event","op":"read","mode":"sync","bytes":8,"clients":1,"pause_us":0,"lat_us_p50":40}
{"bench":"datapath","system":"weft","transport":"dc","op":"read","mode":"sync","bytes":8,"clients":1,"pause_us":0,"lat_us_p50":30,"lat_to_verbs":0.75}
{"bench":"tail","system":"verbs","transport":"rc","wait":"poll","lat_us_p50":90,"lat_us_cdf":[[50,90],[99,500]]}
{"bench":"tail","system":"verbs","transport":"rc","wait":"event","lat_us_p50":40,"lat_us_cdf":[[50,40],[99,80]]}
{"bench":"tail","system":"weft","transport":"dc","lat_us_p999":60,"lat_us_cdf":[[50,20],[99,50]]}
"#;

    #[test]
    fn weft_is_compared_with_the_better_of_polling_and_sleeping() {
        let rows = Rows::parse(ROWS).unwrap();
        let all = one_sided(&rows);
        assert!(all[1].what.contains("DC") && all[1].what.contains("loop"));
        assert_eq!(all[1].here.as_deref(), Some("0.75 ×"));
        assert_eq!(all[0].here, None);
    }

    #[test]
    fn a_distribution_grows_to_the_right() {
        let rows = Rows::parse(ROWS).unwrap();
        let lines = distributions(&rows.of("tail"));
        assert_eq!(lines[1].points, [(20.0, 50.0), (50.0, 99.0)]);
        // Of polling and sleeping the better one.
        assert_eq!(lines[0].points, [(40.0, 50.0), (80.0, 99.0)]);
        assert!(lines[2].points.is_empty());
    }

    #[test]
    fn a_line_of_clients_has_a_point_for_each_number_of_them() {
        let rows = Rows::parse(ROWS).unwrap();
        let chart = by_clients(&rows, "test", "READ", "read", "sync");
        let Plot::Lines(lines) = chart.plot else {
            unreachable!()
        };
        assert_eq!(lines.lines[0].points, [(1.0, 40.0)]);
        assert_eq!(lines.lines[1].points, [(1.0, 30.0)]);
    }
}
