// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The frames of SoftDc: a fixed header in network byte order, then payload. A packet
//! has one or several of them, all of one stream.
//!
//! | bytes | request | bytes | response |
//! |---|---|---|---|
//! | 0..2 | magic | 0..2 | magic |
//! | 2 | version | 2 | version |
//! | 3 | kind | 3 | kind |
//! | 4..8 | stream | 4..8 | stream |
//! | 8..16 | token | 8..16 | token |
//! | 16..20 | PSN | 16..20 | PSN |
//! | 20..24 | DC target number | 20 | status |
//! | 24..32 | DC key | 21..24 | zero |
//! | 32..36 | incarnation | 24..28 | payload length |
//! | 36..40 | flow | 28..32 | zero |
//! | 40..48 | remote address | | |
//! | 48..52 | rkey | | |
//! | 52..56 | length | | |
//!
//! A WRITE carries its bytes as payload, an atomic operation its [`Operands`]. What a
//! receiver has to hear of carries a [`Message`] before its bytes; the remote address of
//! a SEND is the bytes' place in the message. The
//! answer to a READ or an atomic operation carries what was there before; words
//! are as they stand in the target's memory.
//!
//! `stream` finds the initiator's state, `token` proves that the answer comes
//! from somebody who saw the request: it is random and new for each stream.

use super::MAX_CHUNK_BYTES;
use crate::vqp::ATOMIC_BYTES;

/// Bytes of a request header.
pub const REQUEST_BYTES: usize = 56;
/// Bytes of a response header.
pub const RESPONSE_BYTES: usize = 32;
const MAGIC: u16 = 0x5744;
const VERSION: u8 = 2;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Asks for bytes of the target's memory.
    Read = 1,
    /// Carries bytes into the target's memory.
    Write = 2,
    /// The initiator will not use the stream again.
    Close = 3,
    /// Compares a word and swaps it if it is equal.
    CompareSwap = 4,
    /// Adds to a word.
    FetchAdd = 5,
    /// Carries bytes of a message to a receiver.
    Send = 6,
    /// Carries the last bytes of a WRITE, and an immediate to a receiver.
    WriteImm = 7,
    /// Answers a request.
    Response = 16,
}

impl Kind {
    /// Whether it changes a word and answers what the word was.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether a [`Message`] follows its header.
    #[must_use]
    pub const fn has_message(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::Close,
            4 => Self::CompareSwap,
            5 => Self::FetchAdd,
            6 => Self::Send,
            7 => Self::WriteImm,
            16 => Self::Response,
            _ => return None,
        })
    }
}

/// How a request fared, in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Executed.
    Ok = 0,
    /// An earlier request of the flow failed; not executed.
    Flushed = 5,
    /// Malformed; not executed.
    Invalid = 9,
    /// Key, range or access wrong; not executed.
    Access = 10,
    /// The receiver could not take it; not executed.
    Operation = 11,
    /// Nobody receives there; not executed.
    NoReceiver = 12,
    /// The target waits for the PSN in this response.
    Sequence = 200,
    /// The target has no context for this stream.
    NoContext = 201,
    /// The target number, key or incarnation is not the target's.
    Stale = 202,
    /// The target cannot take another stream now.
    Busy = 203,
    /// The receiver has no buffer now; the target waits for the same PSN again.
    NotReady = 204,
}

impl Status {
    const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Ok,
            5 => Self::Flushed,
            9 => Self::Invalid,
            10 => Self::Access,
            11 => Self::Operation,
            12 => Self::NoReceiver,
            200 => Self::Sequence,
            201 => Self::NoContext,
            202 => Self::Stale,
            203 => Self::Busy,
            204 => Self::NotReady,
            _ => return None,
        })
    }
}

/// Names a DC target: what a node publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// DC target number.
    pub dct_number: u32,
    /// DC key.
    pub dct_key: u64,
    /// The node's incarnation.
    pub incarnation: u32,
}

/// A request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Anything but [`Kind::Response`].
    pub kind: Kind,
    /// The initiator's name for the stream.
    pub stream: u32,
    /// The stream's secret.
    pub token: u64,
    /// Packet sequence number.
    pub psn: u32,
    /// Whom it is for.
    pub destination: Destination,
    /// The virtual queue pair that it belongs to.
    pub flow: u32,
    /// First byte in the target's memory.
    pub remote_addr: u64,
    /// Key for it.
    pub rkey: u32,
    /// Bytes.
    pub len: u32,
}

