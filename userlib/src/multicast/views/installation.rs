// SPDX-License-Identifier: MIT OR Apache-2.0

//! From the end of a view to the opening of the next: deliver, install, wait, open.

use super::agreement::{PartEnd, Proposal};
use super::part::Part;
use super::rows::SeatRow;
use super::{Phase, View, Views};
use crate::fabric::{FabricError, NodeSet};
use crate::multicast::membership::Membership;
use crate::multicast::opening::{self, Opening};
use crate::multicast::watcher::{Ending, Event};
use crate::smc::Era;

impl Views {
    /// Ends the view as was decided, and installs the next one.
    pub(super) fn install(&mut self, decision: &Proposal) {
        let stays = decision.next.contains(self.rank);
        let leaves = decision.left.contains(self.rank);
        let number = self.view.number + 1;
        let everybody = self.view.members.union(decision.next);
        if !stays && !leaves {
            // What was agreed on is in its row for those who do not know it yet.
            self.tell_installed(number, everybody);
            self.end(Ending::Excluded);
            return;
        }
        if !self.deliver(&decision.ends) {
            self.stop(Ending::Excluded);
            return;
        }
        if leaves {
            self.tell_installed(number, everybody);
            self.close();
            // A newcomer among them needs nothing of this member, and tells it nothing.
            let staying = decision.next.and(self.view.members);
            self.phase = Phase::Lingering(staying);
            self.renew_pulse();
            return;
        }
        self.lacking = decision.lacking;
        let go_on = decision.next.minus(decision.lacking);
        for (part, end) in self.parts.iter_mut().zip(&decision.ends) {
            part.note_before(go_on, end.before);
        }
        let mut view = self
            .view
            .next(decision.next, decision.left, decision.newcomer);
        view.leaving = decision.leaving.and(view.members);
        self.begin(view);
        self.welcome_newcomer();
        self.tell_installed(number, everybody);
        for seat in self.view.failed.iter() {
            self.endpoint.evict(seat);
        }
        self.is_new = true;
    }

    /// The view was installed in this step, which the others know by now: gives states, as they
    /// are before anything is delivered in the view, and tells the application.
    pub(super) fn tell_application(&mut self) {
        self.give_state();
        self.give_part_states();
        self.tell_view();
    }

    /// Delivers what was agreed on; false if this member does not have it.
    fn deliver(&mut self, ends: &[PartEnd]) -> bool {
        let (opened, is_lacking, rank) = (self.opened, self.is_lacking(), self.rank);
        let mut ends = self.parts.iter_mut().zip(ends);
        ends.all(|(part, &PartEnd { trim, .. })| {
            // Wrapping, because a row of a peer says it.
            part.sequence = part.sequence.wrapping_add(trim);
            part.take(trim, part.takes(opened, is_lacking, rank))
        })
    }

    /// Goes over to the next view, of which the others know nothing yet.
    pub(super) fn begin(&mut self, view: View) {
        self.accused = self.accused.and(view.members);
        self.suspects = self.suspects.and(view.members);
        // One may have been seen when it was agreed already that this view is without it.
        self.status.forget_suspected_but(view.members);
        self.ready = NodeSet::EMPTY.with(self.rank);
        self.turn_rings(view.number, view.members);
        self.view = view;
        self.lay_out();
        self.opened = false;
        self.take_in();
        self.renew_pulse();
        if let Some(transfer) = &mut self.transfer {
            transfer.begin_anew();
        }
        self.phase = match self.suspects.is_empty() {
            true => Phase::Installed,
            false => Phase::Changing,
        };
        self.table().own().erase();
        let parity = self.view.parity();
        for at in 0..self.parts.len() {
            let part = &self.parts[at];
            part.states[parity].own().erase();
            part.tables[parity].own().erase();
        }
        self.tell_rings();
    }

    /// Makes known that this member knows how a view begins.
    pub(super) fn tell_installed(&mut self, number: u64, to: NodeSet) {
        if self.view.number == number && self.follows_view() {
            let layout = self.view.subgroups.fingerprint();
            self.seats.own().layout.store(layout);
            self.tell_seat(SeatRow::layout(), to);
        }
        self.seats.own().installed.advance(number);
        self.tell_seat(SeatRow::installed(), to);
    }

    /// Tells the application, once it has its state.
    pub(super) fn tell_view(&mut self) {
        if self.is_lacking() {
            return;
        }
        let view = self.view.clone();
        self.board.install(view.clone());
        tracing::debug!(?view, "installed");
        if let Some(upcall) = &mut self.upcalls.view {
            upcall(&view);
        }
        for node in view.left.iter() {
            self.status.add_left(node);
            self.tell_event(Event::Left(node));
        }
        for node in view.failed.iter() {
            self.status.add_failed(node);
            self.tell_event(Event::Failed(node));
        }
        self.board.note_told();
    }

    /// Looks which members have installed the view, and erases their rows of the next one:
    /// all that they wrote in the one before has arrived. `None` if a member has gone on
    /// without this one: it may have written rows of the next view already.
    pub(super) fn note_installed(&mut self) -> Option<bool> {
        let missing = self.trusted().minus(self.ready);
        let before = self.ready;
        for peer in missing.iter() {
            let installed = self.seats.row(peer).installed.get();
            if installed > self.view.number {
                return None;
            }
            if installed == self.view.number {
                let parity = 1 - self.view.parity();
                self.rows[parity].row(peer).erase();
                for part in &self.parts {
                    part.tables[parity].row(peer).erase();
                    part.states[parity].row(peer).erase();
                    part.rings[parity].row(peer).erase();
                }
                self.ready = self.ready.with(peer);
            }
        }
        Some(self.ready != before)
    }

