// SPDX-License-Identifier: MIT OR Apache-2.0

//! Views: groups that go on when members come, leave or fail (virtual synchrony: spindle §II.A).
//!
//! One predicate holds all subgroups of a member and changes their view. While nothing
//! happens it looks at two words of each peer in a step, and lets the subgroups go on. The
//! steps of a change, what each word means, and why that is right, are in ARCHITECTURE.md
//! under "Views"; here [`suspicion`] is whom a member trusts, [`agreement`] how the trusted
//! ones agree on the end of a view, and [`installation`] what follows from it. [`pulse`] is how
//! one that hangs is noticed. [`joining`] is
//! what members do for a newcomer, [`arriving`] what it does itself, and [`state`] how it gets
//! the application's state; [`entering`] how those who enter a subgroup get its state. [`ring`]
//! is where members find one another's messages.
//!
//! | term | meaning |
//! |---|---|
//! | wedge | To send, receive and deliver nothing more in a view that is to end. |
//! | trim | So many of a view's messages count in a subgroup. |
//! | cut | Where a subgroup's sequence is then: what comes behind it is of the next view. |
//! | echo | To copy the leader's proposal into the own row, as a vote for it. |
//! | install | To deliver up to the trims, begin the next view, and say so (`installed`). |
//! | ready | A member that has installed the view, and whose rows of the next one are clean. |
//! | open | To let messages flow in a view, when all its members are ready. |
//! | before | Those who were in a subgroup in the view before, and have delivered all of it. |
//!
//! A member's step follows from how far it is ([`Phase`]) and from what it reads in the rows of
//! the others:
//!
//! | phase | what it reads | what it does |
//! |---|---|---|
//! | joining | a welcome, and that its writer has `installed` that view | installs it |
//! | installed, open, changing | `installed` is the view's number | counts the peer as ready |
//! | installed, open, changing | a peer that is not ready has `installed` more | is out |
//! | installed | all are ready | opens the view |
//! | installed, open | a peer is down, corrupt, `stopped` or `wedged` | changes |
//! | installed, open | it wants to leave, and others have the states | changes |
//! | open | all trusted peers have `admitted` the same newcomer | changes |
//! | changing | all trusted are ready, and one has `installed` more | copies its proposal |
//! | changing | `accused` or `suspects` of trusted peers have others | suspects them too |
//! | changing | it is suspected, or trusts no majority | is out |
//! | changing | it has not wedged | wedges |
//! | changing, leader | trusted are ready and `wedged`, and suspect each lower seat | proposes |
//! | changing, others | trusted are ready, and the leader has a higher `ballot` | echoes |
//! | changing | all trusted have the own `ballot` | installs the next view, lingers, or is out |
//! | lingering | others of the next view have `installed` it, `stopped` or gone | is out |

mod agreement;
mod arriving;
mod ballot;
mod board;
mod entering;
#[cfg(test)]
mod fingerprint;
mod installation;
mod joining;
mod part;
pub(super) mod pulse;
mod ring;
pub(super) mod rows;
pub(super) mod state;
mod suspicion;
mod telling;
mod view;

pub(super) use board::Board;
pub(super) use state::State;
pub use view::View;

use super::error::Error;
use super::handle::GroupId;
use super::layout::Layout;
use super::member::Member;
use super::membership::{MembersOf, SubgroupViews};
use super::shared::Status;
use super::watcher::{Ending, EventUpcall};
use crate::fabric::{Endpoint, FabricError, Meeting, Newcomer, NodeSet, MAX_NODES};
use crate::predicates::Outcome;
use crate::sst::Table;
use part::Part;
use pulse::Pulse;
use rows::{SeatRow, ViewRow, WelcomeRow};
use state::Transfer;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) type ViewUpcall = Box<dyn FnMut(&View) + Send>;

/// What is told of views.
#[derive(Default)]
pub(super) struct Upcalls {
    pub(super) event: Option<EventUpcall>,
    pub(super) view: Option<ViewUpcall>,
}

/// How far this member is with its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// It is in no view yet.
    Joining(Newcomer),
    /// It has installed the view, but perhaps not all others have.
    Installed,
    /// All have: messages flow.
    Open,
    /// The view ends.
    Changing,
    /// It has left, but the others may still need its rows: those of the next view.
    Lingering(NodeSet),
    /// It is out.
    Over,
}

