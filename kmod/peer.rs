// SPDX-License-Identifier: GPL-2.0

//! Peers that a node knows, and the cache of them (krcore §4.2, DCCache).
//!
//! The cache holds records of meta servers alone. What the header of a message claims
//! of its sender is kept apart ([`Senders`]), under the whole claim, and serves to
//! answer messages with the same claim.

mod senders;

use core::sync::atomic::{AtomicU64, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVBox;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::Destination;
use weft_core::gid::Gid;
use weft_core::meta::Record;

use crate::counters::{Counted, COUNTERS};
use crate::dc::{count_peer_change, Requester, SoftDc, Stream, Suspicion, Target};
use crate::net::{Endpoint, NodeBearer};
use crate::pool::{Pool, Route, RouteUse};
use crate::sync::{new_lock, BhLock, FastLock};

use senders::Senders;

/// DC initiators of a node; a VQP uses that of the CPU on which it is first
/// used
/// (krcore §4.2).
pub(crate) const INITIATORS: usize = 8;

/// A node's DC initiators and target, for requesters `R`.
pub(crate) type Dc<R> = SoftDc<NodeBearer, R>;
/// A stream to a peer.
pub(crate) type PeerStream<R> = Stream<NodeBearer, R>;

/// The user that a node's own control messages go by: none that a process could be of.
pub(crate) const NODE_USER: u32 = u32::MAX;

/// A stream that the VQPs of a user share, on one DC initiator. Users do not share
/// streams with each other: one that fills its own holds up nobody else.
struct Shared<R: Requester> {
    user: u32,
    initiator: usize,
    stream: Arc<PeerStream<R>>,
}

/// A peer whose record was looked up, with the streams to it.
#[pin_data(PinnedDrop)]
pub(crate) struct Peer<R: Requester> {
    gid: Gid,
    dc: Arc<Dc<R>>,
    pool: Arc<Pool<R>>,
    route: RouteUse<R>,
    target: Target,
    /// Those that VQPs share, with the user that each is for.
    #[pin]
    streams: BhLock<KVec<Shared<R>>>,
    _count: Counted,
}

impl<R: Requester> Peer<R> {
    /// A peer with the record that a meta server holds of it.
    ///
    /// # Errors
    ///
    /// `EHOSTUNREACH`: its GID maps no IPv4 address, so that the bearer cannot
    /// reach it. `ENOMEM`.
    pub(crate) fn new(
        gid: Gid,
        record: &Record,
        dc: Arc<Dc<R>>,
        pool: Arc<Pool<R>>,
    ) -> Result<Arc<Self>> {
        let addr = gid.to_ipv4().ok_or_else(crate::errno::host_unreach)?;
        let route = pool.route(&gid)?;
        let target = Target {
            endpoint: Endpoint {
                addr,
                port: record.udp_port,
            },
            destination: record.destination(),
            suspicion: Suspicion::new()?,
            meter: route.meter().clone(),
            messages: route.message_meter().clone(),
        };
        Arc::pin_init(
            pin_init!(Self {
                gid,
                dc,
                pool,
                route,
                target,
                streams <- new_lock!(KVec::new(), "weft_peer"),
                _count: Counted::one(&COUNTERS.peers),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Whether the record is suspect and should be looked up again.
    pub(crate) fn is_suspect(&self) -> bool {
        self.target.suspicion.is_raised()
    }

    /// The way that requests to it take now.
    #[inline]
    pub(crate) fn route(&self) -> &Route<R> {
        &self.route
    }

    /// Waits until there is an RC queue pair to it (`pool=rc`), on a user's behalf.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::wait_for_queue`].
    pub(crate) fn wait_for_queue(&self, user: u32) -> Result {
        self.pool.wait_for_queue(&self.route, user)
    }

    /// A user's stream of a DC initiator to this peer, made if need be.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EMFILE` (the user has too many).
    pub(crate) fn stream(&self, user: u32, cpu: usize) -> Result<Arc<PeerStream<R>>> {
        let initiator = cpu % INITIATORS;
        if let Some(stream) = shared(&self.streams.lock(), user, initiator) {
            return Ok(stream);
        }
        let stream = self.dc.connect(&self.target, holder(user), None)?;
        let (winner, added) = {
            let mut streams = self.streams.lock();
            match shared(&streams, user, initiator) {
                Some(winner) => (winner, Ok(())),
                None => {
                    let entry = Shared {
                        user,
                        initiator,
                        stream: stream.clone(),
                    };
                    // Charged to the cgroup of the caller.
                    let flags = GFP_ATOMIC | (GFP_KERNEL_ACCOUNT & !GFP_KERNEL);
                    let added = streams.push(entry, flags);
                    (stream.clone(), added)
                }
            }
        };
        if added.is_err() || !Arc::ptr_eq(&winner, &stream) {
            self.dc.close(&stream);
        }
        added?;
        Ok(winner)
    }

    /// A stream for one VQP of a user's, which sends messages; [`Peer::close`] ends it. Its
    /// packets go by RC where the pool says so.
    ///
    /// # Errors
    ///
    /// As [`Peer::stream`].
    pub(crate) fn own_stream(&self, user: u32) -> Result<Arc<PeerStream<R>>> {
        let packets = self.route.packets().clone();
        self.dc.connect(&self.target, holder(user), Some(packets))
    }

    /// Ends a stream of [`Peer::own_stream`].
    pub(crate) fn close(&self, stream: &PeerStream<R>) {
        self.dc.close(stream);
    }

    /// Whether packets from there, by this target's node, are the peer's.
    pub(crate) fn is_at(&self, from: Endpoint, node: Destination) -> bool {
        self.target.endpoint == from && self.target.destination == node
    }
}

/// The user whose limits a stream counts against. The node's own control messages
/// count against nobody's, so that they always find room.
fn holder(user: u32) -> Option<u32> {
    (user != NODE_USER).then_some(user)
}

fn shared<R: Requester>(
    streams: &[Shared<R>],
    user: u32,
    initiator: usize,
) -> Option<Arc<PeerStream<R>>> {
    let is_it = |shared: &&Shared<R>| shared.user == user && shared.initiator == initiator;
    let shared = streams.iter().find(is_it)?;
    Some(shared.stream.clone())
}

#[pinned_drop]
impl<R: Requester> PinnedDrop for Peer<R> {
    fn drop(self: Pin<&mut Self>) {
        let streams = core::mem::take(&mut *self.streams.lock());
        for shared in &streams {
            self.dc.close(&shared.stream);
        }
    }
}

const SETS: usize = 1024;
const WAYS: usize = 4;

/// A cached peer. The GID stands beside it, so that a look-up touches only the
/// peer that it finds.
type Way<R> = Option<(u128, Arc<Peer<R>>)>;

/// Peers of the same set, and which of them is replaced next.
struct Set<R: Requester> {
    ways: [Way<R>; WAYS],
    victim: usize,
}

/// A GID as one word, to compare and to mix.
fn word(gid: &Gid) -> u128 {
    u128::from_ne_bytes(gid.0)
}

fn mix(bits: u128) -> usize {
    let mixed = ((bits >> 64) as u64 ^ bits as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 48) as usize
}

/// A node's peers by their GID. Of fixed size: the oldest of a set makes room.
///
/// Lock order: a set's lock is held alone; peers are dropped without it.
pub(crate) struct DcCache<R: Requester> {
    sets: Pin<KVBox<[FastLock<Set<R>>; SETS]>>,
    /// The sets that have had a peer since they were last flushed, one bit each.
    used: [AtomicU64; SETS / 64],
    senders: Senders<R>,
}

impl<R: Requester> DcCache<R> {
    /// An empty cache.
    pub(crate) fn new() -> Result<Self> {
        let set = |_| {
            new_lock!(
                Set {
                    ways: [const { None }; WAYS],
                    victim: 0
                },
                "weft_dccache_set"
            )
        };
        Ok(Self {
            sets: KVBox::pin_init(pin_init::pin_init_array_from_fn(set), GFP_KERNEL)?,
            used: [const { AtomicU64::new(0) }; SETS / 64],
            senders: Senders::new()?,
        })
    }

    fn set(&self, bits: u128) -> &FastLock<Set<R>> {
        &self.sets[mix(bits) % SETS]
    }

    /// One of `count` lanes, always the same for a GID.
    pub(crate) fn lane(gid: &Gid, count: usize) -> usize {
        mix(word(gid)) % count
    }

    /// The peer, if it is here and its record is not suspect.
    pub(crate) fn find(&self, gid: &Gid) -> Option<Arc<Peer<R>>> {
        let wanted = word(gid);
        let set = self.set(wanted).lock();
        let (_, peer) = set.ways.iter().flatten().find(|(gid, _)| *gid == wanted)?;
        (!peer.is_suspect()).then(|| peer.clone())
    }

    /// The peer that a message claims to be from: the one that is here, if the claim
    /// is what its record says, or else one that only messages with this claim lead to.
    ///
    /// # Errors
    ///
    /// Those of [`Peer::new`].
    pub(crate) fn find_sender(
        &self,
        from: Endpoint,
        node: Destination,
        dc: &Arc<Dc<R>>,
        pool: &Arc<Pool<R>>,
    ) -> Result<Arc<Peer<R>>> {
        match self.find(&Gid::from_ipv4(from.addr)) {
            Some(peer) if peer.is_at(from, node) => Ok(peer),
            _ => self.senders.find_or_make(from, node, dc, pool),
        }
    }

    /// Takes a peer in, in place of what was known of it.
    pub(crate) fn insert(&self, peer: Arc<Peer<R>>) {
        let gid = word(&peer.gid);
        let replaced = {
            let mut set = self.set(gid).lock();
            let same = |way: &Way<R>| way.as_ref().is_some_and(|(other, _)| *other == gid);
            let way = match set
                .ways
                .iter()
                .position(same)
                .or_else(|| set.ways.iter().position(Option::is_none))
            {
                Some(way) => way,
                None => {
                    set.victim = (set.victim + 1) % WAYS;
                    set.victim
                }
            };
            // Under the lock: a flush that takes the bit finds the peer.
            let index = mix(gid) % SETS;
            self.used[index / 64].fetch_or(1 << (index % 64), Ordering::AcqRel);
            set.ways
                .get_mut(way)
                .and_then(|way| way.replace((gid, peer)))
        };
        count_peer_change();
        drop(replaced);
    }

    /// Forgets all peers. VQPs that are connected to them stay so.
    pub(crate) fn flush(&self) {
        for set in self.used_sets(|bits| bits.swap(0, Ordering::AcqRel)) {
            let ways = core::mem::replace(&mut set.lock().ways, [const { None }; WAYS]);
            drop(ways);
        }
        self.senders.flush();
        count_peer_change();
    }

    /// Peers that are here.
    pub(crate) fn count(&self) -> usize {
        self.used_sets(|bits| bits.load(Ordering::Acquire))
            .map(|set| set.lock().ways.iter().flatten().count())
            .sum()
    }

    /// The sets whose bits `take` finds in `used`.
    fn used_sets(
        &self,
        take: impl Fn(&AtomicU64) -> u64,
    ) -> impl Iterator<Item = &FastLock<Set<R>>> {
        let bits = self.used.iter().map(take);
        let chunks = self.sets.chunks(64).zip(bits);
        chunks.flat_map(|(sets, bits)| {
            let is_used = move |bit: &usize| bits >> bit & 1 != 0;
            let sets = sets.iter().enumerate();
            sets.filter(move |(bit, _)| is_used(bit))
                .map(|(_, set)| set)
        })
    }
}
