// SPDX-License-Identifier: MIT OR Apache-2.0

//! What members tell one another (spindle §II.B, Table I).
//!
//! The paper counts from -1 and holds the last number; here a counter is the
//! number of messages, so that a table of zeros is the beginning. The first three
//! columns of a subgroup change with the messages; the others only at the end, when a
//! member has failed, or between two views. All are in one cache line, so that one push says all.

use crate::fabric::MAX_NODES;
use crate::sst::{Counter, Flag};

crate::sst_row! {
    /// A node, for all subgroups.
    pub(super) struct NodeRow {
        /// It has left, and its last messages are before this.
        pub(super) left: Flag,
        /// And it reads no more of what others have sent.
        pub(super) gone: Flag,
    }
}

crate::sst_row! {
    /// A member of a subgroup.
    pub(super) struct SubgroupRow {
        /// What it has sent, as [`crate::smc::Sent`].
        pub(super) sent: Counter,
        /// `received_num`: messages and nulls, in delivery order, that it has
        /// received all of.
        pub(super) received: Counter,
        /// `delivered_num`: those that it has delivered.
        pub(super) delivered: Counter,
        /// The members that it takes for failed, a bit each.
        pub(super) suspects: Counter,
        /// Because of that it sends nothing more, and `received` is final.
        pub(super) wedged: Flag,
        /// Messages and nulls that count, once `trimmed` is raised.
        pub(super) trim: Counter,
        /// It knows how many of the messages count.
        pub(super) trimmed: Flag,
    }
}

impl SubgroupRow {
    /// Makes it the row of a member that has said nothing yet.
    pub(super) fn erase(&self) {
        for counter in [
            &self.sent,
            &self.received,
            &self.delivered,
            &self.suspects,
            &self.trim,
        ] {
            counter.store(0);
        }
        self.wedged.lower();
        self.trimmed.lower();
    }
}

crate::sst_row! {
    /// A member of an unordered subgroup.
    pub(super) struct AckRow {
        /// For each sender, by index: messages of it that were delivered here.
        pub(super) acks: [Counter; MAX_NODES],
    }
}
