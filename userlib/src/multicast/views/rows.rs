// SPDX-License-Identifier: MIT OR Apache-2.0

//! What members tell one another of views.
//!
//! [`SeatRow`] is about all views. There are two tables of [`ViewRow`], used in turn: the
//! rows of a view are erased before those of the view after the next are written.

use crate::sst::{Counter, Flag};

crate::sst_row! {
    /// A member, as long as it has its seat.
    pub(in super::super) struct SeatRow {
        /// The last view of which it knows how it begins: it has installed it, or it is
        /// not in it.
        pub(in super::super) installed: Counter,
        /// It wants to leave.
        pub(in super::super) leaving: Flag,
        /// It takes part in nothing any more.
        pub(in super::super) stopped: Flag,
    }
}

crate::sst_row! {
    /// A member, in one view.
    pub(in super::super) struct ViewRow {
        /// The members that it suspects by its own evidence, a bit each.
        pub(in super::super) accused: Counter,
        /// All that it suspects.
        pub(in super::super) suspects: Counter,
        /// It sends, receives and delivers nothing more in this view.
        pub(in super::super) wedged: Flag,
        /// Whose proposal this row has, as [`super::ballot::Ballot`].
        pub(in super::super) ballot: Counter,
        /// The members of the next view.
        pub(in super::super) next: Counter,
        /// Members of this one that have left.
        pub(in super::super) left: Counter,
    }
}

impl ViewRow {
    /// Makes it the row of a member that has said nothing yet.
    pub(super) fn erase(&self) {
        for counter in [
            &self.accused,
            &self.suspects,
            &self.ballot,
            &self.next,
            &self.left,
        ] {
            counter.store(0);
        }
        self.wedged.lower();
    }
}
