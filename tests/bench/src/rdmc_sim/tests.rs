// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the paper says of its algorithms, on simulated links.

use clap::Parser;

use super::case::Case;
use super::plan::{plan, Panel};
use super::result::Row;
use super::simulation::{simulate, Outcome};
use crate::cli::{Cli, Command};

const MIB_AT_40_GBPS_NS: u64 = 209_715;
/// Links that take a block's bits and nothing else.
const IDEAL: &str = "--block-us 0 --latency-us 0";

fn panels(arguments: &str) -> anyhow::Result<Vec<Panel>> {
    let all = ["weft-bench", "rdmc-sim"].into_iter();
    let cli = Cli::try_parse_from(all.chain(arguments.split_whitespace()))?;
    match cli.command {
        Command::RdmcSim(args) => plan(&args),
        _ => unreachable!("that is another benchmark"),
    }
}

/// The cases that these arguments describe.
fn cases(arguments: &str) -> Vec<Case> {
    let panels = panels(arguments).expect("the arguments are right");
    let points = panels.into_iter().flat_map(|panel| panel.points);
    points.map(|point| point.case).collect()
}

fn outcomes(arguments: &str) -> Vec<Outcome> {
    let cases = cases(arguments);
    let all: anyhow::Result<Vec<_>> = cases.iter().map(simulate).collect();
    all.expect("it can be simulated")
}

/// Until all members have the message, for each case.
fn totals(arguments: &str) -> Vec<f64> {
    let outcomes = outcomes(arguments);
    outcomes
        .iter()
        .map(|outcome| outcome.total_ns as f64)
        .collect()
}

fn total(arguments: &str) -> f64 {
    totals(arguments)[0]
}

