// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets drawn from the protocol's grammar: each field is right, at a boundary, or
//! anything. What is drawn follows from the seed, and from what the attacker captures.

use weft_core::dc::wire::{Destination, Kind, Request, Response, Status};
use weft_shim::{MemoryRegion, Remote};

use super::capture::{own_token, Capture};
use super::network::{FRAGMENT_UNIT, UDP_BYTES};
use super::requests::Course;
use super::streams::Stream;
use crate::rng::Rng;

/// The attacker's own addresses, which are no node's.
pub const OWN: [[u8; 4]; 2] = [[10, 77, 0, 66], [10, 77, 0, 67]];
/// Endpoints of the attacker's: each address with a node's port, the first with another.
const ENDPOINTS: usize = OWN.len() + 1;
/// Another port than that of nodes.
const OTHER_PORT: u16 = 40_066;
/// The longest payload of one piece: what the nodes' network carries in one packet.
const LONGEST: usize = 8900;
/// The longest payload of a packet that goes in fragments, mostly; and at most.
const LONG: usize = 12_000;
const LONGEST_FRAGMENTED: usize = 60_000;
/// A port that somebody is bound to who has no buffers. Nobody is bound to the next one.
pub const STARVED: u32 = 950;
/// Requests in one packet, at most: more than are looked at.
const TRAIN: usize = 80;
/// Fragments of a packet, at most.
const FRAGMENTS: usize = 64;

/// All that a response can say.
pub const STATUSES: [Status; 11] = [
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

/// A node as a member of the network knows it.
#[derive(Clone, Copy)]
pub struct Target {
    pub addr: [u8; 4],
    pub port: u16,
    pub destination: Destination,
}

/// A node, and what of it the attacker may use.
pub struct Prey {
    pub target: Target,
    /// A region, and its memory if it is this process's.
    pub region: Remote,
    pub memory: Option<MemoryRegion>,
    /// A port that somebody receives at.
    pub port: Option<u32>,
}

/// A packet to send.
pub struct Packet {
    pub kind: &'static str,
    pub from: ([u8; 4], u16),
    pub to: ([u8; 4], u16),
    pub payload: Vec<u8>,
    /// Bytes of each IP fragment, if it goes in such.
    pub fragment: Option<usize>,
}

impl Packet {
    /// Whether it goes in more than one piece.
    pub fn is_in_fragments(&self) -> bool {
        let datagram = UDP_BYTES + self.payload.len();
        self.fragment.is_some_and(|bytes| bytes < datagram)
    }
}

/// Draws packets.
pub struct Grammar<'a> {
    pub(super) rng: Rng,
    pub(super) prey: &'a [Prey],
    pub(super) capture: &'a Capture,
    /// For each node, streams from the attacker's endpoints and one from other addresses.
    pub(super) streams: Vec<[Stream; ENDPOINTS + 1]>,
}

/// Where a packet claims to be from.
struct Source {
    endpoint: ([u8; 4], u16),
    /// Which of the attacker's endpoints it is; the number behind those for any other.
    number: usize,
    is_node: bool,
}

impl<'a> Grammar<'a> {
    pub fn new(mut rng: Rng, prey: &'a [Prey], capture: &'a Capture) -> Self {
        let mut streams = || std::array::from_fn(|_| Stream::new(&mut rng));
        let streams = prey.iter().map(|_| streams()).collect();
        Self {
            rng,
            prey,
            capture,
            streams,
        }
    }

