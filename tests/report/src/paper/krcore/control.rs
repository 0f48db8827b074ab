// SPDX-License-Identifier: MIT OR Apache-2.0

//! The control path: connections, meshes, look-ups.

use crate::chart::{Axis, Bars, Chart, Line, Lines, Plot, Stack, Unit};
use crate::figure::{ratio, Compared, Recipe};
use crate::rows::{Best, Rows, Selection};

/// Parts of a connection: a field and its name.
const PARTS: [(&str, &str); 5] = [
    ("open_us_p50", "open the device"),
    ("register_us_p50", "register memory"),
    ("create_us_p50", "make the queue pair"),
    ("call_us_p50", "connect"),
    ("first_write_us_p50", "first WRITE"),
];

/// Its figures.
pub fn figures() -> Vec<Recipe> {
    vec![
        Recipe {
            id: "krcore-3",
            title: "Figure 3: what a connection takes beside what it carries",
            limits: "Of an adapter's firmware, which is most of the paper's time, soft-RoCE has \
                     nothing, so that verbs' share is smaller here; opening the device and the \
                     exchange of addresses are real.",
            benches: &["connect"],
            charts: |rows| vec![cold_worker(rows)],
            compare: control_beside_data,
        },
        Recipe {
            id: "krcore-8a",
            title: "Figure 8a: connecting to one server",
            limits: "Few processors serve clients and servers here, so that rates end where the \
                     processors do, and nobody can show millions of connections a second.",
            benches: &["connect"],
            charts: |rows| vec![by_clients(rows), rate_by_clients(rows)],
            compare: single,
        },
        Recipe {
            id: "krcore-8b",
            title: "Figure 8b: a full mesh of workers",
            limits: "Workers share the processors, so that a mesh takes as long as all of its \
                     connections one after the other; on 240 processors they would connect \
                     side by side.",
            benches: &["mesh"],
            charts: |rows| vec![mesh(rows)],
            compare: mesh_numbers,
        },
        Recipe {
            id: "krcore-9a",
            title: "Figure 9a: the meta server",
            limits: "There is no server by RPC to compare with; what can be shown is that a \
                     look-up is one READ and that the server's processor has no part in it.",
            benches: &["meta"],
            charts: |rows| vec![look_up(rows)],
            compare: meta,
        },
    ]
}

/// The row of the fewest clients: one connection at a time. Of verbs, which polls and sleeps, the
/// row with the smaller sum, because its parts belong together.
fn alone<'a>(rows: &'a Rows, system: &str, case: &str) -> Selection<'a> {
    let rows = rows.of("connect").is("system", system).is("case", case);
    let fewest = rows.least("clients").unwrap_or(1.0);
    rows.eq("clients", fewest).with_least("total_us_p50")
}

/// Cases that there are, in the order from slow to fast.
const CASES: [(&str, &str); 7] = [
    ("verbs", "cold"),
    ("verbs", "warm"),
    ("verbs", "cached"),
    ("weft", "cold"),
    ("weft", "warm"),
    ("weft", "cached"),
    ("weft", "same"),
];

pub(super) fn called(system: &str) -> &str {
    match system {
        "weft" => "Weft",
        other => other,
    }
}

/// From a new process's first statement to its first completed WRITE, part by part.
pub fn cold_worker(rows: &Rows) -> Chart {
    let stacks = [
        ("verbs", "cold"),
        ("verbs", "warm"),
        ("weft", "cold"),
        ("weft", "warm"),
    ];
    let stack = |(system, case): (&str, &str)| {
        let row = alone(rows, system, case);
        Stack {
            name: format!("{}, {case}", called(system)),
            parts: PARTS.iter().map(|(field, _)| row.least(field)).collect(),
        }
    };
    let mut stacks: Vec<_> = stacks.into_iter().map(stack).collect();
    stacks.retain(|stack| stack.parts.iter().any(Option::is_some));
    Chart {
        name: "cold-worker".to_owned(),
        title: "From nothing to the first WRITE, 8 bytes".to_owned(),
        plot: Plot::Bars(Bars {
            y: Axis::linear("time, median", Unit::Us),
            parts: PARTS.iter().map(|(_, name)| (*name).to_owned()).collect(),
            stacks,
            is_sum: true,
        }),
    }
}

