// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer that lies: the attacker gets the requests of a user whose VQP is connected to
//! it, tokens and all, and answers them with anything: other lengths, other PSNs, all
//! statuses, twice, in trains, in fragments.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use anyhow::Result;
use weft_core::dc::wire::{
    self, Destination, Kind, Message, Packet as Decoded, Receiver, Request, Response, Status,
    REQUEST_BYTES,
};
use weft_core::dc::WINDOW;

use super::grammar::{Packet, Target, STATUSES};
use super::network::{in_namespace, Sender, FRAGMENT_UNIT};
use super::victim::PORT;
use crate::rng::Rng;
use crate::world::system;

/// The liar's address: node 2's namespace has it, but no RDMA device.
const ADDRESS: [u8; 4] = [10, 77, 0, 77];
/// Each byte that it gives as an answer.
pub const LIE: u8 = 0xa5;

/// The peer.
pub struct Liar {
    socket: UdpSocket,
    raw: Sender,
    /// The victim's node.
    to: Target,
    /// What it calls itself.
    name: Destination,
    /// Requests that it was sent last.
    heard: VecDeque<Request>,
    rng: Rng,
}

impl Liar {
    pub fn new(to: Target, seed: u64) -> Result<Self> {
        let address = Ipv4Addr::from(ADDRESS);
        system(&format!("ip -n n2 address replace {address}/32 dev lo"))?;
        let bind = || {
            let socket = UdpSocket::bind(SocketAddrV4::new(address, to.port))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        Ok(Self {
            socket: in_namespace("n2", bind)?,
            raw: Sender::new()?,
            to,
            name: Destination::default(),
            heard: VecDeque::new(),
            rng: Rng::new(seed),
        })
    }

    /// Sends the victim a message from someone it has not met, so that it can connect.
    pub fn introduce_itself(&mut self) -> Result<()> {
        self.name = Destination {
            dct_number: self.rng.next() as u32,
            dct_key: self.rng.next(),
            incarnation: self.rng.next() as u32,
        };
        let header = Request {
            kind: Kind::Send,
            stream: 1,
            token: self.rng.next(),
            psn: 0,
            destination: self.to.destination,
            flow: 1 + self.rng.below(1000) as u32,
            remote_addr: 0,
            rkey: 0,
            len: 0,
        };
        let message = Message {
            total: 0,
            imm: None,
            to: Receiver::Port(PORT),
            sender: self.name,
        };
        self.say([&header.encode()[..], &message.encode()].concat(), false)
    }

    /// Answers what has come.
    pub fn answer_all(&mut self) -> Result<()> {
        let mut packet = vec![0; 1 << 16];
        while let Ok(len) = self.socket.recv(&mut packet) {
            let mut frames = Vec::new();
            let mut rest = &packet[..len];
            while let Some(Decoded::Request(request)) = wire::decode(rest) {
                if self.heard.len() == WINDOW {
                    self.heard.pop_front();
                }
                self.heard.push_back(request);
                frames.extend(self.lie(&request)?);
                let end = REQUEST_BYTES + request.payload_bytes();
                rest = rest.get(end..).unwrap_or(&[]);
            }
            let (together, many) = (self.rng.below(2) == 0, self.rng.below(12) == 0);
            if many {
                // Longer than the network carries in one packet.
                let longer = frames.iter().cycle().take(40 * frames.len());
                frames = longer.cloned().collect();
            }
            let packets = if together {
                vec![frames.concat()]
            } else {
                frames
            };
            for packet in packets {
                let in_pieces = self.rng.below(6) == 0;
                self.say(packet, in_pieces)?;
            }
        }
        Ok(())
    }

    /// Frames that answer a request, or do not.
    fn lie(&mut self, request: &Request) -> Result<Vec<Vec<u8>>> {
        let wanted = match request.kind {
            Kind::Read | Kind::CompareSwap | Kind::FetchAdd => request.len,
            _ => 0,
        };
        let truth = Response {
            len: wanted,
            ..Response::to(request, Status::Ok)
        };
        let any = self.rng.next() as u32;
        let other = self.rng.below(self.heard.len());
        let older = self.heard.get(other).copied().unwrap_or(*request);
        let mut response = truth;
        match self.rng.below(32) {
            0..=18 => {}
            19..=21 => response.status = STATUSES[any as usize % STATUSES.len()],
            22 => response.len = [0, 1, 4096, 4097, 1 << 20, u32::MAX, any][any as usize % 7],
            23 => response.len = wanted.wrapping_add(any % 17).wrapping_sub(8),
            24 => {
                response.psn = truth
                    .psn
                    .wrapping_add([1, 63, 64, 1 << 31][any as usize % 4])
            }
            25 => response.psn = truth.psn.wrapping_sub(1 + any % 70),
            26 => response.token ^= 1 << (any % 64),
            27 => response.stream ^= 1 << (any % 32),
            28 => return Ok(Vec::new()),
            29 => return Ok(vec![frame(truth, wanted); 2]),
            30 => {
                response = Response {
                    len: wanted,
                    ..Response::to(&older, truth.status)
                }
            }
            _ => {
                // Alone: in a train its bytes would be the next frame.
                self.say(frame(truth, any % (wanted + 1)), false)?;
                return Ok(Vec::new());
            }
        }
        Ok(vec![frame(response, response.len.min(6000))])
    }

    /// Sends a packet: by the kernel, which cuts it if it is too long, or in pieces.
    fn say(&mut self, payload: Vec<u8>, in_pieces: bool) -> Result<()> {
        let (to, port) = (self.to.addr, self.to.port);
        let longest = 60_000.min(payload.len());
        if !in_pieces {
            let to = SocketAddrV4::new(to.into(), port);
            self.socket.send_to(&payload[..longest], to)?;
            return Ok(());
        }
        let units = 1 + self.rng.below(40) + longest / 400;
        self.raw.send(&Packet {
            kind: "lie",
            from: (ADDRESS, port),
            to: (to, port),
            payload: payload[..longest].to_vec(),
            fragment: Some(units * FRAGMENT_UNIT),
        });
        Ok(())
    }
}

/// A response with so many bytes behind it.
fn frame(header: Response, bytes: u32) -> Vec<u8> {
    let mut frame = header.encode().to_vec();
    frame.resize(frame.len() + bytes as usize, LIE);
    frame
}