    /// The next packet.
    pub fn next(&mut self) -> Packet {
        let node = self.rng.below(self.prey.len());
        let target = self.prey[node].target;
        let source = self.source(&target);
        let course = Course {
            node,
            source: source.number,
            // What claims to be another node's has its key right but seldom: see the
            // module.
            knows: !source.is_node || self.rng.below(16) == 0,
        };
        let stranger = Course {
            knows: false,
            ..course
        };
        let former = self.streams[node][source.number];
        let (kind, mut payload) = match self.rng.below(16) {
            0..=4 => ("request", self.requests(course, 1)),
            5..=8 => ("train", self.train(course)),
            9 => ("stranger's request", self.requests(stranger, 1)),
            10 => ("response", self.response()),
            11 => ("message", self.message(course)),
            12 => ("control message", self.control_message(course)),
            13 | 14 if !source.is_node => ("changed capture", self.changed()),
            _ => ("noise", self.noise()),
        };
        let len = payload.len();
        if self.rng.below(24) == 0 {
            payload.truncate(self.rng.below(len + 1));
        }
        let fragment = self.fragment(&mut payload);
        if payload.len() < len || kind == "stranger's request" {
            // The target will not carry it out, or not all of it.
            self.streams[node][source.number] = former;
        }
        Packet {
            kind,
            from: source.endpoint,
            to: (target.addr, target.port),
            payload,
            fragment,
        }
    }

    /// Where the packet claims to be from.
    fn source(&mut self, target: &Target) -> Source {
        if self.rng.below(4) != 0 {
            let number = self.rng.below(ENDPOINTS);
            let port = if number < OWN.len() {
                target.port
            } else {
                OTHER_PORT
            };
            return Source {
                endpoint: (OWN[number % OWN.len()], port),
                number,
                is_node: false,
            };
        }
        let addr = self.pick(&[
            [10, 77, 0, 1],
            [10, 77, 0, 2],
            [10, 77, 0, 3],
            target.addr,
            [10, 77, 0, 200],
            [10, 77, 0, 255],
            [127, 0, 0, 1],
            [224, 0, 0, 1],
            [0, 0, 0, 0],
        ]);
        let port = match self.rng.below(3) {
            0 => self.rng.next() as u16,
            _ => target.port,
        };
        Source {
            endpoint: (addr, port),
            number: ENDPOINTS,
            // Raw sockets put the sender's own address, node 2's, in place of none.
            is_node: addr == [0; 4] || addr[..3] == [10, 77, 0] && (1..=3).contains(&addr[3]),
        }
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.below(of.len())]
    }

    pub(super) fn number(&mut self) -> u32 {
        let any = self.rng.next() as u32;
        self.pick(&[0, 1, 2, 4096, 4097, 1 << 20, u32::MAX - 1, u32::MAX, any])
    }

    fn train(&mut self, course: Course) -> Vec<u8> {
        let longest = TRAIN >> self.rng.below(4);
        let count = 1 + self.rng.below(longest);
        self.requests(course, count)
    }

    /// Whether the packet goes in fragments; it is cut to what may go so.
    fn fragment(&mut self, payload: &mut Vec<u8>) -> Option<usize> {
        if self.rng.below(6) != 0 {
            payload.truncate(LONGEST);
            return None;
        }
        payload.truncate(match self.rng.below(8) {
            0 => LONGEST_FRAGMENTED,
            _ => LONG,
        });
        let bytes = self.pick(&[1, 2, 7, 11, 32, 185, 1100]) * FRAGMENT_UNIT;
        let least = payload.len() / FRAGMENTS / FRAGMENT_UNIT + 1;
        Some(bytes.max(least * FRAGMENT_UNIT))
    }

    fn response(&mut self) -> Vec<u8> {
        let response = Response {
            stream: self.rng.below(64) as u32,
            token: self.rng.next(),
            psn: self.number(),
            status: self.pick(&STATUSES),
            len: self.number(),
        };
        let len = self.rng.below(2048);
        [&response.encode()[..], &self.rng.bytes(len)].concat()
    }

    /// A genuine packet with bits turned over, cut, or joined with another.
    fn changed(&mut self) -> Vec<u8> {
        let Some(mut payload) = self.capture.pick(self.rng.next()) else {
            return self.noise();
        };
        match self.rng.below(4) {
            0 => {}
            1 => payload.truncate(self.rng.below(payload.len() + 1)),
            2 => payload.extend(self.capture.pick(self.rng.next()).unwrap_or_default()),
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
        token: own_token(rng.next()),
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
        fragment: None,
    }
}
