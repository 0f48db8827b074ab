// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMC's evaluation (rdmc §5).

use crate::chart::{Axis, Chart, Line, Lines, Plot, Unit};
use crate::figure::{no_charts, no_numbers, ratio, Compared, Recipe};
use crate::rows::{Best, Rows, Selection};
use crate::sim;

const MIB: f64 = 1_048_576.0;
/// The block that is used where blocks are not the question.
const BLOCK: f64 = MIB;

/// Algorithms as rows name them, and in charts.
const ALGORITHMS: [(&str, &str); 5] = [
    ("binomial_pipeline", "binomial pipeline"),
    ("chain", "chain"),
    ("binomial_tree", "binomial tree"),
    ("sequential", "sequential"),
    ("auto", "the library's choice"),
];

/// Its figures.
pub fn figures() -> Vec<Recipe> {
    let mut all = measured();
    all.extend(absent());
    all.sort_by_key(|recipe| number(recipe.id));
    all
}

/// The number of a figure, to sort by.
fn number(id: &str) -> u32 {
    let digits = id.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.parse().unwrap_or(u32::MAX)
}

fn measured() -> Vec<Recipe> {
    vec![
        Recipe {
            id: "rdmc-4",
            title: "Figure 4: latency by algorithm and size of the group, beside MPI_Bcast",
            limits: "Over shared memory all members share one memory, so that no algorithm spares a \
                     link: what they differ in is copies and waiting. The simulation has the paper's \
                     links.",
            benches: &["rdmc", "rdmc-sim"],
            charts: |rows| {
                let mut charts = vec![algorithms(rows)];
                charts.extend(sim::panel(rows, "figure-4-large"));
                charts.extend(sim::panel(rows, "figure-4-small"));
                charts
            },
            compare: algorithm_numbers,
        },
        Recipe {
            id: "rdmc-6",
            title: "Figure 6: bandwidth by size of block",
            limits: "Blocks that fit into the caches are fastest here, which is not what a network \
                     likes.",
            benches: &["rdmc"],
            charts: |rows| vec![blocks(rows)],
            compare: no_numbers,
        },
        Recipe {
            id: "rdmc-7",
            title: "Figure 7: messages of one byte",
            limits: "Between processes that share processors each message waits for a thread to \
                     wake.",
            benches: &["rdmc"],
            charts: |rows| vec![rate(rows)],
            compare: no_numbers,
        },
        Recipe {
            id: "rdmc-8",
            title: "Figure 8: 256 MB to many nodes",
            limits: "Links and nodes are simulated; the schedules are those that the library runs.",
            benches: &["rdmc-sim"],
            charts: |rows| sim::panel(rows, "figure-8").into_iter().collect(),
            compare: many_nodes,
        },
        Recipe {
            id: "rdmc-10",
            title: "Figure 10: multicasts at once",
            limits: "Memory's speed bounds all of them together here; the simulation has the paper's \
                     links and racks.",
            benches: &["rdmc", "rdmc-sim"],
            charts: |rows| {
                let mut charts = vec![overlap(rows)];
                charts.extend(sim::panel(rows, "figure-10-fractus"));
                charts.extend(sim::panel(rows, "figure-10-apt"));
                charts
            },
            compare: no_numbers,
        },
        Recipe {
            id: "rdmc-11",
            title: "Figure 11: polling before sleeping, and sleeping at once",
            limits: "A member that polls takes a processor from the others if there are more members \
                     than processors.",
            benches: &["rdmc"],
            charts: |rows| vec![wait(rows)],
            compare: wait_numbers,
        },
    ]
}

fn absent() -> Vec<Recipe> {
    let none = |id, title, limits| Recipe {
        id,
        title,
        limits,
        benches: &[],
        charts: no_charts,
        compare: no_numbers,
    };
    vec![
        none(
            "rdmc-5",
            "Table 1 and figure 5: where the time of a transfer goes",
            "There is no link whose time could be told from the software's: both are copies by the \
             same processors.",
        ),
        none(
            "rdmc-9",
            "Figure 9: Cosmos",
            "The trace of the Cosmos system is not public.",
        ),
        none(
            "rdmc-12",
            "Figure 12: CORE-Direct",
            "It is a feature of adapters, and there is none here.",
        ),
    ]
}

fn single(rows: &Rows) -> Selection<'_> {
    rows.of("rdmc")
        .is("experiment", "single")
        .is("fabric", "shm")
}

fn chart(name: &str, title: &str, x: Axis, y: Axis, lines: Vec<Line>) -> Chart {
    Chart {
        name: name.to_owned(),
        title: title.to_owned(),
        plot: Plot::Lines(Lines { x, y, lines }),
    }
}

