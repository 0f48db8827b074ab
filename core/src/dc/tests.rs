// SPDX-License-Identifier: GPL-2.0 OR MIT

//! An initiator and a target joined by a network that loses, repeats and
//! reorders packets, with a clock that only the test moves.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::wire::{
    decode, Destination, Kind, Message, Operands, Packet, Receiver, Request, Response, Status,
    MESSAGE_BYTES,
};
use super::*;
use crate::uapi::{Sge, WcStatus, MAX_SGE};

mod hostile;
mod messages;

const HERE: Destination = Destination {
    dct_number: 7,
    dct_key: 0x1234,
    incarnation: 9,
};
const SENDER: Destination = Destination {
    dct_number: 3,
    dct_key: 0x77,
    incarnation: 5,
};
/// A key that the target refuses.
const BAD_KEY: u32 = 666;
const MEMORY: usize = 64 * 1024;

/// What the network does to one packet.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Deliver,
    Lose,
    Repeat,
    Delay,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Deliver),
        1 => Just(Fate::Lose),
        1 => Just(Fate::Repeat),
        1 => Just(Fate::Delay),
    ]
}

fn initiator(destination: Destination, chunk_bytes: u32) -> Initiator {
    let mut initiator = Initiator::EMPTY;
    initiator.open(1, 42, SENDER, destination, chunk_bytes);
    initiator
}

struct Wire {
    packets: VecDeque<(Vec<u8>, Vec<u8>)>,
    fates: Vec<Fate>,
    at: usize,
    /// How often each PSN was lost; a chunk lost too often would be given up.
    losses: HashMap<u32, u32>,
}

impl Wire {
    fn new(fates: Vec<Fate>) -> Self {
        Self {
            packets: VecDeque::new(),
            fates,
            at: 0,
            losses: HashMap::new(),
        }
    }

    fn send(&mut self, header: &[u8], payload: &[u8]) {
        let mut fate = self.fates[self.at % self.fates.len()];
        self.at += 1;
        if matches!(fate, Fate::Lose) {
            let psn = match decode(header) {
                Some(Packet::Request(request)) => request.psn,
                Some(Packet::Response(response)) => response.psn,
                None => panic!("not a packet"),
            };
            let losses = self.losses.entry(psn).or_default();
            *losses += 1;
            if *losses > MAX_TRIES / 2 - 1 {
                fate = Fate::Deliver;
            }
        }
        let packet = (header.to_vec(), payload.to_vec());
        match fate {
            Fate::Deliver => self.packets.push_back(packet),
            Fate::Lose => {}
            Fate::Repeat => {
                self.packets.push_back(packet.clone());
                self.packets.push_front(packet);
            }
            Fate::Delay => {
                let place = self.packets.len().saturating_sub(2);
                self.packets.insert(place, packet);
            }
        }
    }
}

struct Pair {
    initiator: Initiator,
    contexts: HashMap<u64, Context>,
    local: Vec<u8>,
    remote: Vec<u8>,
    out: Wire,
    back: Wire,
    now_ns: u64,
    /// (address, first byte) of each WRITE that was carried out.
    executed: Vec<(u64, u8)>,
    completions: Vec<Completion>,
    requests_sent: usize,
    /// Receive buffers that the receiver has.
    buffers: usize,
    /// Messages that are there, and the one that is coming.
    messages: Vec<(Message, Vec<u8>)>,
    coming: Vec<u8>,
}

/// A receiver that does not exist.
const NOBODY: Receiver = Receiver::Port(404);
/// Longest message that a receive buffer takes.
const BUFFER: u32 = 16 * 1024;

impl Pair {
    fn new(fates: Vec<Fate>) -> Self {
        Self {
            initiator: initiator(HERE, 1024),
            contexts: HashMap::new(),
            local: (0..6 * MEMORY).map(|i| (i % 251) as u8).collect(),
            remote: vec![0; MEMORY],
            out: Wire::new(fates.clone()),
            back: Wire::new(fates),
            now_ns: 1,
            executed: Vec::new(),
            completions: Vec::new(),
            requests_sent: 0,
            buffers: usize::MAX,
            messages: Vec::new(),
            coming: Vec::new(),
        }
    }

