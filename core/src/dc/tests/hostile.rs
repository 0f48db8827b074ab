// SPDX-License-Identifier: GPL-2.0 OR MIT

//! What packets that no initiator would send do to the decoder and to a target, and what
//! a target that lies does to an initiator.

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::wire::{decode, Message};
use super::*;

fn request(kind: Kind, psn: u32, len: u32) -> Request {
    Request {
        kind,
        stream: 1,
        token: 42,
        psn,
        destination: HERE,
        flow: 1,
        remote_addr: 0,
        rkey: 0,
        len,
    }
}

/// A context whose first request has succeeded.
fn context_after(first: &Request) -> Context {
    let mut context = Context::open(first, 1).unwrap();
    assert_eq!(context.admit(first, 1), Verdict::Execute);
    context.record(first, Status::Ok);
    context
}

#[test]
fn a_repeat_that_asks_for_more_than_a_chunk_gets_nothing() {
    let mut context = context_after(&request(Kind::Read, 0, 8));
    let same = request(Kind::Read, 0, 8);
    assert_eq!(context.admit(&same, 2), Verdict::Repeat(Status::Ok));
    let huge = request(Kind::Read, 0, 1 << 20);
    assert_eq!(context.admit(&huge, 2), Verdict::Drop);
}

#[test]
fn a_malformed_request_is_refused_and_its_repeat_too() {
    let mut context = context_after(&request(Kind::Read, 0, 8));
    let huge = request(Kind::Read, 1, MAX_CHUNK_BYTES + 1);
    assert_eq!(context.admit(&huge, 2), Verdict::Refuse(Status::Invalid));
    assert_eq!(context.admit(&huge, 3), Verdict::Repeat(Status::Invalid));
    let behind = request(Kind::Write, 2, 8);
    assert_eq!(context.admit(&behind, 4), Verdict::Refuse(Status::Flushed));
}

#[test]
fn what_was_before_the_first_request_is_no_repeat() {
    let mut context = context_after(&request(Kind::Write, 0, 8));
    let before_it = request(Kind::Write, u32::MAX, 8);
    assert_eq!(context.admit(&before_it, 2), Verdict::Drop);
}

#[test]
fn an_atomic_operation_in_place_of_a_write_finds_no_result() {
    let context = context_after(&request(Kind::Write, 0, 8));
    assert_eq!(context.result(0), None);
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Read),
        Just(Kind::Write),
        Just(Kind::Close),
        Just(Kind::CompareSwap),
        Just(Kind::FetchAdd),
        Just(Kind::Send),
        Just(Kind::WriteImm),
    ]
}

/// Lengths around the bounds that matter, and any.
fn len() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0),
        Just(8),
        Just(MAX_CHUNK_BYTES),
        Just(MAX_CHUNK_BYTES + 1),
        any::<u32>(),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let psn = prop_oneof![8 => 0u32..80, 1 => (u32::MAX - 70)..u32::MAX, 1 => any::<u32>()];
    (kind(), psn, 0u32..4, 0u64..20, len()).prop_map(|(kind, psn, flow, remote_addr, len)| {
        Request {
            flow,
            remote_addr,
            ..request(kind, psn, len)
        }
    })
}

/// The first PSN of a stream that is looked at: also shortly before PSNs begin anew.
fn start() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), (u32::MAX - 60)..=u32::MAX, any::<u32>()]
}

