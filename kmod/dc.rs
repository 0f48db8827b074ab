// SPDX-License-Identifier: GPL-2.0

//! SoftDc: `weft_core::dc` driven by a bearer.
//!
//! As initiator a node keeps one [`Stream`] per peer and DC initiator; as target
//! one context per stream of its peers. Everything from a packet's arrival to
//! the answer happens in the receive softirq.
//!
//! Lock order, outermost first: a set of contexts, a stream, a requester's or
//! receiver's own lock, a set of memory regions, of receivers, or of the contexts'
//! sources. All of them keep softirqs out.

mod contexts;
mod entry;
mod frames;
mod gate;
mod inbox;
mod incoming;
mod payload;
mod receivers;
mod refusals;
mod seats;
mod slot;
mod stream;
mod suspicion;
mod table;

use core::sync::atomic::{fence, AtomicBool, Ordering};

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::{Destination, Packet, Request, Response};
use weft_core::dc::Completion;
use weft_core::uapi::WcStatus;

use crate::clock::now_ns;
use crate::counters::COUNTERS;
use crate::mem::MrTable;
use crate::net::{Bearer, Endpoint, Handler, PacketLink, Skb};
use crate::quota::{Kind, Quota};
use crate::sync::{new_periodic, Periodic, Routine, Versioned};

use contexts::Contexts;
pub(crate) use entry::{Entry, Origin, Way, Words};
use frames::Arrived;
use gate::Gate;
pub(crate) use inbox::{ControlMessage, Inbox, Reader};
pub(crate) use incoming::{Arrival, Receives};
pub(crate) use receivers::Receivers;
use slot::TargetContext;
pub(crate) use stream::{Stream, Target};
pub(crate) use suspicion::{count_peer_change, peer_changes, Suspicion};
use table::StreamTable;

/// How often streams look at the clock while requests are on their way.
const TICK_MS: u32 = 4;

/// Gets the completions of what it has posted, and messages.
pub(crate) trait Requester: Receives {
    /// The user that it belongs to.
    fn user(&self) -> u32;

    /// Whether one has failed: what is posted after that is flushed.
    fn has_failed(&self) -> bool;

    /// One will fail in its turn: what is posted after it is to be flushed.
    fn fail(&self);

    /// A request of its is posted piece by piece by an RC queue pair, and not all of
    /// them were: others have to wait. Under the queue's poster's lock.
    fn is_being_cut(&self) -> bool;

    /// Says so, or that it is over. Under the same lock.
    fn set_being_cut(&self, is_being_cut: bool);

    /// One with these `SEND_*` flags has ended. The stream's lock is held.
    fn completed(&self, completion: &Completion, flags: u8);

    /// The one that it waits for without a completion has ended. The lock of the
    /// queue's reaper is held.
    fn answered(&self, status: WcStatus);
}

/// A node's DC initiators and its DC target, over bearer `B`, for requesters `R`.
#[pin_data]
pub(crate) struct SoftDc<B: Bearer, R: Requester> {
    bearer: B,
    identity: Destination,
    mrs: Arc<MrTable>,
    gate: Gate,
    quota: Arc<Quota>,
    streams: StreamTable<B, R>,
    contexts: Contexts<B::Path, R>,
    receivers: Receivers<R>,
    inbox: Pin<KBox<Inbox>>,
    #[pin]
    tick: Periodic<Self>,
    /// The tick is scheduled.
    ticking: AtomicBool,
    /// The node has gone.
    stopped: AtomicBool,
}

