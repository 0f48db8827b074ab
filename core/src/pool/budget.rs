// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Shares out the queue pairs that a node may have, if more peers are worth one.
//!
//! A peer counts for the user of most of its traffic. Peers of users who have few queue pairs
//! come first, and take those of users who have more, so that one with many busy peers leaves
//! none of another's on DC for that; among the peers of one user, those come first that are
//! used most.

use core::cmp::Reverse;

use super::peer::Peer;
use super::{Action, LinkState, Mode, Pool, Transport, PEERS};
use crate::gid::Gid;

/// Queue pairs that are asked for at one look, at most.
const OPENS_AT_ONCE: usize = 4;
/// Peers that are thought of for one at one look, at most; the others are at a later one.
const CANDIDATES: usize = 16;
/// A peer takes another's queue pair if it is used so many times as much.
const TIMES_HOTTER: u64 = 2;
/// It does, however much it is used, if its user has so many fewer.
const FEWER: usize = 2;

impl Pool {
    /// Counts what the user of each peer has.
    pub(super) fn count_shares(&mut self) {
        for place in 0..PEERS {
            let Some(Some(user)) = self.peers.get(place).map(user_of) else {
                continue;
            };
            let its = self.peers.iter().filter(|peer| user_of(peer) == Some(user));
            let its = its.flatten();
            let placed = its.clone().filter(|peer| !peer.is_wanted()).count();
            let held = its.filter(|peer| peer.counts_for_user()).count();
            if let Some(Some(peer)) = self.peers.get_mut(place) {
                peer.held = held;
                peer.placed = placed;
            }
        }
    }

    /// Asks for queue pairs, and makes room for them.
    pub(super) fn open(
        &mut self,
        mode: Mode,
        budget: usize,
        now_ns: u64,
        mut act: impl FnMut(&Gid, Action),
    ) {
        let known = || self.peers.iter().flatten();
        let mut taken = known().filter(|peer| peer.takes_place()).count();
        let closing = |peer: &&Peer| peer.link == LinkState::Closing;
        let mut coming_free = known().filter(closing).count();
        let mut opened = 0;
        let mut passed = [false; PEERS];
        for _ in 0..CANDIDATES {
            let Some((place, next)) = self.next_to_open(mode, &passed, now_ns) else {
                return;
            };
            if taken < budget || next.is_wanted() {
                self.open_at(place, now_ns, &mut act);
                taken = taken.saturating_add(1);
                opened += 1;
                if opened == OPENS_AT_ONCE {
                    return;
                }
            } else if coming_free > 0 {
                coming_free -= 1;
                if let Some(is_passed) = passed.get_mut(place) {
                    *is_passed = true;
                }
            } else if let Some(gid) = self.reclaim(&next) {
                // Its place is free when it has been closed.
                act(&gid, Action::Use(Transport::Dc));
                act(&gid, Action::UseForMessages(Transport::Dc));
                act(&gid, Action::Close);
                return;
            } else {
                // Nor do its user's others get one, which are used less.
                for (peer, is_passed) in self.peers.iter().zip(&mut passed) {
                    *is_passed |= user_of(peer) == Some(next.user());
                }
            }
        }
    }

    fn open_at(&mut self, place: usize, now_ns: u64, act: &mut impl FnMut(&Gid, Action)) {
        let Some(Some(peer)) = self.peers.get_mut(place) else {
            return;
        };
        peer.opened_ns = Some(now_ns);
        act(&peer.gid, Action::Open);
        let user = peer.user();
        if !peer.counts_for_user() {
            return;
        }
        for peer in self.peers.iter_mut().flatten() {
            if peer.user() == user {
                peer.held = peer.held.saturating_add(1);
            }
        }
    }

    /// The next peer that is to get a queue pair, but for those that were passed, and its place.
    fn next_to_open(
        &self,
        mode: Mode,
        passed: &[bool; PEERS],
        now_ns: u64,
    ) -> Option<(usize, Peer)> {
        let is_welcome = now_ns >= self.cautious_until_ns;
        let is_to_get_one = |peer: &Peer| {
            let is_left = peer.forced.is_none() && mode == Mode::Auto;
            peer.is_wanted() || is_left && peer.is_due(is_welcome, now_ns)
        };
        let known = self.peers.iter().zip(passed).enumerate();
        let candidates = known.filter_map(|(place, (peer, is_passed))| {
            let peer = peer.as_ref()?;
            let is_one = !is_passed && !peer.takes_place() && is_to_get_one(peer);
            is_one.then_some((place, peer))
        });
        let rank = |peer: &Peer| (peer.is_wanted(), Reverse(peer.held), peer.heat());
        let (place, peer) = candidates.max_by_key(|(_, peer)| rank(peer))?;
        Some((place, *peer))
    }

    /// The queue pair that makes room for a peer: of the user who has most, the one that was
    /// hot longest ago.
    fn reclaim(&mut self, newcomer: &Peer) -> Option<Gid> {
        let free = self.peers.iter_mut().flatten();
        let free = free.filter(|peer| peer.makes_room_for(newcomer));
        let rank = |peer: &&mut Peer| (Reverse(peer.held), peer.hot_ns(), peer.heat());
        let oldest = free.min_by_key(rank)?;
        oldest.take(Transport::Dc);
        oldest.link = LinkState::Closing;
        Some(oldest.gid)
    }
}

/// The user of a peer, who may be unknown; `None`: there is no peer.
fn user_of(peer: &Option<Peer>) -> Option<Option<u32>> {
    peer.as_ref().map(Peer::user)
}

impl Peer {
    /// Whether its queue pair is one of those that its user has.
    fn counts_for_user(&self) -> bool {
        let has_one = self.opened_ns.is_some() || self.link.is_ours();
        has_one && !self.is_wanted()
    }

    /// Whether it gives up its queue pair for another peer.
    fn makes_room_for(&self, other: &Self) -> bool {
        if !self.link.is_ours() || self.pinned || self.forced.is_some() {
            return false;
        }
        let is_cooler = self.heat().saturating_mul(TIMES_HOTTER) <= other.heat();
        let (held, others) = (self.held, other.held);
        match self.user() == other.user() {
            true => is_cooler,
            // Behind that its user still has as many: the two do not take it from each
            // other in turn.
            false => held >= others.saturating_add(FEWER) || held > others && is_cooler,
        }
    }
}
