// SPDX-License-Identifier: MIT OR Apache-2.0

//! The paper's numbers of multicast, and ours.

use super::{experiment, plain, plots::FABRICS, BYTES};
use crate::chart::Unit;
use crate::figure::{ratio, Compared};
use crate::rows::{Rows, Selection};
use crate::systems::System;

fn shown(value: Option<f64>, unit: &str) -> Option<String> {
    value.map(|value| format!("{} {unit}", Unit::Plain.show(value)))
}

pub fn write_latency(rows: &Rows) -> Vec<Compared> {
    let of = |system: System, bytes| {
        let rows = system.of(rows.of("datapath").is("op", "write_pp"));
        rows.eq("bytes", bytes).least("lat_us_p50")
    };
    let grows = |system| ratio(of(system, 4096.0), of(system, 8.0));
    vec![
        Compared::new(
            "verbs, the shortest",
            "1.73 µs",
            of(System::Verbs, 8.0),
            Unit::Us,
        ),
        Compared::new(
            "verbs, 4 KiB over the shortest",
            "1.42 ×",
            grows(System::Verbs),
            Unit::Times,
        ),
        Compared::new(
            "DC, 4 KiB over the shortest",
            "",
            grows(System::WeftDc),
            Unit::Times,
        ),
    ]
}

pub fn single(rows: &Rows) -> Vec<Compared> {
    let all = plain(rows, "single", "shm").eq("bytes", BYTES);
    let of = |senders| all.clone().is("senders", senders);
    vec![
        Compared::text(
            "most, all sending",
            "9.7 GB/s of 12.5",
            shown(of("all").most("gb_per_s"), "GB/s"),
        ),
        Compared::text(
            "share of what there is, all sending",
            "77.6 % of the link",
            share(&of("all")),
        ),
        Compared::text(
            "share of plain writes and reads, one sending",
            "",
            share(&of("one")),
        ),
    ]
}

/// What the group that delivers most delivers of what plain writes and reads move. Other groups
/// may have a larger share of less.
fn share(rows: &Selection<'_>) -> Option<String> {
    let most = rows.most("gb_per_s")?;
    let best = rows.clone().eq("gb_per_s", most);
    let best = best.rows().first()?;
    let share = Unit::Percent.show(100.0 * best.number("raw_share")?);
    Some(format!("{share}, {} members", best.number("members")?))
}

pub fn rates(rows: &Rows) -> Vec<Compared> {
    let all = plain(rows, "single", "shm")
        .is("senders", "all")
        .eq("members", 2.0);
    let of = |bytes| all.clone().eq("bytes", bytes).most("msgs_per_s");
    vec![
        Compared::new(
            "two members, 1 byte: messages a second",
            "",
            of(1.0),
            Unit::Plain,
        ),
        Compared::new(
            "1 byte over 10 KB, rates",
            "“about the same”",
            ratio(of(1.0), of(BYTES)),
            Unit::Times,
        ),
    ]
}

/// How much more the last rung carries than the first.
fn gain(rows: &Selection<'_>, from: &str, to: &str, field: &str) -> Option<f64> {
    let of = |opts: &str| rows.clone().is("opts", opts).most(field);
    ratio(of(to), of(from))
}

pub fn ladder(rows: &Rows) -> Vec<Compared> {
    let mut all = Vec::new();
    for (fabric, words) in FABRICS {
        let rows = plain(rows, "ladder", fabric).eq("bytes", BYTES);
        for members in rows.values("members") {
            let own = rows.clone().eq("members", members);
            let of = |from, to| gain(&own, from, to, "gb_per_s");
            let what = |what: &str| format!("{what}, {members} members over {words}");
            all.push(Compared::new(
                what("all over baseline"),
                "up to 20 ×, 16 members",
                of("baseline", "full"),
                Unit::Times,
            ));
            all.push(Compared::new(
                what("batching over baseline"),
                "9 × on average",
                of("baseline", "+send"),
                Unit::Times,
            ));
            all.push(Compared::new(
                what("null messages"),
                "a drop of “up to 25%” in small groups",
                of("+send", "+nulls"),
                Unit::Times,
            ));
            all.push(Compared::new(
                what("locks let go before posting"),
                "1.4 × on average",
                of("+nulls", "full"),
                Unit::Times,
            ));
        }
    }
    all
}

