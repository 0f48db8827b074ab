// SPDX-License-Identifier: MIT OR Apache-2.0

//! The newcomer's part of a join.
//!
//! It says nothing before a member has installed a view in which it is, and told it so. Then
//! it installs that view, as the members do.

use super::rows::WelcomeRow;
use super::{View, Views};
use crate::fabric::{Newcomer, NodeSet};
use crate::multicast::watcher::Ending;

impl Views {
    /// Looks whether some member has welcomed this newcomer.
    pub(super) fn arrive(&mut self, own: Newcomer) -> bool {
        for peer in (0..self.endpoint.nodes()).filter(|&peer| peer != self.rank) {
            // In this order: what it has said before it installed the view is there.
            let installed = self.seats.row(peer).installed.get();
            let row = self.welcomes.row(peer);
            if installed == 0 || Newcomer::from_word(row.newcomer.get()) != Some(own) {
                continue;
            }
            if installed > row.number.get() {
                // The others have gone on without it.
                self.end(Ending::Excluded);
                return true;
            }
            if installed == row.number.get() {
                self.install_first(peer);
                return true;
            }
        }
        false
    }

    /// Installs the view of which a member has told.
    fn install_first(&mut self, peer: usize) {
        let row = self.welcomes.row(peer);
        let view = view_of(row, (0..self.endpoint.nodes()).collect());
        self.lacking = NodeSet::from_bits(row.lacking.get()).and(view.members);
        for part in &mut self.parts {
            let row = part.sequences.row(peer);
            part.sequence = row.sequence.get();
            part.before = NodeSet::from_bits(row.before.get()).and(view.members);
        }
        let (number, members) = (view.number, view.members);
        self.begin(view);
        self.tell_installed(number, members);
        self.endpoint.settle();
        self.is_new = true;
    }
}

/// The view that a row tells of, as far as it is of seats that there are.
fn view_of(row: &WelcomeRow, seats: NodeSet) -> View {
    let mut view = View::none();
    view.number = row.number.get();
    view.members = NodeSet::from_bits(row.members.get()).and(seats);
    view.left = NodeSet::from_bits(row.left.get()).and(seats);
    view.failed = NodeSet::from_bits(row.failed.get()).and(seats);
    view.leaving = NodeSet::from_bits(row.leaving.get()).and(view.members);
    view.joined = Newcomer::from_word(row.newcomer.get());
    view.with_incarnations(|seat| row.incarnations[seat].get())
}