/// A member's views. See the module.
pub(super) struct Views {
    endpoint: Arc<dyn Endpoint>,
    status: Arc<Status>,
    board: Arc<Board>,
    upcalls: Upcalls,
    group: GroupId,
    rank: usize,
    seats: Table<SeatRow>,
    welcomes: Table<WelcomeRow>,
    /// By the view's parity.
    rows: [Table<ViewRow>; 2],
    parts: Vec<Part>,
    view: View,
    phase: Phase,
    /// The subgroups were opened in this view.
    opened: bool,
    /// The application was not told of the view yet: it is in the step in which the view was
    /// installed, a founder in its first one.
    is_new: bool,
    /// How it got out of the group in this step, if the application was not told of it yet.
    ended: Option<Ending>,
    accused: NodeSet,
    suspects: NodeSet,
    /// Members that have installed the view, and whose rows of the next one are clean: what they
    /// wrote in the view before has arrived, and is erased.
    ready: NodeSet,
    /// Newcomers that this member has admitted, and that no view has had yet.
    candidates: NodeSet,
    /// Whom it has admitted, by seat; 0 where there was no newcomer.
    incarnations: Box<[u64; MAX_NODES]>,
    /// Members of the view to whom the application's state is given.
    lacking: NodeSet,
    /// The application's state, if newcomers are given it.
    transfer: Option<Transfer>,
    /// If members that hang are suspected.
    pulse: Option<Pulse>,
    /// Peers that were posted to in this step.
    rung: NodeSet,
}

/// What a member's views begin with.
pub(super) struct Begun<'a> {
    pub(super) endpoint: &'a Arc<dyn Endpoint>,
    pub(super) meeting: Meeting,
    pub(super) layout: &'a Layout,
    pub(super) status: Arc<Status>,
    pub(super) board: Arc<Board>,
    pub(super) upcalls: Upcalls,
    pub(super) group: GroupId,
    /// By the numbers of the subgroups whose members follow from the view.
    pub(super) members_of: HashMap<usize, MembersOf>,
    /// By the numbers of the subgroups whose state is given to those who enter.
    pub(super) states: HashMap<usize, State>,
    /// The application's state, if newcomers are given it.
    pub(super) state: Option<State>,
    /// How long a member may hang, if one that does is suspected.
    pub(super) term: Option<Duration>,
}

impl Views {
    /// The first view, of all nodes that met, or none yet for a newcomer. The subgroups are
    /// those of the layout, in its order.
    ///
    /// # Errors
    ///
    /// Those of [`Table::new`].
    pub(super) fn new(group: Begun<'_>, members: Vec<Member>) -> Result<Self, Error> {
        let Begun {
            endpoint,
            meeting,
            layout,
            ..
        } = group;
        let tables = layout.views.as_ref();
        let tables = tables.ok_or(FabricError::BadRegion(0))?;
        let parts = part::all(
            endpoint,
            layout,
            tables,
            members,
            (group.members_of, group.states),
        )?;
        let rank = endpoint.rank();
        let (view, phase) = match meeting {
            Meeting::Founders(members) => (View::first(members), Phase::Installed),
            Meeting::Newcomer { incarnation, .. } => {
                let own = Newcomer::new(rank, incarnation);
                (View::none(), Phase::Joining(own))
            }
        };
        let transfer = group.state.map(|state| Transfer::new(state, tables.state));
        let mut views = Self {
            seats: Table::new(Arc::clone(endpoint), tables.seats)?,
            welcomes: Table::new(Arc::clone(endpoint), tables.welcomes)?,
            rows: part::both(endpoint, tables.views)?,
            parts,
            view,
            phase,
            opened: false,
            is_new: false,
            ended: None,
            accused: NodeSet::EMPTY,
            suspects: NodeSet::EMPTY,
            ready: NodeSet::EMPTY.with(rank),
            candidates: NodeSet::EMPTY,
            incarnations: Box::new([0; MAX_NODES]),
            lacking: NodeSet::EMPTY,
            transfer,
            pulse: group.term.map(Pulse::new),
            rung: NodeSet::EMPTY,
            endpoint: Arc::clone(endpoint),
            upcalls: group.upcalls,
            group: group.group,
            rank,
            status: group.status,
            board: group.board,
        };
        if let Meeting::Founders(members) = meeting {
            views.lay_out();
            views.tell_rings();
            views.tell_installed(1, members);
            views.ring_posted();
            views.board.install(views.view.clone());
            views.is_new = true;
        }
        Ok(views)
    }

