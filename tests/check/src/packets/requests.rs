// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requests among the packets: of streams that go on, and messages on streams of
//! their own.

use weft_core::dc::wire::{Destination, Kind, Message, Operands, Receiver, Request};
use weft_core::gid::Gid;
use weft_core::mr::{Keys, Notice, NoticeKind};

use super::capture::own_token;
use super::grammar::Grammar;
use super::streams::message;

/// Bytes of the attacker's region.
pub const REGION: usize = 1 << 16;
/// Most requests are of these kinds; the first ones need no receiver.
const KINDS: [Kind; 8] = [
    Kind::Read,
    Kind::Write,
    Kind::CompareSwap,
    Kind::FetchAdd,
    Kind::Send,
    Kind::Send,
    Kind::Send,
    Kind::WriteImm,
];
const ONE_SIDED: usize = 4;
/// One request in so many is not of the stream of those before it in the packet, whose
/// end it is.
const STRAY: usize = 500;
/// One request in so many ends its stream.
const CLOSE: usize = 2000;

/// From where a request goes to which node.
#[derive(Clone, Copy)]
pub(super) struct Course {
    pub(super) node: usize,
    /// Which of the attacker's streams to that node it is of.
    pub(super) source: usize,
    /// Whether it has the node's key.
    pub(super) knows: bool,
}

impl Grammar<'_> {
    /// So many requests of one stream, but seldom of another in between.
    pub(super) fn requests(&mut self, course: Course, count: usize) -> Vec<u8> {
        let (capture, rng) = (self.capture, &mut self.rng);
        self.streams[course.node][course.source].catch_up(rng, capture);
        let former = self.streams[course.node][course.source];
        let destination = self.destination(course);
        let mut bytes = Vec::new();
        for _ in 0..count {
            let destination = match self.rng.below(STRAY) {
                0 => self.destination(course),
                _ => destination,
            };
            self.request(course, destination, &mut bytes);
        }
        if destination != self.prey[course.node].target.destination {
            self.streams[course.node][course.source] = former;
        }
        bytes
    }

    /// Whom requests name.
    fn destination(&mut self, course: Course) -> Destination {
        let mut destination = self.prey[course.node].target.destination;
        if !course.knows {
            destination.dct_key ^= 1 + self.rng.next() % u64::from(u32::MAX);
        } else if self.rng.below(24) == 0 {
            match self.rng.below(3) {
                0 => destination.dct_number = self.number(),
                1 => destination.incarnation = self.number(),
                _ => destination = Destination::default(),
            }
        }
        destination
    }

    /// Adds a request with its payload, or with another's.
    fn request(&mut self, course: Course, destination: Destination, bytes: &mut Vec<u8>) {
        let (mut header, in_turn) = self.header(course, destination);
        let (rng, prey) = (&mut self.rng, &self.prey[course.node]);
        let message = match header.kind {
            Kind::Send if in_turn => {
                let stream = &mut self.streams[course.node][course.source];
                Some(stream.chunk(rng, prey, &mut header))
            }
            Kind::Send => Some(message(rng, prey, header.len)),
            Kind::WriteImm => Some(message(rng, prey, header.len)),
            _ => None,
        };
        bytes.extend(header.encode());
        if let Some(message) = message {
            bytes.extend(message.encode());
        } else if header.kind.is_atomic() {
            let (compare_add, swap) = (rng.next(), rng.next());
            bytes.extend(Operands { compare_add, swap }.encode());
        }
        if matches!(header.kind, Kind::Write | Kind::Send | Kind::WriteImm) {
            let len = match rng.below(250) {
                0 => rng.below(2048),
                _ => (header.len as usize).min(5000),
            };
            bytes.extend(rng.bytes(len));
        }
    }

    /// A request's header, and whether it is the stream's next one.
    fn header(&mut self, course: Course, destination: Destination) -> (Request, bool) {
        let kind = match self.rng.below(CLOSE) {
            0 => Kind::Close,
            _ => self.pick(&KINDS),
        };
        let is_heard = self.prey[course.node].port.is_some() || self.rng.below(8) == 0;
        let kind = match kind {
            Kind::Send | Kind::WriteImm if !is_heard => self.pick(&KINDS[..ONE_SIDED]),
            kind => kind,
        };
        let far = self.number();
        let (rng, prey) = (&mut self.rng, &self.prey[course.node]);
        let stream = &mut self.streams[course.node][course.source];
        let ((number, token), (psn, in_turn)) = (stream.name(), stream.psn(rng));
        let flow = stream.flow(rng);
        let len = match rng.below(64) {
            0 => far,
            _ if kind.is_atomic() => 8,
            _ => [0, 1, 8, 64, 64, 200, 1024, 4096][rng.below(8)],
        };
        let mut place = rng.below(REGION) as u64;
        if kind.is_atomic() && rng.below(16) != 0 {
            place &= !7;
        }
        let header = Request {
            kind,
            stream: number,
            token: match rng.below(STRAY) {
                0 => own_token(rng.next()),
                _ => token,
            },
            psn,
            destination,
            flow,
            remote_addr: match rng.below(16) {
                0 => rng.next(),
                _ => prey.region.addr.wrapping_add(place),
            },
            rkey: match rng.below(16) {
                0 => far,
                _ => prey.region.rkey,
            },
            len,
        };
        if kind == Kind::Close {
            stream.restart(rng, self.capture);
        }
        (header, in_turn)
    }

    /// A message that has a stream of its own.
    pub(super) fn message(&mut self, course: Course) -> Vec<u8> {
        let len = self.rng.below(256);
        let text = self.rng.bytes(len);
        let header = message(&mut self.rng, &self.prey[course.node], len as u32);
        self.send(course, header, &text)
    }

    /// A SEND of a whole message on a stream of its own.
    fn send(&mut self, course: Course, message: Message, text: &[u8]) -> Vec<u8> {
        let header = Request {
            kind: Kind::Send,
            stream: self.rng.below(64) as u32,
            token: own_token(self.rng.next()),
            psn: 0,
            destination: self.destination(course),
            flow: 1,
            remote_addr: 0,
            rkey: 0,
            len: text.len() as u32,
        };
        [&header.encode()[..], &message.encode(), text].concat()
    }

    /// What only nodes write to each other: notices and offers, and what looks like it.
    pub(super) fn control_message(&mut self, course: Course) -> Vec<u8> {
        let mut keys = Keys::NONE;
        for _ in 0..self.rng.below(15) {
            keys.push(self.number());
        }
        let kind = if self.rng.below(2) == 0 {
            NoticeKind::Unused
        } else {
            NoticeKind::Gone(keys)
        };
        let notice = Notice {
            token: self.rng.next(),
            seq: self.rng.next() % 8,
            kind,
        };
        let mut text = notice.encode().to_vec();
        if self.rng.below(2) == 0 {
            // An offer begins as a notice does, with another magic number; GID and numbers
            // follow where they may.
            text.truncate(64);
            text[3] = b"rkhRKH"[self.rng.below(6)];
            text[8..24].copy_from_slice(&Gid::from_ipv4([10, 77, 0, 1]).0);
        }
        let header = Message {
            total: text.len() as u32,
            imm: None,
            to: Receiver::Node,
            sender: self.destination(Course {
                knows: true,
                ..course
            }),
        };
        self.send(course, header, &text)
    }
}
