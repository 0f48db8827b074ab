// SPDX-License-Identifier: GPL-2.0

//! The initiator: one stream to one peer, shared by the VQPs of a CPU.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVBox;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::{Destination, Receiver, Request, Response, Status};
use weft_core::dc::{Completion, Incoming, Initiator, Local, Op, OpKind, MAX_OPS};
use weft_core::pool::{Meter, Stopwatch, Tally, Transport};
use weft_core::uapi::WcStatus;

use crate::array_vec::{room, ArrayVec};
use crate::boxed;
use crate::clock::{coarse_ns, now_ns};
use crate::counters::{Counted, COUNTERS};
use crate::dc::entry::{Entry, Origin};
use crate::dc::frames::Arrived;
use crate::dc::payload::{append, land};
use crate::dc::suspicion::Suspicion;
use crate::dc::{Requester, SoftDc};
use crate::mem::MrTable;
use crate::net::{Bearer, Endpoint, PacketLink, Train};
use crate::quota::Held;
use crate::sync::{
    new_event_count, new_lock, BhDisabled, BhGuard, BhLock, EventCount, Versioned, NO_VERSION,
};

/// Completions handed over per hold of the lock.
const DRAIN_BATCH: usize = 32;

/// The far end of a stream.
pub(crate) struct Target {
    /// Where its packets go.
    pub(crate) endpoint: Endpoint,
    /// The name that its requests have to carry.
    pub(crate) destination: Destination,
    /// Raised when it turns out to be another, or gone.
    pub(crate) suspicion: Arc<Suspicion>,
    /// What is seen of the traffic to it: one-sided requests, and messages.
    pub(crate) meter: Arc<Meter>,
    pub(crate) messages: Arc<Meter>,
}

/// The VQP that posted an operation.
struct Owner<R> {
    /// Nobody, if it is a control message of the node's.
    requester: Option<Arc<R>>,
    /// Its `SEND_*` flags.
    flags: u8,
}

/// Sees one kind of a stream's operations.
struct Gauge {
    meter: Arc<Meter>,
    /// The user who posts them; `None`: they are the node's own.
    user: Option<u32>,
    /// Those that have ended.
    tally: Tally,
    /// Takes the time of some of them.
    watch: Stopwatch,
    /// The place of the one that was queued last.
    last: Option<usize>,
}

impl Gauge {
    fn new(meter: Arc<Meter>, user: Option<u32>) -> Self {
        Self {
            meter,
            user,
            tally: Tally::NEW,
            watch: Stopwatch::new(),
            last: None,
        }
    }

    /// Takes the time of the last operation that was queued, if that of another is not being
    /// taken.
    fn time_last(&mut self, now_ns: u64) {
        let Some(place) = self.last.take() else {
            return;
        };
        let tick = coarse_ns();
        if self.watch.is_due(tick) {
            self.watch.start(place as u32, tick, now_ns);
        }
    }

    /// Takes no more of the time that is being taken.
    fn forget(&self) {
        self.watch.cancel();
    }

    /// An operation has ended. `by`: what its time says something of.
    fn ended(&mut self, completion: &Completion, by: Option<Transport>, now_ns: u64) {
        let begun_ns = self.watch.stop(completion.slot as u32);
        if completion.status != WcStatus::Success {
            return;
        }
        self.tally.count(completion.len);
        self.tally.hand_on(coarse_ns(), &self.meter);
        if let (Some(begun_ns), Some(by)) = (begun_ns, by) {
            let took_ns = now_ns.saturating_sub(begun_ns);
            self.meter.sample(by, completion.len, took_ns, self.user);
        }
    }
}

/// # Invariants
///
/// `owners` has a value for exactly the operations that `initiator` has, at the
/// same places. When the lock is let go, a stream with operations is watched, unless it was
/// closed or the node has stopped.
struct Inner<B: Bearer, R> {
    initiator: KVBox<Initiator>,
    path: B::Path,
    owners: KVec<Option<Owner<R>>>,
    dead: bool,
    /// The tick looks at the stream.
    is_watched: bool,
    /// Users' one-sided operations, and their messages.
    requests: Gauge,
    messages: Gauge,
    /// The place of the node's own operation whose time is taken, and when that began.
    probe: Option<(usize, u64)>,
    /// Where it is said which link packets go over, if they may go over one.
    way: Option<Arc<Versioned<PacketLink>>>,
    /// The version of it that `path` follows.
    way_seen: u32,
    /// The link that packets go over.
    link: Option<Arc<PacketLink>>,
}

