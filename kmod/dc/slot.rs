// SPDX-License-Identifier: GPL-2.0

//! One stream of a peer at its target: the execution of requests, and the answers.

use kernel::prelude::*;
use weft_core::dc::wire::{Destination, Kind, Request, Response, Status};
use weft_core::dc::{Context, Verdict, CONTEXT_IDLE_NS};
use weft_core::vqp::ATOMIC_BYTES;

use crate::clock::now_ns;
use crate::counters::{Counted, COUNTERS};
use crate::dc::frames::{Arrived, Frame};
use crate::dc::inbox::Inbox;
use crate::dc::incoming::{take_chunk, take_immediate, Incoming, Receives};
use crate::dc::receivers::Receivers;
use crate::dc::seats::Seat;
use crate::mem::{Access, MrTable};
use crate::net::{Bearer, Endpoint, Train};
use crate::sync::BhDisabled;

/// The parts of a node that requests meet at its target.
pub(crate) struct TargetContext<'a, B: Bearer, R: Receives> {
    pub(crate) bearer: &'a B,
    pub(crate) mrs: &'a MrTable,
    pub(crate) receivers: &'a Receivers<R>,
    pub(crate) inbox: &'a Inbox,
    pub(crate) identity: Destination,
}

/// Bytes that [`Slot`] may have: more would take a block of memory of twice the size.
const SLOT_BYTES: usize = 1024;

/// One peer's stream.
pub(super) struct Slot<P, R: Receives> {
    from: Endpoint,
    stream: u32,
    token: u64,
    context: Context,
    /// The message that is not all there.
    incoming: Option<Incoming<R>>,
    path: P,
    _seat: Seat,
    _count: Counted,
}

impl<P, R: Receives> Slot<P, R> {
    /// The stream whose first request is `request`; `None` if that is not a stream's
    /// first.
    pub(super) fn open(
        request: &Request,
        from: Endpoint,
        path: P,
        seat: Seat,
        now_ns: u64,
    ) -> Option<Self> {
        const { assert!(size_of::<Self>() <= SLOT_BYTES) };
        Some(Self {
            from,
            stream: request.stream,
            token: request.token,
            context: Context::open(request, now_ns)?,
            incoming: None,
            path,
            _seat: seat,
            _count: Counted::one(&COUNTERS.contexts),
        })
    }

    /// Whether the request is one of this stream's.
    pub(super) fn is_for(&self, request: &Request, from: Endpoint) -> bool {
        self.token == request.token && self.stream == request.stream && self.from == from
    }