fn control_beside_data(rows: &Rows) -> Vec<Compared> {
    let verbs = alone(rows, "verbs", "cold").least("total_us_p50");
    let weft = alone(rows, "weft", "cold").least("total_us_p50");
    // The READ takes turns with the connections, so that both are of one boot.
    let read = alone(rows, "ref", "read8").least("call_us_p50");
    vec![
        Compared::new(
            "verbs: from nothing to the first WRITE",
            "15.7 ms",
            verbs,
            Unit::Us,
        ),
        Compared::new("Weft: the same", "", weft, Unit::Us),
        Compared::new(
            "verbs over Weft, sums of both",
            "",
            ratio(verbs, weft),
            Unit::Times,
        ),
        Compared::new(
            "verbs' control path over an 8-byte READ",
            "7,850 ×",
            ratio(verbs, read),
            Unit::Times,
        ),
    ]
}

fn connect_lines(rows: &Rows, field: &str, best: Best) -> Vec<Line> {
    let line = |(system, case): (&str, &str)| {
        let rows = rows.of("connect").is("system", system).is("case", case);
        let name = format!("{}, {case}", called(system));
        Line::new(name, rows.points("clients", field, best))
    };
    CASES.into_iter().map(line).collect()
}

fn by_clients(rows: &Rows) -> Chart {
    Chart {
        name: "connect-latency".to_owned(),
        title: "Connecting, and the first WRITE".to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::places("clients", Unit::Plain),
            y: Axis::log("sum of all parts, median", Unit::Us),
            lines: connect_lines(rows, "total_us_p50", Best::Least),
        }),
    }
}

fn rate_by_clients(rows: &Rows) -> Chart {
    Chart {
        name: "connect-rate".to_owned(),
        title: "Connections of all clients together".to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::places("clients", Unit::Plain),
            y: Axis::log("connections a second", Unit::Plain),
            lines: connect_lines(rows, "per_sec", Best::Most),
        }),
    }
}

fn single(rows: &Rows) -> Vec<Compared> {
    let call = |system, case| alone(rows, system, case).least("call_us_p50");
    let rate = |system, case| {
        let rows = rows.of("connect").is("system", system).is("case", case);
        rows.most("per_sec")
    };
    // By rdma_cm, and by Weft, making is part of the call.
    let made = |system| {
        let create = alone(rows, system, "warm").least("create_us_p50");
        call(system, "warm").map(|call| create.unwrap_or(0.0) + call)
    };
    let (verbs, weft) = (made("verbs"), made("weft"));
    let in_a_row = call("weft", "in_a_row");
    let show = |value: Option<f64>| value.map(|value| Unit::Plain.show(value));
    vec![
        Compared::new(
            "qconnect, nothing cached",
            "5.4 µs",
            // Older results have it by the name of the calls that find something cached.
            call("weft", "uncached").or(call("weft", "call_uncached")),
            Unit::Us,
        ),
        Compared::new(
            "qconnect, cached",
            "0.9 µs",
            call("weft", "call_cached"),
            Unit::Us,
        ),
        Compared::new(
            "made and connected in one call, cached, 5,000 in a row",
            "",
            in_a_row,
            Unit::Us,
        ),
        Compared::new(
            "the same over a null ioctl",
            "",
            ratio(in_a_row, call("ref", "null_in_a_row")),
            Unit::Times,
        ),
        Compared::new(
            "verbs: making and connecting a queue pair",
            "2 ms (LITE)",
            verbs,
            Unit::Us,
        ),
        Compared::new(
            "verbs over Weft, making and connecting of both",
            "",
            ratio(verbs, weft),
            Unit::Times,
        ),
        Compared::text(
            "verbs, connections a second",
            "712",
            show(rate("verbs", "warm")),
        ),
        Compared::text(
            "Weft, connections a second",
            "22 M",
            show(rate("weft", "warm")),
        ),
    ]
}

/// All kinds of mesh that were measured: of each system and case, by threads of a
/// process and by processes.
fn meshes(rows: &Rows) -> Vec<(String, Selection<'_>)> {
    let all = rows.of("mesh");
    let mut kinds = Vec::new();
    for system in all.texts("system") {
        let own = all.clone().is("system", system);
        for case in own.texts("case") {
            let own = own.clone().is("case", case);
            for (are_threads, words) in [(false, "processes"), (true, "threads")] {
                let name = format!("{}, {case}, {words}", called(system));
                kinds.push((name, of_workers(own.clone(), are_threads)));
            }
        }
    }
    kinds
}

