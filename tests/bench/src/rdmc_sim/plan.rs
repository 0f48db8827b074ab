// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which cases make a figure.
//!
//! Figure 4 compares algorithms by the size of the group, figure 8 two of them
//! up to 512 nodes, figure 10 the bandwidth of several multicasts among the same
//! members. The other panels are of what the paper says without a figure.

mod own;
mod paper;
mod trouble;

use anyhow::Result;

use super::args::{Figure, RdmcSimArgs};
use super::case::Case;

/// One chart.
pub struct Panel {
    /// Its name in results and that of its file.
    pub name: &'static str,
    pub title: String,
    pub x: Axis,
    pub measure: Measure,
    pub points: Vec<Point>,
}

/// The horizontal axis.
#[derive(Clone, Copy)]
pub struct Axis {
    pub label: &'static str,
    /// The same as the heading of a column.
    pub column: &'static str,
}

/// What is drawn over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Until the last member has the last message.
    Milliseconds { logarithmic: bool },
    /// All messages' bits over that time (rdmc §5.2.2).
    Gbps,
    /// That time over that of the first point of the series.
    Slowdown,
}

impl Measure {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Milliseconds { logarithmic: true } => "log_ms",
            Self::Milliseconds { logarithmic: false } => "ms",
            Self::Gbps => "gbps",
            Self::Slowdown => "slowdown",
        }
    }
}

/// One case, and where it is in the chart.
pub struct Point {
    pub series: String,
    pub x: f64,
    pub case: Case,
}

/// All that is to be simulated.
pub fn plan(args: &RdmcSimArgs) -> Result<Vec<Panel>> {
    if !args.own.members.is_empty() {
        return Ok(vec![own::panel(args)?]);
    }
    let all = [
        Figure::Latency,
        Figure::Scalability,
        Figure::Overlap,
        Figure::Hybrid,
        Figure::Slow,
        Figure::Jitter,
    ];
    let figures = match &args.figure[..] {
        [] => &all[..],
        chosen => chosen,
    };
    Ok(figures
        .iter()
        .flat_map(|&figure| of(figure, args))
        .collect())
}

fn of(figure: Figure, args: &RdmcSimArgs) -> Vec<Panel> {
    match figure {
        Figure::Latency => paper::latency(args),
        Figure::Scalability => vec![paper::scalability(args)],
        Figure::Overlap => paper::overlap(args),
        Figure::Hybrid => trouble::hybrid(args),
        Figure::Slow => vec![trouble::slow(args)],
        Figure::Jitter => vec![trouble::jitter(args)],
    }
}

/// The horizontal axis of most panels.
const MEMBERS: Axis = Axis {
    label: "members, the sender included",
    column: "#members",
};

/// Powers of two, as sizes of groups.
fn powers(logs: std::ops::RangeInclusive<u32>) -> impl Iterator<Item = usize> + Clone {
    logs.map(|log| 1 << log)
}

fn point(series: impl Into<String>, x: f64, case: Case) -> Point {
    Point {
        series: series.into(),
        x,
        case,
    }
}
