// SPDX-License-Identifier: MIT OR Apache-2.0

//! Charts of multicast.

use super::{experiment, plain, BYTES};
use crate::chart::{Axis, Bars, Chart, Line, Lines, Plot, Stack, Unit};
use crate::rows::{Best, Rows, Selection};
use crate::systems;

/// Fabrics, and what they are called in charts.
pub const FABRICS: [(&str, &str); 3] = [
    ("shm", "shared memory"),
    ("weft", "VQPs"),
    ("verbs", "verbs"),
];

/// Who sends, from most to fewest.
const SENDERS: [&str; 3] = ["all", "half", "one"];

fn bandwidth() -> Axis {
    Axis::linear("GB/s delivered at each member", Unit::Plain)
}

fn lines(name: &str, title: &str, x: Axis, y: Axis, lines: Vec<Line>) -> Chart {
    Chart {
        name: name.to_owned(),
        title: title.to_owned(),
        plot: Plot::Lines(Lines { x, y, lines }),
    }
}

fn bars(name: &str, title: String, y: Axis, parts: &[&str], stacks: Vec<Stack>) -> Chart {
    Chart {
        name: name.to_owned(),
        title,
        plot: Plot::Bars(Bars {
            y,
            parts: parts.iter().map(|&part| part.to_owned()).collect(),
            stacks,
            is_sum: false,
        }),
    }
}

pub fn write_latency(rows: &Rows) -> Chart {
    let rows = rows.of("datapath").is("op", "write_pp");
    lines(
        "write-latency-size",
        "WRITE, half of a ping-pong",
        Axis::places("size", Unit::Bytes),
        Axis::log("latency, median", Unit::Us),
        systems::lines(&rows, "bytes", "lat_us_p50", Best::Least),
    )
}

pub fn single(rows: &Rows) -> Chart {
    let mut all = Vec::new();
    for senders in SENDERS {
        for (name, words) in [("single", "multicast"), ("raw", "plain writes and reads")] {
            let rows = plain(rows, name, "shm")
                .is("senders", senders)
                .eq("bytes", BYTES);
            let points = rows.points("members", "gb_per_s", Best::Most);
            all.push(Line::new(format!("{senders} sending, {words}"), points));
        }
    }
    lines(
        "multicast-members",
        "Messages of 10 KB over shared memory",
        Axis::places("members", Unit::Plain),
        bandwidth(),
        all,
    )
}

pub fn rates(rows: &Rows) -> Chart {
    let line = |members: f64| {
        let rows = plain(rows, "single", "shm")
            .is("senders", "all")
            .eq("members", members);
        let points = rows.points("bytes", "msgs_per_s", Best::Most);
        Line::new(format!("{members} members"), points)
    };
    lines(
        "multicast-rate-size",
        "Messages a second over shared memory, all sending",
        Axis::places("size", Unit::Bytes),
        Axis::log("messages delivered a second", Unit::Plain),
        plain(rows, "single", "shm")
            .values("members")
            .into_iter()
            .map(line)
            .collect(),
    )
}

/// The ladder over each fabric.
pub fn ladders(rows: &Rows) -> Vec<Chart> {
    let names = ["ladder-shm", "ladder-weft", "ladder-verbs"];
    let all = FABRICS.into_iter().zip(names);
    all.map(|((fabric, words), name)| ladder(rows, fabric, words, name))
        .collect()
}

/// The rungs over a fabric, messages of 10 KB.
fn ladder(rows: &Rows, fabric: &str, words: &str, name: &str) -> Chart {
    let rows = plain(rows, "ladder", fabric).eq("bytes", BYTES);
    let members = rows.values("members");
    let stack = |opts: &str| Stack {
        name: opts.to_owned(),
        parts: members
            .iter()
            .map(|&members| {
                rows.clone()
                    .is("opts", opts)
                    .eq("members", members)
                    .most("gb_per_s")
            })
            .collect(),
    };
    let parts: Vec<_> = members
        .iter()
        .map(|members| format!("{members} members"))
        .collect();
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    let stacks = rows.texts("opts").into_iter().map(stack).collect();
    let title = format!("One optimisation after the other, over {words}");
    bars(name, title, bandwidth(), &parts, stacks)
}

pub fn window(rows: &Rows) -> Chart {
    let own = experiment(rows, "window", "shm");
    let line = |members: f64| {
        let points = own
            .clone()
            .eq("members", members)
            .points("window", "gb_per_s", Best::Most);
        Line::new(format!("{members} members"), points)
    };
    lines(
        "multicast-window",
        "Size of the window, over shared memory",
        Axis::places("messages of the window", Unit::Plain),
        bandwidth(),
        own.values("members").into_iter().map(line).collect(),
    )
}