/// A response's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// From the request.
    pub stream: u32,
    /// From the request.
    pub token: u64,
    /// From the request, or the awaited one with [`Status::Sequence`].
    pub psn: u32,
    /// How the request fared.
    pub status: Status,
    /// Bytes of payload that follow.
    pub len: u32,
}

/// A packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// From an initiator.
    Request(Request),
    /// From a target.
    Response(Response),
}

impl Request {
    /// A request in its place that the target refuses, and closes the flow for, unless it has
    /// carried out another one in this place: a chunk of a message that follows
    /// [`NO_MESSAGE`]. It is well-formed, so that a repeat is answered in any case.
    pub(super) const fn to_be_refused(self) -> Self {
        Self {
            kind: Kind::Send,
            len: 0,
            rkey: 0,
            remote_addr: 0,
            ..self
        }
    }

    /// Whether its fields are within the protocol's bounds, whatever memory they
    /// name: no chunk is longer than [`MAX_CHUNK_BYTES`], and an atomic operation
    /// has one aligned word.
    #[must_use]
    pub const fn is_well_formed(&self) -> bool {
        let is_word = self.len == ATOMIC_BYTES && self.remote_addr % ATOMIC_BYTES as u64 == 0;
        self.len <= MAX_CHUNK_BYTES && (is_word || !self.kind.is_atomic())
    }

    /// Bytes that follow the header.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        let bytes = self.len as usize;
        match self.kind {
            Kind::Write => bytes,
            Kind::Send | Kind::WriteImm => bytes.saturating_add(MESSAGE_BYTES),
            Kind::CompareSwap | Kind::FetchAdd => OPERAND_BYTES,
            Kind::Read | Kind::Close | Kind::Response => 0,
        }
    }

    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut out = [0; REQUEST_BYTES];
        encode_start(&mut out, self.kind, self.stream, self.token, self.psn);
        out[20..24].copy_from_slice(&self.destination.dct_number.to_be_bytes());
        out[24..32].copy_from_slice(&self.destination.dct_key.to_be_bytes());
        out[32..36].copy_from_slice(&self.destination.incarnation.to_be_bytes());
        out[36..40].copy_from_slice(&self.flow.to_be_bytes());
        out[40..48].copy_from_slice(&self.remote_addr.to_be_bytes());
        out[48..52].copy_from_slice(&self.rkey.to_be_bytes());
        out[52..56].copy_from_slice(&self.len.to_be_bytes());
        out
    }
}

impl Response {
    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; RESPONSE_BYTES] {
        let mut out = [0; RESPONSE_BYTES];
        encode_start(&mut out, Kind::Response, self.stream, self.token, self.psn);
        out[20] = self.status as u8;
        out[24..28].copy_from_slice(&self.len.to_be_bytes());
        out
    }

    /// The answer to `request`, without payload.
    #[must_use]
    pub const fn to(request: &Request, status: Status) -> Self {
        Self {
            stream: request.stream,
            token: request.token,
            psn: request.psn,
            status,
            len: 0,
        }
    }
}

fn encode_start(out: &mut [u8], kind: Kind, stream: u32, token: u64, psn: u32) {
    out[..2].copy_from_slice(&MAGIC.to_be_bytes());
    out[2] = VERSION;
    out[3] = kind as u8;
    out[4..8].copy_from_slice(&stream.to_be_bytes());
    out[8..16].copy_from_slice(&token.to_be_bytes());
    out[16..20].copy_from_slice(&psn.to_be_bytes());
}

/// What an atomic operation works with; its request's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    /// What the word has to be, or what is added to it.
    pub compare_add: u64,
    /// What the word becomes.
    pub swap: u64,
}

/// Bytes of encoded [`Operands`].
pub const OPERAND_BYTES: usize = 16;

impl Operands {
    /// For operations that have none.
    pub const NONE: Self = Self {
        compare_add: 0,
        swap: 0,
    };

    /// The operands as bytes.
    #[must_use]
    pub fn encode(self) -> [u8; OPERAND_BYTES] {
        let mut out = [0; OPERAND_BYTES];
        out[..8].copy_from_slice(&self.compare_add.to_be_bytes());
        out[8..].copy_from_slice(&self.swap.to_be_bytes());
        out
    }