impl<B: Bearer, R: Requester> SoftDc<B, R> {
    /// A provider that is the target `identity`.
    pub(crate) fn new(
        bearer: B,
        identity: Destination,
        mrs: Arc<MrTable>,
        quota: Arc<Quota>,
    ) -> Result<Arc<Self>> {
        let streams = StreamTable::new()?;
        let contexts = Contexts::new()?;
        let receivers = Receivers::new()?;
        let inbox = Inbox::new()?;
        Arc::pin_init(
            pin_init!(Self {
                bearer,
                identity,
                mrs,
                gate: Gate::new(),
                quota,
                streams,
                contexts,
                receivers,
                inbox,
                tick <- new_periodic!("weft_dc_tick"),
                ticking: AtomicBool::new(false),
                stopped: AtomicBool::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// The transport that carries the packets.
    pub(crate) fn bearer(&self) -> &B {
        &self.bearer
    }

    /// The memory that requests may touch.
    pub(crate) fn mrs(&self) -> &Arc<MrTable> {
        &self.mrs
    }

    /// The receivers of messages.
    pub(crate) fn receivers(&self) -> &Receivers<R> {
        &self.receivers
    }

    /// Control messages to this node.
    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The target that it is.
    pub(crate) fn identity(&self) -> Destination {
        self.identity
    }

    /// A new stream to a peer's target, for a user's requests, or `None`: for the
    /// node's own control messages. Its packets go over the link in `packets`, while there
    /// is one. On a node that has gone it is a stream on which everything
    /// fails. Process context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EMFILE` (the user has too many).
    pub(crate) fn connect(
        self: &Arc<Self>,
        to: &Target,
        user: Option<u32>,
        packets: Option<Arc<Versioned<PacketLink>>>,
    ) -> Result<Arc<Stream<B, R>>> {
        let held = match user {
            Some(user) => Some(self.quota.take(user, Kind::Streams)?),
            None => None,
        };
        let stream = self.streams.insert(held.is_none(), |index| {
            Stream::new(self.clone(), index, to, user.zip(held), packets)
        })?;
        // After it was taken in: either `stop` finds it in the table, or the lock
        // of its slot shows us that `stop` was there before.
        if self.stopped.load(Ordering::Relaxed) {
            stream.kill();
        }
        Ok(stream)
    }

    /// Forgets a stream that nobody uses any more.
    pub(crate) fn close(&self, stream: &Stream<B, R>) {
        stream.close();
        drop(self.streams.remove(stream.index()));
        stream.farewell();
    }

    /// Has a stream look at the clock until [`Self::unwatch`]. Any context; the stream's lock
    /// is held.
    fn watch(&self, stream: u32) {
        self.streams.watch(stream);
        // Either the tick that runs finds the stream in its walk, or we find here that it no
        // longer counts as scheduled.
        fence(Ordering::SeqCst);
        self.ensure_tick();
    }

    /// A stream needs no clock. Its lock is held.
    fn unwatch(&self, stream: u32) {
        self.streams.unwatch(stream);
    }

    /// Makes sure that the streams that are watched look at the clock. Any context.
    fn ensure_tick(&self) {
        if !self.ticking.load(Ordering::Relaxed) && !self.ticking.swap(true, Ordering::AcqRel) {
            self.tick.schedule(TICK_MS);
        }
    }

    /// Frees what idle peers have left behind.
    pub(crate) fn reap_idle(&self) {
        self.contexts.reap(now_ns());
    }

    /// Ends everything: requests complete with errors, later ones too. The bearer
    /// has to be stopped already. May sleep.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.tick.stop();
        self.inbox.close();
        self.streams.drain(|stream| stream.kill());
        self.contexts.clear();
        self.receivers.drain(Receives::node_gone);
    }

    /// Takes responses to the stream that `first`, the first of them, names.
    fn hear(&self, first: Response, arrived: &Arrived<'_>) {
        // Before anything that others would wait for is touched.
        let is_genuine = self
            .gate
            .is_genuine(first.token, first.stream, arrived.from);
        let stream = is_genuine
            .then(|| self.streams.find(first.stream))
            .flatten();
        match stream {
            Some(stream) => stream.on_responses(first, arrived),
            None => COUNTERS.packets_dropped.bump(),
        }
    }

    fn serve(&self, request: &Request, arrived: &Arrived<'_>) {
        self.contexts.serve(
            &TargetContext {
                bearer: &self.bearer,
                mrs: &self.mrs,
                receivers: &self.receivers,
                inbox: &self.inbox,
                identity: self.identity,
            },
            request,
            arrived,
        );
    }
}

/// Takes an element out at a position that there is; the last one takes its place.
fn swap_remove<T>(from: &mut KVec<T>, at: usize) -> Option<T> {
    let last = from.pop()?;
    match from.get_mut(at) {
        Some(place) => Some(core::mem::replace(place, last)),
        None => Some(last),
    }
}

impl<B: Bearer, R: Requester> Handler for SoftDc<B, R> {
    fn receive(&self, mut packet: Skb, from: Endpoint, via: Option<&Arc<PacketLink>>) {
        match Arrived::open(&mut packet, from, via) {
            Some((arrived, Packet::Request(first))) => self.serve(&first, &arrived),
            Some((arrived, Packet::Response(first))) => self.hear(first, &arrived),
            None => COUNTERS.packets_dropped.bump(),
        }
    }
}

// SAFETY: the offset is the field's own. `stop` stops the tick, and `Node::stop` calls it
// before the node lets go of the provider; in one whose node never started nobody has
// posted, so that the tick was never scheduled.
unsafe impl<B: Bearer, R: Requester> Routine for SoftDc<B, R> {
    const OFFSET: usize = core::mem::offset_of!(Self, tick);

    fn run(&self) {
        // Cleared first: a stream that is watched after the walk below has passed it finds
        // it clear, by the fence here and that in `watch`, and schedules the tick again.
        self.ticking.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut busy = false;
        self.streams
            .for_each_watched(|stream| busy |= stream.on_tick());
        if busy {
            self.ensure_tick();
        }
    }
}