/// Those whose workers are threads of one process, or processes.
fn of_workers(rows: Selection<'_>, are_threads: bool) -> Selection<'_> {
    rows.filter(|row| (row.number("processes") == Some(1.0)) == are_threads)
}

fn mesh(rows: &Rows) -> Chart {
    let line = |(name, rows): (String, Selection<'_>)| {
        let points = rows.points("workers", "written_us", Best::Least);
        Line::new(name, points)
    };
    Chart {
        name: "mesh".to_owned(),
        title: "Until every worker has written to every other".to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::places("workers", Unit::Plain),
            y: Axis::log("time, median", Unit::Us),
            lines: meshes(rows).into_iter().map(line).collect(),
        }),
    }
}

/// A time of meshes, and which of Weft's meshes has it like verbs'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshTime {
    /// Until all are connected, in a mesh whose workers meet then, as verbs' have to.
    Connected,
    /// Until each link is written to, in one whose workers wait for nobody.
    Written,
}

/// The largest mesh of processes that are warm: how many workers, and a time of verbs and
/// of Weft.
pub fn largest_mesh(rows: &Rows, time: MeshTime) -> (Option<f64>, [Option<f64>; 2]) {
    let warm = of_workers(rows.of("mesh").is("case", "warm"), false);
    let most = warm.most("workers");
    let (field, meets) = match time {
        MeshTime::Connected => ("total_us", "true"),
        MeshTime::Written => ("written_us", "false"),
    };
    let of = |own: Selection<'_>| most.and_then(|most| own.eq("workers", most).least(field));
    let verbs = warm.clone().is("system", "verbs");
    let weft = warm.clone().is("system", "weft");
    let weft = weft.filter(|row| row.shown("meets").as_deref() == Some(meets));
    (most, [of(verbs), of(weft)])
}

fn mesh_numbers(rows: &Rows) -> Vec<Compared> {
    let (most, [verbs, weft]) = largest_mesh(rows, MeshTime::Written);
    let (_, [verbs_connected, weft_connected]) = largest_mesh(rows, MeshTime::Connected);
    let count = most.map_or_else(|| "the most".to_owned(), |most| format!("{most:.0}"));
    let what = format!("verbs (paper: 240 workers, here: {count} processes, written to as well)");
    vec![
        Compared::new(what, "2.7 s", verbs, Unit::Us),
        Compared::new("Weft", "81 µs", weft, Unit::Us),
        Compared::new(
            "verbs over Weft",
            "33,000 ×",
            ratio(verbs, weft),
            Unit::Times,
        ),
        Compared::new(
            "the same until all are connected",
            "",
            ratio(verbs_connected, weft_connected),
            Unit::Times,
        ),
    ]
}

fn look_up(rows: &Rows) -> Chart {
    let rows = rows.of("meta");
    let stack = |(name, field): (&str, &str)| Stack {
        name: name.to_owned(),
        parts: vec![rows.least(field)],
    };
    let times = [
        ("median", "lookup_us_p50"),
        ("99 % within", "lookup_us_p99"),
    ];
    Chart {
        name: "look-up".to_owned(),
        title: "A look-up at the meta server".to_owned(),
        plot: Plot::Bars(Bars {
            y: Axis::linear("time", Unit::Us),
            parts: vec!["time".to_owned()],
            stacks: times.into_iter().map(stack).collect(),
            is_sum: false,
        }),
    }
}

