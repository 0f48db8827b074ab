// SPDX-License-Identifier: MIT OR Apache-2.0

//! A case that the user describes.

use anyhow::Result;
use weft_testkit::rng::Rng;

use super::super::args::{OwnArgs, RdmcSimArgs};
use super::super::case::{name, Case, Racks, Slow};
use super::paper::testbed;
use super::{point, Measure, Panel, MEMBERS};

/// Speed of links if none is given: Sierra's and Stampede's (rdmc §5.1).
const LINK_GBPS: f64 = 40.0;

/// All algorithms with all sizes of groups.
pub(super) fn panel(args: &RdmcSimArgs) -> Result<Panel> {
    let own = &args.own;
    let rack_nodes = own.rack_nodes.map(usize::from);
    let mut points = Vec::new();
    for algorithm in &own.algorithms {
        let algorithm = algorithm.algorithm(rack_nodes)?;
        for &members in &own.members {
            let members = usize::from(members);
            let nodes = own.nodes.map_or(members, usize::from);
            let mut case = Case {
                algorithm,
                nodes,
                senders: usize::from(own.senders),
                bytes: own.bytes,
                placement: own.placement,
                ..testbed(&args.links, args.seed, LINK_GBPS, members)
            };
            case.links.slow = slow(own, nodes, args.seed);
            case.links.racks = rack_nodes.map(|nodes| Racks {
                nodes,
                oversubscription: own.oversubscription,
            });
            case.check()?;
            points.push(point(name(algorithm), members as f64, case));
        }
    }
    Ok(Panel {
        name: "rdmc-sim",
        title: format!("{} bytes", own.bytes),
        x: MEMBERS,
        measure: Measure::Milliseconds { logarithmic: true },
        points,
    })
}

/// What is slow by name, and by chance.
fn slow(own: &OwnArgs, nodes: usize, seed: u64) -> Slow {
    let mut rng = Rng::new(seed);
    let mut slow: Vec<usize> = own.slow_nodes.iter().copied().map(usize::from).collect();
    let wanted = (nodes as f64 * own.slow_percent / 100.0).round() as usize;
    let mut others: Vec<usize> = (0..nodes).filter(|node| !slow.contains(node)).collect();
    for _ in 0..wanted.min(others.len()) {
        slow.push(others.swap_remove(rng.below(others.len())));
    }
    Slow {
        nodes: slow,
        pairs: own.slow_pairs.clone(),
        factor: own.slow_factor,
    }
}
