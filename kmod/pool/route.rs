// SPDX-License-Identifier: GPL-2.0

//! The way that requests to a peer take now, as the pool has decided. A VQP that posts reads
//! one word to see whether that has changed: no lock, and nothing that nodes share.
//!
//! All records of a peer share one, however many messages claim to be from there.

use core::ops::Deref;
use core::sync::atomic::{AtomicU32, AtomicU8, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::gid::Gid;
use weft_core::pool::{ByRc, Meter};

use crate::dc::Requester;
use crate::net::PacketLink;
use crate::rc::RcQueue;
use crate::sync::Versioned;

/// A number on a cache line of its own: whoever posts reads a route, whoever connects
/// writes this.
#[repr(align(64))]
struct Users(AtomicU32);

/// The way to a peer.
#[pin_data]
pub(crate) struct Route<R: Requester> {
    gid: Gid,
    /// What its streams carry of one-sided requests, and of messages.
    meter: Arc<Meter>,
    messages: Arc<Meter>,
    /// The first queue pair. It stands here, because there is often no other.
    #[pin]
    queue: Versioned<RcQueue<R>>,
    /// The further ones, by their numbers less one. In place of one that is not up there is the
    /// first.
    more: KVec<Arc<Versioned<RcQueue<R>>>>,
    /// A bit for each queue pair whose processors have requests for the peer.
    needed: AtomicU8,
    /// The link that the packets of its streams of messages are to go over.
    packets: Arc<Versioned<PacketLink>>,
    /// Records by which somebody knows the peer. It begins to be known with the pool's list
    /// locked.
    records: AtomicU32,
    /// Connections that are there.
    users: Users,
}

impl<R: Requester> Route<R> {
    /// A way to a peer over so many queue pairs at most. It is set before anybody takes it.
    pub(super) fn new(gid: Gid, lanes: u8) -> Result<Arc<Self>> {
        let meter = Arc::new(Meter::new(), GFP_KERNEL_ACCOUNT)?;
        let messages = Arc::new(Meter::new(), GFP_KERNEL_ACCOUNT)?;
        let packets = Arc::pin_init(Versioned::new(None), GFP_KERNEL_ACCOUNT)?;
        let mut more = KVec::new();
        for _ in 1..lanes {
            let lane = Arc::pin_init(Versioned::new(None), GFP_KERNEL_ACCOUNT)?;
            more.push(lane, GFP_KERNEL_ACCOUNT)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                gid,
                meter,
                messages,
                queue <- Versioned::new(None),
                more,
                needed: AtomicU8::new(0),
                packets,
                records: AtomicU32::new(0),
                users: Users(AtomicU32::new(0)),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    pub(super) fn gid(&self) -> &Gid {
        &self.gid
    }

    /// What the streams to the peer report one-sided requests to.
    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The same of messages.
    pub(crate) fn message_meter(&self) -> &Arc<Meter> {
        &self.messages
    }

    /// A VQP is connected that takes it.
    #[inline]
    pub(crate) fn join(&self) {
        self.users.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One that was is no more.
    pub(crate) fn part(&self) {
        self.users.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// VQPs that take it.
    pub(super) fn users(&self) -> u32 {
        self.users.0.load(Ordering::Relaxed)
    }

    /// Queue pairs to the peer that this node uses, at most.
    #[inline]
    pub(crate) fn lanes(&self) -> u8 {
        // There are at most `MAX_LANES`.
        self.more.len() as u8 + 1
    }

    #[inline]
    fn lane(&self, lane: u8) -> &Versioned<RcQueue<R>> {
        match lane.checked_sub(1) {
            None => &self.queue,
            Some(index) => self
                .more
                .get(usize::from(index))
                .map_or(&self.queue, |of| of),
        }
    }

    /// A number that changes with the way of a lane; to be read before [`Route::queue`].
    #[inline]
    pub(crate) fn version(&self, lane: u8) -> u32 {
        self.lane(lane).version()
    }

    /// The RC queue that requests of a lane are to take; `None`: they go by DC.
    pub(crate) fn queue(&self, lane: u8) -> Option<Arc<RcQueue<R>>> {
        self.lane(lane).get()
    }

    /// A processor of this lane has requests for the peer.
    pub(crate) fn note_need(&self, lane: u8) {
        self.needed.fetch_or(1 << lane, Ordering::Relaxed);
    }

    /// The further queue pairs that would be used.
    pub(super) fn needs(&self) -> impl Iterator<Item = u8> {
        let needed = self.needed.load(Ordering::Relaxed);
        (1..self.lanes()).filter(move |lane| needed >> lane & 1 != 0)
    }

    /// The link that packets of messages go over, if they go by RC.
    pub(crate) fn packets(&self) -> &Arc<Versioned<PacketLink>> {
        &self.packets
    }

    /// Has the queue pair carry that from now on; `of` answers with the further ones that are up.
    pub(super) fn set(
        &self,
        queue: Option<&Arc<RcQueue<R>>>,
        by_rc: ByRc,
        of: impl Fn(u8) -> Option<Arc<RcQueue<R>>>,
    ) {
        let first = queue.filter(|_| by_rc.requests);
        self.queue.set(first);
        for (lane, place) in (1..).zip(&self.more) {
            let own = first.and_then(|_| of(lane));
            place.set(own.as_ref().or(first));
        }
        self.packets.set(link_of(queue, by_rc));
    }

    /// Everything goes by DC from now on.
    pub(super) fn clear(&self) {
        self.set(None, ByRc::default(), |_| None);
        self.needed.store(0, Ordering::Relaxed);
    }

    /// Whether nobody knows the peer. It stays so as long as the pool's list is locked.
    pub(super) fn is_gone(&self) -> bool {
        self.records.load(Ordering::Relaxed) == 0
    }
}

/// A route that one record of the peer uses. Dropped, in any context, it does no more: the pool
/// lets go of a route that none uses at its next look.
pub(crate) struct RouteUse<R: Requester>(Arc<Route<R>>);

impl<R: Requester> RouteUse<R> {
    /// One more record uses it. With the pool's list locked.
    pub(super) fn new(route: Arc<Route<R>>) -> Self {
        route.records.fetch_add(1, Ordering::Relaxed);
        Self(route)
    }
}

impl<R: Requester> Deref for RouteUse<R> {
    type Target = Route<R>;

    #[inline]
    fn deref(&self) -> &Route<R> {
        &self.0
    }
}

impl<R: Requester> Drop for RouteUse<R> {
    fn drop(&mut self) {
        self.0.records.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The link for packets, if they go by RC.
fn link_of<R: Requester>(queue: Option<&Arc<RcQueue<R>>>, by_rc: ByRc) -> Option<&Arc<PacketLink>> {
    queue.filter(|_| by_rc.messages)?.packets()
}
