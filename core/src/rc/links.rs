// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Which queue pairs a node keeps to a peer. An offer never ends one that works: the
//! queue pair that answers it stays half open until the peer has spoken on it, and only
//! then takes the older one's place. Whoever forges an offer's source address sees no
//! answer, so cannot speak on what it offered.

use crate::gid::Gid;

/// Queue pairs that may wait for their peers' first message, one for each peer.
pub const MAX_HALF_OPEN: usize = 16;

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
    /// The peer.
    pub gid: Gid,
    /// How far it is.
    pub stage: Stage,
}

/// The index of the queue pair that requests to a peer use: the newest that is up.
pub fn usable(links: impl Iterator<Item = LinkView>, gid: &Gid) -> Option<usize> {
    let is_it = |link: &LinkView| link.gid == *gid && link.stage == Stage::Up;
    let indexed = links.enumerate().filter(|(_, link)| is_it(link));
    indexed.last().map(|(index, _)| index)
}

/// The index of the half-open queue pair that makes room for a new one to `gid`: that
/// to the same peer, which has given up an offer before it makes the next; else, if
/// there are as many as may be, the oldest.
pub fn displaced(links: impl Iterator<Item = LinkView>, gid: &Gid) -> Option<usize> {
    let (mut oldest, mut count) = (None, 0);
    for (index, link) in links.enumerate() {
        if link.stage != Stage::HalfOpen {
            continue;
        }
        if link.gid == *gid {
            return Some(index);
        }
        oldest = oldest.or(Some(index));
        count += 1;
    }
    oldest.filter(|_| count >= MAX_HALF_OPEN)
}

/// Whether the queue pair at `index` has to go because a newer one to the same peer is
/// up.
pub fn is_superseded(links: impl Iterator<Item = LinkView>, index: usize, gid: &Gid) -> bool {
    let mut newer = links.skip(index.saturating_add(1));
    newer.any(|link| link.gid == *gid && link.stage == Stage::Up)
}

#[cfg(all(test, not(loom)))]
mod tests;