    fn transmit(&mut self) {
        while let Some(outgoing) = self.initiator.poll_request(self.now_ns) {
            let request = outgoing.request;
            let mut payload = Vec::new();
            if request.kind.is_atomic() {
                payload.extend(outgoing.op.operands.encode());
            }
            if let Some(message) = outgoing.message {
                payload.extend(message.encode());
            }
            if matches!(request.kind, Kind::Write | Kind::Send | Kind::WriteImm) {
                gather(&self.local, &outgoing, &mut payload);
            }
            self.requests_sent += 1;
            self.out.send(&request.encode(), &payload);
        }
    }

    /// What a receiver does with a chunk.
    fn deliver(&mut self, request: &Request, payload: &[u8]) -> Status {
        let message = Message::decode(payload).expect("a message");
        let bytes = &payload[MESSAGE_BYTES..];
        assert_eq!(bytes.len(), request.len as usize);
        assert_eq!(message.sender, SENDER);
        let is_first = request.kind == Kind::WriteImm || request.remote_addr == 0;
        if message.to == NOBODY {
            return Status::NoReceiver;
        }
        if is_first && self.buffers == 0 {
            return Status::NotReady;
        }
        if message.total > BUFFER && request.kind == Kind::Send {
            return Status::Invalid;
        }
        if is_first {
            self.buffers -= 1;
            self.coming.clear();
        }
        if request.kind == Kind::WriteImm {
            let at = request.remote_addr as usize;
            self.remote[at..at + bytes.len()].copy_from_slice(bytes);
            self.messages.push((message, Vec::new()));
            return Status::Ok;
        }
        assert_eq!(request.remote_addr as usize, self.coming.len());
        self.coming.extend(bytes);
        if self.coming.len() == message.total as usize {
            self.messages
                .push((message, std::mem::take(&mut self.coming)));
        }
        Status::Ok
    }

    fn execute(&mut self, request: &Request, payload: &[u8]) -> Status {
        if request.kind == Kind::Send {
            return self.deliver(request, payload);
        }
        let (from, to) = (
            request.remote_addr as usize,
            request.remote_addr as usize + request.len as usize,
        );
        if request.rkey == BAD_KEY || to > MEMORY {
            return Status::Access;
        }
        if request.kind == Kind::WriteImm {
            return self.deliver(request, payload);
        }
        if request.kind == Kind::Write {
            assert_eq!(payload.len(), request.len as usize);
            self.executed
                .push((request.remote_addr, payload.first().copied().unwrap_or(0)));
            self.remote[from..to].copy_from_slice(payload);
        }
        Status::Ok
    }

    /// Changes a word, and answers what it was.
    fn change(&mut self, request: &Request, payload: &[u8]) -> u64 {
        let at = request.remote_addr as usize..request.remote_addr as usize + 8;
        let old = u64::from_ne_bytes(self.remote[at.clone()].try_into().unwrap());
        let operands = Operands::decode(payload).unwrap();
        let new = match request.kind {
            Kind::FetchAdd => old.wrapping_add(operands.compare_add),
            _ if old == operands.compare_add => operands.swap,
            _ => old,
        };
        self.remote[at].copy_from_slice(&new.to_ne_bytes());
        old
    }

