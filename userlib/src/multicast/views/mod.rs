// SPDX-License-Identifier: MIT OR Apache-2.0

//! Views: groups that go on when members leave or fail (virtual synchrony: spindle §II.A).
//!
//! One predicate holds all subgroups of a member and changes their view. While nothing
//! happens it looks at two words of each peer in a step, and lets the subgroups go on. The
//! steps of a change, what each word means, and why that is right, are in ARCHITECTURE.md
//! under "Views"; here [`suspicion`] is whom a member trusts, [`agreement`] how the trusted
//! ones agree on the end of a view, and [`installation`] what follows from it.

mod agreement;
mod ballot;
mod board;
#[cfg(test)]
mod fingerprint;
mod installation;
pub(super) mod rows;
mod suspicion;
mod view;

pub(super) use board::Board;
pub use view::View;

use super::error::Error;
use super::layout::{Layout, Places};
use super::member::{Member, Resumption};
use super::rows::SubgroupRow;
use super::shared::Status;
use super::watcher::{Ending, Event, EventUpcall};
use crate::fabric::{Endpoint, FabricError, NodeSet, Write};
use crate::predicates::Outcome;
use crate::sst::{Columns, Row, Table};
use rows::{SeatRow, ViewRow};
use std::sync::Arc;

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

/// A subgroup.
struct Part {
    member: Member,
    places: Places,
    /// Its rows, by the view's parity, and where they are.
    tables: [Table<SubgroupRow>; 2],
    table_places: [usize; 2],
    /// Messages and nulls that were delivered in earlier views.
    sequence: u64,
    resumption: Resumption,
}

/// A member's views. See the module.
pub(super) struct Views {
    endpoint: Arc<dyn Endpoint>,
    status: Arc<Status>,
    board: Arc<Board>,
    upcalls: Upcalls,
    rank: usize,
    seats: Table<SeatRow>,
    /// By the view's parity.
    rows: [Table<ViewRow>; 2],
    parts: Vec<Part>,
    view: View,
    phase: Phase,
    /// The subgroups were opened in this view.
    opened: bool,
    accused: NodeSet,
    suspects: NodeSet,
    /// Members that have installed the view, and whose rows of the next one are erased.
    erased: NodeSet,
    /// Peers that were posted to in this step.
    rung: NodeSet,
}

impl Views {
    /// The first view, of all nodes that met. The subgroups are those of the layout, in
    /// its order.
    ///
    /// # Errors
    ///
    /// Those of [`Table::new`].
    pub(super) fn new(
        endpoint: &Arc<dyn Endpoint>,
        status: Arc<Status>,
        board: Arc<Board>,
        layout: &Layout,
        members: Vec<Member>,
    ) -> Result<Self, Error> {
        let tables = layout.views.as_ref();
        let tables = tables.ok_or(FabricError::BadRegion(0))?;
        let subgroups = layout.subgroups.iter().zip(&tables.subgroups);
        let parts = members.into_iter().zip(subgroups);
        let part = |(member, (places, &table_places)): (Member, (&Places, &[usize; 2]))| {
            Ok(Part {
                member,
                places: places.clone(),
                tables: both(endpoint, table_places)?,
                table_places,
                sequence: 0,
                resumption: Resumption::default(),
            })
        };
        let rank = endpoint.rank();
        let mut views = Self {
            seats: Table::new(Arc::clone(endpoint), tables.seats)?,
            rows: both(endpoint, tables.views)?,
            parts: parts.map(part).collect::<Result<_, FabricError>>()?,
            view: board.view(),
            phase: Phase::Installed,
            opened: false,
            accused: NodeSet::EMPTY,
            suspects: NodeSet::EMPTY,
            erased: NodeSet::EMPTY.with(rank),
            rung: NodeSet::EMPTY,
            endpoint: Arc::clone(endpoint),
            upcalls: Upcalls::default(),
            rank,
            status,
            board,
        };
        views.tell_installed(views.view.number, views.view.members);
        Ok(views)
    }

