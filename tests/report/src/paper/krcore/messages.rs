// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages and their answers.

use super::data::{by_clients, datapath, over_verbs, LONG, WORD};
use crate::chart::{Axis, Chart, Line, Lines, Plot, Unit};
use crate::figure::{ratio, Compared, Recipe};
use crate::rows::{Best, Rows, Selection};
use crate::systems::System;

/// Figure 9b.
pub fn without_copying() -> Recipe {
    Recipe {
        id: "krcore-9b",
        title: "Figure 9b: messages without copying",
        limits: "SoftDc copies a message once, from the packet to the receiver's buffer, where \
                 an adapter copies it by DMA; what is shown is what a further copy costs.",
        benches: &["two-sided"],
        charts: |rows| vec![echo_by_size(rows)],
        compare: zero_copy,
    }
}

/// Figure 11.
pub fn echo() -> Recipe {
    Recipe {
        id: "krcore-11",
        title: "Figure 11: messages and their answers, 8 bytes",
        limits: "Messages of Weft are SoftDc's, here over UDP; what an RC queue pair makes of \
                 them is in figure 9b.",
        benches: &["two-sided", "datapath"],
        charts: |rows| {
            vec![by_clients(
                rows,
                "send-async-clients",
                "SEND, in batches of 32",
                "send",
                "async",
            )]
        },
        compare: echoes,
    }
}

fn by_verbs(rows: &Rows) -> Selection<'_> {
    rows.of("two-sided").is("system", "verbs")
}

/// Weft's, by what carries the packets, and whether receivers read in place.
fn by_weft<'a>(rows: &'a Rows, transport: &str, zero_copy: &'static str) -> Selection<'a> {
    let rows = rows.of("two-sided").is("system", "weft");
    let rows = rows.is("transport", transport);
    rows.filter(move |row| row.shown("zero_copy").as_deref() == Some(zero_copy))
}

fn echo_by_size(rows: &Rows) -> Chart {
    let line = |name, rows: Selection<'_>| {
        Line::new(name, rows.points("bytes", "echo_us_p50", Best::Least))
    };
    Chart {
        name: "echo-size".to_owned(),
        title: "A message and its answer".to_owned(),
        plot: Plot::Lines(Lines {
            x: Axis::places("size", Unit::Bytes),
            y: Axis::log("round trip, median", Unit::Us),
            lines: vec![
                line("verbs", by_verbs(rows)),
                line("Weft, read in place", by_weft(rows, "dc", "true")),
                line("Weft, copied once more", by_weft(rows, "dc", "false")),
                line("Weft, over RC, read in place", by_weft(rows, "rc", "true")),
            ],
        }),
    }
}

/// Of one client: an echo of Weft's over one of verbs'.
fn echo_ratio(rows: &Rows, weft: Selection<'_>, bytes: f64) -> Option<f64> {
    let of = |rows: Selection<'_>| {
        let alone = rows.eq("bytes", bytes).eq("clients", 1.0);
        alone.least("echo_us_p50")
    };
    ratio(of(weft), of(by_verbs(rows)))
}

fn zero_copy(rows: &Rows) -> Vec<Compared> {
    let here = |zero_copy| echo_ratio(rows, by_weft(rows, "dc", zero_copy), LONG);
    vec![
        Compared::new(
            "over verbs, with a copy, more than 16 KB (here 64 KiB)",
            "1.45 to 3.1 ×",
            here("false"),
            Unit::Times,
        ),
        Compared::new(
            "over verbs, without",
            "1.08 to 1.23 ×",
            here("true"),
            Unit::Times,
        ),
    ]
}

fn echoes(rows: &Rows) -> Vec<Compared> {
    let sends = datapath(rows, "send", "async").eq("bytes", WORD);
    let rate = over_verbs(&sends, System::WeftDc, "ops_per_sec", Best::Most);
    let echo = |transport| echo_ratio(rows, by_weft(rows, transport, "true"), WORD);
    vec![
        Compared::new(
            "an echo of 8 bytes over RC, one client, over verbs'",
            "1.22 × (9.6 over 7.9 µs)",
            echo("rc"),
            Unit::Times,
        ),
        Compared::new(
            "the same over DC",
            "1.14 to 1.31 ×, not only of one client",
            echo("dc"),
            Unit::Times,
        ),
        Compared::new(
            "most messages a second over verbs'",
            "0.80 ×",
            rate,
            Unit::Times,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_compared_with_the_faster_server_of_verbs() {
        let rows = Rows::parse(
            r#"
{"bench":"two-sided","system":"verbs","wait":"poll","bytes":8,"clients":1,"zero_copy":false,"echo_us_p50":100}
{"bench":"two-sided","system":"verbs","wait":"event","bytes":8,"clients":1,"zero_copy":false,"echo_us_p50":160}
{"bench":"two-sided","system":"weft","transport":"rc","bytes":8,"clients":1,"zero_copy":true,"echo_us_p50":70}
{"bench":"two-sided","system":"weft","transport":"dc","bytes":8,"clients":1,"zero_copy":true,"echo_us_p50":80}
{"bench":"two-sided","system":"weft","transport":"dc","bytes":8,"clients":8,"zero_copy":true,"echo_us_p50":20}
"#,
        );
        let echoes = echoes(&rows.unwrap());
        let [rc, dc] = [0, 1].map(|at| echoes[at].here.as_deref());
        assert_eq!((rc, dc), (Some("0.7 ×"), Some("0.8 ×")));
    }
}
