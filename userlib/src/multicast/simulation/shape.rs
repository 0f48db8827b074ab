// SPDX-License-Identifier: MIT OR Apache-2.0

//! The members of the subgroups of a run: functions of the view.

use crate::fabric::NodeSet;
use crate::multicast::{Membership, View};

/// The members of a subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// All, without a function of the view.
    Everybody,
    /// All, by a function.
    All,
    /// So many with the lowest seats.
    Lowest(usize),
    /// So many with the highest seats.
    Highest(usize),
    /// Those in every so many seats, from this one on.
    Shard {
        /// The first seat.
        first: usize,
        /// How many shards there are.
        shards: usize,
    },
    /// All, but nobody in every so many views.
    Sometimes(u64),
    /// One half or the other, by turns.
    Halves,
    /// Those who have joined.
    Newcomers,
}

/// Those of the members who send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    /// All.
    All,
    /// The lowest.
    First,
    /// A third of them or another one, by turns.
    Thirds,
    /// Nobody in every other view.
    Sometimes,
}

/// A subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its members.
    pub members: Members,
    /// Those of them who send.
    pub senders: Senders,
    /// Those who enter are given its state.
    pub state: bool,
}

impl Shape {
    /// The shape of a subgroup without a function.
    pub const EVERYBODY: Self = Self {
        members: Members::Everybody,
        senders: Senders::All,
        state: false,
    };

    /// As chance decides.
    pub(super) fn draw(rng: &mut fastrand::Rng) -> Self {
        let few = rng.usize(1..=3);
        let members = match rng.u8(0..9) {
            0 => return Self::EVERYBODY,
            1 => Members::All,
            2 => Members::Lowest(few),
            3 => Members::Highest(few),
            4 | 5 => Members::Shard {
                first: rng.usize(0..few),
                shards: few,
            },
            6 => Members::Sometimes(few as u64 + 1),
            7 => Members::Halves,
            _ => Members::Newcomers,
        };
        let senders = match rng.u8(0..8) {
            0 => Senders::First,
            1 | 2 => Senders::Thirds,
            3 => Senders::Sometimes,
            _ => Senders::All,
        };
        let state = rng.bool();
        Self {
            members,
            senders,
            state,
        }
    }

    /// Whether members follow from the view by a function.
    pub(super) fn has_function(self) -> bool {
        self.members != Members::Everybody
    }

    /// The function.
    pub(super) fn of(self, view: &View) -> Membership {
        let (all, number) = (view.members, view.number);
        let where_seat = |is_in: &dyn Fn(usize) -> bool| -> NodeSet {
            all.iter().filter(|&seat| is_in(seat)).collect()
        };
        let turn = |seat: usize, of: u64| (seat as u64 + number) % of == 0;
        let members = match self.members {
            Members::Everybody | Members::All => all,
            Members::Lowest(count) => all.iter().take(count).collect(),
            Members::Highest(count) => {
                let skipped = all.len().saturating_sub(count);
                all.iter().skip(skipped).collect()
            }
            Members::Shard { first, shards } => where_seat(&|seat| seat % shards == first),
            Members::Sometimes(of) if number % of == 0 => NodeSet::EMPTY,
            Members::Sometimes(_) => all,
            Members::Halves => where_seat(&|seat| turn(seat, 2)),
            Members::Newcomers => where_seat(&|seat| view.incarnation(seat) != Some(0)),
        };
        let senders = match self.senders {
            Senders::All => members,
            Senders::First => members.iter().take(1).collect(),
            Senders::Thirds => members.iter().filter(|&seat| turn(seat, 3)).collect(),
            Senders::Sometimes if number % 2 == 0 => NodeSet::EMPTY,
            Senders::Sometimes => members,
        };
        Membership { members, senders }
    }
}