/// Those of our rows that have the usual block or chose one.
fn of_block(rows: Selection<'_>, bytes: f64) -> Selection<'_> {
    rows.filter(move |row| row.number("block_bytes").is_none_or(|block| block == bytes))
}

/// The longest message that was sent to several numbers of members.
fn long_message(rows: &Selection<'_>) -> Option<f64> {
    let sizes = rows.values("bytes");
    let several = |bytes: &f64| rows.clone().eq("bytes", *bytes).values("members").len() > 1;
    sizes
        .iter()
        .copied()
        .rfind(several)
        .or(sizes.last().copied())
}

fn algorithms(rows: &Rows) -> Chart {
    let all = single(rows);
    let bytes = long_message(&all).unwrap_or(0.0);
    let own = of_block(all.clone().is("system", "weft").eq("bytes", bytes), BLOCK);
    let mut lines: Vec<_> = ALGORITHMS
        .into_iter()
        .map(|(algorithm, name)| {
            let points = own.clone().is("algorithm", algorithm);
            Line::new(name, points.points("members", "seconds_p50", Best::Least))
        })
        .collect();
    let mpi = all.is("system", "mpi").eq("bytes", bytes);
    let others = [
        ("bcast", "MPI_Bcast, the best"),
        ("shared_window", "copies from an MPI window"),
    ];
    lines.extend(others.map(|(how, name)| {
        let points = mpi.clone().is("algorithm", how);
        Line::new(name, points.points("members", "seconds_p50", Best::Least))
    }));
    for line in &mut lines {
        line.points.iter_mut().for_each(|point| point.1 *= 1e6);
    }
    chart(
        "rdmc-algorithms",
        &format!(
            "A message of {} over shared memory",
            Unit::Bytes.show(bytes)
        ),
        Axis::places("members", Unit::Plain),
        Axis::linear("until all have it, median", Unit::Us),
        lines,
    )
}

fn algorithm_numbers(rows: &Rows) -> Vec<Compared> {
    let all = single(rows);
    let bytes = long_message(&all).unwrap_or(0.0);
    let mut numbers = Vec::new();
    for members in all.values("members") {
        let at = all.clone().eq("bytes", bytes).eq("members", members);
        let weft = at.clone().is("system", "weft").least("seconds_p50");
        let mpi = at.is("system", "mpi").is("algorithm", "bcast");
        let mpi = mpi.least("seconds_p50");
        numbers.push(Compared::new(
            format!(
                "MPI_Bcast over RDMC, the best of both, {members} members, {}",
                Unit::Bytes.show(bytes)
            ),
            "1.03 to 3 ×",
            ratio(mpi, weft),
            Unit::Times,
        ));
    }
    numbers
}

fn blocks(rows: &Rows) -> Chart {
    let all = single(rows)
        .is("system", "weft")
        .is("algorithm", "binomial_pipeline");
    let all = all.eq("members", 4.0);
    let line = |bytes: f64| {
        let points = all
            .clone()
            .eq("bytes", bytes)
            .points("block_bytes", "gb_per_s", Best::Most);
        Line::new(Unit::Bytes.show(bytes), points)
    };
    chart(
        "rdmc-blocks",
        "The binomial pipeline, four members, over shared memory",
        Axis::places("size of a block", Unit::Bytes),
        Axis::linear("GB/s", Unit::Plain),
        all.values("bytes").into_iter().map(line).collect(),
    )
}

fn rate(rows: &Rows) -> Chart {
    let line = |(fabric, name): (&str, &str)| {
        let all = rows
            .of("rdmc")
            .is("experiment", "rate")
            .is("fabric", fabric);
        let points = all
            .is("system", "weft")
            .points("members", "msgs_per_s", Best::Most);
        Line::new(name, points)
    };
    let fabrics = [
        ("shm", "shared memory"),
        ("weft", "VQPs"),
        ("verbs", "verbs"),
    ];
    chart(
        "rdmc-rate",
        "Messages of one byte",
        Axis::places("members", Unit::Plain),
        Axis::log("messages a second", Unit::Plain),
        fabrics.into_iter().map(line).collect(),
    )
}

fn overlap(rows: &Rows) -> Chart {
    let all = rows
        .of("rdmc")
        .is("experiment", "overlap")
        .is("fabric", "shm");
    let all = of_block(all.is("system", "weft"), BLOCK).eq("bytes", MIB);
    let who = [
        ("all send", 1.0),
        ("half send", 2.0),
        ("one sends", f64::INFINITY),
    ];
    let line = |(name, divisor): (&str, f64)| {
        let own = all.clone().filter(move |row| {
            let both = row.number("senders").zip(row.number("members"));
            both.is_some_and(|(senders, members)| senders == (members / divisor).floor().max(1.0))
        });
        Line::new(name, own.points("members", "gb_per_s", Best::Most))
    };
    chart(
        "rdmc-overlap",
        "Messages of 1 MiB at once, over shared memory",
        Axis::places("members", Unit::Plain),
        Axis::linear("GB/s of all messages", Unit::Plain),
        who.into_iter().map(line).collect(),
    )
}

/// Four members that wait in one way, with the paper's schedule.
fn waiting<'a>(rows: &'a Rows, wait: &str) -> Selection<'a> {
    let rows = rows.of("rdmc").is("experiment", "wait").is("wait", wait);
    rows.is("algorithm", "binomial_pipeline").eq("members", 4.0)
}

