// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The target's side of one stream: what has been executed, what comes next.

use super::farewells::identity;
use super::wire::{Kind, Request, Status};
use super::{before, MAX_ATOMICS, WINDOW};

/// Failed flows that a context remembers; the oldest is forgotten first. More
/// than this many queue pairs of one peer failing within a round trip is rare,
/// and a forgotten one only loses the guarantee that nothing of it is executed
/// after the failure.
const CLOSED_FLOWS: usize = 16;

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Carry it out, then [`Context::record`] its status and answer.
    Execute,
    /// It is malformed, or something before it in its flow has failed: do not
    /// carry it out, answer with this status, which is recorded already.
    Refuse(Status),
    /// It was carried out before: answer with this status. A READ that
    /// succeeded has to fetch its bytes again.
    Repeat(Status),
    /// Do not carry it out; answer [`Status::Sequence`] with this PSN.
    Premature(u32),
    /// Too old to be answered.
    Drop,
}

/// One initiator's stream, as the target keeps it.
///
/// # Invariants
///
/// - `statuses[psn % WINDOW]` is the status of `psn` for the last [`WINDOW`] PSNs
///   before `expected`; `None` for those that were before the stream's first.
/// - `results` has the PSNs and results of the last [`MAX_ATOMICS`] atomic
///   operations that succeeded. An initiator has no more in its window, so that
///   the result of one that it may repeat is there.
pub struct Context {
    /// The request that has opened it, by its [`identity`].
    first: u64,
    expected: u32,
    statuses: [Option<Status>; WINDOW],
    closed_flows: [u32; CLOSED_FLOWS],
    closed_next: usize,
    results: [Option<(u32, u64)>; MAX_ATOMICS],
    results_next: usize,
    last_used_ns: u64,
}

impl Context {
    /// A context for a stream whose first request is `request`; `None` if that
    /// is not a stream's first request.
    #[must_use]
    pub fn open(request: &Request, now_ns: u64) -> Option<Self> {
        (request.psn == 0).then_some(Self {
            first: identity(request),
            expected: 0,
            statuses: [None; WINDOW],
            closed_flows: [0; CLOSED_FLOWS],
            closed_next: 0,
            results: [None; MAX_ATOMICS],
            results_next: 0,
            last_used_ns: now_ns,
        })
    }

    /// A context that waits for any PSN, as one does after so many requests.
    #[cfg(test)]
    pub(super) fn awaiting(psn: u32, request: &Request) -> Self {
        let first = Request { psn: 0, ..*request };
        let mut context = Self::open(&first, 0).expect("it is a stream's first");
        context.expected = psn;
        context
    }

    /// The request that has opened it.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// When the context was last used.
    #[must_use]
    pub const fn last_used_ns(&self) -> u64 {
        self.last_used_ns
    }

    /// Judges a request of this stream. What may be carried out or answered with
    /// memory is well-formed, be it new or a repeat: the fields of a repeat are
    /// whatever its sender put into them.
    pub fn admit(&mut self, request: &Request, now_ns: u64) -> Verdict {
        self.last_used_ns = now_ns;
        if request.psn == self.expected {
            return self.admit_next(request);
        }
        if before(self.expected, request.psn) {
            return Verdict::Premature(self.expected);
        }
        if self.expected.wrapping_sub(request.psn) as usize > WINDOW {
            return Verdict::Drop;
        }
        match self.statuses[request.psn as usize % WINDOW] {
            // This is not the request that succeeded.
            Some(Status::Ok) if !request.is_well_formed() => Verdict::Drop,
            Some(status) => Verdict::Repeat(status),
            None => Verdict::Drop,
        }
    }

    fn admit_next(&mut self, request: &Request) -> Verdict {
        let status = if self.is_closed(request.flow) {
            Status::Flushed
        } else if !request.is_well_formed() {
            Status::Invalid
        } else {
            return Verdict::Execute;
        };
        self.record(request, status);
        Verdict::Refuse(status)
    }

    /// Whether an earlier request of this flow failed.
    #[must_use]
    pub fn is_closed(&self, flow: u32) -> bool {
        flow != 0 && self.closed_flows.contains(&flow)
    }

    /// Notes how the request that [`Verdict::Execute`] asked for has ended.
    /// Any other request changes nothing.
    pub fn record(&mut self, request: &Request, status: Status) {
        if request.psn != self.expected {
            return;
        }
        // INVARIANT: this is the PSN just before the new `expected`.
        self.statuses[request.psn as usize % WINDOW] = Some(status);
        self.expected = self.expected.wrapping_add(1);
        if !matches!(status, Status::Ok | Status::Flushed) {
            self.close_flow(request.flow);
        }
    }

    /// Closes a flow of which a request has failed: none after it is carried out.
    fn close_flow(&mut self, flow: u32) {
        if flow != 0 && !self.is_closed(flow) {
            self.closed_flows[self.closed_next] = flow;
            self.closed_next = (self.closed_next + 1) % CLOSED_FLOWS;
        }
    }

    /// The bytes of a READ that had succeeded could not be read, because their region has
    /// gone. Answers its status. `verdict` is that of [`Self::admit`]: if the READ is new its
    /// flow ends with it. A repeat may be a late copy, whose answer nobody waits for, so it
    /// leaves the flow open.
    pub fn read_failed(&mut self, request: &Request, verdict: Verdict) -> Status {
        if verdict == Verdict::Execute {
            self.close_flow(request.flow);
        }
        Status::Access
    }

    /// Notes the former value of the word that an atomic operation has changed.
    pub fn record_result(&mut self, psn: u32, value: u64) {
        self.results[self.results_next] = Some((psn, value));
        self.results_next = (self.results_next + 1) % MAX_ATOMICS;
    }

    /// What [`Self::record_result`] has noted for a PSN, the newest first.
    #[must_use]
    pub fn result(&self, psn: u32) -> Option<u64> {
        let older =
            (1..=MAX_ATOMICS).map(|age| (self.results_next + MAX_ATOMICS - age) % MAX_ATOMICS);
        let mut noted = older.filter_map(|at| self.results[at]);
        noted.find(|(of, _)| *of == psn).map(|(_, value)| value)
    }

    /// Whether answering `request` with `status` takes bytes of memory.
    #[must_use]
    pub fn fetches(request: &Request, status: Status) -> bool {
        request.kind == Kind::Read && status == Status::Ok
    }
}
