// SPDX-License-Identifier: GPL-2.0 OR MIT

//! An initiator and a target joined by a network that loses, repeats, delays and
//! reorders packets, with a clock that only the test moves.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::super::wire::{
    decode, Destination, Kind, Message, Operands, Packet, Receiver, Request, Response, Status,
    MESSAGE_BYTES,
};
use super::super::*;
use crate::uapi::{Sge, WcStatus, MAX_SGE};

pub(super) const HERE: Destination = Destination {
    dct_number: 7,
    dct_key: 0x1234,
    incarnation: 9,
};
pub(super) const SENDER: Destination = Destination {
    dct_number: 3,
    dct_key: 0x77,
    incarnation: 5,
};
/// A key that the target refuses, and the initiator for memory of its own.
pub(super) const BAD_KEY: u32 = 666;
pub(super) const MEMORY: usize = 64 * 1024;

/// The network's treatment of one packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Deliver,
    Lose,
    Repeat,
    /// Others overtake it.
    Delay,
    /// It comes so many rounds later.
    Late(u64),
    /// It comes now, and once more so many rounds later.
    Echo(u64),
}

/// The longest that a packet is late, in rounds: longer than it takes an initiator to give up.
const MOST_LATE: u64 = 300;

pub(super) fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Deliver),
        1 => Just(Fate::Lose),
        1 => Just(Fate::Repeat),
        1 => Just(Fate::Delay),
        1 => (1..MOST_LATE).prop_map(Fate::Late),
        1 => (1..MOST_LATE).prop_map(Fate::Echo),
    ]
}

pub(super) fn initiator(destination: Destination, chunk_bytes: u32) -> Initiator {
    let mut initiator = Initiator::EMPTY;
    initiator.open(1, 42, SENDER, destination, chunk_bytes);
    initiator
}

/// A header and what follows it.
pub(super) type Sent = (Vec<u8>, Vec<u8>);

pub(super) struct Wire {
    pub(super) packets: VecDeque<Sent>,
    /// Packets that are late, and the rounds in which they come.
    late: Vec<(u64, Sent)>,
    round: u64,
    pub(super) fates: Vec<Fate>,
    pub(super) at: usize,
    /// How often each PSN was lost or late; a chunk of which that happens too often would be
    /// given up.
    pub(super) losses: HashMap<u32, u32>,
}

impl Wire {
    pub(super) fn new(fates: Vec<Fate>) -> Self {
        Self {
            packets: VecDeque::new(),
            late: Vec::new(),
            round: 0,
            fates,
            at: 0,
            losses: HashMap::new(),
        }
    }

    pub(super) fn send(&mut self, header: &[u8], payload: &[u8]) {
        let mut fate = self.fates[self.at % self.fates.len()];
        self.at += 1;
        let is_allowed = match fate {
            Fate::Lose => self.may_miss(header),
            Fate::Late(_) => may_be_late(header) && self.may_miss(header),
            Fate::Echo(_) => may_be_late(header),
            Fate::Deliver | Fate::Repeat | Fate::Delay => true,
        };
        if !is_allowed {
            fate = Fate::Deliver;
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
            Fate::Late(rounds) => self.late.push((self.round + rounds, packet)),
            Fate::Echo(rounds) => {
                self.packets.push_back(packet.clone());
                self.late.push((self.round + rounds, packet));
            }
        }
    }

    /// Whether a packet may be missing for now, which then counts.
    fn may_miss(&mut self, header: &[u8]) -> bool {
        let psn = match decode(header) {
            Some(Packet::Request(request)) => request.psn,
            Some(Packet::Response(response)) => response.psn,
            None => panic!("not a packet"),
        };
        let losses = self.losses.entry(psn).or_default();
        *losses += 1;
        *losses < MAX_TRIES / 2
    }

