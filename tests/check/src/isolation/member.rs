// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a member of the network can do who knows a DC target's number and key. Whoever may
//! use verbs can READ them in a meta server's table, so all attackers are told. The packets
//! come from sockets of their own; root on node 1 can also send from that node's own port.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{ensure, Result};
use nix::sys::socket::{
    sendto, socket, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn,
};
use nix::unistd::Uid;
use weft_core::dc::wire::{Destination, Kind, Message, Receiver, Request};
use weft_core::kv::Geometry;
use weft_core::mr::{BlockSize, Keys, Notice, NoticeKind};
use weft_core::rc::{Hello, Role};
use weft_shim::Device;
use weft_testkit::pace::patient;

use super::attacker::{Outcome, Stage};
use super::crowd::Crowd;
use super::forged::Aim;
use super::scene::{live, DOWN};
use super::users::with_reserve;
use super::victim::Part;
use crate::packets::{self, Target};
use crate::rc;
use crate::world::gid;

/// Packets of each kind.
const PACKETS: u32 = 200;
/// Contexts that are asked for, each by a stream of its own.
const CONTEXTS: u32 = 20_000;
/// After so many of them there is a pause: the kernel keeps a thousand packets that no
/// softirq has come to yet, and drops the others.
const BURST: u32 = 250;
const PAUSE: Duration = Duration::from_millis(10);
/// The queue pair that is offered: no peer has it.
pub const FORGED_QPN: u32 = 17;
const UDP_BYTES: usize = 8;
const NO_EFFECT: Result<Outcome> = Ok(Outcome::Said("no effect"));

/// What an attacker knows and has as a member of the network.
pub struct Member {
    /// What the meta server's table says of nodes 0 and 1.
    targets: [Target; 2],
    /// A socket of a third host: what it does counts for that host's address, not for the
    /// victim's.
    elsewhere: UdpSocket,
}

impl Member {
    /// To be called with all privileges.
    pub fn new() -> Result<Self> {
        Ok(Self {
            targets: [packets::target(0)?, packets::target(1)?],
            elsewhere: packets::in_namespace("n2", || {
                Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?)
            })?,
        })
    }
}

/// The victim's node as the attacker knows it.
fn aim(stage: &Stage, kind: Kind) -> Result<Aim> {
    let mut aim = Aim::take(stage, Part::Readable, kind)?;
    aim.request.destination = stage.member.targets[0].destination;
    Ok(aim)
}

/// A DC target that is none.
fn nobodys(key: u64) -> Destination {
    Destination {
        dct_number: 1,
        dct_key: key,
        incarnation: 1,
    }
}

/// A message to the node itself, in the name of this target.
fn control_message(aim: &Aim, token: u64, sender: Destination, text: &[u8]) -> Vec<u8> {
    let len = text.len() as u32;
    let request = Request {
        token,
        psn: 0,
        remote_addr: 0,
        rkey: 0,
        len,
        ..aim.request
    };
    let message = Message {
        total: len,
        imm: None,
        to: Receiver::Node,
        sender,
    };
    [&request.encode()[..], &message.encode(), text].concat()
}

/// That regions of node 1 are gone, by a number that is no queue pair's, with a DC target
/// that is not node 1's.
pub fn notices(stage: &mut Stage) -> Result<Outcome> {
    let aim = aim(stage, Kind::Send)?;
    let mut rng = stage.rng();
    for _ in 0..PACKETS {
        let mut keys = Keys::NONE;
        keys.push(rng.next() as u32);
        let notice = Notice {
            token: rng.next(),
            seq: 1,
            kind: NoticeKind::Gone(keys),
        };
        let (token, sender) = (rng.next(), nobodys(rng.next()));
        aim.send(&control_message(&aim, token, sender, &notice.encode()))?;
    }
    NO_EFFECT
}

/// Sends a UDP datagram to the victim's node from a port that somebody else has, as root
/// can.
fn send_from(port: u16, to: &Target, payload: &[u8]) -> Result<()> {
    let kind = (AddressFamily::Inet, SockType::Raw);
    let fd = socket(kind.0, kind.1, SockFlag::SOCK_CLOEXEC, SockProtocol::Udp)?;
    let len = (UDP_BYTES + payload.len()) as u16;
    let header = [port, to.port, len, 0].map(u16::to_be_bytes);
    let datagram = [header.as_flattened(), payload].concat();
    let to = SockaddrIn::from(SocketAddrV4::new(to.addr.into(), 0));
    let sent = sendto(fd.as_raw_fd(), &datagram, &to, MsgFlags::empty())?;
    ensure!(sent == datagram.len(), "{sent} bytes were sent");
    Ok(())
}