fn wait(rows: &Rows) -> Chart {
    let line = |(wait, name): (&str, &str)| {
        let points = waiting(rows, wait).points("bytes", "gb_per_s", Best::Most);
        Line::new(name, points)
    };
    chart(
        "rdmc-wait",
        "How four members wait, over shared memory",
        Axis::places("size", Unit::Bytes),
        Axis::linear("GB/s", Unit::Plain),
        [
            ("hybrid", "polls, then sleeps"),
            ("interrupt", "sleeps at once"),
        ]
        .into_iter()
        .map(line)
        .collect(),
    )
}

fn wait_numbers(rows: &Rows) -> Vec<Compared> {
    let [sleeping, polling] =
        ["interrupt", "hybrid"].map(|wait| waiting(rows, wait).eq("bytes", MIB));
    let cpu = ratio(
        sleeping.least("cpu_us_per_msg"),
        polling.least("cpu_us_per_msg"),
    );
    let speed = ratio(sleeping.most("gb_per_s"), polling.most("gb_per_s"));
    vec![
        Compared::new(
            "processor time of sleeping over polling, 1 MiB",
            "0.5 ×",
            cpu,
            Unit::Times,
        ),
        Compared::new(
            "bandwidth of sleeping over polling, 1 MiB",
            "an impact that is “quite minimal”",
            speed,
            Unit::Times,
        ),
    ]
}

fn many_nodes(rows: &Rows) -> Vec<Compared> {
    let rows = rows.of("rdmc-sim").is("figure", "figure-8");
    let of = |algorithm: &str, members: f64| {
        let rows = rows.clone().is("algorithm", algorithm);
        rows.eq("members", members).least("seconds")
    };
    let pipeline = |members| of("binomial_pipeline", members);
    vec![
        Compared::new(
            "511 copies over 127, binomial pipeline",
            "“almost the same”",
            ratio(pipeline(512.0), pipeline(128.0)),
            Unit::Times,
        ),
        Compared::new(
            "511 copies, sequential over binomial pipeline",
            "orders of magnitude",
            ratio(of("sequential", 512.0), pipeline(512.0)),
            Unit::Times,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_the_papers_order() {
        let numbers: Vec<_> = figures().iter().map(|figure| number(figure.id)).collect();
        assert_eq!(numbers, [4, 5, 6, 7, 8, 9, 10, 11, 12]);
    }

    #[test]
    fn sleeping_is_compared_with_polling_in_the_same_groups() {
        let row = |wait, members, algorithm, gb_per_s, cpu| {
            format!(
                r#"{{"bench":"rdmc","experiment":"wait","wait":"{wait}","members":{members},"bytes":1048576,"algorithm":"{algorithm}","gb_per_s":{gb_per_s},"cpu_us_per_msg":{cpu}}}"#
            )
        };
        let rows = [
            row("hybrid", 4, "binomial_pipeline", 2.0, 100),
            row("hybrid", 4, "auto", 5.0, 10),
            row("hybrid", 16, "binomial_pipeline", 0.1, 5),
            row("interrupt", 4, "binomial_pipeline", 1.0, 50),
            row("interrupt", 2, "binomial_pipeline", 8.0, 1),
        ];
        let numbers = wait_numbers(&Rows::parse(&rows.join("\n")).unwrap());
        assert_eq!(numbers[0].here.as_deref(), Some("0.5 ×"));
        assert_eq!(numbers[1].here.as_deref(), Some("0.5 ×"));
    }

    #[test]
    fn mpi_is_compared_at_its_best_and_ours() {
        let rows = Rows::parse(
            r#"
{"bench":"rdmc","experiment":"single","fabric":"shm","system":"weft","algorithm":"chain","block_bytes":1048576,"members":4,"bytes":67108864,"seconds_p50":0.010}
{"bench":"rdmc","experiment":"single","fabric":"shm","system":"weft","algorithm":"auto","block_bytes":null,"members":4,"bytes":67108864,"seconds_p50":0.008}
{"bench":"rdmc","experiment":"single","fabric":"shm","system":"mpi","algorithm":"bcast","members":4,"bytes":67108864,"seconds_p50":0.016}
{"bench":"rdmc","experiment":"single","fabric":"shm","system":"mpi","algorithm":"shared_window","members":4,"bytes":67108864,"seconds_p50":0.006}
{"bench":"rdmc","experiment":"single","fabric":"shm","system":"weft","algorithm":"chain","block_bytes":65536,"members":4,"bytes":67108864,"seconds_p50":0.001}
"#,
        );
        let rows = rows.unwrap();
        let Plot::Lines(lines) = algorithms(&rows).plot else {
            unreachable!()
        };
        // Another block is not in the chart of algorithms.
        assert_eq!(lines.lines[1].points, [(4.0, 10_000.0)]);
        assert_eq!(lines.lines[5].points, [(4.0, 16_000.0)]);
        assert_eq!(lines.lines[6].points, [(4.0, 6_000.0)]);
        assert_eq!(algorithm_numbers(&rows)[0].here.as_deref(), Some("16 ×"));
    }
}
