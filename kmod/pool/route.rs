// SPDX-License-Identifier: GPL-2.0

//! The way that requests to a peer take now, as the pool has decided. A VQP that posts reads
//! one word to see whether that has changed: no lock, and nothing that nodes share.

use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

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

/// The way to a peer, for those who know it by one record.
#[pin_data]
pub(crate) struct Route<R: Requester> {
    gid: Gid,
    /// What its streams carry of one-sided requests, and of messages.
    meter: Arc<Meter>,
    messages: Arc<Meter>,
    #[pin]
    queue: Versioned<RcQueue<R>>,
    /// The link that the packets of its streams of messages are to go over.
    packets: Arc<Versioned<PacketLink>>,
    /// Nobody knows the peer by this record any more.
    is_gone: AtomicBool,
    /// Connections that are there.
    users: Users,
}

impl<R: Requester> Route<R> {
    /// A way to a peer, to which the queue pair carries that.
    pub(super) fn new(gid: Gid, queue: Option<Arc<RcQueue<R>>>, by_rc: ByRc) -> Result<Arc<Self>> {
        let link = link_of(queue.as_ref(), by_rc).cloned();
        let queue = queue.filter(|_| by_rc.requests);
        let meter = Arc::new(Meter::new(), GFP_KERNEL)?;
        let messages = Arc::new(Meter::new(), GFP_KERNEL)?;
        let packets = Arc::pin_init(Versioned::new(link), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                gid,
                meter,
                messages,
                queue <- Versioned::new(queue),
                packets,
                is_gone: AtomicBool::new(false),
                users: Users(AtomicU32::new(0)),
            }),
            GFP_KERNEL,
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

    /// A number that changes with the way; to be read before [`Route::queue`].
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        self.queue.version()
    }

    /// The RC queue that requests are to take; `None`: they go by DC.
    pub(crate) fn queue(&self) -> Option<Arc<RcQueue<R>>> {
        self.queue.get()
    }

    /// The link that packets of messages go over, if they go by RC.
    pub(crate) fn packets(&self) -> &Arc<Versioned<PacketLink>> {
        &self.packets
    }

    /// What the queue pair carries from now on.
    pub(super) fn set(&self, queue: Option<&Arc<RcQueue<R>>>, by_rc: ByRc) {
        self.queue.set(queue.filter(|_| by_rc.requests));
        self.packets.set(link_of(queue, by_rc));
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

/// A route in use. Dropped, in any context, it is no more: the pool lets go of it at its next
/// look.
pub(crate) struct RouteUse<R: Requester>(pub(super) Arc<Route<R>>);

impl<R: Requester> Deref for RouteUse<R> {
    type Target = Route<R>;

    #[inline]
    fn deref(&self) -> &Route<R> {
        &self.0
    }
}

impl<R: Requester> Drop for RouteUse<R> {
    fn drop(&mut self) {
        self.0.is_gone.store(true, Ordering::Relaxed);
    }
}

/// The link for packets, if they go by RC.
fn link_of<R: Requester>(queue: Option<&Arc<RcQueue<R>>>, by_rc: ByRc) -> Option<&Arc<PacketLink>> {
    queue.filter(|_| by_rc.messages)?.packets()
}
