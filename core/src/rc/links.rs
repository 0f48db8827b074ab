// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The queue pairs that a node keeps to a peer. An offer never ends one that works: the
//! queue pair that answers it stays half open until the peer has spoken on it, and only
//! then takes the older one's place. Whoever forges an offer's source address sees no
//! answer, so cannot speak on what it offered.

use super::handshake::Role;
use crate::gid::Gid;

/// Queue pairs that may wait for their peers' first message, one for each lane.
pub const MAX_HALF_OPEN: usize = 16;

/// First queue pairs of a node to its peers: those that it wants, and those that are half open.
pub const MAX_FIRST_LINKS: usize = 64 + MAX_HALF_OPEN;

/// Further ones.
pub const MAX_MORE_LINKS: usize = 64;

/// Queue pairs that two nodes share at most.
pub const MAX_LANES: u8 = 8;

/// One of the queue pairs to a peer. The first is the connection: the others are there only
/// as long as it is, so that processors do not share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The peer.
    pub gid: Gid,
    /// Its number, below [`MAX_LANES`]; 0 is the first.
    pub number: u8,
}

impl Lane {
    /// The first one to a peer.
    #[must_use]
    pub const fn first(gid: Gid) -> Self {
        Self { gid, number: 0 }
    }

    /// Whether it is the first.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.number == 0
    }
}

/// How far a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It answers an offer, and the peer has not spoken on it.
    HalfOpen,
    /// The peer has answered this node's offer; it is not yet told that both are ready.
    Finishing,
    /// Both ends may post.
    Up,
    /// It is being closed.
    Closing,
    /// It has failed.
    Broken,
}

/// A queue pair in a list of which the newest is last.
#[derive(Clone, Copy, Debug)]
pub struct LinkView {
    /// Its lane.
    pub lane: Lane,
    /// How far it is.
    pub stage: Stage,
}

/// The index of the queue pair that requests of a lane use: the newest that is up.
pub fn usable(links: impl Iterator<Item = LinkView>, lane: &Lane) -> Option<usize> {
    let is_it = |link: &LinkView| link.lane == *lane && link.stage == Stage::Up;
    let indexed = links.enumerate().filter(|(_, link)| is_it(link));
    indexed.last().map(|(index, _)| index)
}

/// The queue pairs of a lane, as its [`super::Want`] sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// There is one that can be used.
    pub is_connected: bool,
    /// The peer has offered one, and not spoken on it.
    pub is_offered: bool,
    /// One that it has offered is being made.
    pub is_being_answered: bool,
    /// One is being closed.
    pub is_closing: bool,
}

impl Seen {
    /// The queue pairs of `lane` among these.
    pub fn of(links: impl Iterator<Item = LinkView>, lane: &Lane, is_being_answered: bool) -> Self {
        let mut seen = Self {
            is_being_answered,
            ..Self::default()
        };
        // Each stage is looked at once: what is half open may come up meanwhile.
        for link in links.filter(|link| link.lane == *lane) {
            seen.is_connected |= link.stage == Stage::Up;
            seen.is_offered |= link.stage == Stage::HalfOpen;
            seen.is_closing |= link.stage == Stage::Closing;
        }
        seen
    }
}

/// The index of the half-open queue pair of `lane`.
pub fn half_open(mut links: impl Iterator<Item = LinkView>, lane: &Lane) -> Option<usize> {
    links.position(|link| link.lane == *lane && link.stage == Stage::HalfOpen)
}

/// The index of the half-open queue pair that makes room for a new one of `lane`: one of the
/// same lane, whose peer has given up an offer before it makes the next; else, if there are as
/// many as may be, the oldest.
pub fn displaced(links: impl Iterator<Item = LinkView>, lane: &Lane) -> Option<usize> {
    let (mut oldest, mut count) = (None, 0);
    for (index, link) in links.enumerate() {
        if link.stage != Stage::HalfOpen {
            continue;
        }
        if link.lane == *lane {
            return Some(index);
        }
        oldest = oldest.or(Some(index));
        count += 1;
    }
    oldest.filter(|_| count >= MAX_HALF_OPEN)
}

/// Room for a new queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// The index of the half-open one that goes for it.
    pub displaced: Option<usize>,
}

/// The room for a new queue pair of `lane` among these; `None`: there is none. First and further
/// ones take none from each other.
pub fn room_for(
    links: impl Iterator<Item = LinkView> + Clone,
    lane: &Lane,
    role: Role,
) -> Option<Room> {
    let displaced = match role {
        Role::Answer => displaced(links.clone(), lane),
        Role::Offer => None,
    };
    let stay = links.enumerate().filter(|(at, _)| Some(*at) != displaced);
    let room_left = room_left(stay.map(|(_, link)| link), lane);
    (room_left != 0).then_some(Room { displaced })
}

/// How many more queue pairs there may be beside these, first ones or further ones as `lane` is.
pub fn room_left(links: impl Iterator<Item = LinkView>, lane: &Lane) -> usize {
    let most = match lane.is_first() {
        true => MAX_FIRST_LINKS,
        false => MAX_MORE_LINKS,
    };
    let alike = links.filter(|link| link.lane.is_first() == lane.is_first());
    most.saturating_sub(alike.count())
}

/// Whether the queue pair at `index`, of `lane`, has to go because a newer one of the same lane
/// is up.
pub fn is_superseded(links: impl Iterator<Item = LinkView>, index: usize, lane: &Lane) -> bool {
    let mut newer = links.skip(index.saturating_add(1));
    newer.any(|link| link.lane == *lane && link.stage == Stage::Up)
}

#[cfg(all(test, not(loom)))]
mod tests;