    /// Lets messages flow, once all members have installed the view.
    pub(super) fn open_if_all_installed(&mut self) -> bool {
        if !self.view.members.minus(self.ready).is_empty() {
            return false;
        }
        if self.follows_view() && self.suspect_other_layouts() {
            return true;
        }
        // Before any subgroup is opened: this view ends as one that was not.
        if self.suspect_bad_starts() {
            return true;
        }
        for part in &mut self.parts {
            if let Err(error) = open(part, &self.view) {
                tracing::error!(%error, "a subgroup cannot be opened");
                return self.stop(Ending::Excluded);
            }
        }
        self.open_rings();
        self.opened = true;
        self.phase = Phase::Open;
        true
    }

    /// Whether the members of some subgroup follow from the view.
    fn follows_view(&self) -> bool {
        self.parts.iter().any(|part| part.members_of.is_some())
    }

    /// Suspects members that have computed other members of subgroups than this one, and says
    /// whether there are any: they would wait for one another for ever.
    fn suspect_other_layouts(&self) -> bool {
        let own = self.seats.own().layout.get();
        let differs = |&member: &usize| self.seats.row(member).layout.get() != own;
        let mut others = self.view.members.iter().filter(differs).peekable();
        let are_any = others.peek().is_some();
        for member in others {
            tracing::error!(
                member,
                "has other members of subgroups: all nodes need the same functions"
            );
            self.status.suspect(member);
        }
        are_any
    }

    /// Suspects senders whose rings cannot go on where they say, and says whether there are any.
    fn suspect_bad_starts(&self) -> bool {
        let parity = self.view.parity();
        let parts = self.parts.iter().filter(|part| part.takes_part);
        let bad: NodeSet = parts.flat_map(|part| part.bad_starts(parity)).collect();
        for node in bad.iter() {
            tracing::error!(node, "has a ring that goes on nowhere");
            self.status.suspect(node);
        }
        !bad.is_empty()
    }

    /// Waits until the members of the next view need this member's rows no more. One that hangs
    /// counts to this member as long as it has not installed that view, if it runs.
    pub(super) fn linger(&mut self, next: NodeSet, down: NodeSet) -> bool {
        let number = self.view.number;
        let needs = |&member: &usize| {
            let installed = self.seats.row(member).installed.get();
            installed <= number && !self.has_stopped(member)
        };
        let others = next.minus(down.union(self.suspects));
        let waiting: NodeSet = others.iter().filter(needs).collect();
        if !waiting.minus(self.still_among(waiting)).is_empty() {
            return false;
        }
        self.phase = Phase::Over;
        self.board.leave();
        true
    }

    /// Nothing more is sent or delivered.
    fn close(&self) {
        for part in &self.parts {
            part.member.shared().close();
        }
    }
}

/// How a member takes the messages of a view that count in a subgroup.
#[derive(Clone, Copy, Debug)]
enum Takes {
    /// It is not in the subgroup.
    No,
    /// It has not opened the view, and has received nothing.
    NotOpened,
    /// It is given the state behind them.
    Skips,
    Delivers,
}

impl Part {
    fn takes(&self, opened: bool, is_lacking: bool, rank: usize) -> Takes {
        if !self.takes_part {
            Takes::No
        } else if !opened {
            Takes::NotOpened
        } else if is_lacking || self.lacking.contains(rank) {
            Takes::Skips
        } else {
            Takes::Delivers
        }
    }

    /// Takes so many messages of the view; false if this member does not have them.
    fn take(&mut self, trim: u64, takes: Takes) -> bool {
        let taken = match takes {
            Takes::No => return true,
            Takes::NotOpened => return trim == 0,
            _ if trim > self.member.received() => return false,
            Takes::Skips => self.member.skip_to(trim),
            Takes::Delivers => self.member.deliver_to(trim),
        };
        if taken.is_err() {
            return false;
        }
        let resumption = self.member.resumption(self.resumption.slot);
        self.resumption = resumption.unwrap_or(self.resumption);
        true
    }

    /// Where the ring of a sender goes on in the view of this parity, as its row says.
    fn start_of(&self, node: usize, parity: usize) -> usize {
        let start = self.rings[parity].row(node).start.get();
        usize::try_from(start).unwrap_or(usize::MAX)
    }

    /// Senders that say of their rings what cannot be.
    fn bad_starts(&self, parity: usize) -> impl Iterator<Item = usize> + '_ {
        let shape = self.member.shared().spec.shape;
        let two_sides = self.places.two_sides;
        let senders = self.membership.senders.iter();
        senders.filter(move |&node| !shape.has_place(self.start_of(node, parity), two_sides))
    }
}

fn open(part: &mut Part, view: &View) -> Result<(), FabricError> {
    let parity = view.parity();
    if !part.takes_part {
        part.member.rest(part.resumption.slot);
        return Ok(());
    }
    let Membership { members, senders } = part.membership;
    let spec = &part.member.shared().spec;
    let (table, two_sides) = (&part.rings[parity], part.places.two_sides);
    let at = |node: usize| {
        let over = table.row(node).over.get().checked_sub(1);
        (part.start_of(node, parity), over.filter(|_| two_sides))
    };
    let opening = Opening {
        members,
        senders: opening::senders(spec, |node| senders.contains(node), at),
        table: part.table_places[parity],
        sequence: part.sequence,
        slot: part.resumption.slot,
        era: Era::of_view(view.number),
        rings: Some(part.ring_places[parity]),
        shown: part.ring.is_seen(),
    };
    part.member.reopen(&part.places, &opening)
}