    pub(super) fn with_upcalls(mut self, upcalls: Upcalls) -> Self {
        self.upcalls = upcalls;
        self.tell_view();
        self
    }

    /// What there is to do now.
    pub(super) fn step(&mut self) -> Outcome {
        self.status.note_polling_thread();
        let mut fired = false;
        let endpoint = Arc::clone(&self.endpoint);
        endpoint.together(&mut || fired = self.advance());
        for part in &mut self.parts {
            self.rung = self.rung.union(part.member.take_rung());
        }
        for peer in std::mem::take(&mut self.rung).iter() {
            self.endpoint.ring(peer);
        }
        #[cfg(test)]
        self.board.note_fingerprint(self.fingerprint());
        fired.into()
    }

    fn advance(&mut self) -> bool {
        // Before any row: what a member said before it went is there.
        let down = self.endpoint.down();
        match self.phase {
            Phase::Over => return false,
            Phase::Lingering(next) => return self.linger(next, down),
            Phase::Installed | Phase::Open | Phase::Changing => {}
        }
        let Some(mut fired) = self.note_installed() else {
            return self.stop(Ending::Excluded);
        };
        if self.must_change(down) {
            return self.change(down) || fired;
        }
        if self.phase == Phase::Installed {
            fired |= self.open_if_all_installed();
        } else {
            for part in &mut self.parts {
                fired |= part.member.go_on_in_view();
            }
        }
        fired
    }

    /// A step towards the next view.
    fn change(&mut self, down: NodeSet) -> bool {
        let mut fired = self.phase != Phase::Changing;
        self.phase = Phase::Changing;
        // First: a member that has left is down when all agree.
        fired |= self.copy_decision();
        if let Some(decision) = self.decision() {
            self.install(&decision);
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
        fired |= self.copy_decision() || self.propose() || self.echo();
        if let Some(decision) = self.decision() {
            self.install(&decision);
            fired = true;
        }
        fired
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

    /// Pushes a column of this view to all other members.
    fn tell(&mut self, column: Columns<ViewRow>) {
        let write = self.table().write(column);
        self.post(self.view.members, write);
    }

    fn tell_seat(&mut self, column: Columns<SeatRow>, to: NodeSet) {
        let write = self.seats.write(column);
        self.post(to, write);
    }

    fn post(&mut self, to: NodeSet, write: Write) {
        for peer in to.iter().filter(|&peer| peer != self.rank) {
            // Who is down is noticed by `Endpoint::down`, not here.
            let _ = self.endpoint.post(peer, &[write]);
            self.rung = self.rung.with(peer);
        }
    }

    /// It is out: nothing is delivered any more.
    fn stop(&mut self, ending: Ending) -> bool {
        self.seats.own().stopped.raise();
        self.tell_seat(SeatRow::stopped(), self.view.members);
        self.end(ending);
        true
    }

    /// As [`Self::stop`], where nobody waits for this member.
    fn end(&mut self, ending: Ending) {
        tracing::warn!(view = self.view.number, ?ending, "out of the group");
        self.phase = Phase::Over;
        for part in &self.parts {
            part.member.shared().end(ending);
            part.member.shared().close();
        }
        self.board.stop();
        self.tell_event(Event::Stopped(ending));
    }

    fn tell_event(&mut self, event: Event) {
        if let Some(upcall) = &mut self.upcalls.event {
            upcall(event);
        }
    }
}

fn both<R: Row>(
    endpoint: &Arc<dyn Endpoint>,
    places: [usize; 2],
) -> Result<[Table<R>; 2], FabricError> {
    let table = |at| Table::new(Arc::clone(endpoint), at);
    Ok([table(places[0])?, table(places[1])?])
}

impl Drop for Views {
    /// The polling thread has stopped: nobody is to wait for this member.
    fn drop(&mut self) {
        if !matches!(self.phase, Phase::Over | Phase::Lingering(_)) {
            self.seats.own().stopped.raise();
            self.tell_seat(SeatRow::stopped(), self.view.members);
            for peer in self.rung.iter() {
                self.endpoint.ring(peer);
            }
        }
    }
}
