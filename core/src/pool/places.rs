// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Shares out the pool's places, if more peers are used than it has an eye on.
//!
//! As with queue pairs, a peer counts for the user of most of its traffic. Idle peers go first,
//! whoever used them. Then a peer of a user who has few places takes one of the user who has
//! most; any other takes its own user's coldest. So nobody's many peers put all of another's
//! out of the pool's sight.

use core::cmp::Reverse;

use super::peer::Peer;
use super::Pool;
use crate::gid::Gid;

/// Peers that are taken in at one look in place of others that count no less; more come at
/// the next.
pub(super) const NEWCOMERS: u32 = 16;
/// A user who has so many places fewer than the one who has most takes one of that one's.
const FEWER: usize = 2;

/// Why a peer that is not known is to have a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Claim {
    /// An administrator says so, or there is a queue pair to it.
    Kept,
    /// It is used: most, as far as is known, by this user.
    Used(Option<u32>),
}

impl Claim {
    fn user(self) -> Option<u32> {
        match self {
            Self::Kept => None,
            Self::Used(user) => user,
        }
    }
}

impl Pool {
    pub(super) fn find(&mut self, gid: &Gid) -> Option<&mut Peer> {
        let mut peers = self.peers.iter_mut().flatten();
        peers.find(|peer| peer.gid == *gid)
    }

    /// The peer, which is given a place if it has none and there is one for it.
    pub(super) fn find_or_make(
        &mut self,
        gid: &Gid,
        claim: Claim,
        now_ns: u64,
    ) -> Option<&mut Peer> {
        let known = |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| peer.gid == *gid);
        let place = match self.peers.iter().position(known) {
            Some(place) => place,
            None => {
                let place = self.place_for(claim)?;
                self.put(place, Peer::new(*gid, claim.user(), now_ns));
                place
            }
        };
        self.peers.get_mut(place)?.as_mut()
    }

    /// A free place, or that of a peer that nothing keeps.
    fn place_for(&mut self, claim: Claim) -> Option<usize> {
        if let Some(free) = self.peers.iter().position(Option::is_none) {
            return Some(free);
        }
        let (place, first) = self.first_to_go(|_| true)?;
        let Claim::Used(user) = claim else {
            return Some(place);
        };
        let own = self.placed(user);
        let most = match first.is_idle() {
            true => self.most_placed(),
            false => first.placed,
        };
        if own.saturating_add(FEWER) <= most {
            return Some(place);
        }
        self.newcomers = self.newcomers.checked_sub(1)?;
        if first.is_idle() {
            return Some(place);
        }
        match self.first_to_go(|peer| peer.user() == user) {
            Some((place, _)) => Some(place),
            // All that its user has is kept.
            None => (own < first.placed).then_some(place),
        }
    }

    /// Of those that nothing keeps and that are meant: one that is idle, or else the coldest
    /// of the user who has most; and its place.
    fn first_to_go(&self, is_meant: impl Fn(&Peer) -> bool) -> Option<(usize, Peer)> {
        let taken = self.peers.iter().enumerate();
        let taken = taken.filter_map(|(place, peer)| Some((place, peer.as_ref()?)));
        let free = taken.filter(|(_, peer)| !peer.is_kept() && is_meant(peer));
        let rank = |peer: &Peer| {
            let coldness = (peer.heat(), peer.seen(), peer.hot_ns());
            (!peer.is_idle(), Reverse(peer.placed), coldness)
        };
        let (place, peer) = free.min_by_key(|(_, peer)| rank(peer))?;
        Some((place, *peer))
    }

    /// Places that the user has who has most.
    fn most_placed(&self) -> usize {
        let placed = self.peers.iter().flatten().map(|peer| peer.placed);
        placed.max().unwrap_or(0)
    }

    /// Places that a user has.
    fn placed(&self, user: Option<u32>) -> usize {
        let its = self.peers.iter().flatten().find(|peer| peer.user() == user);
        its.map_or(0, |peer| peer.placed)
    }

    /// Gives a place to a new peer, and counts that.
    fn put(&mut self, place: usize, mut new: Peer) {
        new.placed = self.placed(new.user());
        let Some(taken) = self.peers.get_mut(place) else {
            return;
        };
        let gone = taken.replace(new).map(|peer| peer.user());
        for peer in self.peers.iter_mut().flatten() {
            if gone == Some(peer.user()) {
                peer.placed = peer.placed.saturating_sub(1);
            }
            if new.user() == peer.user() {
                peer.placed = peer.placed.saturating_add(1);
            }
        }
    }
}