    fn serve(&mut self, request: &Request, payload: &[u8]) {
        if request.destination != HERE {
            return self
                .back
                .send(&Response::to(request, Status::Stale).encode(), &[]);
        }
        let now_ns = self.now_ns;
        let context = match self.contexts.entry(request.token) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match Context::open(request, now_ns) {
                Some(context) => entry.insert(context),
                None => {
                    let response = Response::to(request, Status::NoContext);
                    return self.back.send(&response.encode(), &[]);
                }
            },
        };
        let verdict = context.admit(request, now_ns);
        let status = match verdict {
            Verdict::Drop => return,
            Verdict::Premature(psn) => {
                let response = Response {
                    psn,
                    ..Response::to(request, Status::Sequence)
                };
                return self.back.send(&response.encode(), &[]);
            }
            Verdict::Repeat(status) | Verdict::Refuse(status) => status,
            Verdict::Execute => {
                let status = self.execute(request, payload);
                let changes = request.kind.is_atomic() && status == Status::Ok;
                let old = changes.then(|| self.change(request, payload));
                let context = self.contexts.get_mut(&request.token).unwrap();
                if status != Status::NotReady {
                    context.record(request, status);
                }
                if let Some(old) = old {
                    context.record_result(request.psn, old);
                }
                status
            }
        };
        let mut response = Response::to(request, status);
        let mut bytes = Vec::new();
        if Context::fetches(request, status) {
            let from = request.remote_addr as usize;
            bytes = self.remote[from..from + request.len as usize].to_vec();
            response.len = request.len;
        } else if request.kind.is_atomic() && status == Status::Ok {
            let context = &self.contexts[&request.token];
            let old = context.result(request.psn).expect("it may be repeated");
            bytes = old.to_ne_bytes().to_vec();
            response.len = 8;
        }
        self.back.send(&response.encode(), &bytes);
    }

    fn receive(&mut self, response: &Response, payload: &[u8]) {
        if response.token != self.initiator.token() {
            return;
        }
        if let Incoming::Data {
            psn,
            op,
            offset,
            len,
        } = self
            .initiator
            .on_response(response, payload.len(), self.now_ns)
        {
            let mut rest = payload;
            for sge in op.local.pieces(offset, len) {
                let (bytes, more) = rest.split_at(sge.len as usize);
                let to = sge.addr as usize;
                self.local[to..to + bytes.len()].copy_from_slice(bytes);
                rest = more;
            }
            assert!(rest.is_empty());
            self.initiator.landed(psn, Ok(()), self.now_ns);
        }
    }

    /// One round of everything; then the clock moves on.
    fn step(&mut self) {
        self.transmit();
        while let Some((header, payload)) = self.out.packets.pop_front() {
            match decode(&header) {
                Some(Packet::Request(request)) => self.serve(&request, &payload),
                other => panic!("not a request: {other:?}"),
            }
        }
        while let Some((header, payload)) = self.back.packets.pop_front() {
            match decode(&header) {
                Some(Packet::Response(response)) => self.receive(&response, &payload),
                other => panic!("not a response: {other:?}"),
            }
        }
        self.completions
            .extend(std::iter::from_fn(|| self.initiator.poll_completion()));
        self.now_ns += RTO_MIN_NS / 2;
        self.initiator.on_tick(self.now_ns);
    }

    fn run(&mut self) {
        for _ in 0..10_000 {
            self.step();
            if self.initiator.is_idle() {
                return;
            }
        }
        panic!("the stream never became idle");
    }
}

/// The bytes that a request carries.
fn gather(local: &[u8], outgoing: &Outgoing<'_>, payload: &mut Vec<u8>) {
    let (offset, len) = (outgoing.offset, outgoing.request.len);
    for sge in outgoing.op.local.pieces(offset, len) {
        let from = sge.addr as usize;
        payload.extend(&local[from..from + sge.len as usize]);
    }
    if let Some(bytes) = outgoing.op.local.inline(offset, len) {
        payload.extend(bytes);
    }
}

/// One piece of local memory.
fn memory(addr: u64, len: u32) -> Local {
    scattered(&[(addr, len)])
}

fn scattered(pieces: &[(u64, u32)]) -> Local {
    Local::Sges(std::array::from_fn::<_, MAX_SGE, _>(|i| {
        let (addr, len) = pieces.get(i).copied().unwrap_or((0, 0));
        Sge { addr, len, lkey: 1 }
    }))
}

