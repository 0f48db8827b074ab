// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets drawn from the protocol's grammar: each field is right, at a boundary, or
//! anything. A run with the same seed draws the same, but for captured packets.

use weft_core::dc::wire::{
    Destination, Kind, Message, Operands, Receiver, Request, Response, Status,
};
use weft_core::gid::Gid;
use weft_core::mr::{Keys, Notice, NoticeKind};
use weft_shim::Remote;

use super::network::Capture;
use crate::rng::Rng;

/// The attacker's own address, which is no node's.
pub const OWN: [u8; 4] = [10, 77, 0, 66];
/// The longest payload: what the nodes' network carries in one packet.
const LONGEST: usize = 8900;
/// Requests in one packet, at most.
const TRAIN: usize = 40;

/// A node as a member of the network knows it.
#[derive(Clone, Copy)]
pub struct Target {
    pub addr: [u8; 4],
    pub port: u16,
    pub destination: Destination,
}

/// A packet to send.
pub struct Packet {
    pub kind: &'static str,
    pub from: ([u8; 4], u16),
    pub to: ([u8; 4], u16),
    pub payload: Vec<u8>,
}

/// Draws packets.
pub struct Grammar<'a> {
    rng: Rng,
    targets: &'a [Target],
    /// A region that the attacker may use.
    region: Remote,
    /// A stream of the attacker's own: its token and next PSN.
    stream: (u32, u64, u32),
}

impl<'a> Grammar<'a> {
    pub fn new(rng: Rng, targets: &'a [Target], region: Remote) -> Self {
        Self {
            rng,
            targets,
            region,
            stream: (1, 2, 0),
        }
    }

    /// The next packet.
    pub fn next(&mut self, capture: &Capture) -> Packet {
        let target = self.targets[self.rng.below(self.targets.len())];
        let (from, is_nodes) = self.source(&target);
        // What claims to be another node's has its key right but seldom: see the module.
        let knows = !is_nodes || self.rng.below(16) == 0;
        let (kind, mut payload) = match self.rng.below(16) {
            0..=4 => ("request", self.request(&target, knows)),
            5 | 6 => ("train", self.train(&target, knows)),
            7 => ("stranger's request", self.request(&target, false)),
            8 | 9 => ("response", self.response()),
            10 => ("message", self.message(&target, knows)),
            11 => ("control message", self.control_message(&target, knows)),
            12..=14 if !is_nodes => ("changed capture", self.changed(capture)),
            _ => ("noise", self.noise()),
        };
        if self.rng.below(16) == 0 {
            payload.truncate(self.rng.below(payload.len() + 1));
        }
        payload.truncate(LONGEST);
        Packet {
            kind,
            from,
            to: (target.addr, target.port),
            payload,
        }
    }

