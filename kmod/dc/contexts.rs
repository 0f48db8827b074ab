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

use crate::clock::now_ns;
use crate::dc::frames::Arrived;
use crate::dc::incoming::Receives;
use crate::dc::refusals::Refusals;
use crate::dc::seats::{Seat, Seats};
use crate::dc::slot::{Slot, TargetContext};
use crate::net::{Bearer, Endpoint, Train};
use crate::random::KeyedHash;
use crate::sync::{new_lock, BhDisabled, BhLock};

const SETS: usize = 4096;
/// Sets that are searched for idle contexts when a new one finds no seat.
const SETS_SEARCHED: usize = 4;
/// Idle contexts that are taken out of a set at a time.
const REAPED_AT_ONCE: usize = 8;

/// A context, with its token beside it, so that a look-up touches only the context
/// that it finds.
struct Way<P, R: Receives> {
    token: u64,
    slot: KBox<Slot<P, R>>,
}

/// Contexts whose streams share a lock. It has as many as there are.
type Set<P, R> = KVec<Way<P, R>>;

type Sets<P, R> = [BhLock<Set<P, R>>; SETS];

/// A node's contexts.
pub(crate) struct Contexts<P, R: Receives> {
    /// Spreads the streams: nobody can choose which share a set.
    hash: KeyedHash,
    seats: Arc<Seats>,
    refusals: Refusals,
    sets: Pin<KVBox<Sets<P, R>>>,
    /// The set that is searched next for idle contexts.
    next_search: AtomicUsize,
}

impl<P, R: Receives> Contexts<P, R> {
    /// No contexts.
    pub(crate) fn new() -> Result<Self> {
        let new_set = |_| new_lock!(KVec::new(), "weft_context_set");
        Ok(Self {
            hash: KeyedHash::new(),
            seats: Seats::new(size_of::<Slot<P, R>>() + size_of::<Way<P, R>>())?,
            refusals: Refusals::new()?,
            sets: KVBox::pin_init(pin_init::pin_init_array_from_fn(new_set), GFP_KERNEL)?,
            next_search: AtomicUsize::new(0),
        })
    }

    fn set(&self, from: Endpoint, stream: u32) -> &BhLock<Set<P, R>> {
        let (addr, port) = (u32::from_ne_bytes(from.addr), u32::from(from.port));
        &self.sets[self.hash.place([addr, port, stream, 0], SETS)]
    }

    /// Frees the contexts that have not been used for long.
    pub(crate) fn reap(&self, now_ns: u64) {
        for set in self.sets.iter() {
            reap_set(set, now_ns);
        }
    }

    /// Frees idle contexts of a few sets, of others each time. Softirq context.
    fn reap_some(&self, now_ns: u64) {
        let first = self.next_search.fetch_add(SETS_SEARCHED, Ordering::Relaxed);
        for set in self
            .sets
            .iter()
            .cycle()
            .skip(first % SETS)
            .take(SETS_SEARCHED)
        {
            reap_set(set, now_ns);
        }
    }

    /// Frees all contexts.
    pub(crate) fn clear(&self) {
        for set in self.sets.iter() {
            let all = core::mem::take(&mut *set.lock());
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
        if first.psn == 0 && self.seats.is_full() {
            // Before a set is locked: none is while another one is.
            self.reap_some(now_ns());
        }
        let mut set = self.set(from, first.stream).lock();
        let at = match find(&set, first, from) {
            Some(at) => Ok(at),
            None => self.open(&mut set, bearer, first, from),
        };
        match at {
            Ok(at) => {
                if let Some(way) = set.get_mut(at) {
                    way.slot.serve_all(target, first, arrived);
                }
            }
            Err(status) => {
                drop(set);
                self.refuse(bearer, first, from, status);
            }
        }
    }

    /// Forgets a stream that its initiator will not use again.
    fn close(&self, request: &Request, from: Endpoint) {
        let mut set = self.set(from, request.stream).lock();
        let closed = find(&set, request, from).and_then(|at| set.remove(at).ok());
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
        if request.psn != 0 {
            return Err(Status::NoContext);
        }
        let seat: Seat = Seats::take(&self.seats, from.addr).map_err(|_| Status::Busy)?;
        let slot = Slot::open(request, from, bearer.path(from), seat, now_ns());
        let slot = slot.ok_or(Status::NoContext)?;
        let way = Way {
            token: request.token,
            slot: KBox::new(slot, GFP_ATOMIC).map_err(|_| Status::Busy)?,
        };
        set.push(way, GFP_ATOMIC).map_err(|_| Status::Busy)?;
        Ok(set.len() - 1)
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
    set.iter()
        .position(|way| way.token == request.token && way.slot.is_for(request, from))
}

/// Frees the idle contexts of a set, a few per hold of its lock.
fn reap_set<P, R: Receives>(set: &BhLock<Set<P, R>>, now_ns: u64) {
    let mut from = 0;
    loop {
        let mut reaped = [const { None }; REAPED_AT_ONCE];
        let mut room = reaped.iter_mut();
        let mut locked = set.lock();
        let mut place = room.next();
        while let Some(to) = place.take() {
            let rest = locked.get(from..).unwrap_or(&[]);
            let Some(idle) = rest.iter().position(|way| way.slot.is_idle(now_ns)) else {
                if locked.is_empty() {
                    // Gives back the memory of a set that was large.
                    *locked = KVec::new();
                }
                return;
            };
            from += idle;
            *to = locked.remove(from).ok();
            place = room.next();
        }
    }
}