proptest! {
    /// Bytes from anywhere are read or refused, never a panic.
    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = decode(&bytes);
        let mut framed = request(Kind::Read, 0, 0).encode()[..3].to_vec();
        framed.extend(&bytes);
        let _ = decode(&framed);
        let _ = Message::decode(&bytes);
        let _ = Operands::decode(&bytes);
    }

    /// Whatever comes, with the right token: each PSN is carried out once and in its
    /// turn, and nothing is carried out or read again that is not well-formed.
    #[test]
    fn a_target_carries_out_the_next_request_or_nothing(
        start in start(),
        requests in prop::collection::vec((any_request(), any::<bool>(), any::<bool>()), 0..300),
    ) {
        let mut context = Context::awaiting(start, &request(Kind::Read, 0, 0));
        let mut expected = start;
        let mut outcomes = Vec::new();
        for (mut request, in_turn, succeeds) in requests {
            request.psn = start.wrapping_add(request.psn);
            if in_turn {
                request.psn = expected;
            }
            match context.admit(&request, 1) {
                Verdict::Execute => {
                    prop_assert_eq!(request.psn, expected);
                    prop_assert!(request.is_well_formed());
                    let status = if succeeds { Status::Ok } else { Status::Access };
                    context.record(&request, status);
                    outcomes.push(status);
                    expected = expected.wrapping_add(1);
                }
                Verdict::Refuse(status) => {
                    prop_assert_eq!(request.psn, expected);
                    prop_assert!(status != Status::Ok);
                    outcomes.push(status);
                    expected = expected.wrapping_add(1);
                }
                Verdict::Repeat(status) => {
                    let place = request.psn.wrapping_sub(start) as usize;
                    prop_assert_eq!(outcomes.get(place), Some(&status));
                    prop_assert!(request.is_well_formed() || status != Status::Ok);
                    prop_assert!(!Context::fetches(&request, status) || request.len <= MAX_CHUNK_BYTES);
                }
                Verdict::Premature(psn) => prop_assert_eq!(psn, expected),
                Verdict::Drop => {}
            }
        }
    }
}

const STATUSES: [Status; 11] = [
    Status::Ok,
    Status::Flushed,
    Status::Invalid,
    Status::Access,
    Status::Operation,
    Status::NoReceiver,
    Status::Sequence,
    Status::NoContext,
    Status::Stale,
    Status::Busy,
    Status::NotReady,
];

/// One thing that happens to an initiator.
#[derive(Clone, Debug)]
enum Event {
    /// An operation of this kind, flow and length is posted.
    Post(OpKind, u32, u32),
    /// A response to the so-manieth PSN from the oldest open one on, with a status, the
    /// length that it claims, if not the right one, and the bytes that it has, if they
    /// are others.
    Answer(u32, Status, Option<u32>, Option<usize>),
    /// The clock goes on.
    Wait(u64),
}

fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        Just(OpKind::Read),
        Just(OpKind::Write),
        Just(OpKind::Send),
        Just(OpKind::FetchAdd),
    ];
    let op_len = prop_oneof![Just(0u32), Just(8), Just(1024), Just(1025), 0u32..9000];
    let psn = prop_oneof![8 => 0u32..8, 2 => 0u32..80, 1 => (u32::MAX - 80)..=u32::MAX, 1 => any::<u32>()];
    let status = prop_oneof![3 => Just(Status::Ok), 2 => prop::sample::select(&STATUSES[..])];
    let claim = prop::option::weighted(0.2, len());
    let bytes = prop::option::weighted(0.1, 0usize..9000);
    prop_oneof![
        2 => (kind, 1u32..4, op_len).prop_map(|(kind, flow, len)| Event::Post(kind, flow, len)),
        5 => (psn, status, claim, bytes)
            .prop_map(|(psn, status, len, bytes)| Event::Answer(psn, status, len, bytes)),
        1 => (0..2 * RTO_MAX_NS).prop_map(Event::Wait),
    ]
}

/// An initiator, what was posted to it, and what has become of that.
struct Lied {
    initiator: Initiator,
    now_ns: u64,
    /// The requests that it has sent, the newest for each PSN.
    sent: HashMap<u32, Request>,
    /// By cookie: flow, length, bytes that have landed, and how it has ended.
    ops: Vec<(Op, u32, Option<WcStatus>)>,
}

