// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a run is to do.

use crate::fabric::NodeSet;
use crate::multicast::Options;

/// What goes wrong in a run, or changes who is in the group. Nodes are members by number: the
/// founders, then newcomers as they came. What is to happen to one that is not there does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A newcomer takes this seat, or else the next one that can be had, and calls the members.
    Join {
        /// The seat.
        seat: usize,
    },
    /// A node crashes when it has made so many posts more.
    Crash {
        /// The node.
        node: usize,
        /// Posts that it still makes.
        posts: u64,
    },
    /// A node crashes when it has installed its next view, of which others may know nothing.
    CrashAtView {
        /// The node.
        node: usize,
    },
    /// A node leaves, and crashes if it makes more than so many posts more.
    Leave {
        /// The node.
        node: usize,
        /// Posts until it crashes.
        posts: Option<u64>,
    },
    /// What a node's copy of another's row says of what that one has sent is nonsense.
    Scribble {
        /// Whose copy.
        node: usize,
        /// Whose row.
        of: usize,
    },
    /// All links between some nodes and the others break.
    Partition {
        /// Those on one side.
        side: NodeSet,
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
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Decides all that is not said here.
    pub seed: u64,
    /// The group has views.
    pub views: bool,
    /// Members at the beginning.
    pub members: usize,
    /// Seats, that is most members at a time.
    pub seats: usize,
    /// Newcomers are given the application's state.
    pub state: bool,
    /// Messages that a sender may have under way.
    pub window: usize,
    /// Members see each other's regions, as over shared memory.
    pub sees: bool,
    /// What the members have switched on.
    pub options: Options,
    /// What is done before the members are left to come to rest.
    pub actions: usize,
    /// What goes wrong, and before which action, in this order.
    pub faults: Vec<(usize, Fault)>,
}

impl Fault {
    /// The members that have to be there for it to happen.
    pub(super) fn members(self) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            Self::Join { .. } | Self::Partition { .. } => (None, None),
            Self::Crash { node, .. } | Self::CrashAtView { node } | Self::Leave { node, .. } => {
                (Some(node), None)
            }
            Self::Scribble { node, of } | Self::Suspect { node, of } => (Some(node), Some(of)),
            Self::Break { a, b } => (Some(a), Some(b)),
        };
        first.into_iter().chain(second)
    }
}

impl Plan {
    /// The run of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        // Another stream of numbers than that of the run itself.
        let mut rng = fastrand::Rng::with_seed(!seed);
        let members = rng.usize(2..=9);
        let actions = rng.usize(20..400);
        let faults = faults(&mut rng, members, actions);
        Self {
            seed,
            views: false,
            members,
            seats: members,
            state: false,
            window: rng.usize(1..6),
            sees: rng.bool(),
            // Without coalescing, members post in the middle of a step.
            options: Options {
                early_lock_release: rng.u8(..) < 192,
                send_batching: rng.bool(),
                delivery_batching: rng.bool(),
                ..Options::FULL
            },
            actions,
            faults,
        }
    }

    /// The run of a seed with a group that has views.
    #[must_use]
    pub fn with_views(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(!seed ^ (1 << 62));
        let plan = Self::of(seed);
        let actions = plan.members * plan.members * rng.usize(8..48);
        let mut faults = faults_with_views(&mut rng, plan.members, actions);
        let spare = joins(&mut rng, plan.members, actions, &mut faults);
        Self {
            views: true,
            seats: plan.members + spare,
            state: rng.u8(..) < 192,
            actions,
            faults,
            ..plan
        }
    }

    /// More messages than are sent.
    #[must_use]
    pub(super) fn most_messages(&self) -> usize {
        self.actions + 1
    }

    /// Whether what goes wrong leaves a majority whose links work, however it falls.
    #[must_use]
    pub(super) fn must_go_on(&self) -> bool {
        let mut left = NodeSet::EMPTY;
        let mut lost = 0;
        for &(_, fault) in &self.faults {
            match fault {
                // Newcomers may never have been there; those who were leave as many as before.
                Fault::Leave { node, posts: None } if node >= self.members => {}
                Fault::Leave { node, posts: None } => left = left.with(node),
                Fault::Partition { .. } => return false,
                Fault::Join { .. } => {}
                _ => lost += 1,
            }
        }
        let staying = self.members - left.len();
        lost * 2 < staying
    }

    /// Whether whoever calls has to be taken in, as well.
    #[must_use]
    pub(super) fn must_admit(&self) -> bool {
        let is_clean = |fault: &Fault| {
            !matches!(
                fault,
                Fault::Suspect { .. } | Fault::Break { .. } | Fault::Scribble { .. }
            )
        };
        self.must_go_on() && self.faults.iter().all(|(_, fault)| is_clean(fault))
    }

    /// The same, with nothing that goes wrong.
    #[must_use]
    pub fn without_fault(self) -> Self {
        Self {
            faults: Vec::new(),
            ..self
        }
    }
}

/// None, one, or some that come soon one behind the other.
fn faults(rng: &mut fastrand::Rng, members: usize, actions: usize) -> Vec<(usize, Fault)> {
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
fn faults_with_views(
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
            3..5 => suspicion(rng, members),
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
fn joins(
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
            4 => Fault::Suspect {
                node: rng.usize(0..members),
                of: newcomer,
            },
            5 => Fault::Suspect {
                node: newcomer,
                of: rng.usize(0..members),
            },
            _ => continue,
        };
        faults.push((end, after));
    }
    faults.sort_by_key(|fault| fault.0);
    spare
}

fn suspicion(rng: &mut fastrand::Rng, members: usize) -> Fault {
    let node = rng.usize(0..members);
    Fault::Suspect {
        node,
        of: (node + rng.usize(1..members)) % members,
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
