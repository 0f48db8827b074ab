// SPDX-License-Identifier: GPL-2.0

//! The target: contexts of the peers' streams, and the execution of requests.

use kernel::alloc::KVBox;
use kernel::prelude::*;
use weft_core::dc::wire::{
    Destination, Kind, Message, Operands, Request, Response, Status, MESSAGE_BYTES, OPERAND_BYTES,
    REQUEST_BYTES,
};
use weft_core::dc::{Context, Verdict, CONTEXT_IDLE_NS, MAX_CHUNK_BYTES};
use weft_core::vqp::ATOMIC_BYTES;

use crate::clock::now_ns;
use crate::counters::{Counted, COUNTERS};
use crate::dc::inbox::{Inbox, Letter};
use crate::dc::incoming::{take_chunk, take_immediate, Incoming, Receives};
use crate::dc::receivers::Receivers;
use crate::mem::{Access, MrTable};
use crate::net::{Bearer, Endpoint, Skb};
use crate::sync::{new_lock, BhDisabled, BhLock};

const SETS: usize = 512;
/// Streams whose numbers fall into one set.
const WAYS: usize = 16;

/// A request's packet.
pub(crate) struct Arrived<'a> {
    /// The packet, header included.
    pub(crate) packet: &'a Skb,
    /// Who sent it.
    pub(crate) from: Endpoint,
    /// What follows the header, read as operands.
    pub(crate) operands: Option<Operands>,
    /// What follows the header, read as a message's.
    pub(crate) message: Option<Message>,
    /// The whole of it, if it is for the node.
    pub(crate) letter: Option<Letter>,
}

/// What a request meets at its target.
pub(crate) struct Here<'a, B: Bearer, R: Receives> {
    pub(crate) bearer: &'a B,
    pub(crate) mrs: &'a MrTable,
    pub(crate) receivers: &'a Receivers<R>,
    pub(crate) inbox: &'a Inbox,
    pub(crate) identity: Destination,
}

/// One peer's stream.
struct Slot<P, R: Receives> {
    from: Endpoint,
    stream: u32,
    token: u64,
    context: Context,
    /// The message that is not all there.
    incoming: Option<Incoming<R>>,
    path: P,
    _count: Counted,
}

type Set<P, R> = [Option<KBox<Slot<P, R>>>; WAYS];

type Sets<P, R> = [BhLock<Set<P, R>>; SETS];

/// A node's contexts.
pub(crate) struct Contexts<P, R: Receives> {
    sets: Pin<KVBox<Sets<P, R>>>,
}

impl<P, R: Receives> Contexts<P, R> {
    /// No contexts.
    pub(crate) fn new() -> Result<Self> {
        let sets = KVBox::pin_init(
            pin_init::pin_init_array_from_fn(|_| {
                new_lock!([const { None }; WAYS], "weft_context_set")
            }),
            GFP_KERNEL,
        )?;
        Ok(Self { sets })
    }

    fn set(&self, from: Endpoint, stream: u32) -> &BhLock<Set<P, R>> {
        // Streams are numbered from 0 by each peer: mix the address in.
        let mixed = u32::from_ne_bytes(from.addr).wrapping_mul(0x9e37_79b1)
            ^ stream.wrapping_mul(0x85eb_ca6b);
        &self.sets[(mixed >> 16) as usize % SETS]
    }

    /// Frees the contexts that have not been used for long.
    pub(crate) fn reap(&self, now_ns: u64) {
        for set in self.sets.iter() {
            for way in set.lock().iter_mut() {
                if way.as_ref().is_some_and(|slot| is_idle(slot, now_ns)) {
                    *way = None;
                }
            }
        }
    }

    /// Frees all contexts.
    pub(crate) fn clear(&self) {
        for set in self.sets.iter() {
            *set.lock() = [const { None }; WAYS];
        }
    }

    /// Carries a request out, or not, and answers it. Softirq context.
    pub(crate) fn serve<B: Bearer<Path = P>>(
        &self,
        here: &Here<'_, B, R>,
        request: &Request,
        arrived: &Arrived<'_>,
    ) {
        let (from, bearer) = (arrived.from, here.bearer);
        if request.destination != here.identity {
            return refuse(bearer, request, from, Status::Stale);
        }
        let mut set = self.set(from, request.stream).lock();
        let way = match set
            .iter()
            .position(|way| way.as_ref().is_some_and(|slot| slot.is_for(request, from)))
        {
            Some(way) => way,
            None if request.kind == Kind::Close => return,
            None => match open(&mut set, bearer, request, from) {
                Ok(way) => way,
                Err(status) => {
                    drop(set);
                    return refuse(bearer, request, from, status);
                }
            },
        };
        if request.kind == Kind::Close {
            set[way] = None;
        } else if let Some(slot) = &mut set[way] {
            slot.serve(here, request, arrived);
        }
    }
}