fn op(cookie: u64, kind: OpKind, at: u64, len: u32) -> Op {
    Op {
        cookie,
        flow: 1,
        owner: 1,
        kind,
        rkey: 1,
        len,
        remote_addr: at,
        local: memory(at, len),
        ..Op::EMPTY
    }
}

/// A message to port 9.
fn send(cookie: u64, from: u64, len: u32) -> Op {
    Op {
        remote_addr: 0,
        to: Receiver::Port(9),
        local: memory(from, len),
        ..op(cookie, OpKind::Send, 0, len)
    }
}

fn fetch_add(cookie: u64, at: u64, local_addr: u64, add: u64) -> Op {
    let operands = Operands {
        compare_add: add,
        swap: 0,
    };
    Op {
        operands,
        local: memory(local_addr, 8),
        ..op(cookie, OpKind::FetchAdd, at, 8)
    }
}

#[test]
fn a_write_then_a_read_take_one_packet_each_way_per_chunk() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    pair.initiator.push(op(2, OpKind::Read, 0, 4096)).unwrap();
    pair.run();
    assert_eq!(pair.requests_sent, 1 + 4);
    let ends: Vec<_> = pair
        .completions
        .iter()
        .map(|c| (c.cookie, c.status))
        .collect();
    assert_eq!(ends, [(1, WcStatus::Success), (2, WcStatus::Success)]);
}

#[test]
fn a_request_says_whether_another_follows() {
    let mut initiator = initiator(HERE, 4096);
    for cookie in 0..2 {
        initiator.push(op(cookie, OpKind::Write, 0, 8)).unwrap();
    }
    let more = std::iter::from_fn(|| Some(initiator.poll_request(1)?.more));
    assert_eq!(more.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn a_stream_whose_first_request_was_repeated_says_no_farewell() {
    let mut initiator = initiator(HERE, 4096);
    assert!(initiator.close_request().is_none(), "no context is there");
    initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    let first = initiator.poll_request(1).unwrap().request;
    let farewell = initiator.close_request().map(|request| request.kind);
    assert_eq!(farewell, Some(Kind::Close));
    let later = 1_000_000_000;
    assert!(initiator.on_tick(later));
    assert_eq!(initiator.poll_request(later).unwrap().request, first);
    // Answered, it may still reach the target once more, after the farewell.
    initiator.on_response(&Response::to(&first, Status::Ok), 0, later);
    assert!(initiator.close_request().is_none());
    initiator.poll_completion().unwrap();
    initiator.restart(2);
    initiator.push(op(2, OpKind::Write, 0, 8)).unwrap();
    initiator.poll_request(later).unwrap();
    assert!(initiator.close_request().is_some(), "that was another life");
}

#[test]
fn an_operation_of_no_bytes_completes() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::Write, 0, 0)).unwrap();
    pair.run();
    assert_eq!(pair.completions[0].status, WcStatus::Success);
}

#[test]
fn a_failed_operation_closes_its_flow_and_no_other() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator
        .push(Op {
            rkey: BAD_KEY,
            ..op(1, OpKind::Write, 0, 8)
        })
        .unwrap();
    pair.initiator.push(op(2, OpKind::Write, 8, 8)).unwrap();
    pair.initiator
        .push(Op {
            flow: 2,
            ..op(3, OpKind::Write, 16, 8)
        })
        .unwrap();
    pair.run();
    let ends: Vec<_> = pair.completions.iter().map(|c| c.status).collect();
    assert_eq!(
        ends,
        [
            WcStatus::RemAccessErr,
            WcStatus::WrFlushErr,
            WcStatus::Success
        ]
    );
    assert_eq!(pair.executed.len(), 1);
}

