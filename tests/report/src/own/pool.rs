// SPDX-License-Identifier: MIT OR Apache-2.0

//! The hybrid pool: connections by DC, by RC and by verbs, and what moving between DC and RC
//! costs.

use crate::chart::{Axis, Bars, Chart, Line, Lines, Plot, Stack, Unit};
use crate::figure::{Compared, Recipe};
use crate::rows::{Best, Rows};

/// Systems, and how they are called.
const SYSTEMS: [(&str, &str); 3] = [
    ("verbs", "verbs"),
    ("weft", "Weft"),
    ("weft_rc", "Weft, RC for all (as LITE)"),
];
/// Cases with something beside requests, what that is, and its name.
const BESIDE: [(&str, &str, &str); 6] = [
    ("opening", "quiet", "READs over DC"),
    ("opening", "opening", "while a queue pair is made"),
    ("moves", "dc", "16 at once over DC"),
    ("moves", "rc", "over RC"),
    ("moves", "still", "both, as long on each"),
    ("moves", "moving", "moved every 20 ms"),
];

/// Its figure.
pub fn recipe() -> Recipe {
    Recipe {
        id: "pool",
        title: "The hybrid pool",
        limits: "Weft with RC for all has one queue pair for each peer and not for each \
                 connection, and there are few peers here: what a queue pair of LITE's to each of \
                 many nodes costs is in the row of pairs.",
        benches: &["pool"],
        charts: |rows| vec![memory(rows), calls(rows), beside(rows)],
        compare: numbers,
    }
}

fn memory(rows: &Rows) -> Chart {
    let line = |(system, name): (&str, &str)| {
        let own = rows
            .of("pool")
            .is("case", "connections")
            .is("system", system);
        Line::new(name, own.points("connections", "module_bytes", Best::Least))
    };
    Chart {
        name: "pool-memory".to_owned(),
        title: "The kernel's memory for connections to few peers".to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::places("connections", Unit::Plain),
            y: Axis::log("bytes", Unit::Bytes),
            lines: SYSTEMS.into_iter().map(line).collect(),
        }),
    }
}

fn calls(rows: &Rows) -> Chart {
    let stack = |(case, words): (&str, &str)| {
        SYSTEMS.map(|(system, name)| {
            let own = rows.of("pool").is("case", case).is("system", system);
            Stack {
                name: format!("{name}, {words}"),
                parts: ["call_us_p50", "call_us_p99"]
                    .map(|field| own.least(field))
                    .to_vec(),
            }
        })
    };
    let cases = [
        ("connections", "few peers"),
        ("pairs", "a peer that is not known"),
    ];
    Chart {
        name: "pool-calls".to_owned(),
        title: "The calls that make and connect one".to_owned(),
        plot: Plot::Bars(Bars {
            y: Axis::log("time", Unit::Us),
            parts: vec!["median".to_owned(), "99 %".to_owned()],
            // Verbs has no row of pairs.
            stacks: cases
                .into_iter()
                .flat_map(stack)
                .filter(|stack| stack.parts.iter().any(Option::is_some))
                .collect(),
            is_sum: false,
        }),
    }
}

fn beside(rows: &Rows) -> Chart {
    let stack = |(case, beside, name): (&str, &str, &str)| {
        let own = rows.of("pool").is("case", case).is("beside", beside);
        Stack {
            name: name.to_owned(),
            parts: ["lat_us_p50", "lat_us_p99"]
                .map(|field| own.least(field))
                .to_vec(),
        }
    };
    Chart {
        name: "pool-beside".to_owned(),
        title: "Requests while queue pairs are made, and while their VQP is moved".to_owned(),
        plot: Plot::Bars(Bars {
            y: Axis::log("latency", Unit::Us),
            parts: vec!["median".to_owned(), "99 %".to_owned()],
            stacks: BESIDE.into_iter().map(stack).collect(),
            is_sum: false,
        }),
    }
}

fn numbers(rows: &Rows) -> Vec<Compared> {
    let pool = || rows.of("pool");
    let each = |system: &str| {
        let own = pool().is("case", "pairs").is("system", system);
        let (bytes, count) = own.least("module_bytes").zip(own.least("connections"))?;
        (count > 0.0).then(|| bytes / count)
    };
    let beside = |case: &str, beside: &str| pool().is("case", case).is("beside", beside);
    let delay = pool().is("case", "delay");
    let seconds = |field: &str| delay.least(field).map(|seconds| seconds * 1e6);
    let times = |what: &str, here| Compared::new(what, "", here, Unit::Times);
    vec![
        Compared::new(
            "a connection to another node, both ends",
            "1.3 KB",
            each("weft"),
            Unit::Bytes,
        ),
        Compared::new(
            "the same with RC for all, both ends (LITE: one end)",
            "156 KB",
            each("weft_rc"),
            Unit::Bytes,
        ),
        times(
            "READs while a queue pair is made, median over that without",
            beside("opening", "opening").least("p50_ratio"),
        ),
        times(
            "requests of a VQP that is moved, 99 % over that without",
            beside("moves", "moving").least("move_p99_ratio"),
        ),
        Compared::new(
            "DC becomes slow: until requests are over RC",
            "",
            seconds("to_rc_s"),
            Unit::Us,
        ),
        times(
            "requests a second then, over verbs",
            delay.least("over_verbs"),
        ),
        Compared::new(
            "DC is fast again: until requests are over DC",
            "",
            seconds("to_dc_s"),
            Unit::Us,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"bench":"pool","case":"pairs","system":"weft","connections":10,"module_bytes":10240}
{"bench":"pool","case":"moves","system":"weft","beside":"moving","lat_us_p50":5,"move_p99_ratio":1.5}
{"bench":"pool","case":"delay","system":"weft","to_rc_s":0.5,"over_verbs":1.25}
"#;

    #[test]
    fn what_was_measured_is_told_and_what_was_not_is_none() {
        let rows = Rows::parse(ROWS).unwrap();
        let here: Vec<_> = numbers(&rows).into_iter().map(|one| one.here).collect();
        assert_eq!(here[0].as_deref(), Some("1 KiB"));
        assert_eq!(here[1], None);
        assert_eq!(here[3].as_deref(), Some("1.5 ×"));
        assert_eq!(here[5].as_deref(), Some("1.25 ×"));
        assert_eq!(here[6], None);
        assert!(beside(&rows).has_data());
        assert!(!memory(&rows).has_data());
    }
}
