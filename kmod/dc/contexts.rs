// SPDX-License-Identifier: GPL-2.0

//! The target: contexts of the peers' streams.
//!
//! Lock order: a set's lock is held alone among the sets'; contexts are dropped
//! without it.

use core::sync::atomic::{AtomicUsize, Ordering};

use kernel::alloc::KVBox;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::{Kind, Request, Response, Status};
use weft_core::dc::Farewells;
use weft_core::pace::{Pace, Rate};

use crate::clock::now_ns;
use crate::counters::COUNTERS;
use crate::dc::frames::Arrived;
use crate::dc::incoming::Receives;
use crate::dc::refusals::Refusals;
use crate::dc::seats::{Seat, Seats};
use crate::dc::slot::{Slot, TargetContext};
use crate::dc::swap_remove;
use crate::net::{Bearer, Endpoint, Train};
use crate::random::KeyedHash;
use crate::sync::{new_lock, BhDisabled, BhGuard, BhLock};

const SETS: usize = 4096;
/// Searches for idle contexts when new ones find no seat. Between them all sets are
/// searched once a second.
const SEARCHES: Rate = Rate {
    burst: 16,
    per_second: 1000,
};
/// Sets of a search.
const SETS_SEARCHED: usize = 4;
/// Idle contexts that a search frees, at most.
const REAPED_IN_SEARCH: usize = 64;
/// Idle contexts that are taken out of a set at a time.
const REAPED_AT_ONCE: usize = 8;

/// A context, with its token beside it, so that a look-up touches only the context
/// that it finds.
struct Way<P, R: Receives> {
    token: u64,
    slot: KBox<Slot<P, R>>,
}

/// Contexts whose streams share a lock. It has as many as there are.
struct Set<P, R: Receives> {
    ways: KVec<Way<P, R>>,
    farewells: Farewells,
}

type Sets<P, R> = [BhLock<Set<P, R>>; SETS];

/// A node's contexts.
pub(crate) struct Contexts<P, R: Receives> {
    /// Spreads the streams: nobody can choose which share a set.
    hash: KeyedHash,
    seats: Arc<Seats>,
    refusals: Refusals,
    sets: Pin<KVBox<Sets<P, R>>>,
    searches: Pace,
    /// The set that is searched next for idle contexts.
    next_search: AtomicUsize,
}

impl<P, R: Receives> Contexts<P, R> {
    /// No contexts.
    pub(crate) fn new() -> Result<Self> {
        let new_set = |_| {
            let (ways, farewells) = (KVec::new(), Farewells::NONE);
            new_lock!(Set { ways, farewells }, "weft_context_set")
        };
        Ok(Self {
            hash: KeyedHash::new(),
            seats: Seats::new(size_of::<Slot<P, R>>(), size_of::<Way<P, R>>())?,
            refusals: Refusals::new()?,
            sets: KVBox::pin_init(pin_init::pin_init_array_from_fn(new_set), GFP_KERNEL)?,
            searches: Pace::new(),
            next_search: AtomicUsize::new(0),
        })
    }

    /// The set of the request's stream. All that tells streams apart is hashed: else a
    /// peer could put all of its contexts into one set.
    fn set(&self, request: &Request, from: Endpoint) -> &BhLock<Set<P, R>> {
        let (addr, port) = (u32::from_ne_bytes(from.addr), u32::from(from.port));
        let (high, low) = ((request.token >> 32) as u32, request.token as u32);
        let first = self.hash.of([addr, port, request.stream, 0]);
        &self.sets[self.hash.place([first, high, low, 0], SETS)]
    }

    /// Frees the contexts that have not been used for long.
    pub(crate) fn reap(&self, now_ns: u64) {
        for set in self.sets.iter() {
            reap_set(set, now_ns, usize::MAX);
        }
    }

    /// Frees idle contexts of a few sets, of others each time, unless that was done too
    /// often. No set is locked. Softirq context.
    fn reap_some(&self, now_ns: u64) {
        if !self.searches.take(SEARCHES, now_ns) {
            return;
        }
        COUNTERS.context_searches.bump();
        let first = self.next_search.fetch_add(SETS_SEARCHED, Ordering::Relaxed);
        let sets = self.sets.iter().cycle().skip(first % SETS);
        let mut left = REAPED_IN_SEARCH;
        for set in sets.take(SETS_SEARCHED) {
            left -= reap_set(set, now_ns, left);
        }
    }

    /// Frees all contexts.
    pub(crate) fn clear(&self) {
        for set in self.sets.iter() {
            let all = core::mem::take(&mut set.lock().ways);
            drop(all);
        }
    }