/// An offer in a node's name.
fn offer(of: u8, token: u64) -> Result<Hello> {
    Ok(Hello {
        role: Role::Offer,
        gid: gid(of),
        lane: 0,
        token,
        qpn: FORGED_QPN,
        psn: 1,
        mtu: 5,
        read_depth: 1,
        table_addr: 0,
        table_rkey: 1,
        geometry: Geometry::for_capacity(8192).ok_or(nix::errno::Errno::EINVAL)?,
        blocks: BlockSize::new(21).ok_or(nix::errno::Errno::EINVAL)?,
        nonce: 0,
        packets: None,
    })
}

/// Offers of an RC queue pair in the name of node 1, first with another identity, then with
/// node 1's, and where that is possible from its port: what there is to node 1 stays.
pub fn offers(stage: &mut Stage) -> Result<Outcome> {
    let aim = aim(stage, Kind::Send)?;
    let [to, node_1] = &stage.member.targets;
    let is_node_1 = Uid::current().is_root() && stage.node == 1;
    let mut rng = stage.rng();
    for packet in 0..PACKETS {
        let hello = offer(1, rng.next())?.encode();
        let sender = match packet < PACKETS / 2 {
            true => nobodys(rng.next()),
            false => node_1.destination,
        };
        let message = control_message(&aim, rng.next(), sender, &hello);
        if is_node_1 {
            send_from(node_1.port, to, &message)?;
        } else {
            aim.send(&message)?;
        }
        // The victim's node keeps eight messages of an address until they are read.
        if packet % 8 == 7 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    NO_EFFECT
}

/// Offers from the attacker's own address with another identity than its node's, without
/// a pause: each of them asks for a look-up.
pub fn flood_of_offers(stage: &mut Stage) -> Result<Outcome> {
    // Node 0 takes no offer of its own, so there the third host's address has to serve.
    let of = match stage.node {
        0 => 2,
        node => node as u8,
    };
    let mut aim = aim(stage, Kind::Send)?;
    if stage.node == 0 {
        aim.socket = stage.member.elsewhere.try_clone()?;
    }
    let (crowd, _) = Crowd::of(1, |ready| -> Result<()> {
        ready.with(1)?;
        let mut rng = stage.rng();
        for packet in 0u64.. {
            // The victim needs the processor too.
            if packet % 8 == 7 {
                std::thread::yield_now();
            }
            let hello = offer(of, rng.next())?.encode();
            aim.send(&control_message(
                &aim,
                rng.next(),
                nobodys(rng.next()),
                &hello,
            ))?;
        }
        Ok(())
    })?;
    stage.hold(crowd);
    Ok(Outcome::Said("sent"))
}

/// A READ that is well-formed, and its repetitions with a length that no request has.
pub fn repeated_reads(stage: &mut Stage) -> Result<Outcome> {
    let mut aim = aim(stage, Kind::Read)?;
    aim.request.token = stage.rng().next();
    aim.send(&aim.request.encode())?;
    aim.request.len = 1 << 20;
    for _ in 0..PACKETS {
        aim.send(&aim.request.encode())?;
    }
    NO_EFFECT
}

/// As many contexts as one address gets at a target.
pub fn contexts(stage: &mut Stage) -> Result<Outcome> {
    let mut aim = aim(stage, Kind::Read)?;
    aim.socket = stage.member.elsewhere.try_clone()?;
    let mut rng = stage.rng();
    for stream in 0..CONTEXTS {
        aim.request.stream = stream;
        aim.request.token = rng.next();
        aim.send(&aim.request.encode())?;
        if stream % BURST == BURST - 1 {
            std::thread::sleep(patient(PAUSE));
        }
    }
    NO_EFFECT
}

/// What is pinned, until it is dropped.
struct Pins(Device, [u8; 2]);

impl Drop for Pins {
    fn drop(&mut self) {
        for node in self.1 {
            let _ = with_reserve(|| self.0.pool_unpin(gid(node)));
        }
    }
}

/// A peer that is down is pinned before one that is up.
pub fn dead_peer(stage: &mut Stage) -> Result<Outcome> {
    let live = live(Uid::current().as_raw());
    let pins = Pins(with_reserve(|| Device::open_on(0))?, [DOWN, live]);
    with_reserve(|| pins.0.pool_pin(gid(DOWN)))?;
    std::thread::sleep(Duration::from_millis(500));
    with_reserve(|| pins.0.pool_pin(gid(live)))?;
    stage.hold(pins);
    Ok(Outcome::Said("pinned"))
}

/// A meta server that is told a region's address and the device's key.
pub fn meta_server(_: &mut Stage) -> Result<Outcome> {
    with_reserve(rc::meta_server_reaches_no_region)?;
    Ok(Outcome::Said("no region"))
}
