// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups with views: how long their members wait when the view changes.

use crate::chart::{Axis, Bars, Chart, Plot, Stack, Unit};
use crate::figure::{Compared, Recipe};
use crate::rows::{Rows, Selection};

/// Fabrics, and how they are called.
const FABRICS: [(&str, &str); 3] = [
    ("shm", "shared memory"),
    ("weft", "VQPs"),
    ("verbs", "verbs"),
];
/// Changes of a view, and how they are called.
const CHANGES: [(&str, &str); 3] = [
    ("kill", "a member is killed"),
    ("leave", "one leaves"),
    ("join", "one joins"),
];
/// Times of a change, and how they are called.
const TIMES: [(&str, &str); 3] = [
    ("resumed_us_p50", "until the new view delivers, median"),
    ("resumed_us_p99", "the same, 99 %"),
    ("pause_us_p50", "without a delivery, median"),
];

/// Its figure.
pub fn recipe() -> Recipe {
    Recipe {
        id: "views",
        title: "Members that go and come",
        limits: "All members are processes of one machine with fewer processors than members, so \
                 that each waits for the others' turns.",
        benches: &["views"],
        charts: |rows| {
            let each = FABRICS.map(|(fabric, name)| changes(rows, fabric, name));
            each.into()
        },
        compare: numbers,
    }
}

/// Rows of a change over a fabric, without those in which members that hang are suspected.
fn of<'a>(rows: &'a Rows, fabric: &str, change: &str) -> Selection<'a> {
    let own = rows.of("views").is("fabric", fabric);
    own.is("change", change).without("term_ms")
}

fn changes(rows: &Rows, fabric: &str, name: &str) -> Chart {
    let stack = |(change, words): (&str, &str)| {
        let own = of(rows, fabric, change);
        Stack {
            name: words.to_owned(),
            parts: TIMES.map(|(field, _)| own.least(field)).to_vec(),
        }
    };
    Chart {
        name: format!("views-{fabric}"),
        title: format!("Changes of the view under load, over {name}"),
        plot: Plot::Bars(Bars {
            y: Axis::log("time", Unit::Us),
            parts: TIMES.map(|(_, name)| name.to_owned()).to_vec(),
            stacks: CHANGES.into_iter().map(stack).collect(),
            is_sum: false,
        }),
    }
}

fn numbers(rows: &Rows) -> Vec<Compared> {
    let mut all = Vec::new();
    for (fabric, name) in FABRICS {
        let mut time = |what: &str, here| {
            all.push(Compared::new(format!("{name}: {what}"), "", here, Unit::Us));
        };
        let killed = of(rows, fabric, "kill");
        time(
            "a member is killed, until all others deliver again",
            killed.least("failover_us_p50"),
        );
        let joined = of(rows, fabric, "join");
        time(
            "a newcomer's join, until its first delivery",
            joined.least("join_us_p50"),
        );
        time(
            "the others' longest time without a delivery meanwhile",
            joined.least("pause_us_p50"),
        );
        all.extend(hangs(rows, fabric, name));
    }
    all
}

/// Of members that hang, for each time after which they are suspected.
fn hangs(rows: &Rows, fabric: &str, name: &str) -> Vec<Compared> {
    let hangs = rows.of("views").is("fabric", fabric).is("change", "hang");
    let mut all = Vec::new();
    for term_ms in hangs.values("term_ms") {
        let own = hangs.clone().eq("term_ms", term_ms);
        let what = format!("{name}: one that hangs is suspected after {term_ms} ms");
        all.push(Compared::new(
            format!("{what}, until all others deliver again"),
            "",
            own.least("resumed_us_p50"),
            Unit::Us,
        ));
        let groups = own.most("changes").zip(own.most("wrong"));
        all.push(Compared::text(
            format!("{what}: groups that put out a member that ran"),
            "",
            groups.map(|(right, wrong)| format!("{wrong} of {}", right + wrong)),
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"bench":"views","fabric":"shm","change":"kill","term_ms":null,"resumed_us_p50":900,"failover_us_p50":900,"pause_us_p50":500}
{"bench":"views","fabric":"shm","change":"join","term_ms":null,"resumed_us_p50":1000,"join_us_p50":1000,"pause_us_p50":1200}
{"bench":"views","fabric":"shm","change":"hang","changes":9,"term_ms":100,"wrong":1,"resumed_us_p50":80000}
"#;

    #[test]
    fn what_was_measured_of_a_fabric_is_told() {
        let rows = Rows::parse(ROWS).unwrap();
        let all = numbers(&rows);
        let here: Vec<_> = all.iter().map(|one| one.here.as_deref()).collect();
        assert_eq!(
            here[..5],
            ["900 µs", "1 ms", "1.2 ms", "80 ms", "1 of 10"].map(Some)
        );
        assert!(here[5..].iter().all(Option::is_none));
    }

    #[test]
    fn a_change_that_was_measured_has_its_bars() {
        let rows = Rows::parse(ROWS).unwrap();
        let Plot::Bars(bars) = changes(&rows, "shm", "shared memory").plot else {
            panic!("another plot");
        };
        assert_eq!(bars.stacks[0].name, "a member is killed");
        assert_eq!(bars.stacks[0].parts, [Some(900.0), None, Some(500.0)]);
        assert_eq!(bars.stacks[1].parts, [None; 3]);
        assert!(!changes(&rows, "verbs", "verbs").has_data());
    }
}
