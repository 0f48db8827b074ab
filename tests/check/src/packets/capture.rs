// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the attacker sees of the nodes' packets: genuine ones, which it changes, and
//! the answers to its own requests, from which it learns how far its streams are.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::libc::{c_int, setsockopt, PACKET_IGNORE_OUTGOING, SOL_PACKET};
use nix::sys::socket::{recv, AddressFamily, MsgFlags, SockProtocol};
use weft_core::dc::wire::{decode, Packet, Response, Status, REQUEST_BYTES, RESPONSE_BYTES};

use super::network::{raw_socket, UDP_BYTES};

const ETHERNET_BYTES: usize = 14;
const UDP: u8 = 17;
/// Packets that are kept of those that were captured.
const KEPT: usize = 512;
/// Bytes of a frame that are looked at, and frames that are at a time.
const LONGEST_FRAME: usize = 9216;
const FRAMES: usize = 4096;
/// Streams of the attacker's about which something is known, at most.
const STREAMS: usize = 4096;
/// Answers to the attacker's own requests repeat its tokens, which begin so.
const TAG: u64 = 0x0a77_acce << 32;

/// A token of the attacker's own that ends with these bits.
pub fn own_token(random: u64) -> u64 {
    TAG | random & u64::from(u32::MAX)
}

fn is_own(token: u64) -> bool {
    token & !u64::from(u32::MAX) == TAG
}

/// What the answers say about one of the attacker's streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The PSN that the target waits for.
    pub awaited: u32,
    /// It was sent a PSN that is not its next one.
    pub is_stuck: bool,
    /// The target does not know the stream.
    pub is_unknown: bool,
    /// Requests that were refused, but for those behind a refused one.
    pub failed: u32,
}

impl Progress {
    fn learn(&mut self, response: &Response) {
        match response.status {
            Status::NoContext | Status::Stale | Status::Busy => {
                self.is_unknown |= response.status == Status::NoContext;
                return;
            }
            Status::Sequence | Status::NotReady => {
                self.awaited = self.awaited.max(response.psn);
                self.is_stuck = true;
                return;
            }
            Status::Ok | Status::Flushed => {}
            Status::Invalid | Status::Access | Status::Operation | Status::NoReceiver => {
                self.failed += 1;
            }
        }
        self.awaited = self.awaited.max(response.psn.wrapping_add(1));
    }
}

/// How far the attacker got.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The highest PSN of a request that a target says it has carried out.
    pub deepest: u32,
    /// Answers by what they say.
    pub answers: BTreeMap<String, u64>,
}

#[derive(Default)]
struct Seen {
    kept: VecDeque<Vec<u8>>,
    streams: HashMap<u64, Progress>,
    reach: Reach,
}

impl Seen {
    fn take(&mut self, payload: &[u8]) {
        match decode(payload) {
            Some(Packet::Response(first)) if is_own(first.token) => {
                return self.learn(payload);
            }
            // The attacker's own, or of another protocol.
            Some(Packet::Request(first)) if is_own(first.token) => return,
            None => return,
            Some(_) => {}
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        let mut kept = payload.to_vec();
        spoil_keys(&mut kept);
        self.kept.push_back(kept);
    }

    /// Answers of a target to the attacker, one behind the other.
    fn learn(&mut self, mut payload: &[u8]) {
        while let Some(Packet::Response(response)) = decode(payload) {
            let answers = &mut self.reach.answers;
            *answers.entry(format!("{:?}", response.status)).or_default() += 1;
            if response.status == Status::Ok {
                self.reach.deepest = self.reach.deepest.max(response.psn);
            }
            if self.streams.len() < STREAMS || self.streams.contains_key(&response.token) {
                let progress = self.streams.entry(response.token).or_default();
                progress.learn(&response);
            }
            let end = RESPONSE_BYTES + response.len as usize;
            payload = payload.get(end..).unwrap_or(&[]);
        }
    }
}

/// Spoils the regions' keys in a packet's requests. With a key that it has seen on the
/// path, and the first request of a stream, the attacker could write another's memory, as
/// everybody can who has the key.
fn spoil_keys(packet: &mut [u8]) {
    let mut at = 0;
    while let Some(Packet::Request(mut request)) = packet.get(at..).and_then(decode) {
        request.rkey = !request.rkey;
        packet[at..at + REQUEST_BYTES].copy_from_slice(&request.encode());
        at += REQUEST_BYTES.saturating_add(request.payload_bytes());
    }
}

/// What was seen. It is looked for when it is wanted, by whoever sends: a packet is
/// answered before the call that sends it returns.
pub struct Capture {
    socket: OwnedFd,
    seen: RefCell<Seen>,
}

impl Capture {
    /// On the bridge: of each port, what comes in.
    pub fn start() -> Result<Self> {
        let socket = raw_socket("fabric", AddressFamily::Packet, SockProtocol::EthAll)?;
        ignore_outgoing(&socket).context("PACKET_IGNORE_OUTGOING")?;
        Ok(Self {
            socket,
            seen: RefCell::default(),
        })
    }

