// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The initiator's side of one stream: operations in, requests out, responses
//! in, completions out.

mod cut;

use super::op::{Completion, Op};
use super::rtt::RoundTrip;
use super::wire::{Destination, Kind, Message, Request, Response, Status};
use super::{before, MAX_CHUNK_BYTES, MAX_OPS, MAX_TRIES, RNR_DELAY_NS, RNR_PATIENCE_NS, WINDOW};
use crate::uapi::WcStatus;

/// A request to send: the header; then the operands of an atomic operation, or the
/// message's header if there is one; then, if it carries bytes, `request.len` of
/// them from `offset` on in the operation's local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// The header.
    pub request: Request,
    /// The message's header.
    pub message: Option<Message>,
    /// What it is a part of.
    pub op: &'a Op,
    /// Where in the operation the chunk begins.
    pub offset: u32,
    /// There is probably another request to send.
    pub more: bool,
}

/// What a response means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// Nothing to do but to look for completions and requests.
    Handled,
    /// Copy the payload there, then say how it went with [`Initiator::landed`].
    Data {
        /// The chunk.
        psn: u32,
        /// What it is a part of.
        op: &'a Op,
        /// Where in the operation the chunk begins.
        offset: u32,
        /// Bytes.
        len: u32,
    },
    /// The peer was restarted: all operations have failed; forget its record.
    Stale,
}

/// The stream has [`MAX_OPS`] operations already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Copy)]
struct OpSlot {
    op: Op,
    /// Bytes for which chunks exist. An operation of no bytes has one chunk.
    cut: u32,
    cut_all: bool,
    /// Chunks that exist and are not done.
    open: u32,
    status: WcStatus,
    /// Its status is the target's word that something before has failed. An answer
    /// that was lost may tell more, if what has failed is a part of itself.
    flushed: bool,
    stage: Stage,
}

/// How far an operation has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is not cut to its end, or some of its chunks are open.
    Running,
    /// It waits to be reaped.
    Ended,
    /// It only keeps its place, until those before it are gone.
    Reaped,
}

#[derive(Clone, Copy)]
struct Chunk {
    op: u32,
    offset: u32,
    len: u32,
    done: bool,
    /// Its operation has failed before the target took it: it goes out without
    /// effect, as a READ of no bytes, because it has used its PSN.
    void: bool,
    /// When it was sent; `None` before, and once it was sent again: nobody knows
    /// then which of the two is answered.
    sent_ns: Option<u64>,
    resent: bool,
}

impl Chunk {
    fn note_sent(&mut self, now_ns: u64) {
        self.sent_ns = (!self.resent).then_some(now_ns);
        self.resent = true;
    }

    fn make_void(&mut self) {
        self.len = 0;
        self.void = true;
    }
}

const NO_OP: OpSlot = OpSlot {
    op: Op::EMPTY,
    cut: 0,
    cut_all: true,
    open: 0,
    status: WcStatus::Success,
    flushed: false,
    stage: Stage::Reaped,
};
const FRESH_CHUNK: Chunk = Chunk {
    op: 0,
    offset: 0,
    len: 0,
    done: false,
    void: false,
    sent_ns: None,
    resent: false,
};
const NO_CHUNK: Chunk = Chunk {
    done: true,
    ..FRESH_CHUNK
};