    /// Carries the requests of a packet out, or not, and answers them. `first` is
    /// the first of them. Softirq context.
    pub(crate) fn serve<B: Bearer<Path = P>>(
        &self,
        target: &TargetContext<'_, B, R>,
        first: &Request,
        arrived: &Arrived<'_>,
    ) {
        let (from, bearer) = (arrived.from, target.bearer);
        if first.destination != target.identity {
            return self.refuse(bearer, first, from, Status::Stale);
        }
        if first.kind == Kind::Close {
            return self.close(first, from);
        }
        let (mut set, at) = self.locate(bearer, first, from);
        match at {
            Ok(at) => {
                if let Some(way) = set.ways.get_mut(at) {
                    way.slot.serve_all(target, first, arrived);
                }
            }
            Err(status) => {
                drop(set);
                self.refuse(bearer, first, from, status);
            }
        }
    }

    /// The locked set of the request's stream, and the position of its context there, which
    /// is opened if the request may open it.
    fn locate<B: Bearer<Path = P>>(
        &self,
        bearer: &B,
        request: &Request,
        from: Endpoint,
    ) -> (BhGuard<'_, Set<P, R>>, Result<usize, Status>) {
        let mut set = self.set(request, from).lock();
        let mut found = find(&set, request, from);
        if found.is_none() && request.psn == 0 && self.seats.is_full() {
            // No set is locked while another one is.
            drop(set);
            self.reap_some(now_ns());
            set = self.set(request, from).lock();
            // Another CPU may have opened it meanwhile.
            found = find(&set, request, from);
        }
        let at = match found {
            Some(at) => Ok(at),
            None => self.open(&mut set, bearer, request, from),
        };
        (set, at)
    }

    /// Forgets a stream that its initiator will not use again, all but its first request.
    fn close(&self, request: &Request, from: Endpoint) {
        let mut set = self.set(request, from).lock();
        let closed = find(&set, request, from).and_then(|at| swap_remove(&mut set.ways, at));
        if let Some(way) = &closed {
            set.farewells.note(way.slot.context());
        }
        drop(set);
        drop(closed);
    }

    /// Opens a context; answers its position in the set.
    fn open<B: Bearer<Path = P>>(
        &self,
        set: &mut Set<P, R>,
        bearer: &B,
        request: &Request,
        from: Endpoint,
    ) -> Result<usize, Status> {
        if request.psn != 0 || set.farewells.has(request) {
            return Err(Status::NoContext);
        }
        let seat: Seat = Seats::take(&self.seats, from.addr).map_err(|_| Status::Busy)?;
        let slot = Slot::open(request, from, bearer.path(from), seat, now_ns());
        let slot = slot.ok_or(Status::NoContext)?;
        let way = Way {
            token: request.token,
            slot: KBox::new(slot, GFP_ATOMIC).map_err(|_| Status::Busy)?,
        };
        set.ways.push(way, GFP_ATOMIC).map_err(|_| Status::Busy)?;
        COUNTERS.longest_context_set.reach(set.ways.len());
        Ok(set.ways.len() - 1)
    }

    /// Answers a request for which there is no context, unless too many were answered
    /// so. No lock is held.
    fn refuse<B: Bearer>(&self, bearer: &B, request: &Request, from: Endpoint, status: Status) {
        if request.kind == Kind::Close || !self.refusals.may_send(from, now_ns()) {
            return;
        }
        let bh = BhDisabled::new();
        let response = Response::to(request, status).encode();
        let (mut train, mut path) = (Train::new(bearer, &bh), bearer.path(from));
        let _: Result<(), ()> = train.append(&mut path, &response, 0, false, |_| Ok(()));
        train.flush(&mut path);
    }
}

/// The position of the request's stream in its set.
fn find<P, R: Receives>(set: &Set<P, R>, request: &Request, from: Endpoint) -> Option<usize> {
    set.ways
        .iter()
        .position(|way| way.token == request.token && way.slot.is_for(request, from))
}

/// Frees idle contexts of a set, a few per hold of its lock, `most` in all. Answers how
/// many.
fn reap_set<P, R: Receives>(set: &BhLock<Set<P, R>>, now_ns: u64, most: usize) -> usize {
    let (mut from, mut left) = (0, most);
    while left != 0 {
        let mut reaped = [const { None }; REAPED_AT_ONCE];
        let places = reaped.iter_mut().take(left);
        let wanted = places.len();
        let taken = take_idle(&mut set.lock(), &mut from, now_ns, places);
        left -= taken;
        if taken < wanted {
            break;
        }
    }
    most - left
}

/// Takes idle contexts out of a set, from the position `from` on, as many as there are
/// places. Answers how many.
fn take_idle<'a, P: 'a, R: Receives>(
    set: &mut Set<P, R>,
    from: &mut usize,
    now_ns: u64,
    places: impl Iterator<Item = &'a mut Option<Way<P, R>>>,
) -> usize {
    let mut taken = 0;
    for place in places {
        let rest = set.ways.get(*from..).unwrap_or(&[]);
        let Some(idle) = rest.iter().position(|way| way.slot.is_idle(now_ns)) else {
            if set.ways.is_empty() {
                // Gives back the memory of a set that was large.
                set.ways = KVec::new();
            }
            break;
        };
        *from += idle;
        *place = swap_remove(&mut set.ways, *from);
        taken += 1;
    }
    taken
}
