// SPDX-License-Identifier: MIT OR Apache-2.0

//! The paper's figures 4, 8 and 10, on links as those of its clusters (rdmc
//! §5.1).

use weft::rdmc::schedule::Algorithm;

use super::super::args::{LinkArgs, RdmcSimArgs};
use super::super::case::{name, Case, Links, Placement, Racks, Slow};
use super::{point, powers, Measure, Panel, MEMBERS};

const MIB: u64 = 1 << 20;
/// Fractus: both of its switches.
const FRACTUS_GBPS: f64 = 100.0;
const FRACTUS_NODES: usize = 16;
/// Sierra: its adapters' line rate, and what unicast reached on Stampede.
const SIERRA_GBPS: f64 = 40.0;
/// Apt: FDR adapters, under switches that leave each about 16 Gb/s of them when
/// loaded. The paper does not say how many nodes share a switch, nor how many
/// nodes it had; the largest group here has all.
pub(super) const APT_GBPS: f64 = 56.0;
const APT_NODES: usize = 64;
pub(super) const APT_RACKS: Racks = Racks {
    nodes: 16,
    oversubscription: 3.5,
};

/// The paper's flat algorithms, best first.
const FLAT: [Algorithm; 4] = [
    Algorithm::BinomialPipeline,
    Algorithm::Chain,
    Algorithm::BinomialTree,
    Algorithm::Sequential,
];

/// One multicast of 256 MB to all other nodes of a cluster without racks.
pub(super) fn testbed(args: &LinkArgs, seed: u64, gbps: f64, members: usize) -> Case {
    Case {
        algorithm: Algorithm::BinomialPipeline,
        members,
        nodes: members,
        senders: 1,
        bytes: 256 * MIB,
        block_bytes: args.block_bytes,
        placement: Placement::Ordered,
        links: Links {
            gbps: args.link_gbps.unwrap_or(gbps),
            block_us: args.block_us,
            latency_us: args.latency_us,
            jitter_us: args.jitter_us,
            posted: usize::from(args.posted),
            racks: None,
            slow: Slow::default(),
        },
        seed,
    }
}

/// Figure 4: latency by group size on Fractus, of a large and of a small
/// message. The paper's text does not say how small; this is 8 blocks.
pub(super) fn latency(args: &RdmcSimArgs) -> Vec<Panel> {
    let stride = if args.common.quick { 7 } else { 1 };
    let of = |panel, mib: u64| {
        let mut points = Vec::new();
        for algorithm in FLAT {
            for members in (2..=FRACTUS_NODES).step_by(stride) {
                let case = Case {
                    algorithm,
                    bytes: mib * MIB,
                    ..testbed(&args.links, args.seed, FRACTUS_GBPS, members)
                };
                points.push(point(name(algorithm), members as f64, case));
            }
        }
        Panel {
            name: panel,
            title: format!("Latency of {mib} MiB (as rdmc figure 4, Fractus)"),
            x: MEMBERS,
            measure: Measure::Milliseconds { logarithmic: false },
            points,
        }
    };
    vec![of("figure-4-large", 256), of("figure-4-small", 8)]
}

/// Figure 8: 256 MB to up to 511 receivers on Sierra.
pub(super) fn scalability(args: &RdmcSimArgs) -> Panel {
    let mut points = Vec::new();
    for algorithm in [Algorithm::BinomialPipeline, Algorithm::Sequential] {
        for members in powers(1..=9) {
            let case = Case {
                algorithm,
                ..testbed(&args.links, args.seed, SIERRA_GBPS, members)
            };
            points.push(point(name(algorithm), members as f64, case));
        }
    }
    Panel {
        name: "figure-8",
        title: "Replicating 256 MiB (as rdmc figure 8, Sierra)".to_owned(),
        x: MEMBERS,
        measure: Measure::Milliseconds { logarithmic: true },
        points,
    }
}

/// Figure 10: multicasts at once from all, half or one of the members, on
/// Fractus and, anywhere in its racks, on Apt. The lengths are those of figure
/// 11.
pub(super) fn overlap(args: &RdmcSimArgs) -> Vec<Panel> {
    let apt_case = |members| {
        let mut case = testbed(&args.links, args.seed, APT_GBPS, members);
        case.nodes = APT_NODES;
        case.placement = Placement::Random;
        case.links.racks = Some(APT_RACKS);
        case
    };
    let fractus_case = |members| testbed(&args.links, args.seed, FRACTUS_GBPS, members);
    let most = if args.common.quick { 4 } else { 6 };
    vec![
        overlapped("figure-10-fractus", "Fractus", powers(1..=4), fractus_case),
        overlapped("figure-10-apt", "Apt", powers(1..=most), apt_case),
    ]
}

fn overlapped(
    panel: &'static str,
    cluster: &str,
    sizes: impl Iterator<Item = usize> + Clone,
    case: impl Fn(usize) -> Case,
) -> Panel {
    let mut points = Vec::new();
    let lengths = [
        ("100 MB", 100_000_000),
        ("1 MB", 1_000_000),
        ("10 KB", 10_000),
    ];
    for (length, bytes) in lengths {
        for (who, share) in [("all send", 1), ("half send", 2), ("one sends", usize::MAX)] {
            for members in sizes.clone() {
                let case = Case {
                    bytes,
                    senders: (members / share).max(1),
                    ..case(members)
                };
                let series = format!("{length}, {who}");
                points.push(point(series, members as f64, case));
            }
        }
    }
    Panel {
        name: panel,
        title: format!("Bandwidth of multicasts at once (as rdmc figure 10, {cluster})"),
        x: MEMBERS,
        measure: Measure::Gbps,
        points,
    }
}