    /// Another round: what was late until now comes.
    fn next_round(&mut self) {
        self.round += 1;
        let packets = std::mem::take(&mut self.late).into_iter();
        let (due, late): (Vec<_>, _) = packets.partition(|(round, _)| *round <= self.round);
        self.late = late;
        self.packets
            .extend(due.into_iter().map(|(_, packet)| packet));
    }
}

/// Whether a packet may come late without harm. After two timeouts an initiator
/// believes that there is no context, however old the answer is that says so.
fn may_be_late(header: &[u8]) -> bool {
    !matches!(
        decode(header),
        Some(Packet::Response(response)) if response.status == Status::NoContext
    )
}

pub(super) struct Pair {
    pub(super) initiator: Initiator,
    pub(super) contexts: HashMap<u64, Context>,
    pub(super) farewells: Farewells,
    pub(super) local: Vec<u8>,
    pub(super) remote: Vec<u8>,
    pub(super) out: Wire,
    pub(super) back: Wire,
    pub(super) now_ns: u64,
    /// (address, first byte) of each WRITE that was carried out.
    pub(super) executed: Vec<(u64, u8)>,
    pub(super) completions: Vec<Completion>,
    pub(super) requests_sent: usize,
    /// The target's memory can be read.
    pub(super) is_readable: bool,
    /// Receive buffers that the receiver has.
    pub(super) buffers: usize,
    /// Messages that are there, and the one that is coming.
    pub(super) messages: Vec<(Message, Vec<u8>)>,
    pub(super) coming: Vec<u8>,
}

/// A receiver that does not exist.
pub(super) const NOBODY: Receiver = Receiver::Port(404);
/// Longest message that a receive buffer takes.
pub(super) const BUFFER: u32 = 16 * 1024;

impl Pair {
    pub(super) fn new(fates: Vec<Fate>) -> Self {
        Self {
            initiator: initiator(HERE, 1024),
            contexts: HashMap::new(),
            farewells: Farewells::NONE,
            local: (0..6 * MEMORY).map(|i| (i % 251) as u8).collect(),
            remote: vec![0; MEMORY],
            out: Wire::new(fates.clone()),
            back: Wire::new(fates),
            now_ns: 1,
            executed: Vec::new(),
            completions: Vec::new(),
            requests_sent: 0,
            is_readable: true,
            buffers: usize::MAX,
            messages: Vec::new(),
            coming: Vec::new(),
        }
    }

    pub(super) fn transmit(&mut self) {
        while let Some(outgoing) = self.initiator.poll_request(self.now_ns) {
            let (is_usable, psn) = (is_usable(&outgoing), outgoing.request.psn);
            let outgoing = match is_usable {
                true => outgoing,
                false => self.initiator.unusable(psn, WcStatus::LocProtErr),
            };
            let request = outgoing.request;
            let mut payload = Vec::new();
            if request.kind.is_atomic() {
                payload.extend(outgoing.op.operands.encode());
            }
            if let Some(message) = outgoing.message {
                payload.extend(message);
            }
            if matches!(request.kind, Kind::Write | Kind::Send | Kind::WriteImm) {
                gather(&self.local, &outgoing, &mut payload);
            }
            self.requests_sent += 1;
            self.out.send(&request.encode(), &payload);
        }
    }

