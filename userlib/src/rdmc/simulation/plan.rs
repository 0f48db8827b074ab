// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a run is to do.

use crate::multicast::View;
use crate::rdmc::schedule::{Algorithm, Between};
use crate::rdmc::{Choice, GroupConfig};

/// Numbers of the random streams that follow from a seed, besides the fabric's own.
const OF_PLAN: u64 = 1 << 61;
const OF_GROUP: u64 = 1 << 60;

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node crashes when it has made so many posts more.
    Crash {
        /// The node.
        node: usize,
        /// Posts that it still makes.
        posts: u64,
    },
    /// A node's application drops the node and all its groups.
    Close {
        /// The node.
        node: usize,
    },
    /// A node's application drops its groups, whatever is on its way.
    Desert {
        /// The node.
        node: usize,
    },
    /// A node's application leaves its groups when what was begun is done.
    Leave {
        /// The node.
        node: usize,
    },
    /// A node's application gives too short memory for the next message.
    Misfit {
        /// The node.
        node: usize,
    },
    /// A node takes another for dead, which it is not.
    Suspect {
        /// The node.
        node: usize,
        /// The other.
        of: usize,
    },
    /// The link between two nodes breaks: each takes the other for dead.
    Break {
        /// One end.
        a: usize,
        /// The other.
        b: usize,
    },
    /// Another node comes into the seat of one that has gone.
    Return {
        /// The seat.
        node: usize,
    },
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Decides all that is not said here.
    pub seed: u64,
    /// Nodes.
    pub nodes: usize,
    /// Groups that have cells at a time.
    pub places: usize,
    /// Groups that there are, one behind the other.
    pub groups: u32,
    /// Nodes see each other's regions, as over shared memory: then nobody is taken for dead
    /// who is not.
    pub sees: bool,
    /// Who takes a node for down cuts it off.
    pub severs: bool,
    /// What is done before the nodes are left to come to rest.
    pub actions: usize,
    /// What goes wrong, and before which action, in this order.
    pub faults: Vec<(usize, Fault)>,
}

/// One group of a run, and the sizes of its messages.
#[derive(Clone, Debug)]
pub(super) struct GroupPlan {
    pub(super) config: GroupConfig,
    pub(super) sizes: Vec<usize>,
}

impl Plan {
    /// The run of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(!seed ^ OF_PLAN);
        let nodes = rng.usize(2..=6);
        let actions = rng.usize(20..160 * nodes);
        let sees = rng.u8(0..3) == 0;
        let count = rng.choice([0, 1, 1, 1, 2, 2, 3]).unwrap_or(0);
        let mut faults: Vec<_> = (0..count)
            .map(|_| (rng.usize(0..actions), fault(&mut rng, nodes, sees)))
            .collect();
        if !sees {
            let more: Vec<_> = faults
                .iter()
                .flat_map(|&fault| successors(&mut rng, fault, actions))
                .collect();
            faults.extend(more);
        }
        faults.sort_by_key(|fault| fault.0);
        Self {
            seed,
            nodes,
            places: rng.usize(1..=3),
            groups: rng.u32(1..=6),
            sees,
            severs: !sees && rng.bool(),
            actions,
            faults,
        }
    }

    /// The same, with nothing that goes wrong.
    #[must_use]
    pub fn without_fault(self) -> Self {
        Self {
            faults: Vec::new(),
            ..self
        }
    }

    /// Whether nodes come when others have gone, so that there are views.
    pub(super) fn has_views(&self) -> bool {
        let mut faults = self.faults.iter();
        faults.any(|(_, fault)| matches!(fault, Fault::Return { .. }))
    }

    pub(super) fn group(&self, number: u32) -> GroupPlan {
        let mut rng = fastrand::Rng::with_seed(self.seed ^ OF_GROUP ^ (u64::from(number) << 40));
        let mut members: Vec<usize> = (0..self.nodes).collect();
        rng.shuffle(&mut members);
        let most = members.len();
        members.truncate(rng.usize(2..=most).max(rng.usize(2..=most)));
        let block_bytes = 8 * rng.usize(1..40);
        let mut size = || {
            let blocks = rng.usize(0..6);
            blocks * block_bytes + rng.usize(1..=block_bytes)
        };
        let sizes = [size(), size(), size(), size()];
        let sizes = sizes[..rng.usize(0..=4)].to_vec();
        let algorithm = match rng.usize(0..6) {
            0 => Choice::Always(Algorithm::Sequential),
            1 => Choice::Always(Algorithm::Chain),
            2 => Choice::Always(Algorithm::BinomialTree),
            3 => Choice::Always(Algorithm::BinomialPipeline),
            4 => Choice::Always(Algorithm::Hybrid {
                between: match rng.bool() {
                    true => Between::Chain,
                    false => Between::BinomialPipeline,
                },
                rack_members: rng.usize(1..=3),
            }),
            _ => Choice::Auto,
        };
        let config = GroupConfig::new(number, members);
        GroupPlan {
            config: config.algorithm(algorithm).block_bytes(block_bytes),
            sizes,
        }
    }
}

impl GroupPlan {
    /// Of those of its seats that are taken in a view, if that is a group.
    pub(super) fn in_view(self, view: &View) -> Option<Self> {
        let Self { config, sizes } = self;
        let seats = config.members.iter().copied();
        let members: Vec<usize> = seats.filter(|&seat| view.members.contains(seat)).collect();
        (members.len() > 1).then(|| Self {
            config: GroupConfig::in_view(config.number, view, members)
                .algorithm(config.choice)
                .block_bytes(config.block_bytes),
            sizes,
        })
    }
}

/// Other nodes come into the seat of one that goes, one after the other.
fn successors(
    rng: &mut fastrand::Rng,
    (mut action, fault): (usize, Fault),
    actions: usize,
) -> Vec<(usize, Fault)> {
    let mut faults = Vec::new();
    let (Fault::Crash { node, .. } | Fault::Close { node }) = fault else {
        return faults;
    };
    while rng.bool() {
        action = rng.usize(action..actions);
        faults.push((action, Fault::Return { node }));
        action = rng.usize(action..actions);
        let posts = rng.u64(0..40);
        if rng.bool() {
            faults.push((action, Fault::Crash { node, posts }));
        }
    }
    faults
}

fn fault(rng: &mut fastrand::Rng, nodes: usize, sees: bool) -> Fault {
    let node = rng.usize(0..nodes);
    let other = (node + rng.usize(1..nodes)) % nodes;
    match rng.usize(0..if sees { 8 } else { 12 }) {
        0 => Fault::Close { node },
        1 => Fault::Desert { node },
        2 => Fault::Leave { node },
        3 => Fault::Misfit { node },
        4..8 => Fault::Crash {
            node,
            posts: rng.u64(0..40),
        },
        8 | 9 => Fault::Suspect { node, of: other },
        _ => Fault::Break { a: node, b: other },
    }
}