fn error(arguments: &str) -> String {
    match panels(arguments) {
        Ok(_) => panic!("{arguments}: that is accepted"),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn on_ideal_links_a_multicast_takes_its_steps() {
    let sizes: Vec<String> = (2..=33)
        .chain([64, 100, 256])
        .map(|n| n.to_string())
        .collect();
    for blocks in [1, 2, 7, 40] {
        let bytes = blocks << 20;
        for outcome in outcomes(&format!(
            "--members {} --bytes {bytes} {IDEAL}",
            sizes.join(",")
        )) {
            assert_eq!(outcome.total_ns, outcome.steps as u64 * MIB_AT_40_GBPS_NS);
        }
    }
}

#[test]
fn all_members_of_a_power_of_two_have_the_message_at_once() {
    let pipeline = "--members 4,32,256 --algorithms binomial_pipeline";
    for outcome in outcomes(&format!("{pipeline} {IDEAL}")) {
        assert_eq!(outcome.skew_ns, 0);
    }
}

#[test]
fn copies_for_511_cost_hardly_more_than_for_127() {
    let pipeline = totals("--members 128,512 --algorithms binomial_pipeline");
    assert!(pipeline[1] <= 1.25 * pipeline[0], "{pipeline:?}");
    let sequential = totals("--members 128,512 --algorithms sequential");
    assert!(sequential[1] >= 4.0 * sequential[0], "{sequential:?}");
}

#[test]
fn a_large_message_to_a_large_group_orders_the_algorithms_as_the_paper_does() {
    let algorithms = "binomial_pipeline,chain,binomial_tree,sequential";
    let totals = totals(&format!("--members 256 --algorithms {algorithms}"));
    assert!(totals.is_sorted(), "{totals:?}");
    assert!(totals[3] > 100.0 * totals[0], "{totals:?}");
}

#[test]
fn a_chain_keeps_up_except_for_small_messages() {
    let both = "--members 16 --algorithms binomial_pipeline,chain --bytes";
    let large = totals(&format!("{both} {}", 256 << 20));
    assert!(large[1] < 1.05 * large[0], "{large:?}");
    let small = totals(&format!("{both} {}", 8 << 20));
    assert!(small[1] > 1.5 * small[0], "{small:?}");
}

/// A member of a hypercube meets each of its neighbours in one of as many steps
/// as there are dimensions. So of d steps one takes `factor` times as long. A
/// chain has one neighbour for all blocks.
#[test]
fn a_slow_pair_slows_a_pipeline_in_few_of_its_steps_and_a_chain_in_all() {
    let slowdown = |algorithm: &str, factor: f64| {
        let group = format!("--members 64 --algorithms {algorithm}");
        let slow = format!("{group} --slow-pairs 2-3 --slow-factor {factor}");
        total(&slow) / total(&group)
    };
    for factor in [2.0, 4.0] {
        let (pipeline, expected) = (slowdown("binomial_pipeline", factor), (factor + 5.0) / 6.0);
        assert!(
            (pipeline / expected - 1.0).abs() < 0.02,
            "{pipeline} and not {expected}"
        );
        let chain = slowdown("chain", factor);
        assert!(chain > 0.8 * factor, "{chain}");
    }
}

/// It receives all blocks by its own link, so no algorithm is faster than that.
#[test]
fn a_slow_node_slows_all_algorithms() {
    let slow = "--members 64 --slow-nodes 2 --slow-factor 2 --algorithms binomial_pipeline,chain";
    let totals = totals(&format!("{slow} {IDEAL}"));
    let least = 256.0 * 2.0 * MIB_AT_40_GBPS_NS as f64;
    assert!(least <= totals[0], "{totals:?}");
    assert!(totals[0] < 1.05 * least, "{totals:?}");
    assert!(totals[0] < totals[1], "{totals:?}");
}

#[test]
fn a_chain_of_racks_crosses_an_oversubscribed_top_once_for_each_rack() {
    let racks = "--members 128 --rack-nodes 16 --oversubscription 3.5";
    let random = "--algorithms binomial_pipeline --placement random";
    let flat = &outcomes(&format!("{racks} {random}"))[0];
    let hybrids = outcomes(&format!(
        "{racks} --algorithms hybrid_chain,hybrid_pipeline"
    ));
    for hybrid in &hybrids {
        assert_eq!(hybrid.crossings, 7 * 256);
        assert!(hybrid.total_ns < flat.total_ns);
    }
    assert!(flat.crossings > 12 * 7 * 256, "{}", flat.crossings);
    assert!(2 * hybrids[0].total_ns < flat.total_ns);
}

/// A pipeline of racks takes two steps for each block, which is worth it only
/// where the top is slow.
#[test]
fn a_pipeline_of_racks_is_slower_than_a_flat_one_under_a_full_top() {
    let racks = "--members 128 --rack-nodes 16 --placement ordered";
    let both = totals(&format!(
        "{racks} --algorithms binomial_pipeline,hybrid_pipeline"
    ));
    assert!(both[1] > 1.8 * both[0], "{both:?}");
}

#[test]
fn several_senders_use_links_that_one_leaves_idle() {
    let group = "--members 16 --link-gbps 100 --algorithms binomial_pipeline --bytes 100000000";
    let gbps = |senders: f64| {
        let total_ns = total(&format!("{group} --senders {senders}"));
        senders * 100_000_000.0 * 8.0 / total_ns
    };
    // Each node receives the messages of 15 others.
    let most = 100.0 * 16.0 / 15.0;
    let all = gbps(16.0);
    assert!(all > 0.95 * most && all <= most, "{all}");
    assert!(gbps(1.0) < all, "{}", gbps(1.0));
}

#[test]
fn a_seed_decides_all() {
    let total = |seed: u32| {
        let jitter = "--members 16 --algorithms binomial_pipeline --jitter-us 20";
        let random = "--rack-nodes 4 --placement random --slow-percent 10";
        total(&format!("{jitter} {random} --bytes 33554432 --seed {seed}"))
    };
    assert_eq!(total(1), total(1));
    assert_ne!(total(1), total(2));
}

#[test]
fn a_last_block_that_is_short_takes_less() {
    let half_more = total(&format!("--members 2 --bytes {} {IDEAL}", 3 << 19));
    assert_eq!(half_more, (MIB_AT_40_GBPS_NS + 104_858) as f64);
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    for (wrong, why) in [
        ("--members 1024 --bytes 68719476736", "too many"),
        (
            "--members 1024 --senders 1024 --bytes 1073741824 --block-bytes 1073741824",
            "bytes are",
        ),
        ("--members 4 --senders 5", "5 senders"),
        ("--members 4 --nodes 3", "3 nodes"),
        ("--members 4 --slow-nodes 4", "nodes are 0 to 3"),
        ("--members 4 --algorithms hybrid_chain", "--rack-nodes"),
    ] {
        let error = error(wrong);
        assert!(error.contains(why), "{wrong}: {error}");
    }
}

#[test]
fn all_figures_are_drawn_under_names_of_their_own() {
    for quick in ["", "--quick"] {
        let panels = panels(quick).expect("the arguments are right");
        let mut names: Vec<_> = panels.iter().map(|panel| panel.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), panels.len());
        for point in panels.iter().flat_map(|panel| &panel.points) {
            point.case.check().expect("it can be simulated");
        }
    }
}

#[test]
fn rows_say_how_they_are_drawn() {
    let panel = &panels("--members 2,4").expect("the arguments are right")[0];
    let row = |point| Row::new(panel, point, &simulate(&point.case).expect("it ends"));
    let rows = panel.points.iter().map(row);
    for (point, row) in panel.points.iter().zip(rows) {
        let json = serde_json::to_value(row).expect("it can be written");
        assert_eq!(json["title"], panel.title);
        assert_eq!(json["measure"], "log_ms");
        assert_eq!(
            (&json["x"], &json["series"]),
            (&point.x.into(), &point.series.clone().into())
        );
        assert!(json["x_label"].is_string());
    }
}