pub fn subgroups(rows: &Rows) -> Chart {
    let line = |opts: &str| {
        let rows = experiment(rows, "subgroups", "shm").is("opts", opts);
        Line::new(opts, rows.points("subgroups", "gb_per_s", Best::Most))
    };
    lines(
        "multicast-subgroups",
        "One of many subgroups is active, over shared memory",
        Axis::places("subgroups", Unit::Plain),
        bandwidth(),
        ["full", "baseline"].into_iter().map(line).collect(),
    )
}

pub fn delayed(rows: &Rows) -> Chart {
    let own = experiment(rows, "delayed", "shm");
    let punctual = own.clone().without("note");
    let mut stacks = vec![stack("none late", &punctual)];
    for note in own.texts("note") {
        let words = note.replace(" late", " late,").replace(" us", " µs");
        stacks.push(stack(&words, &own.clone().is("note", note)));
    }
    let title = "Senders that pause after each message".to_owned();
    bars(
        "multicast-delayed",
        title,
        bandwidth(),
        &["bandwidth"],
        stacks,
    )
}

fn stack(name: &str, rows: &Selection<'_>) -> Stack {
    Stack {
        name: name.to_owned(),
        parts: vec![rows.most("gb_per_s")],
    }
}

pub fn memcpy(rows: &Rows) -> Chart {
    let own = experiment(rows, "memcpy", "shm").eq("bytes", BYTES);
    let each = |members: f64| Stack {
        name: format!("{members} members"),
        parts: vec![
            own.clone()
                .eq("members", members)
                .without("note")
                .most("gb_per_s"),
            own.clone()
                .eq("members", members)
                .is("note", "memcpy")
                .most("gb_per_s"),
        ],
    };
    let stacks = own.values("members").into_iter().map(each).collect();
    let title = "A copy more at both ends, messages of 10 KB".to_owned();
    bars(
        "multicast-memcpy",
        title,
        bandwidth(),
        &["in place", "copied"],
        stacks,
    )
}

pub fn latency(rows: &Rows) -> Chart {
    let own = plain(rows, "ladder", "shm").eq("bytes", BYTES);
    let each = |members: f64| Stack {
        name: format!("{members} members"),
        parts: ["baseline", "full"]
            .map(|opts| {
                own.clone()
                    .eq("members", members)
                    .is("opts", opts)
                    .least("lat_us_p50")
            })
            .to_vec(),
    };
    let stacks = own.values("members").into_iter().map(each).collect();
    let title = "From building a message to its delivery at its sender".to_owned();
    let y = Axis::linear("latency, median", Unit::Us);
    bars("multicast-latency", title, y, &["baseline", "full"], stacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"bench":"multicast","experiment":"ladder","fabric":"shm","touch":"full","members":2,"senders":"all","bytes":10240,"opts":"baseline","gb_per_s":1,"lat_us_p50":900}
{"bench":"multicast","experiment":"ladder","fabric":"shm","touch":"full","members":2,"senders":"all","bytes":10240,"opts":"full","gb_per_s":12,"lat_us_p50":90}
{"bench":"multicast","experiment":"delayed","fabric":"shm","touch":"full","members":4,"bytes":10240,"gb_per_s":3}
{"bench":"multicast","experiment":"delayed","fabric":"shm","touch":"full","members":4,"bytes":10240,"note":"one late 100 us","gb_per_s":2}
"#;

    #[test]
    fn the_ladder_has_its_rungs_in_order() {
        let rows = Rows::parse(ROWS).unwrap();
        let Plot::Bars(bars) = ladder(&rows, "shm", "shared memory", "test").plot else {
            unreachable!()
        };
        let rungs: Vec<_> = bars
            .stacks
            .iter()
            .map(|stack| (&*stack.name, stack.parts[0]))
            .collect();
        assert_eq!(rungs, [("baseline", Some(1.0)), ("full", Some(12.0))]);
        assert!(!ladder(&rows, "weft", "VQPs", "test").has_data());
    }

    #[test]
    fn who_is_late_is_said_below_the_bar() {
        let rows = Rows::parse(ROWS).unwrap();
        let Plot::Bars(bars) = delayed(&rows).plot else {
            unreachable!()
        };
        let names: Vec<_> = bars.stacks.iter().map(|stack| &*stack.name).collect();
        assert_eq!(names, ["none late", "one late, 100 µs"]);
    }
}