#[test]
fn a_short_operation_does_not_wait_for_a_long_one_of_another_flow() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    let long = op(1, OpKind::Write, 0, MEMORY as u32);
    // Longer than the window, so that it is still being cut when the others come.
    pair.initiator.push(long).unwrap();
    pair.initiator.push(op(2, OpKind::Write, 0, 8)).unwrap();
    for cookie in 3..6 {
        let short = Op {
            flow: 2,
            ..op(cookie, OpKind::Read, 8 * cookie, 8)
        };
        pair.initiator.push(short).unwrap();
    }
    pair.initiator.push(Op { flow: 3, ..long }).unwrap();
    pair.run();
    let order: Vec<_> = pair.completions.iter().map(|c| c.cookie).collect();
    assert_eq!(order[..3], [3, 4, 5]);
    assert!(order.iter().position(|c| *c == 1) < order.iter().position(|c| *c == 2));
    assert_eq!(order.len(), 6);
}

proptest! {
    /// Whatever the network does, each flow's operations end in their order, each
    /// once, at the place that pushing them answered.
    #[test]
    fn flows_share_a_stream_and_keep_their_order(
        fates in prop::collection::vec(fate(), 1..60),
        ops in prop::collection::vec((1u32..5, 0u32..20_000, any::<bool>()), 1..80),
    ) {
        let mut pair = Pair::new(fates);
        let mut places = Vec::new();
        for (cookie, (flow, len, bad)) in ops.iter().enumerate() {
            let bad = *bad && cookie % 7 == 0;
            let op = Op {
                flow: *flow,
                rkey: if bad { BAD_KEY } else { 1 },
                ..op(cookie as u64, OpKind::Write, 0, *len)
            };
            places.push(pair.initiator.push(op).unwrap());
        }
        pair.run();
        prop_assert_eq!(pair.completions.len(), ops.len());
        for flow in 1..5 {
            let of_flow = |c: &&Completion| ops[c.cookie as usize].0 == flow;
            let mine: Vec<_> = pair.completions.iter().filter(of_flow).collect();
            prop_assert!(mine.is_sorted_by_key(|c| c.cookie));
            let failed = mine.iter().position(|c| c.status != WcStatus::Success);
            if let Some(failed) = failed {
                let mut rest = mine[failed + 1..].iter();
                prop_assert!(rest.all(|c| c.status == WcStatus::WrFlushErr));
            }
        }
        let kept = pair.completions.iter().all(|c| places[c.cookie as usize] == c.slot);
        prop_assert!(kept);
    }
}

#[test]
fn a_word_is_swapped_only_if_it_is_what_it_should_be() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    for (cookie, compare_add) in [(1, 0), (2, 0)] {
        let operands = Operands {
            compare_add,
            swap: 100 + cookie,
        };
        let swap = Op {
            operands,
            local: memory(8 * cookie, 8),
            ..op(cookie, OpKind::CompareSwap, 0, 8)
        };
        pair.initiator.push(swap).unwrap();
    }
    pair.run();
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    assert_eq!(word(&pair.remote[..8]), 101);
    assert_eq!(
        (word(&pair.local[8..16]), word(&pair.local[16..24])),
        (0, 101)
    );
}

#[test]
fn what_fails_locally_is_not_carried_out_and_stops_its_flow() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    pair.initiator.push(op(2, OpKind::Write, 8, 8)).unwrap();
    pair.initiator
        .push(Op {
            flow: 2,
            ..op(3, OpKind::Write, 16, 8)
        })
        .unwrap();
    pair.initiator
        .push_failed(op(4, OpKind::Write, 24, 8), WcStatus::LocLenErr)
        .unwrap();
    let request = pair.initiator.poll_request(1).unwrap().request;
    let request = pair.initiator.unusable(&request, WcStatus::LocProtErr);
    pair.out.send(&request.encode(), &[]);
    pair.run();
    let ends: Vec<_> = pair.completions.iter().map(|c| c.status).collect();
    let (local, flushed) = (WcStatus::LocProtErr, WcStatus::WrFlushErr);
    assert_eq!(
        ends,
        [local, flushed, WcStatus::Success, WcStatus::LocLenErr]
    );
    assert_eq!(pair.executed.len(), 1);
}

