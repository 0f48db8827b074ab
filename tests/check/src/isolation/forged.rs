// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets of the software DC transport that come from a user's UDP socket. What
//! a user is told of a node is not enough to talk to its DC target, and what it
//! sees is not enough to answer in another's name.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use nix::sys::socket::sockopt::{ReuseAddr, ReusePort};
use nix::sys::socket::{bind as bind_socket, setsockopt, socket};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn};
use weft_core::dc::wire::{decode, Destination, Kind, Message, Packet, Receiver, Request};
use weft_core::dc::wire::{Response, Status};

use super::attacker::{refusal, unanimous, Outcome, Stage};
use super::victim::Part;
use crate::world::gid;

/// DC keys that are guessed.
const KEYS: usize = 200;
const STREAMS: u32 = 64;
const FLOWS: u32 = 200;
/// How long an answer may take, and how often is asked meanwhile: a target refuses at a
/// bounded rate, and an initiator repeats its requests.
const PATIENCE: Duration = Duration::from_millis(50);
const TRIES: usize = 200;

/// Whom the packets are for.
pub struct Aim {
    pub socket: UdpSocket,
    to: SocketAddrV4,
    pub request: Request,
}

impl Aim {
    /// At the victim's node. All but the DC key is as it should be.
    pub fn take(stage: &Stage, part: Part, kind: Kind) -> Result<Self> {
        let node = stage.device.lookup(gid(0))?;
        let socket = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let place = stage.told.place(part);
        let request = Request {
            kind,
            stream: 1,
            token: 1,
            psn: 0,
            destination: Destination {
                dct_number: node.dct_number,
                dct_key: 0,
                incarnation: node.incarnation,
            },
            flow: 1,
            remote_addr: place.addr + 64,
            rkey: place.rkey,
            len: 8,
        };
        Ok(Self {
            socket,
            to: SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), node.udp_port as u16),
            request,
        })
    }

    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        let sent = self.socket.send_to(bytes, self.to)?;
        ensure!(
            sent == bytes.len(),
            "{sent} bytes of {} were sent",
            bytes.len()
        );
        Ok(())
    }

    /// What the target says to a packet with this request, twice, by this DC key.
    fn ask(&self, dct_key: u64, payload: &[u8]) -> Result<Outcome> {
        let mut request = self.request;
        request.destination.dct_key = dct_key;
        let mut second = request;
        second.psn += 1;
        let packet = [&request.encode()[..], payload, &second.encode(), payload].concat();
        let mut answer = [0; 256];
        let mut ask = || {
            self.send(&packet)?;
            Ok::<_, anyhow::Error>(self.socket.recv(&mut answer)?)
        };
        let heard = (0..TRIES).find_map(|_| ask().ok());
        let len = heard.context("no answer")?;
        match decode(&answer[..len]).context("an answer of something else")? {
            Packet::Response(response) if response.status == Status::Stale && response.len == 0 => {
                Ok(Outcome::Said("Stale"))
            }
            other => bail!("the target answers {other:?}"),
        }
    }
}

pub fn write(stage: &mut Stage) -> Result<Outcome> {
    let aim = Aim::take(stage, Part::Writable, Kind::Write)?;
    unanimous([0, 1, u64::MAX].map(|key| aim.ask(key, &[1; 8])))
}

pub fn guessed_reads(stage: &mut Stage) -> Result<Outcome> {
    let aim = Aim::take(stage, Part::Readable, Kind::Read)?;
    let mut rng = stage.rng();
    unanimous((0..KEYS).map(|_| aim.ask(rng.next(), &[])))
}

/// Messages to ports and flows as they are numbered, and to the node itself.
pub fn messages(stage: &mut Stage) -> Result<Outcome> {
    let mut aim = Aim::take(stage, Part::Writable, Kind::Send)?;
    let ports = stage.told.ports.map(Receiver::Port);
    let to = (0..FLOWS)
        .map(Receiver::Flow)
        .chain(ports)
        .chain([Receiver::Node]);
    let mut rng = stage.rng();
    unanimous(to.map(|to| {
        let message = Message {
            total: 8,
            imm: None,
            to,
            sender: aim.request.destination,
        };
        let payload = [&message.encode()[..], &[1; 8]].concat();
        aim.request.remote_addr = 0;
        aim.request.rkey = 0;
        aim.ask(rng.next(), &payload)
    }))
}

/// To streams as they are numbered, in every way that ends something.
pub fn answers(stage: &mut Stage) -> Result<Outcome> {
    let aim = Aim::take(stage, Part::Readable, Kind::Read)?;
    let mut rng = stage.rng();
    let ways = [
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
    for stream in 0..STREAMS {
        for status in ways {
            let request = Request {
                stream,
                token: rng.next(),
                psn: rng.next() as u32 % 256,
                ..aim.request
            };
            let one = Response::to(&request, status).encode();
            aim.send(&[one, one].concat())?;
        }
    }
    Ok(Outcome::Said("no effect"))
}

pub fn closes(stage: &mut Stage) -> Result<Outcome> {
    let mut aim = Aim::take(stage, Part::Readable, Kind::Close)?;
    aim.socket
        .set_read_timeout(Some(Duration::from_millis(1)))?;
    let mut rng = stage.rng();
    for stream in 0..STREAMS {
        aim.request.stream = stream;
        aim.request.token = rng.next();
        aim.send(&aim.request.encode())?;
    }
    Ok(Outcome::Said("no effect"))
}

/// Whoever has a node's port gets its packets.
pub fn bind(stage: &mut Stage) -> Result<Outcome> {
    let home = gid(stage.home());
    let port = stage.device.lookup(home)?.udp_port as u16;
    let addresses = [
        Ipv4Addr::new(10, 77, 0, stage.home() + 1),
        Ipv4Addr::UNSPECIFIED,
    ];
    unanimous(addresses.map(|addr| {
        let fd = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        )?;
        setsockopt(&fd, ReuseAddr, &true)?;
        setsockopt(&fd, ReusePort, &true)?;
        let to = SockaddrIn::from(SocketAddrV4::new(addr, port));
        Ok(refusal(bind_socket(fd.as_raw_fd(), &to)))
    }))
}