    /// Takes what has come since the last time.
    fn look(&self) -> RefMut<'_, Seen> {
        let mut seen = self.seen.borrow_mut();
        let mut frame = [0; LONGEST_FRAME];
        for _ in 0..FRAMES {
            let Ok(len) = recv(self.socket.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT) else {
                break;
            };
            if let Some(payload) = udp_payload(&frame[..len]) {
                seen.take(payload);
            }
        }
        seen
    }

    /// One of the genuine packets.
    pub fn pick(&self, chosen: u64) -> Option<Vec<u8>> {
        let seen = self.seen.borrow();
        let at = chosen as usize % seen.kept.len().max(1);
        seen.kept.get(at).cloned()
    }

    /// What is known of one of the attacker's streams; that it is stuck is told once.
    pub fn progress(&self, token: u64) -> Progress {
        let mut seen = self.look();
        let Some(progress) = seen.streams.get_mut(&token) else {
            return Progress::default();
        };
        let told = *progress;
        progress.is_stuck = false;
        told
    }

    /// The attacker has given a stream up.
    pub fn forget(&self, token: u64) {
        self.seen.borrow_mut().streams.remove(&token);
    }

    /// How far the attacker got.
    pub fn reach(&self) -> Reach {
        self.look().reach.clone()
    }
}

/// The socket sees a packet that is forwarded once, when it comes in.
fn ignore_outgoing(socket: &OwnedFd) -> Result<(), Errno> {
    let on: c_int = 1;
    // SAFETY: the call reads one integer, which lives as long as the call.
    let done = unsafe {
        setsockopt(
            socket.as_raw_fd(),
            SOL_PACKET,
            PACKET_IGNORE_OUTGOING,
            (&raw const on).cast(),
            size_of::<c_int>() as u32,
        )
    };
    Errno::result(done).map(drop)
}

/// The payload of an Ethernet frame, if it is UDP over IPv4 and no fragment.
fn udp_payload(frame: &[u8]) -> Option<&[u8]> {
    let ip = frame.get(ETHERNET_BYTES..)?;
    let is_ipv4 = frame.get(12..14)? == [8, 0];
    let header = usize::from(ip.first()? & 0xf) * 4;
    let fragment = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x3fff;
    if !is_ipv4 || *ip.get(9)? != UDP || fragment != 0 {
        return None;
    }
    ip.get(header + UDP_BYTES..)
        .filter(|payload| !payload.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::dc::wire::{Destination, Kind, Request};

    #[test]
    fn each_requests_key_is_spoilt_and_nothing_else() {
        let write = Request {
            kind: Kind::Write,
            stream: 1,
            token: 2,
            psn: 0,
            destination: Destination::default(),
            flow: 3,
            remote_addr: 4,
            rkey: 5,
            len: 6,
        };
        let read = Request {
            kind: Kind::Read,
            psn: 1,
            ..write
        };
        let with = |rkey| {
            let [write, read] = [write, read].map(|request| Request { rkey, ..request }.encode());
            [&write[..], b"bytes.", &read, b"rest"].concat()
        };
        let mut packet = with(5);
        spoil_keys(&mut packet);
        assert_eq!(packet, with(!5));
    }
}
