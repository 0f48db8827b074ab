// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a run is to do.

use super::draw::{faults, faults_with_views, hangs, joins};
use super::shape::Shape;
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
    /// A node is closed without leaving, and says so.
    Close {
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
    /// The application of a node has another one put out, which is well.
    Accuse {
        /// The node.
        node: usize,
        /// The other.
        of: usize,
    },
    /// A node does nothing, as if its process were stopped, until it was to do so many steps.
    Hang {
        /// The node.
        node: usize,
        /// How many.
        steps: usize,
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
    /// The subgroups.
    pub subgroups: Vec<Shape>,
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
            Self::Crash { node, .. }
            | Self::CrashAtView { node }
            | Self::Close { node }
            | Self::Leave { node, .. }
            | Self::Hang { node, .. } => (Some(node), None),
            Self::Scribble { node, of }
            | Self::Suspect { node, of }
            | Self::Accuse { node, of } => (Some(node), Some(of)),
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
            subgroups: vec![Shape::EVERYBODY],
            window: rng.usize(1..6),
            sees: rng.bool(),
            // Without coalescing, members post in the middle of a step.
            options: Options {
                early_lock_release: rng.u8(..) < 192,
                send_batching: rng.bool(),
                delivery_batching: rng.bool(),
                receive_batching: rng.bool(),
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
        let state = rng.u8(..) < 192;
        let count = rng.choice([0, 0, 1, 1, 2, 3]).unwrap_or(0);
        let subgroups: Vec<Shape> = match count {
            0 => vec![Shape::EVERYBODY],
            _ => (0..count).map(|_| Shape::draw(&mut rng)).collect(),
        };
        hangs(&mut rng, plan.members, &mut faults);
        Self {
            views: true,
            seats: plan.members + spare,
            state,
            subgroups,
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
                Fault::Join { .. } | Fault::Hang { .. } => {}
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
                Fault::Suspect { .. }
                    | Fault::Accuse { .. }
                    | Fault::Break { .. }
                    | Fault::Scribble { .. }
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