impl Lied {
    fn starting_at(start: u32) -> Self {
        let mut initiator = initiator(HERE, 1024);
        initiator.skip_to(start);
        Self {
            initiator,
            now_ns: 1,
            sent: HashMap::new(),
            ops: Vec::new(),
        }
    }

    fn post(&mut self, kind: OpKind, flow: u32, len: u32) {
        let len = if kind == OpKind::FetchAdd { 8 } else { len };
        if self.initiator.needs_restart(self.now_ns) {
            self.initiator.restart(43);
            self.sent.clear();
        }
        let op = Op {
            flow,
            ..op(self.ops.len() as u64, kind, 0, len)
        };
        if self.initiator.push(op).is_ok() {
            self.ops.push((op, 0, None));
        }
    }

    /// Gives the initiator a response, and takes what it wants to have of it.
    fn answer(&mut self, psn: u32, status: Status, len: Option<u32>, bytes: Option<usize>) {
        let fetches = |r: &Request| r.kind == Kind::Read || r.kind.is_atomic();
        let asked = self.sent.get(&psn).filter(|request| fetches(request));
        let right = asked.map_or(0, |request| request.len);
        let response = Response {
            stream: 1,
            token: self.initiator.token(),
            psn,
            status,
            len: len.unwrap_or(right),
        };
        let payload = bytes.unwrap_or(response.len as usize);
        let Incoming::Data {
            psn: of,
            op,
            offset,
            len,
        } = self.initiator.on_response(&response, payload, self.now_ns)
        else {
            return;
        };
        assert_eq!((of, status, len as usize), (psn, Status::Ok, payload));
        assert!(op.kind.fetches() && offset + len <= op.len);
        let cookie = op.cookie as usize;
        self.ops[cookie].1 += len;
        self.initiator.landed(psn, Ok(()), self.now_ns);
    }

    /// Sends what may be sent, and takes what has ended: each operation once, those of a
    /// flow in their order, and with success only if all its bytes have landed.
    fn settle(&mut self) {
        while let Some(outgoing) = self.initiator.poll_request(self.now_ns) {
            assert!(outgoing.request.is_well_formed());
            self.sent.insert(outgoing.request.psn, outgoing.request);
        }
        while let Some(completion) = self.initiator.poll_completion() {
            let at = completion.cookie as usize;
            let (op, landed, end) = self.ops[at];
            assert_eq!(end, None, "operation {at} has ended twice");
            let success = completion.status == WcStatus::Success;
            let wanted = if op.kind.fetches() { op.len } else { 0 };
            assert!(landed <= wanted && (!success || landed == wanted));
            let before = self.ops[..at]
                .iter()
                .filter(|other| other.0.flow == op.flow);
            assert!(before.into_iter().all(|other| other.2.is_some()));
            self.ops[at].2 = Some(completion.status);
        }
    }

    fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        self.initiator.on_tick(self.now_ns);
    }
}

proptest! {
    /// A target that knows the token may answer anything: each operation ends once, in its
    /// turn, and nothing lands but what it asked for.
    #[test]
    fn an_initiator_ends_each_operation_once_whatever_it_is_told(
        start in start(),
        events in prop::collection::vec(event(), 0..300),
    ) {
        let mut lied = Lied::starting_at(start);
        for event in events {
            match event {
                Event::Post(kind, flow, len) => lied.post(kind, flow, len),
                Event::Answer(psn, status, len, bytes) => {
                    // The oldest one that is still open, as far as anybody can tell.
                    let base = lied.initiator.oldest();
                    lied.answer(base.wrapping_add(psn), status, len, bytes);
                }
                Event::Wait(ns) => lied.wait(ns),
            }
            lied.settle();
        }
        for _ in 0..200 {
            lied.wait(RTO_MAX_NS);
            lied.settle();
        }
        prop_assert!(lied.initiator.is_idle());
        prop_assert!(lied.ops.iter().all(|(_, _, end)| end.is_some()));
    }
}