    /// The operands at the start of a payload; `None` if it is too short.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; OPERAND_BYTES] = payload.first_chunk()?;
        Some(Self {
            compare_add: be_u64(bytes, 0),
            swap: be_u64(bytes, 8),
        })
    }
}

/// Who receives a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// Whoever is bound to the port.
    Port(u32),
    /// A virtual queue pair, by its flow.
    Flow(u32),
    /// The node itself.
    Node,
}

/// What a receiver has to know of a message, and how to reach its sender: so
/// accepting costs no look-up (krcore §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Bytes of the whole message, or of the whole WRITE.
    pub total: u32,
    /// The immediate.
    pub imm: Option<u32>,
    /// Whom it is for.
    pub to: Receiver,
    /// The sender's DC target.
    pub sender: Destination,
}

/// Bytes of an encoded [`Message`].
pub const MESSAGE_BYTES: usize = 32;

/// Bytes in place of an encoded [`Message`] that [`Message::decode`] refuses.
pub const NO_MESSAGE: [u8; MESSAGE_BYTES] = [0xff; MESSAGE_BYTES];

const HAS_IMM: u32 = 1;
const TO_FLOW: u32 = 2;
const TO_NODE: u32 = 4;

impl Message {
    /// The message's header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let (to, flag) = match self.to {
            Receiver::Port(port) => (port, 0),
            Receiver::Flow(flow) => (flow, TO_FLOW),
            Receiver::Node => (0, TO_NODE),
        };
        let flags = flag | if self.imm.is_some() { HAS_IMM } else { 0 };
        let mut out = [0; MESSAGE_BYTES];
        out[..4].copy_from_slice(&self.total.to_be_bytes());
        out[4..8].copy_from_slice(&self.imm.unwrap_or(0).to_be_bytes());
        out[8..12].copy_from_slice(&flags.to_be_bytes());
        out[12..16].copy_from_slice(&to.to_be_bytes());
        out[16..20].copy_from_slice(&self.sender.dct_number.to_be_bytes());
        out[20..28].copy_from_slice(&self.sender.dct_key.to_be_bytes());
        out[28..32].copy_from_slice(&self.sender.incarnation.to_be_bytes());
        out
    }

    /// The message's header at the start of a payload; `None` if there is none.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_BYTES] = payload.first_chunk()?;
        let (flags, to) = (be_u32(bytes, 8), be_u32(bytes, 12));
        let to = match flags & !HAS_IMM {
            0 => Receiver::Port(to),
            TO_FLOW => Receiver::Flow(to),
            TO_NODE => Receiver::Node,
            _ => return None,
        };
        Some(Self {
            total: be_u32(bytes, 0),
            imm: (flags & HAS_IMM != 0).then_some(be_u32(bytes, 4)),
            to,
            sender: Destination {
                dct_number: be_u32(bytes, 16),
                dct_key: be_u64(bytes, 20),
                incarnation: be_u32(bytes, 28),
            },
        })
    }
}

/// Bytes that [`decode`] has to see: the shorter header.
pub const MIN_BYTES: usize = RESPONSE_BYTES;

/// Reads a packet's header from its first bytes. `None`: it is not ours, too
/// short, or of another version; such packets are dropped.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Packet> {
    let start: &[u8; RESPONSE_BYTES] = bytes.first_chunk()?;
    if be_u16(start, 0) != MAGIC || start[2] != VERSION {
        return None;
    }
    let (stream, token, psn) = (be_u32(start, 4), be_u64(start, 8), be_u32(start, 16));
    let kind = Kind::from_number(start[3])?;
    if kind == Kind::Response {
        let status = Status::from_number(start[20])?;
        let len = be_u32(start, 24);
        return Some(Packet::Response(Response {
            stream,
            token,
            psn,
            status,
            len,
        }));
    }
    let all: &[u8; REQUEST_BYTES] = bytes.first_chunk()?;
    Some(Packet::Request(Request {
        kind,
        stream,
        token,
        psn,
        destination: Destination {
            dct_number: be_u32(all, 20),
            dct_key: be_u64(all, 24),
            incarnation: be_u32(all, 32),
        },
        flow: be_u32(all, 36),
        remote_addr: be_u64(all, 40),
        rkey: be_u32(all, 48),
        len: be_u32(all, 52),
    }))
}

// The offsets below are constants within arrays of known length.

fn be_u16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be_u32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(word)
}

fn be_u64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(word)
}