/// One stream to one target. Plain data of some kilobytes: copy [`EMPTY`](Self::EMPTY)
/// to where it shall live, then [`open`](Self::open) it.
///
/// # Invariants
///
/// - Operations are numbered; those in `first_op..next_op` are in the slots
///   `number % MAX_OPS`, and there are at most [`MAX_OPS`]. Those before `cut_op`
///   are cut into chunks to their end. `first_op` is not reaped unless it is
///   `next_op`. `ended` of them wait to be reaped.
/// - Of a flow, operations are cut, and reaped, in the order in which they were
///   pushed.
/// - Chunks `base..next` are in the slots `psn % WINDOW`; there are at most
///   [`WINDOW`], and `base` is not done unless it is `next`.
/// - `base <= resend <= next`: chunks before `resend` have been sent since the
///   last decision to retransmit.
#[derive(Clone, Copy)]
pub struct Initiator {
    stream: u32,
    token: u64,
    destination: Destination,
    /// The target of this node, for receivers to answer to.
    source: Destination,
    chunk_bytes: u32,
    ops: [OpSlot; MAX_OPS],
    first_op: u32,
    cut_op: u32,
    next_op: u32,
    ended: u32,
    /// The operation that was cut last, and how many chunks in a row.
    turn: u32,
    burst: u32,
    chunks: [Chunk; WINDOW],
    base: u32,
    resend: u32,
    next: u32,
    tries: u32,
    round_trip: RoundTrip,
    /// The `base` for which a premature answer already made us retransmit.
    hurried: Option<u32>,
    /// Since when a receiver has had no buffer for what is next, and until when
    /// nothing is sent for that reason.
    not_ready_since_ns: Option<u64>,
    not_ready_until_ns: u64,
    /// Since when `base` has been waiting.
    waiting_since_ns: u64,
    last_used_ns: u64,
    /// All operations were failed at once: the target's context may not be
    /// trusted any more.
    broken: bool,
    /// The request that opens the target's context was sent again.
    repeated_first: bool,
    /// Operations that have failed and were not reaped yet.
    failed_ops: u32,
}

impl Initiator {
    /// A stream to nowhere, to be opened.
    pub const EMPTY: Self = {
        const NOWHERE: Destination = Destination {
            dct_number: 0,
            dct_key: 0,
            incarnation: 0,
        };
        Self {
            stream: 0,
            token: 0,
            destination: NOWHERE,
            source: NOWHERE,
            chunk_bytes: MAX_CHUNK_BYTES,
            ops: [NO_OP; MAX_OPS],
            first_op: 0,
            cut_op: 0,
            next_op: 0,
            ended: 0,
            turn: 0,
            burst: 0,
            chunks: [NO_CHUNK; WINDOW],
            base: 0,
            resend: 0,
            next: 0,
            tries: 0,
            round_trip: RoundTrip::UNKNOWN,
            hurried: None,
            not_ready_since_ns: None,
            not_ready_until_ns: 0,
            waiting_since_ns: 0,
            last_used_ns: 0,
            broken: false,
            repeated_first: false,
            failed_ops: 0,
        }
    };

    /// Makes this a stream from the node whose target is `source` to
    /// `destination`. `token` has to be random; `chunk_bytes` is cut to what the
    /// protocol allows. Only an idle stream can be opened.
    pub fn open(
        &mut self,
        stream: u32,
        token: u64,
        source: Destination,
        destination: Destination,
        chunk_bytes: u32,
    ) {
        self.restart(token);
        self.stream = stream;
        self.source = source;
        self.destination = destination;
        self.chunk_bytes = if chunk_bytes == 0 {
            MAX_CHUNK_BYTES
        } else {
            chunk_bytes.min(MAX_CHUNK_BYTES)
        };
    }

    /// Makes a stream that was not used look as if it had used so many PSNs.
    #[cfg(test)]
    pub(super) fn skip_to(&mut self, psn: u32) {
        (self.base, self.resend, self.next) = (psn, psn, psn);
    }

    /// The oldest PSN that was not answered.
    #[cfg(test)]
    pub(super) const fn oldest(&self) -> u32 {
        self.base
    }