#[test]
fn what_is_queued_behind_a_failed_operation_is_flushed() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator
        .push_failed(op(1, OpKind::Write, 0, 8), WcStatus::LocQpOpErr)
        .unwrap();
    pair.initiator.push(op(2, OpKind::Write, 8, 8)).unwrap();
    let other = Op {
        flow: 2,
        ..op(3, OpKind::Write, 16, 8)
    };
    pair.initiator.push(other).unwrap();
    pair.run();
    pair.initiator.push(other).unwrap();
    pair.run();
    let ends: Vec<_> = pair.completions.iter().map(|c| c.status).collect();
    let (bad, flushed, ok) = (
        WcStatus::LocQpOpErr,
        WcStatus::WrFlushErr,
        WcStatus::Success,
    );
    assert_eq!(ends, [bad, flushed, ok, ok]);
}

#[test]
fn a_peer_that_never_answers_ends_every_operation_in_bounded_time() {
    let mut initiator = initiator(HERE, 4096);
    for cookie in 0..3 {
        initiator.push(op(cookie, OpKind::Read, 0, 8)).unwrap();
    }
    let (mut now_ns, mut sent, mut ends) = (0, 0, Vec::new());
    while initiator.on_tick(now_ns) && now_ns < 10_000_000_000 {
        while initiator.poll_request(now_ns).is_some() {
            sent += 1;
        }
        ends.extend(statuses(&mut initiator));
        now_ns += 1_000_000;
    }
    let flushed = WcStatus::WrFlushErr;
    assert_eq!(ends, [WcStatus::RetryExcErr, flushed, flushed]);
    assert!(now_ns < 1_000_000_000, "gave up after {now_ns} ns");
    assert_eq!(sent, 3 * MAX_TRIES);
}

#[test]
fn a_restarted_peer_is_reported_as_stale() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator = initiator(
        Destination {
            incarnation: 8,
            ..HERE
        },
        4096,
    );
    pair.initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    pair.run();
    assert_eq!(pair.completions[0].status, WcStatus::RemAbortErr);
    assert!(pair.initiator.needs_restart(pair.now_ns));
    assert!(pair.executed.is_empty());
}

#[test]
fn a_stream_that_slept_starts_over_with_a_new_token() {
    let mut pair = Pair::new(vec![Fate::Deliver]);
    pair.initiator.push(op(1, OpKind::Write, 0, 8)).unwrap();
    pair.run();
    pair.contexts.clear();
    pair.now_ns += STREAM_IDLE_NS + 1;
    assert!(pair.initiator.needs_restart(pair.now_ns));
    pair.initiator.restart(43);
    pair.initiator.push(op(2, OpKind::Write, 8, 8)).unwrap();
    pair.run();
    assert_eq!(pair.completions[1].status, WcStatus::Success);
}

#[test]
fn the_queue_says_when_it_is_full() {
    let mut initiator = initiator(HERE, 4096);
    for cookie in 0..MAX_OPS as u64 {
        initiator.push(op(cookie, OpKind::Read, 0, 8)).unwrap();
    }
    assert_eq!(initiator.push(op(0, OpKind::Read, 0, 8)), Err(Full));
    let sent = std::iter::from_fn(|| initiator.poll_request(0).map(drop)).count();
    assert_eq!(sent, WINDOW);
}

