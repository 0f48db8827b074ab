// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The initiator's side of one stream: operations in, requests out, responses
//! in, completions out.

mod answers;
mod cut;
mod ends;
mod parts;
mod patience;

use super::op::Op;
use super::wire::{Destination, Kind, Message, Request, MESSAGE_BYTES, NO_MESSAGE};
use super::{MAX_CHUNK_BYTES, MAX_OPS, PROBE_CHUNKS, WINDOW};
use crate::uapi::WcStatus;
use parts::{Chunk, OpSlot, Stage, NO_CHUNK, NO_OP};
use patience::{Due, Patience};

/// A request to send: the header; then the operands of an atomic operation, or the
/// message's header if there is one; then, if it carries bytes, `request.len` of
/// them from `offset` on in the operation's local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// The header.
    pub request: Request,
    /// The message's header, encoded.
    pub message: Option<[u8; MESSAGE_BYTES]>,
    /// What it is a part of.
    pub op: &'a Op,
    /// Where in the operation the chunk begins.
    pub offset: u32,
    /// There is probably another request to send.
    pub more: bool,
    /// It was sent before.
    pub is_repeat: bool,
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
    patience: Patience,
    /// Chunks that may be sent again before the target is heard: after a timeout a few, else
    /// as many as there are.
    repeats_left: u32,
    /// The `base` for which a premature answer already made us retransmit.
    hurried: Option<u32>,
    /// All operations were failed at once: the target's context may not be
    /// trusted any more.
    broken: bool,
    /// The request that opens the target's context was sent again.
    repeated_first: bool,
    /// Operations that have failed and were not reaped yet.
    failed_ops: u32,
    /// When the target first said that an operation has failed.
    failed_since_ns: Option<u64>,
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
            patience: Patience::NEW,
            repeats_left: u32::MAX,
            hurried: None,
            broken: false,
            repeated_first: false,
            failed_ops: 0,
            failed_since_ns: None,
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
    /// next operation: it broke down, or the target may have dropped its context, or keeps a
    /// flow closed whose number another one may get.
    #[must_use]
    pub const fn needs_restart(&self, now_ns: u64) -> bool {
        let forgotten = self.next != 0 && self.patience.may_be_forgotten(now_ns);
        let has_closed = match self.failed_since_ns {
            Some(since_ns) => now_ns.saturating_sub(since_ns) > super::FAILED_FLOW_NS,
            None => false,
        };
        self.is_idle() && (self.broken || forgotten || has_closed)
    }

    /// Whether all operations were failed at once since the last start.
    #[must_use]
    pub const fn has_broken(&self) -> bool {
        self.broken
    }

    /// Starts over with a new token; only an idle stream can. Answers the farewell of the
    /// stream as it was ([`Self::close_request`]).
    pub fn restart(&mut self, token: u64) -> Option<Request> {
        if !self.is_idle() {
            return None;
        }
        let farewell = self.close_request();
        self.token = token;
        self.base = 0;
        self.resend = 0;
        self.next = 0;
        self.patience.calm();
        self.repeats_left = u32::MAX;
        self.hurried = None;
        self.broken = false;
        self.repeated_first = false;
        self.failed_since_ns = None;
        farewell
    }

    /// Queues an operation; answers its place, as [`Completion::slot`](super::Completion::slot) does. Behind a
    /// failed one of its flow it is flushed.
    ///
    /// # Errors
    ///
    /// [`Full`]: try again after a completion. So is a stream that broke, until all of its
    /// operations are reaped: the target would not know what to do with another one.
    pub fn push(&mut self, op: Op) -> Result<usize, Full> {
        if self.failed_ops != 0 && self.has_failed(op.flow) {
            return self.push_failed(op, WcStatus::WrFlushErr);
        }
        if self.broken && !self.is_idle() {
            return Err(Full);
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

    fn push_slot(&mut self, slot: OpSlot) -> Result<usize, Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        let number = self.next_op;
        // INVARIANT: there was room.
        self.next_op = number.wrapping_add(1);
        *self.op_mut(number) = slot;
        Ok(self.place(number))
    }

    /// The next request to send now, if there is one.
    pub fn poll_request(&mut self, now_ns: u64) -> Option<Outgoing<'_>> {
        if self.patience.holds(now_ns) {
            return None;
        }
        while self.resend != self.next {
            let psn = self.resend;
            let is_open = !self.chunk(psn).done;
            if is_open && self.repeats_left == 0 {
                return None;
            }
            self.resend = psn.wrapping_add(1);
            if is_open {
                self.repeats_left -= 1;
                self.repeated_first |= psn == 0;
                return Some(self.request_for(psn, now_ns));
            }
        }
        self.cut_chunk().map(|psn| {
            self.resend = self.next;
            self.request_for(psn, now_ns)
        })
    }

    /// The local memory of the chunk that [`Self::poll_request`] gave last may not be
    /// used: its operation fails. Answers what has to be sent in its place.
    pub fn unusable(&mut self, psn: u32, status: WcStatus) -> Outgoing<'_> {
        self.fail_op(self.chunk(psn).op, status);
        self.make_void_from(psn);
        self.outgoing(psn)
    }

    /// Looks at the clock: retransmits, or gives up, if the oldest chunk has
    /// waited too long. Returns whether anything is still outstanding.
    pub fn on_tick(&mut self, now_ns: u64) -> bool {
        if self.base == self.next {
            return !self.is_idle();
        }
        match self.patience.look(now_ns) {
            Due::Nothing => {}
            Due::Probe => self.probe(),
            Due::Break => self.fail_all(WcStatus::RetryExcErr),
        }
        !self.is_idle()
    }

    /// Has the oldest chunks sent again; those behind them follow once the target is heard.
    fn probe(&mut self) {
        self.resend = self.base;
        self.repeats_left = PROBE_CHUNKS;
        self.hurried = None;
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

    /// The place of an operation that is in use: one that was not reaped, or waits for an
    /// earlier one to be.
    const fn place(&self, number: u32) -> usize {
        debug_assert!(
            number.wrapping_sub(self.first_op) < self.next_op.wrapping_sub(self.first_op)
        );
        number as usize % MAX_OPS
    }

    const fn op(&self, number: u32) -> &OpSlot {
        // The place is always within the array.
        &self.ops[self.place(number)]
    }

    fn op_mut(&mut self, number: u32) -> &mut OpSlot {
        &mut self.ops[self.place(number)]
    }

    const fn chunk(&self, psn: u32) -> Chunk {
        self.chunks[psn as usize % WINDOW]
    }

    fn request_for(&mut self, psn: u32, now_ns: u64) -> Outgoing<'_> {
        let slot = &mut self.chunks[psn as usize % WINDOW];
        slot.note_sent(now_ns);
        let is_repeat = slot.is_repeat();
        self.patience.sent(psn == self.base, is_repeat, now_ns);
        self.outgoing(psn)
    }

    /// The request of a chunk that is being sent.
    fn outgoing(&self, psn: u32) -> Outgoing<'_> {
        let chunk = self.chunk(psn);
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
        let (request, message) = if chunk.void {
            (request.to_be_refused(), Some(NO_MESSAGE))
        } else {
            (request, kind.has_message().then(|| message.encode()))
        };
        Outgoing {
            request,
            message,
            op,
            offset: chunk.offset,
            more: self.resend != self.next || self.cut_op != self.next_op,
            is_repeat: chunk.is_repeat(),
        }
    }
}