pub fn batches(rows: &Rows) -> Vec<Compared> {
    let all = plain(rows, "single", "shm")
        .is("senders", "all")
        .eq("bytes", BYTES);
    let most = all.most("members");
    let of = |field: &str| {
        let own = most.map(|members| all.clone().eq("members", members));
        own.and_then(|own| own.most(field))
            .map(|mean| Unit::Plain.show(mean))
    };
    let members = most.map_or_else(|| "most".to_owned(), |most| format!("{most:.0}"));
    vec![
        Compared::text(
            format!("mean batch sent (paper: 16 members, here: {members})"),
            "1.72",
            of("send_batch_mean"),
        ),
        Compared::text("received", "22.2", of("receive_batch_mean")),
        Compared::text("delivered", "35.2", of("delivery_batch_mean")),
    ]
}

pub fn subgroups(rows: &Rows) -> Vec<Compared> {
    let of = |opts: &str| {
        let rows = experiment(rows, "subgroups", "shm").is("opts", opts);
        let at = |subgroups: f64| rows.clone().eq("subgroups", subgroups).most("gb_per_s");
        ratio(at(50.0), at(1.0))
    };
    vec![
        Compared::new(
            "50 subgroups over one, baseline",
            "0.1 ×",
            of("baseline"),
            Unit::Times,
        ),
        Compared::new(
            "50 subgroups over one, all optimisations",
            "“even increases it in some cases”",
            of("full"),
            Unit::Times,
        ),
    ]
}

pub fn delayed(rows: &Rows) -> Vec<Compared> {
    let all = experiment(rows, "delayed", "shm");
    let punctual = all.clone().without("note").most("gb_per_s");
    let late = all.is("note", "one late 100 us").most("gb_per_s");
    vec![Compared::new(
        "one sender 100 µs late, over none",
        "“performance increases”",
        ratio(late, punctual),
        Unit::Times,
    )]
}

pub fn memcpy(rows: &Rows) -> Vec<Compared> {
    let all = experiment(rows, "memcpy", "shm").eq("bytes", BYTES);
    let mut numbers = Vec::new();
    for members in all.values("members") {
        let own = all.clone().eq("members", members);
        let copied = own.clone().is("note", "memcpy").most("gb_per_s");
        let placed = own.without("note").most("gb_per_s");
        numbers.push(Compared::new(
            format!("copied over in place, {members} members"),
            "about 0.8 × (7.5 of 9.7 GB/s)",
            ratio(copied, placed),
            Unit::Times,
        ));
    }
    numbers
}

pub fn latency(rows: &Rows) -> Vec<Compared> {
    let all = plain(rows, "ladder", "shm")
        .eq("bytes", BYTES)
        .eq("members", 2.0);
    let of = |opts: &str| all.clone().is("opts", opts).least("lat_us_p50");
    let lone = plain(rows, "lone", "shm");
    vec![
        Compared::new(
            "baseline over all optimisations, two members",
            "they “improve both throughput and latency”",
            ratio(of("baseline"), of("full")),
            Unit::Times,
        ),
        Compared::new(
            "a lone message on a group that sleeps",
            "",
            lone.least("wake_us_p50"),
            Unit::Us,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_the_group_that_delivers_most() {
        let row = |members, gb_per_s, share| {
            format!(
                r#"{{"bench":"multicast","experiment":"single","fabric":"shm","touch":"full","senders":"all","members":{members},"bytes":10240,"opts":"full","gb_per_s":{gb_per_s},"raw_share":{share}}}"#
            )
        };
        let rows = [row(2, 9.0, 0.7), row(16, 0.1, 1.6)].join("\n");
        let all = single(&Rows::parse(&rows).unwrap());
        assert_eq!(all[0].here.as_deref(), Some("9 GB/s"));
        assert_eq!(all[1].here.as_deref(), Some("70 %, 2 members"));
        assert_eq!(all[2].here, None);
    }

    #[test]
    fn gains_are_within_one_number_of_members() {
        let rows = Rows::parse(
            r#"
{"bench":"multicast","experiment":"ladder","fabric":"shm","touch":"full","members":2,"bytes":10240,"opts":"baseline","gb_per_s":1}
{"bench":"multicast","experiment":"ladder","fabric":"shm","touch":"full","members":2,"bytes":10240,"opts":"full","gb_per_s":3}
{"bench":"multicast","experiment":"ladder","fabric":"shm","touch":"full","members":8,"bytes":10240,"opts":"full","gb_per_s":9}
{"bench":"multicast","experiment":"ladder","fabric":"shm","touch":"none","members":2,"bytes":10240,"opts":"full","gb_per_s":99}
"#,
        );
        let all = ladder(&rows.unwrap());
        let here: Vec<_> = all.iter().map(|one| one.here.as_deref()).collect();
        assert_eq!(here[0], Some("3 ×"));
        assert!(here[1..].iter().all(Option::is_none));
    }
}