    /// The receiver takes a chunk, as far as it has a buffer.
    pub(super) fn deliver(&mut self, request: &Request, payload: &[u8]) -> Status {
        let Some(message) = Message::decode(payload) else {
            return Status::Invalid;
        };
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

    pub(super) fn execute(&mut self, request: &Request, payload: &[u8]) -> Status {
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
    pub(super) fn change(&mut self, request: &Request, payload: &[u8]) -> u64 {
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

    pub(super) fn serve(&mut self, request: &Request, payload: &[u8]) {
        if request.destination != HERE {
            return self
                .back
                .send(&Response::to(request, Status::Stale).encode(), &[]);
        }
        if request.kind == Kind::Close {
            let closed = self.contexts.remove(&request.token);
            return closed
                .iter()
                .for_each(|context| self.farewells.note(context));
        }
        let now_ns = self.now_ns;
        let is_over = self.farewells.has(request);
        let context = match self.contexts.entry(request.token) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match Context::open(request, now_ns).filter(|_| !is_over) {
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
        if Context::fetches(request, status) && !self.is_readable {
            let context = self.contexts.get_mut(&request.token).unwrap();
            response.status = context.read_failed(request, verdict);
        } else if Context::fetches(request, status) {
            let from = request.remote_addr as usize;
            bytes = self.remote[from..from + request.len as usize].to_vec();
            response.len = request.len;
        } else if request.kind.is_atomic() && status == Status::Ok {
            let context = &self.contexts[&request.token];
            let Some(old) = context.result(request.psn) else {
                let is_past = before(request.psn, self.initiator.oldest());
                assert!(is_past, "it may be repeated");
                return;
            };
            bytes = old.to_ne_bytes().to_vec();
            response.len = 8;
        }
        self.back.send(&response.encode(), &bytes);
    }

    pub(super) fn receive(&mut self, response: &Response, payload: &[u8]) {
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

    /// The initiator takes the responses that have come.
    pub(super) fn hear(&mut self) {
        while let Some((header, payload)) = self.back.packets.pop_front() {
            match decode(&header) {
                Some(Packet::Response(response)) => self.receive(&response, &payload),
                other => panic!("not a response: {other:?}"),
            }
        }
    }

    /// One round of everything; then the clock moves on.
    pub(super) fn step(&mut self) {
        self.out.next_round();
        self.back.next_round();
        self.transmit();
        while let Some((header, payload)) = self.out.packets.pop_front() {
            match decode(&header) {
                Some(Packet::Request(request)) => self.serve(&request, &payload),
                other => panic!("not a request: {other:?}"),
            }
        }
        self.hear();
        self.completions
            .extend(std::iter::from_fn(|| self.initiator.poll_completion()));
        self.now_ns += RTO_MIN_NS / 2;
        self.initiator.on_tick(self.now_ns);
    }

    /// Until all has ended, and nothing is on its way any more.
    pub(super) fn run(&mut self) {
        self.run_until_idle();
        while !(self.out.late.is_empty() && self.back.late.is_empty()) {
            self.step();
        }
    }

    pub(super) fn run_until_idle(&mut self) {
        for _ in 0..10_000 {
            self.step();
            if self.initiator.is_idle() {
                return;
            }
        }
        panic!("the stream never became idle");
    }
}

/// Whether the local memory of a request may be read.
fn is_usable(outgoing: &Outgoing<'_>) -> bool {
    let mut pieces = outgoing
        .op
        .local
        .pieces(outgoing.offset, outgoing.request.len);
    pieces.all(|sge| sge.lkey != BAD_KEY)
}

/// The bytes that a request carries.
pub(super) fn gather(local: &[u8], outgoing: &Outgoing<'_>, payload: &mut Vec<u8>) {
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
pub(super) fn memory(addr: u64, len: u32) -> Local {
    scattered(&[(addr, len)])
}

pub(super) fn scattered(pieces: &[(u64, u32)]) -> Local {
    Local::Sges(std::array::from_fn::<_, MAX_SGE, _>(|i| {
        let (addr, len) = pieces.get(i).copied().unwrap_or((0, 0));
        Sge { addr, len, lkey: 1 }
    }))
}

pub(super) fn op(cookie: u64, kind: OpKind, at: u64, len: u32) -> Op {
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
pub(super) fn send(cookie: u64, from: u64, len: u32) -> Op {
    Op {
        remote_addr: 0,
        to: Receiver::Port(9),
        local: memory(from, len),
        ..op(cookie, OpKind::Send, 0, len)
    }
}

pub(super) fn fetch_add(cookie: u64, at: u64, local_addr: u64, add: u64) -> Op {
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
