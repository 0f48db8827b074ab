// SPDX-License-Identifier: MIT OR Apache-2.0

//! What goes wrong in a run, and who joins, as chance decides.

use super::Fault;
use crate::fabric::NodeSet;

/// None, one, or some that come soon one behind the other.
pub(super) fn faults(
    rng: &mut fastrand::Rng,
    members: usize,
    actions: usize,
) -> Vec<(usize, Fault)> {
    let count = rng.choice([0, 1, 1, 2, 2, 3, 3, 4]).unwrap_or(0);
    let mut at = rng.usize(0..actions);
    let mut faults = Vec::new();
    for _ in 0..count {
        faults.push((at, fault(rng, members)));
        // Most come while the members still see to the one before.
        let gap = match rng.u8(..) {
            0..64 => 30 * members,
            _ => 6 * members,
        };
        at = (at + rng.usize(0..=gap)).min(actions - 1);
    }
    faults
}

/// Several, some within one change and some in later ones. A change takes about so many
/// actions as there are links.
pub(super) fn faults_with_views(
    rng: &mut fastrand::Rng,
    members: usize,
    actions: usize,
) -> Vec<(usize, Fault)> {
    let count = rng.usize(0..=members);
    let mut at = rng.usize(0..actions / 2);
    let mut faults = Vec::new();
    for _ in 0..count {
        let of = match rng.u8(0..16) {
            0..3 => Fault::Leave {
                node: rng.usize(0..members),
                posts: None,
            },
            3..5 => {
                let node = rng.usize(0..members);
                let of = (node + rng.usize(1..members)) % members;
                suspicion(rng, node, of)
            }
            // Who leads at the end of the view, in the middle of it.
            5..8 => Fault::Crash {
                node: rng.usize(0..members.min(3)),
                posts: rng.u64(0..12 * members as u64),
            },
            8..12 => Fault::CrashAtView {
                node: rng.usize(0..members.min(4)),
            },
            _ => fault(rng, members),
        };
        faults.push((at, of));
        let gap = members * rng.choice([2, 8, 8, 8 * members]).unwrap_or(8);
        at = (at + rng.usize(0..=gap)).min(actions - 1);
    }
    faults
}

/// Lets some join, each soon behind something else or at any time, and lets something happen
/// to some of these. Answers with how many seats there are more than members.
pub(super) fn joins(
    rng: &mut fastrand::Rng,
    members: usize,
    actions: usize,
    faults: &mut Vec<(usize, Fault)>,
) -> usize {
    let spare = rng.choice([0, 1, 1, 2, 3]).unwrap_or(0);
    let count = rng.choice([0, 1, 1, 2, 3, 4]).unwrap_or(0);
    for newcomer in members..members + count {
        let begin = match rng.choice(&*faults) {
            Some(&(at, _)) if rng.bool() => at + rng.usize(0..=8 * members),
            _ => rng.usize(0..actions),
        };
        let begin = begin.min(actions - 1);
        let seat = rng.usize(0..members + spare);
        faults.push((begin, Fault::Join { seat }));
        let end = (begin + rng.usize(0..=16 * members)).min(actions - 1);
        let posts = rng.u64(0..12 * members as u64);
        let after = match rng.u8(0..8) {
            0..2 => Fault::Crash {
                node: newcomer,
                posts,
            },
            2 => Fault::CrashAtView { node: newcomer },
            3 => Fault::Leave {
                node: newcomer,
                posts: None,
            },
            4 => {
                let node = rng.usize(0..members);
                suspicion(rng, node, newcomer)
            }
            5 => {
                let of = rng.usize(0..members);
                suspicion(rng, newcomer, of)
            }
            6 => Fault::Close {
                node: rng.usize(0..members),
            },
            _ => continue,
        };
        faults.push((end, after));
    }
    faults.sort_by_key(|fault| fault.0);
    spare
}

/// Lets some of those hang who are suspected, or leave, so that the others go on without them
/// while they are still in the view before.
pub(super) fn hangs(rng: &mut fastrand::Rng, members: usize, faults: &mut Vec<(usize, Fault)>) {
    let mut all = Vec::with_capacity(faults.len());
    for (at, fault) in faults.drain(..) {
        if let Fault::Suspect { of: node, .. }
        | Fault::Accuse { of: node, .. }
        | Fault::Leave { node, .. } = fault
        {
            if rng.bool() {
                let steps = rng.usize(0..members * 32);
                all.push((at, Fault::Hang { node, steps }));
            }
        }
        all.push((at, fault));
    }
    *faults = all;
}

/// The fabric at a node, or the application there, takes another node for dead.
fn suspicion(rng: &mut fastrand::Rng, node: usize, of: usize) -> Fault {
    match rng.bool() {
        true => Fault::Suspect { node, of },
        false => Fault::Accuse { node, of },
    }
}

fn fault(rng: &mut fastrand::Rng, members: usize) -> Fault {
    // The first members lead: they are hit more often.
    let node = match rng.bool() {
        true => rng.usize(0..2),
        false => rng.usize(0..members),
    };
    let other = (node + rng.usize(1..members)) % members;
    // To all peers, up to all the columns that the end takes.
    let posts = rng.u64(0..8 * members as u64);
    match rng.usize(0..10) {
        4 => Fault::Partition {
            side: NodeSet::from_bits(rng.u64(0..1 << members)),
        },
        0 => Fault::Leave { node, posts: None },
        1 => Fault::Leave {
            node,
            posts: Some(posts),
        },
        2 => Fault::Break { a: node, b: other },
        3 => Fault::Scribble { node, of: other },
        _ => Fault::Crash { node, posts },
    }
}