    /// The stream's state.
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether it was not used for so long that its initiator has given it up.
    pub(super) fn is_idle(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.context.last_used_ns()) > CONTEXT_IDLE_NS
    }

    /// Carries the requests of a packet out, or not, and answers them. `first` is the
    /// first of them.
    pub(super) fn serve_all<B: Bearer<Path = P>>(
        &mut self,
        target: &TargetContext<'_, B, R>,
        first: &Request,
        arrived: &Arrived<'_>,
    ) {
        let bh = BhDisabled::new();
        // Answers take the way that the requests came.
        target.bearer.go_over(&mut self.path, arrived.via);
        let mut train = Train::new(target.bearer, &bh);
        let requests = arrived.requests(*first);
        for frame in requests.take_while(|frame| frame.request.kind != Kind::Close) {
            self.serve(&bh, target, &frame, &mut train);
        }
        train.flush(&mut self.path);
    }

    fn serve<B: Bearer<Path = P>>(
        &mut self,
        bh: &BhDisabled,
        target: &TargetContext<'_, B, R>,
        frame: &Frame<'_>,
        train: &mut Train<'_, B>,
    ) {
        let request = &frame.request;
        let verdict = self.context.admit(request, now_ns());
        let status = match verdict {
            Verdict::Drop => return COUNTERS.packets_dropped.bump(),
            Verdict::Premature(psn) => {
                let response = Response {
                    psn,
                    ..Response::to(request, Status::Sequence)
                };
                return self.answer(train, response, frame.more);
            }
            Verdict::Repeat(status) => {
                COUNTERS.requests_repeated.bump();
                status
            }
            Verdict::Refuse(status) => status,
            Verdict::Execute => self.execute_next(bh, target, frame),
        };
        let response = Response::to(request, status);
        if Context::fetches(request, status) && request.len != 0 {
            if self
                .answer_read(bh, target.mrs, frame, train, response)
                .is_err()
            {
                let status = self.context.read_failed(request, verdict);
                self.answer(train, Response::to(request, status), frame.more);
            }
        } else if request.kind.is_atomic() && status == Status::Ok {
            self.answer_atomic(train, response, frame.more);
        } else {
            self.answer(train, response, frame.more);
        }
    }

    /// Carries a request out; a READ is only judged. Answers what the word of an
    /// atomic operation was.
    fn execute<B: Bearer>(
        &mut self,
        bh: &BhDisabled,
        target: &TargetContext<'_, B, R>,
        frame: &Frame<'_>,
    ) -> Result<Option<u64>, Status> {
        let request = &frame.request;
        COUNTERS.requests_executed.bump();
        match request.kind {
            Kind::Send => take_chunk(&mut self.incoming, target, bh, frame).map(|()| None),
            Kind::WriteImm => take_immediate(target.receivers, frame, || {
                touch(bh, target.mrs, frame).map(drop)
            })
            .map(|()| None),
            _ => touch(bh, target.mrs, frame),
        }
    }

    /// Carries the stream's next request out, and keeps what came of it.
    fn execute_next<B: Bearer>(
        &mut self,
        bh: &BhDisabled,
        target: &TargetContext<'_, B, R>,
        frame: &Frame<'_>,
    ) -> Status {
        let request = &frame.request;
        let outcome = self.execute(bh, target, frame);
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

    fn answer<B: Bearer<Path = P>>(
        &mut self,
        train: &mut Train<'_, B>,
        response: Response,
        more: bool,
    ) {
        let _: Result<(), ()> =
            train.append(&mut self.path, &response.encode(), 0, more, |_| Ok(()));
    }

    /// Answers an atomic operation with what the word was. The context has it: an
    /// initiator repeats no older one.
    fn answer_atomic<B: Bearer<Path = P>>(
        &mut self,
        train: &mut Train<'_, B>,
        response: Response,
        more: bool,
    ) {
        let Some(former) = self.context.result(response.psn) else {
            return COUNTERS.packets_dropped.bump();
        };
        let header = Response {
            len: ATOMIC_BYTES,
            ..response
        };
        let _: Result<(), ()> =
            train.append(&mut self.path, &header.encode(), ATOMIC_BYTES, more, |to| {
                to.copy_from_slice(&former.to_ne_bytes());
                Ok(())
            });
    }

    /// Answers a READ with its bytes. `Err`: the region has gone since the READ was first
    /// judged.
    fn answer_read<B: Bearer<Path = P>>(
        &mut self,
        bh: &BhDisabled,
        mrs: &MrTable,
        frame: &Frame<'_>,
        train: &mut Train<'_, B>,
        response: Response,
    ) -> Result<(), ()> {
        let request = &frame.request;
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
        let sent = piece.ok_or(()).and_then(|piece| {
            train.append(&mut self.path, &header, request.len, frame.more, |to| {
                piece.read(to).then_some(()).ok_or(())
            })
        });
        // Counted like the first one: a repeat may name any key.
        sent.inspect_err(|()| COUNTERS.access_errors.bump())
    }
}

/// Touches the memory that a one-sided request names. Answers what the word of an
/// atomic operation was.
fn touch(bh: &BhDisabled, mrs: &MrTable, frame: &Frame<'_>) -> Result<Option<u64>, Status> {
    let request = &frame.request;
    if request.len == 0 {
        return Ok(None);
    }
    let access = match request.kind {
        Kind::Write | Kind::WriteImm => Access::RemoteWrite,
        Kind::CompareSwap | Kind::FetchAdd => Access::RemoteAtomic,
        _ => Access::RemoteRead,
    };
    let addr = request.remote_addr;
    let done = mrs
        .find(bh, request.rkey, 0, addr, request.len, access)
        .and_then(|piece| match (request.kind, frame.operands) {
            (Kind::Write | Kind::WriteImm, _) => piece
                .write(frame.packet, frame.bytes_at, request.len)
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