fn meta(rows: &Rows) -> Vec<Compared> {
    let rows = rows.of("meta");
    let reads = rows
        .least("reads_per_lookup")
        .map(|reads| format!("{reads:.2}"));
    let cpu = rows.least("server_cpu_us_per_lookup");
    vec![
        Compared::text("READs of a look-up", "2", reads),
        Compared::new(
            "a look-up",
            "5.4 µs (qconnect)",
            rows.least("lookup_us_p50"),
            Unit::Us,
        ),
        Compared::new("the server's processor, for a look-up", "0", cpu, Unit::Us),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"bench":"connect","system":"verbs","case":"cold","clients":1,"open_us_p50":20000,"register_us_p50":50,"create_us_p50":300,"call_us_p50":900,"first_write_us_p50":100,"total_us_p50":21350,"per_sec":40}
{"bench":"connect","system":"weft","case":"cold","clients":1,"open_us_p50":500,"create_us_p50":20,"call_us_p50":60,"first_write_us_p50":100,"total_us_p50":680,"per_sec":1000}
{"bench":"connect","system":"verbs","case":"warm","clients":1,"create_us_p50":300,"call_us_p50":700}
{"bench":"connect","system":"weft","case":"warm","clients":1,"call_us_p50":50}
{"bench":"connect","system":"weft","case":"call_uncached","clients":1,"call_us_p50":40}
{"bench":"mesh","system":"verbs","case":"warm","meets":true,"wait":"poll","workers":32,"processes":32,"total_us":250000,"written_us":400000}
{"bench":"mesh","system":"verbs","case":"warm","meets":true,"wait":"event","workers":32,"processes":32,"total_us":200000,"written_us":293000}
{"bench":"mesh","system":"weft","case":"warm","meets":false,"workers":32,"processes":32,"total_us":10000,"written_us":134000}
{"bench":"mesh","system":"weft","case":"warm","meets":true,"workers":32,"processes":32,"total_us":20000,"written_us":130000}
{"bench":"mesh","system":"weft","case":"warm","meets":false,"workers":32,"processes":1,"written_us":7}
"#;

    #[test]
    fn a_cold_worker_is_the_sum_of_its_parts() {
        let rows = Rows::parse(ROWS).unwrap();
        let Plot::Bars(bars) = cold_worker(&rows).plot else {
            unreachable!()
        };
        let names: Vec<_> = bars
            .stacks
            .iter()
            .map(|stack| stack.name.as_str())
            .collect();
        let all = ["verbs, cold", "verbs, warm", "Weft, cold", "Weft, warm"];
        assert_eq!(names, all);
        let sum: f64 = bars.stacks[0].parts.iter().flatten().sum();
        assert_eq!(sum, 21_350.0);
    }

    #[test]
    fn parts_are_of_the_faster_way_to_wait() {
        let polls = r#"{"bench":"connect","system":"verbs","case":"warm","clients":1,"wait":"poll","create_us_p50":400,"call_us_p50":500,"total_us_p50":1000}"#;
        let sleeps = r#"{"bench":"connect","system":"verbs","case":"warm","clients":1,"wait":"event","create_us_p50":300,"call_us_p50":900,"total_us_p50":1300}"#;
        for both in [[polls, sleeps], [sleeps, polls]] {
            let rows = Rows::parse(&both.join("\n")).unwrap();
            assert_eq!(single(&rows)[4].here.as_deref(), Some("900 µs"));
        }
    }

    #[test]
    fn sums_are_compared_with_sums() {
        let rows = Rows::parse(ROWS).unwrap();
        let all = control_beside_data(&rows);
        assert_eq!(all[2].here.as_deref(), Some("31.4 ×"));
        // There is no READ.
        assert_eq!(all[3].here, None);
    }

    #[test]
    fn a_connection_stands_beside_the_read_of_its_own_run() {
        let read = r#"{"bench":"connect","system":"ref","case":"read8","clients":1,"call_us_p50":50,"total_us_p50":null}"#;
        let other = r#"{"bench":"datapath","system":"verbs","op":"read","mode":"sync","bytes":8,"clients":1,"lat_us_p50":25}"#;
        let compared = |lines: &[&str]| {
            let rows = Rows::parse(&format!("{ROWS}{}", lines.join("\n"))).unwrap();
            control_beside_data(&rows)[3].here.clone()
        };
        assert_eq!(compared(&[read, other]).as_deref(), Some("427 ×"));
        assert_eq!(compared(&[other]), None);
    }

    #[test]
    fn meshes_are_compared_with_those_that_do_the_same_and_with_the_better_of_verbs() {
        let rows = Rows::parse(ROWS).unwrap();
        let here: Vec<_> = mesh_numbers(&rows)
            .into_iter()
            .map(|one| one.here)
            .collect();
        assert_eq!(here[2].as_deref(), Some("2.19 ×"));
        assert_eq!(here[3].as_deref(), Some("10 ×"));
    }

    #[test]
    fn making_belongs_to_connecting() {
        let all = single(&Rows::parse(ROWS).unwrap());
        assert_eq!(all[0].here.as_deref(), Some("40 µs"));
        assert_eq!(all[4].here.as_deref(), Some("1 ms"));
        assert_eq!(all[5].here.as_deref(), Some("20 ×"));
    }
}