    /// The stream's secret: a response without it is not for this stream.
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.token
    }

    /// Whether every operation has been completed and reaped.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.first_op == self.next_op
    }

    /// Operations that fit now.
    #[must_use]
    pub const fn room(&self) -> usize {
        MAX_OPS - self.next_op.wrapping_sub(self.first_op) as usize
    }

    /// Whether this idle stream has to [start over](Self::restart) before its
    /// next operation: it broke down, or the target may have dropped its context.
    #[must_use]
    pub const fn needs_restart(&self, now_ns: u64) -> bool {
        let forgotten =
            self.next != 0 && now_ns.saturating_sub(self.last_used_ns) > super::STREAM_IDLE_NS;
        self.is_idle() && (self.broken || forgotten)
    }

    /// Whether all operations were failed at once since the last start.
    #[must_use]
    pub const fn has_broken(&self) -> bool {
        self.broken
    }

    /// Starts over with a new token; only an idle stream can.
    pub fn restart(&mut self, token: u64) {
        if !self.is_idle() {
            return;
        }
        self.token = token;
        self.base = 0;
        self.resend = 0;
        self.next = 0;
        self.tries = 0;
        self.hurried = None;
        self.ready();
        self.broken = false;
        self.repeated_first = false;
    }

    /// Queues an operation; answers its place, as [`Completion::slot`] does. Behind a
    /// failed one of its flow it is flushed.
    ///
    /// # Errors
    ///
    /// [`Full`]: try again after a completion.
    pub fn push(&mut self, op: Op) -> Result<usize, Full> {
        if self.failed_ops != 0 && self.has_failed(op.flow) {
            return self.push_failed(op, WcStatus::WrFlushErr);
        }
        self.push_slot(OpSlot {
            op,
            cut: 0,
            cut_all: false,
            open: 0,
            status: WcStatus::Success,
            flushed: false,
            stage: Stage::Running,
        })
    }

    /// Queues an operation that has failed already, so that its completion comes
    /// in its turn. Nothing of it is sent.
    ///
    /// # Errors
    ///
    /// [`Full`]: try again after a completion.
    pub fn push_failed(&mut self, op: Op, status: WcStatus) -> Result<usize, Full> {
        let slot = self.push_slot(OpSlot {
            op,
            cut: 0,
            cut_all: true,
            open: 0,
            status,
            flushed: false,
            stage: Stage::Running,
        })?;
        self.failed_ops += 1;
        self.settle(self.next_op.wrapping_sub(1));
        Ok(slot)
    }

    /// Whether an operation of the flow that was not reaped yet has failed.
    fn has_failed(&self, flow: u32) -> bool {
        let mut number = self.first_op;
        while number != self.next_op {
            let slot = self.op(number);
            let failed = slot.status != WcStatus::Success && slot.stage != Stage::Reaped;
            if slot.op.flow == flow && failed {
                return true;
            }
            number = number.wrapping_add(1);
        }
        false
    }

    fn push_slot(&mut self, slot: OpSlot) -> Result<usize, Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        let number = self.next_op;
        *self.op_mut(number) = slot;
        // INVARIANT: there was room.
        self.next_op = number.wrapping_add(1);
        Ok(number as usize % MAX_OPS)
    }

    /// The next request to send now, if there is one.
    pub fn poll_request(&mut self, now_ns: u64) -> Option<Outgoing<'_>> {
        if now_ns < self.not_ready_until_ns {
            return None;
        }
        while self.resend != self.next {
            let psn = self.resend;
            self.resend = self.resend.wrapping_add(1);
            if !self.chunk(psn).done {
                self.repeated_first |= psn == 0;
                return Some(self.request_for(psn, now_ns));
            }
        }
        self.cut_chunk().map(|psn| {
            self.resend = self.next;
            self.request_for(psn, now_ns)
        })
    }

    /// The local memory of a chunk that [`Self::poll_request`] gave may not be
    /// used: its operation fails. Answers what has to be sent in its place.
    pub fn unusable(&mut self, request: &Request, status: WcStatus) -> Request {
        let psn = request.psn;
        self.fail_op(self.chunk(psn).op, status);
        if let Some(slot) = self.chunks.get_mut(psn as usize % WINDOW) {
            slot.make_void();
        }
        request.without_effect()
    }

    /// Takes a response whose token was right. `payload` is what followed the
    /// header, in bytes.
    pub fn on_response(
        &mut self,
        response: &Response,
        payload: usize,
        now_ns: u64,
    ) -> Incoming<'_> {
        match response.status {
            Status::Stale => {
                self.fail_all(WcStatus::RemAbortErr);
                return Incoming::Stale;
            }
            Status::Sequence => {
                self.hurry(response.psn);
                return Incoming::Handled;
            }
            Status::NoContext => {
                // A request that overtook the stream's first one gets this answer
                // too, and the answer may be late; after two timeouts it is not.
                if response.psn == self.base && self.tries >= 2 {
                    self.fail_all(WcStatus::RetryExcErr);
                }
                return Incoming::Handled;
            }
            // The retransmission timer tries again.
            Status::Busy => return Incoming::Handled,
            Status::NotReady => {
                self.not_ready(response.psn, now_ns);
                return Incoming::Handled;
            }
            Status::Ok
            | Status::Flushed
            | Status::Invalid
            | Status::Access
            | Status::Operation
            | Status::NoReceiver => {}
        }
        let psn = response.psn;
        if before(psn, self.base) || !before(psn, self.next) || self.chunk(psn).done {
            return Incoming::Handled;
        }
        self.last_used_ns = now_ns;
        let chunk = self.chunk(psn);
        let slot = self.op(chunk.op);
        let wanted = slot.op.kind.fetches() && slot.status == WcStatus::Success;
        if wanted && response.status == Status::Ok {
            if payload != chunk.len as usize || response.len != chunk.len {
                self.fail_op(chunk.op, WcStatus::RemOpErr);
            } else if chunk.len != 0 {
                return Incoming::Data {
                    psn,
                    op: &self.op(chunk.op).op,
                    offset: chunk.offset,
                    len: chunk.len,
                };
            }
        }
        match response.status {
            Status::Flushed => self.flush_op(chunk.op),
            Status::Invalid => self.fail_op(chunk.op, WcStatus::RemInvReqErr),
            Status::Access => self.fail_op(chunk.op, WcStatus::RemAccessErr),
            Status::Operation => self.fail_op(chunk.op, WcStatus::RemOpErr),
            Status::NoReceiver => self.fail_op(chunk.op, WcStatus::RetryExcErr),
            _ => {}
        }
        self.done(psn, now_ns);
        Incoming::Handled
    }

    /// The payload of [`Incoming::Data`] was copied, or could not be.
    pub fn landed(&mut self, psn: u32, result: Result<(), WcStatus>, now_ns: u64) {
        if let Err(status) = result {
            let op = self.chunk(psn).op;
            self.fail_op(op, status);
        }
        self.done(psn, now_ns);
    }

    /// The next operation that has ended; those of a flow in the order in which they
    /// were pushed.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        if self.ended == 0 {
            return None;
        }
        let number = self.next_to_reap()?;
        let slot = self.op_mut(number);
        slot.stage = Stage::Reaped;
        let slot = *slot;
        // INVARIANT: one less waits; nothing reaped is left at the front. What has
        // ended is cut to its end, so `cut_op` may pass it.
        self.ended -= 1;
        while self.first_op != self.next_op && self.op(self.first_op).stage == Stage::Reaped {
            self.first_op = self.first_op.wrapping_add(1);
        }
        if before(self.cut_op, self.first_op) {
            self.cut_op = self.first_op;
        }
        if slot.status != WcStatus::Success {
            self.failed_ops = self.failed_ops.saturating_sub(1);
        }
        Some(Completion {
            slot: number as usize % MAX_OPS,
            cookie: slot.op.cookie,
            status: slot.status,
            kind: slot.op.kind,
            with_imm: slot.op.imm.is_some(),
            len: slot.op.len,
        })
    }

    /// The first operation that has ended and that no earlier one of its flow keeps
    /// waiting.
    fn next_to_reap(&mut self) -> Option<u32> {
        let mut number = self.first_op;
        while number != self.next_op {
            let slot = self.op_mut(number);
            let (stage, flow) = (slot.stage, slot.op.flow);
            if stage == Stage::Ended
                && !self.any_before(number, self.first_op, |slot| {
                    slot.op.flow == flow && slot.stage != Stage::Reaped
                })
            {
                return Some(number);
            }
            number = number.wrapping_add(1);
        }
        None
    }

    /// Whether `is_it` holds for an operation from `from` on and before `number`.
    fn any_before(&self, number: u32, from: u32, is_it: impl Fn(&OpSlot) -> bool) -> bool {
        let mut other = from;
        while other != number {
            if is_it(self.op(other)) {
                return true;
            }
            other = other.wrapping_add(1);
        }
        false
    }

    /// Looks whether an operation has ended.
    fn settle(&mut self, number: u32) {
        let slot = self.op_mut(number);
        if slot.stage == Stage::Running && slot.cut_all && slot.open == 0 {
            // INVARIANT: one more waits.
            slot.stage = Stage::Ended;
            self.ended += 1;
        }
    }

    /// Looks at the clock: retransmits, or gives up, if the oldest chunk has
    /// waited too long. Returns whether anything is still outstanding.
    pub fn on_tick(&mut self, now_ns: u64) -> bool {
        if self.base == self.next {
            return !self.is_idle();
        }
        if self.not_ready_until_ns != 0 {
            if now_ns >= self.not_ready_until_ns {
                self.not_ready_until_ns = 0;
                self.resend = self.base;
                self.waiting_since_ns = now_ns;
            }
            return true;
        }
        let timeout_ns = self.round_trip.timeout_ns(self.tries);
        if now_ns.saturating_sub(self.waiting_since_ns) >= timeout_ns {
            self.tries += 1;
            if self.tries >= MAX_TRIES {
                self.fail_all(WcStatus::RetryExcErr);
                return !self.is_idle();
            }
            self.resend = self.base;
            self.waiting_since_ns = now_ns;
        }
        true
    }

    /// Ends every operation: of each flow the first with `status`, those after it
    /// flushed. The stream is unusable afterwards until it has been reaped and
    /// [restarted](Self::restart).
    pub fn fail_all(&mut self, status: WcStatus) {
        let mut number = self.first_op;
        while number != self.next_op {
            let slot = self.op_mut(number);
            if slot.stage == Stage::Running {
                slot.cut_all = true;
                slot.open = 0;
                // If it was flushed, why, the target did not live to tell: this is why then.
                if slot.status == WcStatus::Success || slot.flushed {
                    self.fail_op(number, status);
                }
                self.settle(number);
            }
            number = number.wrapping_add(1);
        }
        self.cut_op = self.next_op;
        self.base = self.next;
        self.resend = self.next;
        self.tries = 0;
        self.ready();
        self.broken = true;
    }

    /// A farewell, so that the target can reclaim the context at once, if there may be
    /// one. There is none if the stream's first request was repeated: a repeat may still
    /// be on its way, and without the context it would open another one and be carried
    /// out again. The context goes when it has been idle for long.
    #[must_use]
    pub fn close_request(&self) -> Option<Request> {
        (self.next != 0 && !self.repeated_first).then_some(Request {
            kind: Kind::Close,
            stream: self.stream,
            token: self.token,
            psn: self.next,
            destination: self.destination,
            flow: 0,
            remote_addr: 0,
            rkey: 0,
            len: 0,
        })
    }

    const fn op(&self, number: u32) -> &OpSlot {
        // The remainder is always within the array.
        &self.ops[number as usize % MAX_OPS]
    }

    fn op_mut(&mut self, number: u32) -> &mut OpSlot {
        &mut self.ops[number as usize % MAX_OPS]
    }

    const fn chunk(&self, psn: u32) -> Chunk {
        self.chunks[psn as usize % WINDOW]
    }

    fn request_for(&mut self, psn: u32, now_ns: u64) -> Outgoing<'_> {
        if psn == self.base {
            self.waiting_since_ns = now_ns;
        }
        self.last_used_ns = now_ns;
        self.chunks[psn as usize % WINDOW].note_sent(now_ns);
        let chunk = self.chunk(psn);
        let more = self.resend != self.next || self.cut_op != self.next_op;
        let op = &self.op(chunk.op).op;
        let kind = op.request(chunk.offset, chunk.len);
        let offset = u64::from(chunk.offset);
        let request = Request {
            kind,
            stream: self.stream,
            token: self.token,
            psn,
            destination: self.destination,
            flow: op.flow,
            remote_addr: op.remote_addr.wrapping_add(offset),
            rkey: op.rkey,
            len: chunk.len,
        };
        let message = Message {
            total: op.len,
            imm: op.imm,
            to: op.to,
            sender: self.source,
        };
        Outgoing {
            request: if chunk.void {
                request.without_effect()
            } else {
                request
            },
            message: (kind.has_message() && !chunk.void).then_some(message),
            op,
            offset: chunk.offset,
            more,
        }
    }

    /// A receiver has no buffer for a chunk: nothing more is sent for a while.
    /// After [`RNR_PATIENCE_NS`] its operation fails.
    fn not_ready(&mut self, psn: u32, now_ns: u64) {
        if before(psn, self.base) || !before(psn, self.next) || self.chunk(psn).done {
            return;
        }
        self.last_used_ns = now_ns;
        self.tries = 0;
        let since_ns = *self.not_ready_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) < RNR_PATIENCE_NS {
            self.not_ready_until_ns = now_ns + RNR_DELAY_NS;
            return;
        }
        self.ready();
        let op = self.chunk(psn).op;
        let flow = self.op(op).op.flow;
        self.fail_op(op, WcStatus::RnrRetryExcErr);
        // The target has executed nothing from here on.
        let mut later = psn;
        while later != self.next {
            let op = self.chunk(later).op;
            if self.op(op).op.flow == flow {
                self.chunks[later as usize % WINDOW].make_void();
            }
            later = later.wrapping_add(1);
        }
        self.resend = self.base;
    }

    fn ready(&mut self) {
        self.not_ready_since_ns = None;
        self.not_ready_until_ns = 0;
    }

    /// The target says that the operation, or one before it, has failed.
    fn flush_op(&mut self, flushed: u32) {
        if self.op(flushed).status == WcStatus::Success {
            self.fail_op(flushed, WcStatus::WrFlushErr);
            self.op_mut(flushed).flushed = true;
        }
    }

    /// Fails an operation, and with it the later ones of its flow: what was not
    /// yet cut of them is not sent, what is on its way the target refuses. The
    /// first failure of an operation is its status.
    fn fail_op(&mut self, failed: u32, status: WcStatus) {
        let flow = self.op(failed).op.flow;
        let (mut number, mut status) = (failed, status);
        while number != self.next_op {
            let slot = self.op_mut(number);
            if slot.op.flow == flow && slot.stage != Stage::Reaped {
                slot.cut_all = true;
                if slot.status == WcStatus::Success {
                    slot.status = status;
                    self.failed_ops += 1;
                } else if slot.flushed {
                    // The cause is known now, or is that of an earlier operation.
                    slot.status = status;
                    slot.flushed = false;
                }
                self.settle(number);
                status = WcStatus::WrFlushErr;
            }
            number = number.wrapping_add(1);
        }
    }

    fn done(&mut self, psn: u32, now_ns: u64) {
        let slot = &mut self.chunks[psn as usize % WINDOW];
        if slot.done || before(psn, self.base) || !before(psn, self.next) {
            return;
        }
        slot.done = true;
        let op = slot.op;
        if let Some(sent_ns) = slot.sent_ns {
            self.round_trip.learn(now_ns.saturating_sub(sent_ns));
        }
        let open = &mut self.op_mut(op).open;
        *open = open.saturating_sub(1);
        self.settle(op);
        self.tries = 0;
        self.ready();
        // INVARIANT: `base` moves to the first chunk that is not done.
        while self.base != self.next && self.chunk(self.base).done {
            self.base = self.base.wrapping_add(1);
            self.waiting_since_ns = now_ns;
        }
        if before(self.resend, self.base) {
            self.resend = self.base;
        }
    }

    /// The target saw a gap before a later packet. Go back once per gap: the
    /// packets behind the gap each report it.
    fn hurry(&mut self, awaited: u32) {
        let is_waiting = self.not_ready_until_ns != 0;
        if !is_waiting
            && awaited == self.base
            && self.base != self.next
            && self.hurried != Some(awaited)
        {
            self.hurried = Some(awaited);
            self.resend = self.base;
        }
    }
}
