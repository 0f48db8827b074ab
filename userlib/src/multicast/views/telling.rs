// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a member tells: columns of its rows to others, and its end to all.

use super::rows::{SeatRow, ViewRow};
use super::{Phase, Views};
use crate::fabric::{NodeSet, Write};
use crate::multicast::watcher::{Ending, Event};
use crate::sst::Columns;

impl Views {
    /// Pushes a column of this view to all other members.
    pub(super) fn tell(&mut self, column: Columns<ViewRow>) {
        let write = self.table().write(column);
        self.post(self.view.members, write);
    }

    pub(super) fn tell_seat(&mut self, column: Columns<SeatRow>, to: NodeSet) {
        let write = self.seats.write(column);
        self.post(to, write);
    }

    pub(super) fn post(&mut self, to: NodeSet, write: Write) {
        for peer in to.iter().filter(|&peer| peer != self.rank) {
            // Who is down is noticed by `Endpoint::down`, not here.
            let _ = self.endpoint.post(peer, &[write]);
            self.rung = self.rung.with(peer);
        }
    }

    /// It is out: nothing is delivered any more.
    pub(super) fn stop(&mut self, ending: Ending) -> bool {
        self.tell_stopped();
        self.end(ending);
        true
    }

    /// Tells all who may be in a view with this member that it takes part in nothing any more:
    /// a newcomer that it has admitted hears of a view in which both are from others.
    fn tell_stopped(&mut self) {
        let stopped = self.stopped_word(self.rank);
        self.seats.own().stopped.store(stopped);
        let to = self.view.members.union(self.candidates);
        self.tell_seat(SeatRow::stopped(), to);
    }

    /// The word by which a member of this view says that it has stopped; 0 of any other node.
    fn stopped_word(&self, member: usize) -> u64 {
        let incarnation = self.view.incarnation(member);
        incarnation.map_or(0, |incarnation| incarnation.saturating_add(1))
    }

    /// Whether a member of this view says that it has stopped.
    pub(super) fn has_stopped(&self, member: usize) -> bool {
        let stopped = self.seats.row(member).stopped.get();
        stopped != 0 && stopped == self.stopped_word(member)
    }

    /// As [`Self::stop`], where nobody waits for this member.
    pub(super) fn end(&mut self, ending: Ending) {
        tracing::warn!(view = self.view.number, ?ending, "out of the group");
        self.phase = Phase::Over;
        for part in &self.parts {
            part.member.shared().end(ending);
            part.member.shared().close();
        }
        self.board.stop();
        self.ended = Some(ending);
    }

    /// Tells the application if this member got out of the group in this step. The others know
    /// by now: the application may take its time.
    pub(super) fn tell_if_ended(&mut self) {
        if let Some(ending) = self.ended.take() {
            self.tell_event(Event::Stopped(ending));
        }
    }

    pub(super) fn tell_event(&mut self, event: Event) {
        if let Some(upcall) = &mut self.upcalls.event {
            upcall(event);
        }
    }
}

impl Drop for Views {
    /// The polling thread has stopped, perhaps because a closure has panicked: nobody is to wait
    /// for this member, and no thread of the application for another view.
    fn drop(&mut self) {
        self.board.stop();
        if !matches!(self.phase, Phase::Over | Phase::Lingering(_)) {
            self.tell_stopped();
            for peer in self.rung.iter() {
                self.endpoint.ring(peer);
            }
        }
    }
}