/// A stream to a peer's target.
#[pin_data]
pub(crate) struct Stream<B: Bearer, R: Requester> {
    dc: Arc<SoftDc<B, R>>,
    index: u32,
    peer: Endpoint,
    suspicion: Arc<Suspicion>,
    #[pin]
    inner: BhLock<Inner<B, R>>,
    /// Counts the times that room was made.
    #[pin]
    room: EventCount,
    /// Counts for its user; the node's own streams count for nobody.
    _held: Option<Held>,
    _count: Counted,
}

impl<B: Bearer, R: Requester> Stream<B, R> {
    /// A stream; it is in no table yet. `held`: its user, and what it counts as of that one. Its
    /// memory is charged to the cgroup of the caller, which is the user's process
    /// when it posts its first request there, or none if it is a thread of the
    /// kernel that has control messages to send.
    pub(crate) fn new(
        dc: Arc<SoftDc<B, R>>,
        index: u32,
        to: &Target,
        held: Option<(u32, Held)>,
        way: Option<Arc<Versioned<PacketLink>>>,
    ) -> Result<Arc<Self>> {
        static EMPTY: Initiator = Initiator::EMPTY;
        // SAFETY: plain data.
        let mut initiator = unsafe { boxed::copy_of(&EMPTY, GFP_KERNEL_ACCOUNT) }?;
        initiator.open(
            index,
            dc.gate.token(index, to.endpoint),
            dc.identity(),
            to.destination,
            dc.bearer().payload_max(),
        );
        let mut owners = KVec::with_capacity(MAX_OPS, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..MAX_OPS {
            owners.push(None, GFP_KERNEL_ACCOUNT)?;
        }
        let path = dc.bearer().path(to.endpoint);
        let (user, held) = held.unzip();
        // INVARIANT: neither has any operation.
        let inner = Inner {
            initiator,
            path,
            owners,
            dead: false,
            is_watched: false,
            requests: Gauge::new(to.meter.clone(), user),
            messages: Gauge::new(to.messages.clone(), user),
            probe: None,
            way,
            way_seen: NO_VERSION,
            link: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                dc,
                index,
                peer: to.endpoint,
                suspicion: to.suspicion.clone(),
                inner <- new_lock!(inner, "weft_stream"),
                room <- new_event_count!("weft_stream_room"),
                _held: held,
                _count: Counted::one(&COUNTERS.streams),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The stream's number.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// To wait for room on.
    pub(crate) fn room(&self) -> &EventCount {
        &self.room
    }

    /// Posts as many of the entries as there is room for; answers how many it took. They
    /// are sent at once, as far as they may be, or, if the caller says that it `holds`
    /// them, with [`Stream::send`].
    pub(crate) fn post(
        &self,
        requester: &Arc<R>,
        from: &Origin,
        entries: &[Entry],
        holds: bool,
    ) -> usize {
        self.with(holds, |inner, now_ns| {
            let taken = entries
                .iter()
                .take_while(|entry| inner.push(requester, from, entry))
                .count();
            inner.requests.time_last(now_ns);
            inner.messages.time_last(now_ns);
            taken
        })
    }

    /// Has `push` queue operations, and answers what it answers. They are sent at once, as far
    /// as they may be, unless the caller `holds` them.
    fn with<T>(&self, holds: bool, push: impl FnOnce(&mut Inner<B, R>, u64) -> T) -> T {
        let mut inner = self.inner.lock();
        let now_ns = now_ns();
        self.restart_if_needed(&mut inner, now_ns);
        let pushed = push(&mut inner, now_ns);
        self.watch(&mut inner);
        if !holds {
            self.run(inner, now_ns);
        }
        pushed
    }

    /// Sends what may be sent.
    pub(crate) fn send(&self) {
        self.run(self.inner.lock(), now_ns());
    }

    /// Sends a control message to the peer's node. Nobody hears whether it arrives. At most
    /// [`CONTROL_MESSAGE_BYTES`].
    ///
    /// # Errors
    ///
    /// `ENOSPC`: there is no room now.
    pub(crate) fn post_control_message(&self, text: &[u8]) -> Result {
        let message = Op {
            kind: OpKind::Send,
            to: Receiver::Node,
            len: text.len() as u32,
            local: Local::inline_of(text).ok_or(EINVAL)?,
            ..Op::EMPTY
        };
        let taken = self.with(false, |inner, _| inner.push_control_message(message));
        taken.then_some(()).ok_or(ENOSPC)
    }

    /// Has the time taken that a round trip to the peer needs, by a READ of no bytes.
    pub(crate) fn probe(&self) {
        self.with(false, |inner, now_ns| {
            if inner.probe.is_none() {
                inner.push_probe(now_ns);
            }
        });
    }

    /// Has the tick look at the stream.
    fn watch(&self, inner: &mut Inner<B, R>) {
        if !inner.is_watched {
            inner.is_watched = true;
            self.dc.watch(self.index);
        }
    }

    /// The tick no longer looks at it. A tick that has found a stream before that was closed
    /// meanwhile does nothing here: the number may be another stream's.
    fn unwatch(&self, inner: &mut Inner<B, R>) {
        if core::mem::take(&mut inner.is_watched) {
            self.dc.unwatch(self.index);
        }
    }

    /// Nobody uses the stream any more. Its number is not another stream's yet.
    pub(crate) fn close(&self) {
        self.unwatch(&mut self.inner.lock());
    }

    /// Gives an idle stream that broke, or slept for long, a new token.
    fn restart_if_needed(&self, inner: &mut Inner<B, R>, now_ns: u64) {
        if inner.initiator.needs_restart(now_ns) {
            let token = self.dc.gate.token(self.index, self.peer);
            let farewell = inner.initiator.restart(token);
            inner.send_farewell(self.dc.bearer(), farewell);
        }
    }

    /// Responses to this stream or to its past, from its peer; `first` is the first of
    /// them.
    pub(crate) fn on_responses(&self, first: Response, arrived: &Arrived<'_>) {
        let mut inner = self.inner.lock();
        if first.token != inner.initiator.token() {
            return COUNTERS.packets_dropped.bump();
        }
        let now_ns = now_ns();
        for (response, bytes_at) in arrived.responses(first) {
            let len = response.len as usize;
            if response.status == Status::NotReady {
                // What passes until it is says nothing of the way.
                inner.requests.forget();
                inner.messages.forget();
            }
            match inner.initiator.on_response(&response, len, now_ns) {
                Incoming::Handled => {}
                Incoming::Data {
                    psn,
                    op,
                    offset,
                    len,
                } => {
                    let (mrs, packet) = (self.dc.mrs(), arrived.packet());
                    let landed = land(mrs, op, offset, len, packet, bytes_at);
                    inner.initiator.landed(psn, landed, now_ns);
                }
                Incoming::Stale => self.suspicion.raise(),
            }
        }
        self.run(inner, now_ns);
    }

    /// Looks at the clock; answers whether requests are on their way. If there were none
    /// the tick does not look at the stream again until there are.
    pub(crate) fn on_tick(&self) -> bool {
        let mut inner = self.inner.lock();
        COUNTERS.stream_ticks.bump();
        if inner.initiator.is_idle() {
            // INVARIANT: it has no operations.
            self.unwatch(&mut inner);
            return false;
        }
        let now_ns = now_ns();
        let busy = inner.initiator.on_tick(now_ns);
        if inner.initiator.has_broken() {
            self.suspicion.raise();
            COUNTERS.streams_lost.bump();
        }
        self.run(inner, now_ns);
        busy
    }

    /// Fails everything, now and later: the node goes away.
    pub(crate) fn kill(&self) {
        let mut inner = self.inner.lock();
        inner.dead = true;
        inner.initiator.fail_all(WcStatus::FatalErr);
        self.run(inner, now_ns());
    }

    /// Tells the target that the stream ends, if that can do no harm; it may not hear it.
    pub(crate) fn farewell(&self) {
        let mut inner = self.inner.lock();
        let farewell = inner.initiator.close_request();
        inner.send_farewell(self.dc.bearer(), farewell);
    }

    /// Sends what may be sent and hands out what has ended, then lets go.
    fn run<'a>(&'a self, mut inner: BhGuard<'a, Inner<B, R>>, now_ns: u64) {
        loop {
            inner.transmit(self.dc.bearer(), self.dc.mrs(), now_ns);
            // To be dropped without the lock: the last reference to a requester may
            // take a whole session's objects with it.
            let mut room = room::<_, DRAIN_BATCH>();
            let mut drained = ArrayVec::new(&mut room);
            let count = inner.drain(&mut drained, now_ns);
            drop(inner);
            if count != 0 {
                self.room.notify();
            }
            drop(drained);
            if count < DRAIN_BATCH {
                return;
            }
            inner = self.inner.lock();
        }
    }
}

impl<B: Bearer, R: Requester> Inner<B, R> {
    /// Queues one entry; `false` if there is no room.
    fn push(&mut self, requester: &Arc<R>, from: &Origin, entry: &Entry) -> bool {
        let failed = if self.dead {
            Some(WcStatus::FatalErr)
        } else if requester.has_failed() {
            Some(WcStatus::WrFlushErr)
        } else {
            entry.failed()
        };
        let pushed = match failed {
            Some(status) => self.initiator.push_failed(entry.op(from), status),
            None => self.initiator.push(entry.op(from)),
        };
        let Ok(place) = pushed else {
            return false;
        };
        self.own(place, Some(requester.clone()), entry.flags());
        if failed.is_none() {
            self.gauge(entry.kind()).last = Some(place);
        }
        true
    }

    /// What sees operations of a kind.
    fn gauge(&mut self, kind: OpKind) -> &mut Gauge {
        match kind {
            OpKind::Send => &mut self.messages,
            _ => &mut self.requests,
        }
    }

    /// Queues an operation that touches nothing, if there is room.
    fn push_probe(&mut self, now_ns: u64) {
        let probe = Op {
            kind: OpKind::Read,
            ..Op::EMPTY
        };
        if self.dead {
            return;
        }
        if let Ok(place) = self.initiator.push(probe) {
            self.own(place, None, 0);
            self.probe = Some((place, now_ns));
        }
    }

    /// An operation has ended.
    fn note(&mut self, completion: &Completion, is_users: bool, now_ns: u64) {
        let ok = completion.status == WcStatus::Success;
        let probe = self.probe.take_if(|(place, _)| *place == completion.slot);
        if let Some((_, begun_ns)) = probe.filter(|_| ok) {
            let meter = &self.requests.meter;
            meter.probed(now_ns.saturating_sub(begun_ns));
        }
        if !is_users {
            return;
        }
        let is_over_link = self.link.as_ref().is_some_and(|link| link.is_open());
        let by = match (is_over_link, completion.kind) {
            (false, _) => Some(Transport::Dc),
            (true, OpKind::Send) => Some(Transport::Rc),
            // RC would carry it otherwise than as packets.
            (true, _) => None,
        };
        self.gauge(completion.kind).ended(completion, by, now_ns);
    }

    /// Notes whose operation is at a place.
    fn own(&mut self, place: usize, requester: Option<Arc<R>>, flags: u8) {
        // INVARIANT: the initiator has just put one there.
        if let Some(slot) = self.owners.get_mut(place) {
            *slot = Some(Owner { requester, flags });
        }
    }

    /// Queues a control message; `false` if there is no room.
    fn push_control_message(&mut self, op: Op) -> bool {
        let pushed = if self.dead {
            None
        } else {
            self.initiator.push(op).ok()
        };
        if let Some(place) = pushed {
            self.own(place, None, 0);
        }
        pushed.is_some()
    }

    /// Takes the way for packets that was decided on.
    fn follow_way(&mut self) {
        let Some(way) = &self.way else {
            return;
        };
        let version = way.version();
        if version != self.way_seen {
            self.way_seen = version;
            self.link = way.get();
        }
    }

    fn transmit(&mut self, bearer: &B, mrs: &MrTable, now_ns: u64) {
        let bh = BhDisabled::new();
        self.follow_way();
        bearer.go_over(&mut self.path, self.link.as_ref());
        let mut train = Train::new(bearer, &bh);
        let mut by_udp = false;
        while let Some(outgoing) = self.initiator.poll_request(now_ns) {
            COUNTERS.requests_sent.bump();
            let psn = outgoing.request.psn;
            // A link repeats by itself. If that takes long, or it has broken, UDP is the
            // other way; and what waits for its turn there does not become more.
            if self.link.is_some() && by_udp != outgoing.is_repeat {
                by_udp = outgoing.is_repeat;
                train.flush(&mut self.path);
                let link = self.link.as_ref().filter(|_| !by_udp);
                bearer.go_over(&mut self.path, link);
            }
            if append(&mut train, &mut self.path, &bh, mrs, &outgoing).is_err() {
                let instead = self.initiator.unusable(psn, WcStatus::LocProtErr);
                let _: Result<(), ()> = append(&mut train, &mut self.path, &bh, mrs, &instead);
            }
        }
        train.flush(&mut self.path);
    }

    /// Sends a farewell, if there is one to send and the node has not stopped.
    fn send_farewell(&mut self, bearer: &B, farewell: Option<Request>) {
        if let Some(request) = farewell.filter(|_| !self.dead) {
            let bh = BhDisabled::new();
            let mut train = Train::new(bearer, &bh);
            let header = request.encode();
            let _: Result<(), ()> = train.append(&mut self.path, &header, 0, false, |_| Ok(()));
            train.flush(&mut self.path);
        }
    }

    /// Hands out completions, as many as may fit into `drained`. Answers how many.
    fn drain(&mut self, drained: &mut ArrayVec<'_, Arc<R>>, now_ns: u64) -> usize {
        let mut count = 0;
        while count < DRAIN_BATCH {
            let Some(completion) = self.initiator.poll_completion() else {
                break;
            };
            // INVARIANT: both have one less.
            let owner = self.owners.get_mut(completion.slot).and_then(Option::take);
            let owner = owner.and_then(|owner| Some((owner.requester?, owner.flags)));
            self.note(&completion, owner.is_some(), now_ns);
            if let Some((requester, flags)) = owner {
                requester.completed(&completion, flags);
                drained.push(requester);
            }
            count += 1;
        }
        count
    }
}