    /// What there is to do now.
    pub(super) fn step(&mut self) -> Outcome {
        self.status.note_polling_thread();
        // A founder, before it does anything in its first view.
        let mut fired = self.tell_if_new();
        self.post_together(|views| fired |= views.advance());
        if self.phase == Phase::Changing {
            // Its echo is under way: the application may take its time with deliveries.
            self.post_together(|views| fired |= views.decide());
        }
        self.tell_if_new();
        self.tell_if_ended();
        #[cfg(test)]
        self.board.note_fingerprint(self.fingerprint());
        fired.into()
    }

    /// Tells the application of the view, if it was not told yet; answers whether it did.
    fn tell_if_new(&mut self) -> bool {
        let is_new = std::mem::take(&mut self.is_new);
        if is_new {
            // The others go on meanwhile: the application may take its time.
            self.post_together(Self::tell_application);
        }
        is_new
    }

    /// Does a part of a step. What it posts may be on its way only when it has returned; then
    /// those to whom it has posted are woken.
    fn post_together(&mut self, part: impl FnOnce(&mut Self)) {
        let endpoint = Arc::clone(&self.endpoint);
        let mut part = Some(part);
        endpoint.together(&mut || {
            if let Some(part) = part.take() {
                part(self);
            }
        });
        self.ring_posted();
    }

    /// Wakes those to whom something was posted.
    fn ring_posted(&mut self) {
        for part in &mut self.parts {
            self.rung = self.rung.union(part.member.take_rung());
        }
        for peer in std::mem::take(&mut self.rung).iter() {
            self.endpoint.ring(peer);
        }
    }

    fn advance(&mut self) -> bool {
        // Before any row: what a member said before it went is there.
        let down = self.endpoint.down();
        match self.phase {
            Phase::Over => return false,
            Phase::Lingering(next) => return self.linger(next, down),
            Phase::Joining(own) => return self.arrive(own),
            Phase::Installed | Phase::Open | Phase::Changing => {}
        }
        let Some(mut fired) = self.note_installed() else {
            return self.stop(Ending::Excluded);
        };
        if self.pulse.is_some() {
            self.keep_pulse();
        }
        fired |= self.see_newcomers(down);
        self.hear_application();
        if self.must_change(down) {
            return self.change(down) || fired;
        }
        if self.phase == Phase::Installed {
            fired |= self.open_if_all_installed();
        } else {
            let delivers = !self.is_lacking();
            for part in self.parts.iter_mut().filter(|part| part.takes_part) {
                let delivers = delivers && !part.lacking.contains(self.rank);
                fired |= part.member.go_on_in_view(delivers);
            }
            fired |= self.show_rings();
        }
        fired |= self.fetch_state();
        self.fetch_part_states() || fired
    }

    /// A step towards the next view.
    fn change(&mut self, down: NodeSet) -> bool {
        let mut fired = self.phase != Phase::Changing;
        self.phase = Phase::Changing;
        // First: a member that has left is down when all agree.
        fired |= self.copy_decision();
        if self.decide() {
            return true;
        }
        match self.find_suspects(down) {
            Some(found) => fired |= found,
            None => return self.stop(Ending::Excluded),
        }
        if self.trusted().len() * 2 <= self.view.members.len() {
            // Its suspicions stay its own: one that has lost its links would otherwise end
            // the view of all others.
            return self.stop(Ending::Minority);
        }
        fired |= self.tell_suspicions();
        fired |= self.wedge();
        self.copy_decision() || self.propose() || self.echo() || fired
    }

    /// Installs the next view if it is decided; answers whether it is.
    fn decide(&mut self) -> bool {
        let decision = self.decision();
        if let Some(decision) = &decision {
            self.install(decision);
        }
        decision.is_some()
    }

    /// Computes who is in which subgroup in this view.
    fn lay_out(&mut self) {
        for part in &mut self.parts {
            part.lay_out(&self.view, self.rank);
        }
        let subgroups = self.parts.iter().map(Part::to_view);
        self.view.subgroups = SubgroupViews::new(self.group, subgroups);
    }

    /// Members that this one does not suspect, itself among them.
    fn trusted(&self) -> NodeSet {
        self.view.members.minus(self.suspects)
    }

    /// Without this one.
    fn trusted_peers(&self) -> NodeSet {
        self.trusted().minus(NodeSet::EMPTY.with(self.rank))
    }

    /// The rows of this view.
    fn table(&self) -> &Table<ViewRow> {
        &self.rows[self.view.parity()]
    }

    fn row(&self, member: usize) -> &ViewRow {
        self.table().row(member)
    }
}
