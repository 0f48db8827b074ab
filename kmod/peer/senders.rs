// SPDX-License-Identifier: GPL-2.0

//! Peers by what messages claim of their senders, so that a message is answered
//! without a look-up (krcore §4.4). Nobody has checked the claims: a sender's address
//! and the header of its message may both be forged. So a claim is found by all of
//! itself, and `qconnect` never looks here: a forged one leads the answers to forged
//! messages astray and nothing else.
//!
//! Lock order: a set's lock is held alone; peers are dropped without it.

use kernel::alloc::KVBox;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::Destination;
use weft_core::gid::Gid;
use weft_core::meta::Record;

use super::{Dc, Peer};
use crate::dc::Requester;
use crate::net::Endpoint;
use crate::pool::Pool;
use crate::random::KeyedHash;
use crate::sync::{new_lock, FastLock};

/// Claims that are kept: sets, and claims in each. The oldest of a set makes room; the
/// VQPs that use it keep it.
const SETS: usize = 32;
const WAYS: usize = 4;

/// Claims of the same set, and which of them is replaced next.
struct Set<R: Requester> {
    ways: [Option<Arc<Peer<R>>>; WAYS],
    victim: usize,
}

/// The senders of messages.
pub(super) struct Senders<R: Requester> {
    /// Spreads the claims: nobody can choose which share a set.
    hash: KeyedHash,
    sets: Pin<KVBox<[FastLock<Set<R>>; SETS]>>,
}

impl<R: Requester> Senders<R> {
    /// None.
    pub(super) fn new() -> Result<Self> {
        let set = |_| {
            new_lock!(
                Set {
                    ways: [const { None }; WAYS],
                    victim: 0
                },
                "weft_senders"
            )
        };
        Ok(Self {
            hash: KeyedHash::new(),
            sets: KVBox::pin_init(pin_init::pin_init_array_from_fn(set), GFP_KERNEL)?,
        })
    }

    fn set(&self, from: Endpoint, node: Destination) -> &FastLock<Set<R>> {
        let addr = u32::from_ne_bytes(from.addr);
        let (high, low) = ((node.dct_key >> 32) as u32, node.dct_key as u32);
        let first = [
            addr,
            u32::from(from.port),
            node.dct_number,
            node.incarnation,
        ];
        let all = [self.hash.of(first), high, low, 0];
        &self.sets[self.hash.place(all, SETS)]
    }

    /// The peer of this claim, from here or made and taken in.
    ///
    /// # Errors
    ///
    /// Those of [`Peer::new`].
    pub(super) fn find_or_make(
        &self,
        from: Endpoint,
        node: Destination,
        dc: &Arc<Dc<R>>,
        pool: &Arc<Pool<R>>,
    ) -> Result<Arc<Peer<R>>> {
        let set = self.set(from, node);
        if let Some(peer) = set.lock().find(from, node) {
            return Ok(peer);
        }
        let record = Record {
            dct_number: node.dct_number,
            dct_key: node.dct_key,
            incarnation: node.incarnation,
            udp_port: from.port,
        };
        let gid = Gid::from_ipv4(from.addr);
        let peer = Peer::new(gid, &record, dc.clone(), pool.clone())?;
        let replaced = set.lock().insert(peer.clone());
        drop(replaced);
        Ok(peer)
    }

    /// Forgets all claims. VQPs that are connected by them stay so.
    pub(super) fn flush(&self) {
        for set in self.sets.iter() {
            let ways = core::mem::replace(&mut set.lock().ways, [const { None }; WAYS]);
            drop(ways);
        }
    }
}

impl<R: Requester> Set<R> {
    fn find(&self, from: Endpoint, node: Destination) -> Option<Arc<Peer<R>>> {
        let mut peers = self.ways.iter().flatten();
        let peer = peers.find(|peer| peer.is_at(from, node) && !peer.is_suspect())?;
        Some(peer.clone())
    }

    /// Takes a peer in; answers the one whose place it has.
    fn insert(&mut self, peer: Arc<Peer<R>>) -> Option<Arc<Peer<R>>> {
        let free = self.ways.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.victim = (self.victim + 1) % WAYS;
            self.victim
        });
        self.ways.get_mut(at)?.replace(peer)
    }
}