fn is_idle<P, R: Receives>(slot: &Slot<P, R>, now_ns: u64) -> bool {
    now_ns.saturating_sub(slot.context.last_used_ns()) > CONTEXT_IDLE_NS
}

/// Answers a request for which there is no context.
fn refuse<B: Bearer>(bearer: &B, request: &Request, from: Endpoint, status: Status) {
    let _bh = BhDisabled::new();
    let response = Response::to(request, status).encode();
    let _: Result<(), ()> = bearer.send(&mut bearer.path(from), &response, 0, |_| Ok(()));
}

/// Opens a context in a free way, or in that of an idle one.
fn open<B: Bearer, R: Receives>(
    set: &mut Set<B::Path, R>,
    bearer: &B,
    request: &Request,
    from: Endpoint,
) -> Result<usize, Status> {
    let now_ns = now_ns();
    let context = Context::open(request, now_ns).ok_or(Status::NoContext)?;
    let is_free = |way: &Option<KBox<Slot<B::Path, R>>>| {
        way.as_ref().is_none_or(|slot| is_idle(slot, now_ns))
    };
    let way = set.iter().position(is_free).ok_or(Status::Busy)?;
    let slot = Slot {
        from,
        stream: request.stream,
        token: request.token,
        context,
        incoming: None,
        path: bearer.path(from),
        _count: Counted::one(&COUNTERS.contexts),
    };
    set[way] = Some(KBox::new(slot, GFP_ATOMIC).map_err(|_| Status::Busy)?);
    Ok(way)
}

impl<P, R: Receives> Slot<P, R> {
    fn is_for(&self, request: &Request, from: Endpoint) -> bool {
        self.token == request.token && self.stream == request.stream && self.from == from
    }

    fn serve<B: Bearer<Path = P>>(
        &mut self,
        here: &Here<'_, B, R>,
        request: &Request,
        arrived: &Arrived<'_>,
    ) {
        let (bearer, mrs) = (here.bearer, here.mrs);
        let bh = BhDisabled::new();
        let status = match self.context.admit(request, now_ns()) {
            Verdict::Drop => return COUNTERS.packets_dropped.bump(),
            Verdict::Premature(psn) => {
                let response = Response {
                    psn,
                    ..Response::to(request, Status::Sequence)
                };
                return self.answer(bearer, response);
            }
            Verdict::Repeat(status) => {
                COUNTERS.requests_repeated.bump();
                status
            }
            Verdict::Execute => self.execute_next(&bh, here, request, arrived),
        };
        let response = Response::to(request, status);
        if Context::fetches(request, status) && request.len != 0 {
            self.answer_read(&bh, bearer, mrs, request, response);
        } else if request.kind.is_atomic() && status == Status::Ok {
            self.answer_atomic(bearer, response);
        } else {
            self.answer(bearer, response);
        }
    }

    /// Carries a request out; a READ is only judged. Answers what the word of an
    /// atomic operation was.
    fn execute<B: Bearer>(
        &mut self,
        bh: &BhDisabled,
        here: &Here<'_, B, R>,
        request: &Request,
        arrived: &Arrived<'_>,
    ) -> Result<Option<u64>, Status> {
        if self.context.is_closed(request.flow) {
            return Err(Status::Flushed);
        }
        if !is_well_formed(request, arrived) {
            return Err(Status::Invalid);
        }
        COUNTERS.requests_executed.bump();
        match request.kind {
            Kind::Send => take_chunk(&mut self.incoming, here, bh, request, arrived).map(|()| None),
            Kind::WriteImm => take_immediate(here.receivers, request, arrived, || {
                touch(bh, here.mrs, request, arrived).map(drop)
            })
            .map(|()| None),
            _ => touch(bh, here.mrs, request, arrived),
        }
    }

