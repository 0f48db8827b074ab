// SPDX-License-Identifier: MIT OR Apache-2.0

//! What members tell one another of views.
//!
//! [`SeatRow`] is about all views. There are two tables of [`ViewRow`], used in turn: the
//! rows of a view are erased before those of the view after the next are written.

use crate::fabric::MAX_NODES;
use crate::sst::{Counter, Flag};

crate::sst_row! {
    /// A member, as long as it has its seat.
    pub(in super::super) struct SeatRow {
        /// The last view of which it knows how it begins: it has installed it, or it is
        /// not in it.
        pub(in super::super) installed: Counter,
        /// A number that differs if the members of subgroups in that view do. It is said before
        /// the view is installed, where members follow from the view.
        pub(in super::super) layout: Counter,
        /// It wants to leave.
        pub(in super::super) leaving: Flag,
        /// 0, or one more than its own incarnation: it takes part in nothing any more. A newcomer
        /// that waits may hear it of a member whose seat has another one before it is in.
        pub(in super::super) stopped: Counter,
        /// It has the application's state: it came with the group, or was given it.
        pub(in super::super) restored: Flag,
        /// Counts as long as its polling thread runs, where that is looked at.
        pub(in super::super) pulse: Counter,
        /// For each seat the incarnation of the newcomer that it has admitted there.
        pub(in super::super) admitted: [Counter; MAX_NODES],
    }
}

crate::sst_row! {
    /// What a member tells a newcomer of the first view in which that one is.
    pub(in super::super) struct WelcomeRow {
        /// The view's number, and what else it is.
        pub(in super::super) number: Counter,
        /// Its members.
        pub(in super::super) members: Counter,
        /// Members of the view before that have left.
        pub(in super::super) left: Counter,
        /// Those that have failed.
        pub(in super::super) failed: Counter,
        /// Members that will leave once they have given a state away.
        pub(in super::super) leaving: Counter,
        /// The newcomer that is welcome, as a [`crate::fabric::Newcomer`].
        pub(in super::super) newcomer: Counter,
        /// Members without the application's state.
        pub(in super::super) lacking: Counter,
        /// The incarnations of the view's members, by seat; 0 of those the group began with.
        pub(in super::super) incarnations: [Counter; MAX_NODES],
        /// Bytes of the state at the beginning of a view, or [`super::state::NONE`].
        pub(in super::super) state_bytes: Counter,
        /// The view.
        pub(in super::super) state_of: Counter,
    }
}

crate::sst_row! {
    /// A sender's ring in a subgroup and a view ([`super::ring`]).
    pub(in super::super) struct RingRow {
        /// Where it goes on.
        pub(in super::super) start: Counter,
        /// One more than the number of the view's message, of this sender, with which it goes
        /// over to the other side; 0 if it does not.
        pub(in super::super) over: Counter,
        /// One more than the number of the message from which on others look into its own ring,
        /// if they can; 0 if they do not yet.
        pub(in super::super) shown: Counter,
    }
}

impl RingRow {
    /// Makes it the row of a member that has said nothing yet.
    pub(in super::super) fn erase(&self) {
        for counter in [&self.start, &self.over, &self.shown] {
            counter.store(0);
        }
    }
}

crate::sst_row! {
    /// What a member tells a newcomer of a subgroup.
    pub(in super::super) struct SequenceRow {
        /// Messages and nulls that were delivered before the view.
        pub(in super::super) sequence: Counter,
        /// Members of the view that were in the subgroup in the view before it.
        pub(in super::super) before: Counter,
    }
}

crate::sst_row! {
    /// A member, of a subgroup in one view.
    pub(in super::super) struct StateRow {
        /// It has been given the subgroup's state in this view.
        pub(in super::super) restored: Flag,
        /// Part of a proposal: members of the next view that have the state, and have delivered
        /// what counts of this one.
        pub(in super::super) before: Counter,
        /// Bytes of the subgroup's state at the beginning of the view, or
        /// [`super::state::NONE`].
        pub(in super::super) state_bytes: Counter,
        /// The view, behind that.
        pub(in super::super) state_of: Counter,
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
        /// Members of the next one that will leave once they have given a state away.
        pub(in super::super) leaving: Counter,
        /// The newcomer of the next view, as a [`crate::fabric::Newcomer`]; 0 if there is none.
        pub(in super::super) newcomer: Counter,
        /// Members of the next view without the application's state.
        pub(in super::super) lacking: Counter,
    }
}

impl SeatRow {
    /// Makes it the row of a newcomer.
    pub(super) fn erase(&self) {
        self.installed.store(0);
        self.layout.store(0);
        self.stopped.store(0);
        self.pulse.store(0);
        for flag in [&self.leaving, &self.restored] {
            flag.lower();
        }
        self.admitted.iter().for_each(|seat| seat.store(0));
    }
}

impl WelcomeRow {
    /// Makes it the row of a member that has welcomed nobody.
    pub(super) fn erase(&self) {
        for counter in [
            &self.number,
            &self.members,
            &self.left,
            &self.failed,
            &self.leaving,
            &self.newcomer,
            &self.lacking,
            &self.state_bytes,
            &self.state_of,
        ] {
            counter.store(0);
        }
        self.incarnations.iter().for_each(|seat| seat.store(0));
    }
}

impl SequenceRow {
    /// Makes it the row of a member that has welcomed nobody.
    pub(super) fn erase(&self) {
        self.sequence.store(0);
        self.before.store(0);
    }
}

impl StateRow {
    /// Makes it the row of a member that has said nothing yet.
    pub(super) fn erase(&self) {
        self.restored.lower();
        for counter in [&self.before, &self.state_bytes, &self.state_of] {
            counter.store(0);
        }
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
            &self.leaving,
            &self.newcomer,
            &self.lacking,
        ] {
            counter.store(0);
        }
        self.wedged.lower();
    }
}