    /// Where the packet claims to be from, and whether that is a node.
    fn source(&mut self, target: &Target) -> (([u8; 4], u16), bool) {
        let others = [
            [10, 77, 0, 1],
            [10, 77, 0, 2],
            [10, 77, 0, 3],
            target.addr,
            [10, 77, 0, 200],
            [10, 77, 0, 255],
            [127, 0, 0, 1],
            [224, 0, 0, 1],
            [0, 0, 0, 0],
        ];
        let addr = match self.rng.below(2) {
            0 => OWN,
            _ => others[self.rng.below(others.len())],
        };
        let port = match self.rng.below(3) {
            0 => self.rng.next() as u16,
            _ => target.port,
        };
        let is_node = addr[..3] == [10, 77, 0] && (1..=3).contains(&addr[3]);
        ((addr, port), is_node)
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.below(of.len())]
    }

    fn number(&mut self) -> u32 {
        let any = self.rng.next() as u32;
        self.pick(&[0, 1, 2, 4096, 4097, 1 << 20, u32::MAX - 1, u32::MAX, any])
    }

    fn destination(&mut self, target: &Target, knows: bool) -> Destination {
        let mut destination = target.destination;
        if !knows {
            destination.dct_key ^= 1 + self.rng.next() % u64::from(u32::MAX);
        } else if self.rng.below(8) == 0 {
            match self.rng.below(3) {
                0 => destination.dct_number = self.number(),
                1 => destination.incarnation = self.number(),
                _ => destination = Destination::default(),
            }
        }
        destination
    }

    /// A request's header.
    fn header(&mut self, target: &Target, knows: bool) -> Request {
        let kinds = [
            Kind::Read,
            Kind::Write,
            Kind::Close,
            Kind::CompareSwap,
            Kind::FetchAdd,
            Kind::Send,
            Kind::WriteImm,
        ];
        let kind = self.pick(&kinds);
        if kind == Kind::Close || self.rng.below(50) == 0 {
            self.stream = (self.rng.below(64) as u32, self.rng.next(), 0);
        }
        let (stream, token, next) = self.stream;
        let any = self.number();
        let psn = self.pick(&[next, next, next, next.wrapping_sub(1), next + 1, 0, any]);
        if psn == next {
            self.stream.2 = next.wrapping_add(1);
        }
        let len = [0, 1, 8, 64, 1024, 4096];
        let (len, far) = (self.pick(&len), self.number());
        let place = self.rng.next() % (1 << 16);
        Request {
            kind,
            stream,
            token: if self.rng.below(8) == 0 {
                self.rng.next()
            } else {
                token
            },
            psn,
            destination: self.destination(target, knows),
            flow: self.number() % 8,
            remote_addr: match self.rng.below(8) {
                0 => self.rng.next(),
                _ => self.region.addr.wrapping_add(place),
            },
            rkey: match self.rng.below(4) {
                0 => self.number(),
                _ => self.region.rkey,
            },
            len: if self.rng.below(4) == 0 { far } else { len },
        }
    }

    /// A request with its payload, or with another's.
    fn request(&mut self, target: &Target, knows: bool) -> Vec<u8> {
        let header = self.header(target, knows);
        let mut bytes = header.encode().to_vec();
        if header.kind.has_message() {
            bytes.extend(self.message_header(header.len).encode());
        } else if header.kind.is_atomic() {
            let (compare_add, swap) = (self.rng.next(), self.rng.next());
            bytes.extend(Operands { compare_add, swap }.encode());
        }
        let len = match self.rng.below(8) {
            0 => self.rng.below(2048),
            _ => (header.len as usize).min(4096),
        };
        if !matches!(header.kind, Kind::Read | Kind::Close) {
            bytes.extend(self.rng.bytes(len));
        }
        bytes
    }

    fn train(&mut self, target: &Target, knows: bool) -> Vec<u8> {
        let count = 1 + self.rng.below(TRAIN);
        let mut bytes = Vec::new();
        for _ in 0..count {
            bytes.extend(self.request(target, knows));
        }
        bytes
    }

    fn message_header(&mut self, len: u32) -> Message {
        let (port, total) = (self.number(), self.number());
        Message {
            total: self.pick(&[len, len, total]),
            imm: (self.rng.below(2) == 0).then_some(7),
            to: self.pick(&[
                Receiver::Port(port),
                Receiver::Flow(port % 64),
                Receiver::Node,
            ]),
            sender: Destination {
                dct_number: self.number(),
                dct_key: self.rng.next(),
                incarnation: self.number(),
            },
        }
    }

    fn message(&mut self, target: &Target, knows: bool) -> Vec<u8> {
        let text_len = self.rng.below(256);
        let text = self.rng.bytes(text_len);
        self.send(target, knows, &text)
    }

    /// A SEND of a whole message on a stream of its own.
    fn send(&mut self, target: &Target, knows: bool, text: &[u8]) -> Vec<u8> {
        let len = text.len() as u32;
        let header = Request {
            kind: Kind::Send,
            stream: self.rng.below(64) as u32,
            token: self.rng.next(),
            psn: 0,
            destination: self.destination(target, knows),
            flow: 0,
            remote_addr: 0,
            rkey: 0,
            len,
        };
        let message = Message {
            total: len,
            ..self.message_header(len)
        };
        [&header.encode()[..], &message.encode(), text].concat()
    }

    /// What only nodes write to each other: notices and offers, and what looks like it.
    fn control_message(&mut self, target: &Target, knows: bool) -> Vec<u8> {
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
        let mut bytes = self.send(target, knows, &text);
        // To the node itself, whatever the header drew.
        let to = Message {
            total: text.len() as u32,
            imm: None,
            to: Receiver::Node,
            sender: self.destination(target, true),
        };
        let at = bytes.len() - text.len() - to.encode().len();
        bytes[at..at + to.encode().len()].copy_from_slice(&to.encode());
        bytes
    }

    fn response(&mut self) -> Vec<u8> {
        let statuses = [
            Status::Ok,
            Status::Flushed,
            Status::Invalid,
            Status::Access,
            Status::Sequence,
            Status::NoContext,
            Status::Stale,
            Status::Busy,
            Status::NotReady,
        ];
        let response = Response {
            stream: self.rng.below(64) as u32,
            token: self.rng.next(),
            psn: self.number(),
            status: self.pick(&statuses),
            len: self.number(),
        };
        let len = self.rng.below(2048);
        [&response.encode()[..], &self.rng.bytes(len)].concat()
    }

    /// A genuine packet with bits turned over, cut, or joined with another.
    fn changed(&mut self, capture: &Capture) -> Vec<u8> {
        let Some(mut payload) = capture.pick(self.rng.next()) else {
            return self.noise();
        };
        match self.rng.below(4) {
            0 => {}
            1 => payload.truncate(self.rng.below(payload.len() + 1)),
            2 => payload.extend(capture.pick(self.rng.next()).unwrap_or_default()),
            _ => {
                for _ in 0..=self.rng.below(4) {
                    let (at, bit) = (self.rng.below(payload.len()), self.rng.below(8));
                    payload[at] ^= 1 << bit;
                }
            }
        }
        payload
    }

    fn noise(&mut self) -> Vec<u8> {
        let len = self.rng.below(200);
        self.rng.bytes(len)
    }
}

/// A READ with a key that is wrong, from an address that is nobody's.
pub fn stranger(rng: &mut Rng, target: &Target) -> Packet {
    let header = Request {
        kind: Kind::Read,
        stream: rng.next() as u32,
        token: rng.next(),
        psn: 0,
        destination: Destination {
            dct_key: rng.next(),
            ..target.destination
        },
        flow: 1,
        remote_addr: 0,
        rkey: 1,
        len: 8,
    };
    Packet {
        kind: "stranger's request",
        from: ([10, 77, 0, 200 + rng.below(50) as u8], rng.next() as u16),
        to: (target.addr, target.port),
        payload: header.encode().to_vec(),
    }
}
