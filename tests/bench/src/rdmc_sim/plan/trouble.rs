// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the paper says without measuring it: that two levels are better under
//! an oversubscribed top (rdmc §4.3.1), and what late nodes do (rdmc §5.3).

use weft::rdmc::schedule::{Algorithm, Between};

use super::super::args::RdmcSimArgs;
use super::super::case::{name, Case, Placement, Racks};
use super::paper::{testbed, APT_GBPS, APT_RACKS};
use super::{point, powers, Axis, Measure, Panel, Point, MEMBERS};

/// Members of the groups whose nodes are late.
const MEMBERS_WITH_TROUBLE: usize = 64;
/// Members of the groups under switches of different speeds.
const MEMBERS_IN_RACKS: usize = 128;
/// Speed of the links of nodes that are late: Stampede's, whose table 1 shows
/// such a delay.
const STAMPEDE_GBPS: f64 = 40.0;
/// Neighbours in a chain as well as in a hypercube.
const NEIGHBOURS: (usize, usize) = (2, 3);

/// Racks as Apt's, by size of the group and by oversubscription.
pub(super) fn hybrid(args: &RdmcSimArgs) -> Vec<Panel> {
    let most = if args.common.quick { 7 } else { 9 };
    let mut by_members = Vec::new();
    for members in powers(5..=most) {
        by_members.extend(in_racks(args, members as f64, members, APT_RACKS));
    }
    let mut by_top = Vec::new();
    for oversubscription in [1.0, 2.0, 3.5, 8.0, 16.0] {
        let racks = Racks {
            oversubscription,
            ..APT_RACKS
        };
        by_top.extend(in_racks(args, oversubscription, MEMBERS_IN_RACKS, racks));
    }
    let panel = Panel {
        name: "hybrid-members",
        title: "256 MiB in racks of 16, top oversubscribed 3.5 times".to_owned(),
        x: MEMBERS,
        measure: Measure::Milliseconds { logarithmic: true },
        points: by_members,
    };
    let top = Panel {
        name: "hybrid-top",
        title: format!("256 MiB to {MEMBERS_IN_RACKS} members in racks of 16"),
        x: Axis {
            label: "oversubscription of the top",
            column: "oversubscription",
        },
        measure: panel.measure,
        points: by_top,
    };
    vec![panel, top]
}

/// One and two levels, with and without knowledge of the racks.
fn in_racks(args: &RdmcSimArgs, x: f64, members: usize, racks: Racks) -> Vec<Point> {
    let hybrid = |between| Algorithm::Hybrid {
        between,
        rack_members: racks.nodes,
    };
    let flat = Algorithm::BinomialPipeline;
    let series = [
        (flat, Placement::Random),
        (flat, Placement::Ordered),
        (Algorithm::Chain, Placement::Random),
        (Algorithm::Chain, Placement::Ordered),
        (hybrid(Between::Chain), Placement::Ordered),
        (hybrid(Between::BinomialPipeline), Placement::Ordered),
    ];
    let of = |(algorithm, placement): (Algorithm, Placement)| {
        let mut case = testbed(&args.links, args.seed, APT_GBPS, members);
        case.algorithm = algorithm;
        case.placement = placement;
        case.links.racks = Some(racks);
        let places = match placement {
            Placement::Random => "random places",
            Placement::Ordered => "rack by rack",
        };
        point(format!("{}, {places}", name(algorithm)), x, case)
    };
    series.into_iter().map(of).collect()
}

/// One slow node, or one slow pair of nodes.
pub(super) fn slow(args: &RdmcSimArgs) -> Panel {
    let mut points = Vec::new();
    for algorithm in [Algorithm::BinomialPipeline, Algorithm::Chain] {
        for (what, whole) in [("slow node", true), ("slow pair", false)] {
            for factor in [1.0, 1.5, 2.0, 3.0, 4.0] {
                let mut case = with_trouble(args, algorithm);
                let slow = &mut case.links.slow;
                slow.factor = factor;
                match whole {
                    true => slow.nodes.push(NEIGHBOURS.0),
                    false => slow.pairs.push(NEIGHBOURS),
                }
                points.push(point(format!("{}, {what}", name(algorithm)), factor, case));
            }
        }
    }
    Panel {
        name: "slow",
        title: format!("256 MiB to {MEMBERS_WITH_TROUBLE} members, not all of them fast"),
        x: Axis {
            label: "how many times as long what is slow takes",
            column: "slow factor",
        },
        measure: Measure::Slowdown,
        points,
    }
}

/// Delays of all nodes at random.
pub(super) fn jitter(args: &RdmcSimArgs) -> Panel {
    let mut points = Vec::new();
    for algorithm in [
        Algorithm::BinomialPipeline,
        Algorithm::Chain,
        Algorithm::BinomialTree,
    ] {
        for jitter_us in [0.0, 5.0, 10.0, 20.0, 50.0, 100.0] {
            let mut case = with_trouble(args, algorithm);
            case.links.jitter_us = jitter_us;
            points.push(point(name(algorithm), jitter_us, case));
        }
    }
    Panel {
        name: "jitter",
        title: format!("256 MiB to {MEMBERS_WITH_TROUBLE} members, blocks delayed at random"),
        x: Axis {
            label: "mean delay of a block [us]",
            column: "jitter[usec]",
        },
        measure: Measure::Slowdown,
        points,
    }
}

fn with_trouble(args: &RdmcSimArgs, algorithm: Algorithm) -> Case {
    Case {
        algorithm,
        ..testbed(&args.links, args.seed, STAMPEDE_GBPS, MEMBERS_WITH_TROUBLE)
    }
}