proptest! {
    /// Whatever the network does, every WRITE happens once and in order, READs
    /// see the WRITEs before them, and completions come in order.
    #[test]
    fn a_hostile_network_does_not_show(
        fates in prop::collection::vec(fate(), 1..64),
        ops in prop::collection::vec((any::<bool>(), 0u64..32, 0u32..5000), 1..60),
    ) {
        let mut pair = Pair::new(fates);
        let mut expected = vec![0u8; MEMORY];
        let mut writes = Vec::new();
        for (cookie, &(is_write, slot, len)) in ops.iter().enumerate() {
            // Writes come from the start of local memory, each read goes to its
            // own place behind, so that what a write carries does not change.
            let at = slot * 700;
            let kind = if is_write { OpKind::Write } else { OpKind::Read };
            let local = if is_write { at } else { MEMORY as u64 + 5000 * cookie as u64 };
            pair.initiator.push(Op { local: memory(local, len), ..op(cookie as u64, kind, at, len) }).unwrap();
            if is_write {
                let (from, to) = (at as usize, at as usize + len as usize);
                expected[from..to].copy_from_slice(&pair.local[from..to]);
                writes.extend((0..len.max(1)).step_by(1024).map(|offset| {
                    let byte = if len == 0 { 0 } else { pair.local[from + offset as usize] };
                    (at + u64::from(offset), byte)
                }));
            }
        }
        pair.run();
        prop_assert!(pair.completions.iter().all(|c| c.status == WcStatus::Success));
        let order: Vec<_> = pair.completions.iter().map(|c| c.cookie).collect();
        prop_assert_eq!(order, (0..ops.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(pair.executed, writes);
        prop_assert!(pair.remote == expected);
        if let Some((is_write, slot, len)) = ops.last().copied() {
            if !is_write {
                let (from, len) = (slot as usize * 700, len as usize);
                let local = MEMORY + 5000 * (ops.len() - 1);
                prop_assert!(pair.local[local..local + len] == expected[from..from + len]);
            }
        }
    }

    /// However often its packets are lost or repeated, each addition is made
    /// once, and each answers the sum of those before it.
    #[test]
    fn atomic_operations_happen_once(
        fates in prop::collection::vec(fate(), 1..64),
        adds in prop::collection::vec((0u64..4, 1u64..1000), 1..100),
    ) {
        let mut pair = Pair::new(fates);
        let mut sums = [0u64; 4];
        let mut former = Vec::new();
        for (cookie, &(word, add)) in adds.iter().enumerate() {
            let local = MEMORY as u64 + 8 * cookie as u64;
            pair.initiator.push(fetch_add(cookie as u64, 8 * word, local, add)).unwrap();
            former.push(sums[word as usize]);
            sums[word as usize] += add;
        }
        pair.run();
        prop_assert!(pair.completions.iter().all(|c| c.status == WcStatus::Success));
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        let remote: Vec<_> = pair.remote[..32].chunks(8).map(word).collect();
        prop_assert_eq!(remote, sums);
        let results: Vec<_> = pair.local[MEMORY..MEMORY + 8 * adds.len()].chunks(8).map(word).collect();
        prop_assert_eq!(results, former);
    }

    /// Any response to a stream leaves it able to end.
    #[test]
    fn forged_responses_do_no_harm(
        responses in prop::collection::vec((0u32..200, any::<u8>(), 0u32..6000), 0..50),
    ) {
        let mut initiator = initiator(HERE, 4096);
        for cookie in 0..20 {
            initiator.push(op(cookie, OpKind::Read, 0, 5000)).unwrap();
        }
        while initiator.poll_request(0).is_some() {}
        for (psn, status, len) in responses {
            let status = [Status::Ok, Status::Flushed, Status::Invalid, Status::Access, Status::Sequence,
                Status::NoContext, Status::Stale, Status::Busy][status as usize % 8];
            let response = Response { stream: 1, token: 42, psn, status, len };
            if let Incoming::Data { psn, .. } = initiator.on_response(&response, len as usize, 1) {
                initiator.landed(psn, Err(WcStatus::LocProtErr), 1);
            }
            while initiator.poll_request(2).is_some() {}
        }
        let mut now_ns = 0;
        while initiator.on_tick(now_ns) {
            while initiator.poll_completion().is_some() {}
            while initiator.poll_request(now_ns).is_some() {}
            now_ns += RTO_MAX_NS;
            prop_assert!(now_ns < 100 * RTO_MAX_NS);
        }
        while initiator.poll_completion().is_some() {}
        prop_assert!(initiator.is_idle());
    }

    #[test]
    fn headers_survive_the_wire(
        words in any::<(u32, u64, u32, u32, u64, u32, u32, u64, u32, u32)>(), read in any::<bool>(),
    ) {
        let (stream, token, psn, dct_number, dct_key, incarnation, flow, remote_addr, rkey, len) = words;
        let kind = if read { Kind::Read } else { Kind::Write };
        let destination = Destination { dct_number, dct_key, incarnation };
        let request = Request { kind, stream, token, psn, destination, flow, remote_addr, rkey, len };
        prop_assert_eq!(decode(&request.encode()), Some(Packet::Request(request)));
        let response = Response { stream, token, psn, status: Status::Access, len };
        prop_assert_eq!(decode(&response.encode()), Some(Packet::Response(response)));
    }
}

/// An initiator with one WRITE of two chunks, of which the target has refused the
/// second because the first failed; why, was lost.
fn half_told() -> Initiator {
    let mut initiator = initiator(HERE, 4096);
    initiator.push(op(1, OpKind::Write, 0, 5000)).unwrap();
    initiator.push(op(2, OpKind::Write, 0, 8)).unwrap();
    let first = initiator.poll_request(1).unwrap().request;
    let second = initiator.poll_request(1).unwrap().request;
    assert_eq!((first.psn, second.psn), (0, 1));
    let answer = Response::to(&second, Status::Flushed);
    assert_eq!(initiator.on_response(&answer, 0, 2), Incoming::Handled);
    assert!(initiator.poll_completion().is_none());
    initiator
}

fn statuses(initiator: &mut Initiator) -> Vec<WcStatus> {
    std::iter::from_fn(|| initiator.poll_completion())
        .map(|completion| completion.status)
        .collect()
}

#[test]
fn what_was_flushed_for_an_unknown_reason_ends_with_that_of_the_stream() {
    let mut initiator = half_told();
    initiator.fail_all(WcStatus::RetryExcErr);
    assert_eq!(
        statuses(&mut initiator),
        [WcStatus::RetryExcErr, WcStatus::WrFlushErr]
    );
}

#[test]
fn the_first_of_each_flow_says_why_the_stream_ended() {
    let mut initiator = initiator(HERE, 4096);
    for (cookie, flow) in [(1, 1), (2, 2), (3, 1), (4, 2), (5, 1)] {
        let op = op(cookie, OpKind::Write, 0, 8);
        initiator.push(Op { flow, ..op }).unwrap();
    }
    initiator.fail_all(WcStatus::RetryExcErr);
    let ended: Vec<_> = std::iter::from_fn(|| initiator.poll_completion())
        .map(|completion| (completion.cookie, completion.status))
        .collect();
    let (why, flushed) = (WcStatus::RetryExcErr, WcStatus::WrFlushErr);
    let expected = [(1, why), (2, why), (3, flushed), (4, flushed), (5, flushed)];
    assert_eq!(ended, expected);
}

#[test]
fn what_was_flushed_ends_with_its_reason_once_that_is_heard() {
    let mut initiator = half_told();
    let mut request = initiator.poll_request(20_000_000);
    if request.is_none() {
        initiator.on_tick(1_000_000_000);
        request = initiator.poll_request(1_000_000_000);
    }
    let answer = Response::to(&request.unwrap().request, Status::Access);
    assert_eq!(initiator.on_response(&answer, 0, 3), Incoming::Handled);
    initiator.fail_all(WcStatus::RetryExcErr);
    assert_eq!(
        statuses(&mut initiator),
        [WcStatus::RemAccessErr, WcStatus::WrFlushErr]
    );
}
