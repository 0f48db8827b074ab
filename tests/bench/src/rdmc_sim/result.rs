// SPDX-License-Identifier: MIT OR Apache-2.0

//! What `rdmc-sim` reports: a row for each case.

use serde::Serialize;

use super::case::{name, Placement};
use super::network::Ns;
use super::plan::{Panel, Point};
use super::simulation::Outcome;
use crate::report::{number, rounded, Sheet};

/// One case. All times are simulated.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    bench: &'static str,
    figure: &'static str,
    /// How the figure is drawn: its title, its horizontal axis, and what is drawn
    /// over it.
    title: String,
    x_label: &'static str,
    measure: &'static str,
    series: String,
    x: f64,
    algorithm: &'static str,
    members: usize,
    senders: usize,
    bytes: u64,
    block_bytes: u64,
    link_gbps: f64,
    block_us: f64,
    latency_us: f64,
    jitter_us: f64,
    posted: usize,
    nodes: usize,
    placement: Placement,
    rack_nodes: Option<usize>,
    oversubscription: Option<f64>,
    slow_nodes: Vec<usize>,
    slow_pairs: Vec<(usize, usize)>,
    slow_factor: f64,
    seed: u64,
    steps: usize,
    /// From the beginning until the last member has the last message.
    seconds: f64,
    /// All messages' bytes over that time.
    gb_per_s: f64,
    /// Between the first and the last receiver of a message, at most.
    skew_us: Option<f64>,
    /// How long a sender waits for blocks that it is to relay, on average.
    block_stall_us: Option<f64>,
    /// How long it waits for targets.
    target_stall_us: Option<f64>,
    /// Blocks that went from rack to rack.
    crossings: u64,
}

impl Row {
    /// What a case of a panel came to.
    pub fn new(panel: &Panel, point: &Point, outcome: &Outcome) -> Self {
        let case = &point.case;
        let links = &case.links;
        let seconds = outcome.total_ns as f64 / 1e9;
        Self {
            bench: "rdmc-sim",
            figure: panel.name,
            title: panel.title.clone(),
            x_label: panel.x.label,
            measure: panel.measure.name(),
            series: point.series.clone(),
            x: point.x,
            algorithm: name(case.algorithm),
            members: case.members,
            senders: case.senders,
            bytes: case.bytes,
            block_bytes: case.block_bytes,
            link_gbps: links.gbps,
            block_us: links.block_us,
            latency_us: links.latency_us,
            jitter_us: links.jitter_us,
            posted: links.posted,
            nodes: case.nodes,
            placement: case.placement,
            rack_nodes: links.racks.map(|racks| racks.nodes),
            oversubscription: links.racks.map(|racks| racks.oversubscription),
            slow_nodes: links.slow.nodes.clone(),
            slow_pairs: links.slow.pairs.clone(),
            slow_factor: links.slow.factor,
            seed: case.seed,
            steps: outcome.steps,
            seconds,
            gb_per_s: case.bytes as f64 * case.senders as f64 / 1e9 / seconds,
            skew_us: us(outcome.skew_ns),
            block_stall_us: us(outcome.stalls.block_ns),
            target_stall_us: us(outcome.stalls.target_ns),
            crossings: outcome.crossings,
        }
    }

    /// All messages' bits over that time, in 10^9 per second.
    fn gbps(&self) -> f64 {
        self.gb_per_s * 8.0
    }
}

fn us(ns: Ns) -> Option<f64> {
    rounded(Some(ns as f64 / 1e3))
}

/// The table of a panel.
pub struct Table(Sheet);

impl Table {
    /// No rows yet.
    pub fn new(x: &str) -> Self {
        let columns = [
            "series",
            x,
            "senders",
            "#steps",
            "total[msec]",
            "BW[Gb/sec]",
            "skew[usec]",
            "wait for block[usec]",
            "wait for target[usec]",
            "rack crossings",
        ];
        Self(Sheet::new(&columns, 1))
    }

    /// Adds a row.
    pub fn add(&mut self, x: f64, row: &Row) {
        self.0.row(vec![
            row.series.clone(),
            x.to_string(),
            row.senders.to_string(),
            row.steps.to_string(),
            number(Some(row.seconds * 1e3)),
            number(Some(row.gbps())),
            number(row.skew_us),
            number(row.block_stall_us),
            number(row.target_stall_us),
            row.crossings.to_string(),
        ]);
    }

    /// Prints it.
    pub fn print(self) {
        self.0.print();
    }
}