    /// Carries the stream's next request out, and keeps what came of it.
    fn execute_next<B: Bearer>(
        &mut self,
        bh: &BhDisabled,
        here: &Here<'_, B, R>,
        request: &Request,
        arrived: &Arrived<'_>,
    ) -> Status {
        let outcome = self.execute(bh, here, request, arrived);
        if let Ok(Some(former)) = outcome {
            self.context.record_result(request.psn, former);
        }
        let status = outcome.err().unwrap_or(Status::Ok);
        if status == Status::NotReady {
            COUNTERS.not_ready.bump();
        } else {
            self.context.record(request, status);
        }
        status
    }

    fn answer<B: Bearer<Path = P>>(&mut self, bearer: &B, response: Response) {
        let _: Result<(), ()> = bearer.send(&mut self.path, &response.encode(), 0, |_| Ok(()));
    }

    /// Answers an atomic operation with what the word was. The context has it: an
    /// initiator repeats no older one.
    fn answer_atomic<B: Bearer<Path = P>>(&mut self, bearer: &B, response: Response) {
        let Some(former) = self.context.result(response.psn) else {
            return COUNTERS.packets_dropped.bump();
        };
        let header = Response {
            len: ATOMIC_BYTES,
            ..response
        };
        let _: Result<(), ()> = bearer.send(&mut self.path, &header.encode(), ATOMIC_BYTES, |to| {
            to.copy_from_slice(&former.to_ne_bytes());
            Ok(())
        });
    }

    /// Answers a READ with its bytes. The region may have gone since the READ was
    /// first admitted, when this answers a repeat.
    fn answer_read<B: Bearer<Path = P>>(
        &mut self,
        bh: &BhDisabled,
        bearer: &B,
        mrs: &MrTable,
        request: &Request,
        response: Response,
    ) {
        let piece = mrs.find(
            bh,
            request.rkey,
            0,
            request.remote_addr,
            request.len,
            Access::RemoteRead,
        );
        let header = Response {
            len: request.len,
            ..response
        }
        .encode();
        let sent = match piece {
            Some(piece) => bearer.send(&mut self.path, &header, request.len, |to| {
                piece.read(to).then_some(()).ok_or(())
            }),
            None => Err(()),
        };
        if sent.is_err() {
            self.answer(bearer, Response::to(request, Status::Access));
        }
    }
}

/// Whether a request's packet is as long as its header says, and so on.
fn is_well_formed(request: &Request, arrived: &Arrived<'_>) -> bool {
    // First, so that sums with the length fit into their type.
    if request.len > MAX_CHUNK_BYTES {
        return false;
    }
    let payload = arrived.packet.len().saturating_sub(REQUEST_BYTES as u32);
    match request.kind {
        Kind::Write => payload == request.len,
        Kind::Send | Kind::WriteImm => {
            arrived.message.is_some() && payload == request.len + MESSAGE_BYTES as u32
        }
        Kind::CompareSwap | Kind::FetchAdd => {
            payload == OPERAND_BYTES as u32
                && request.len == ATOMIC_BYTES
                && request.remote_addr % 8 == 0
        }
        _ => true,
    }
}

/// Touches the memory that a one-sided request names. Answers what the word of an
/// atomic operation was.
fn touch(
    bh: &BhDisabled,
    mrs: &MrTable,
    request: &Request,
    arrived: &Arrived<'_>,
) -> Result<Option<u64>, Status> {
    if request.len == 0 {
        return Ok(None);
    }
    let (access, payload) = match request.kind {
        Kind::Write => (Access::RemoteWrite, REQUEST_BYTES),
        Kind::WriteImm => (Access::RemoteWrite, REQUEST_BYTES + MESSAGE_BYTES),
        Kind::CompareSwap | Kind::FetchAdd => (Access::RemoteAtomic, REQUEST_BYTES),
        _ => (Access::RemoteRead, REQUEST_BYTES),
    };
    let addr = request.remote_addr;
    let done = mrs
        .find(bh, request.rkey, 0, addr, request.len, access)
        .and_then(|piece| match (request.kind, arrived.operands) {
            (Kind::Write | Kind::WriteImm, _) => piece
                .write(arrived.packet, payload as u32, request.len)
                .then_some(None),
            (Kind::CompareSwap, Some(operands)) => piece
                .compare_swap(operands.compare_add, operands.swap)
                .map(Some),
            (Kind::FetchAdd, Some(operands)) => piece.fetch_add(operands.compare_add).map(Some),
            _ => Some(None),
        });
    done.ok_or_else(|| {
        COUNTERS.access_errors.bump();
        Status::Access
    })
}
