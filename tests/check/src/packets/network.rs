// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attacker's sockets: raw IP in node 2's namespace, so that any source address can
//! be forged and packets can be sent as IP fragments of any size; and what the kernel
//! counts of packets that arrive.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;

use anyhow::{anyhow, ensure, Context, Result};
use nix::sched::{setns, CloneFlags};
use nix::sys::socket::{
    sendto, socket, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn,
};

use super::grammar::{Packet, OWN};
use crate::world::system;

const IP_BYTES: usize = 20;
/// Bytes of a UDP header.
pub const UDP_BYTES: usize = 8;
const UDP: u8 = 17;
/// In the IP header's field with the offset: others follow.
const MORE_FRAGMENTS: u16 = 0x2000;
/// Fragments begin at multiples of that.
pub const FRAGMENT_UNIT: usize = 8;

/// Runs `body` on a thread of its own in a network namespace.
pub fn in_namespace<T: Send>(name: &str, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            let path = format!("/run/netns/{name}");
            let file = File::open(&path).with_context(|| path)?;
            setns(file, CloneFlags::CLONE_NEWNET)?;
            body()
        });
        there.join().map_err(|_| anyhow!("it panicked"))?
    })
}

/// Runs `body` where a node is. Node 0 is where the tests are.
pub fn where_node_is<T: Send>(node: usize, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    match node {
        0 => body(),
        _ => in_namespace(&format!("n{node}"), body),
    }
}

/// A socket of the link or network layer, made in a namespace.
pub fn raw_socket(
    namespace: &str,
    family: AddressFamily,
    protocol: SockProtocol,
) -> Result<OwnedFd> {
    in_namespace(namespace, || {
        Ok(socket(
            family,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?)
    })
}

/// Sends packets with any source.
pub struct Sender {
    socket: OwnedFd,
    /// The number of the last packet that was sent in fragments.
    fragmented: u16,
}

impl Sender {
    /// From node 2's namespace. All nodes know a link address for the attacker's own
    /// addresses, so that their answers pass the bridge; and the attacker knows the nodes',
    /// so that none of its packets waits for ARP, which takes long on a busy host.
    pub fn new() -> Result<Self> {
        let attackers = "$(ip netns exec n2 cat /sys/class/net/v2/address)";
        let anothers = "$(cat /sys/class/net/v0/address)";
        let seconds = "$(ip netns exec n1 cat /sys/class/net/v1/address)";
        for (node, link) in [("10.77.0.1", anothers), ("10.77.0.2", seconds)] {
            system(&format!(
                "ip -n n2 neigh replace {node} lladdr {link} dev v2"
            ))?;
        }
        for own in OWN.map(Ipv4Addr::from) {
            for (command, link, device) in [
                ("ip neigh", attackers, "v0"),
                ("ip -n n1 neigh", attackers, "v1"),
                ("ip -n n2 neigh", anothers, "v2"),
            ] {
                system(&format!(
                    "{command} replace {own} lladdr {link} dev {device}"
                ))?;
            }
        }
        Ok(Self {
            socket: raw_socket("n2", AddressFamily::Inet, SockProtocol::Raw)?,
            fragmented: 0,
        })
    }

    /// Sends one; answers whether the network took all of it.
    pub fn send(&mut self, packet: &Packet) -> bool {
        let datagram = with_udp_header(packet);
        let Some(bytes) = packet.fragment else {
            return self.send_part(packet, [0; 4], &datagram);
        };
        self.fragmented = self.fragmented.wrapping_add(1);
        let mut parts = datagram.chunks(bytes).enumerate().peekable();
        let mut taken = true;
        while let Some((n, part)) = parts.next() {
            let units = (n * bytes / FRAGMENT_UNIT) as u16;
            let more = if parts.peek().is_some() {
                MORE_FRAGMENTS
            } else {
                0
            };
            let ([a, b], [c, d]) = (self.fragmented.to_be_bytes(), (units | more).to_be_bytes());
            taken &= self.send_part(packet, [a, b, c, d], part);
        }
        taken
    }

    /// Sends a packet, or one fragment of it; `order` is the packet's number, flags and
    /// offset, as they stand in the IP header. The kernel fills in lengths and checksum.
    fn send_part(&self, packet: &Packet, order: [u8; 4], part: &[u8]) -> bool {
        let mut bytes = Vec::with_capacity(IP_BYTES + part.len());
        bytes.extend([0x45, 0, 0, 0]);
        bytes.extend(order);
        bytes.extend([64, UDP, 0, 0]);
        bytes.extend(packet.from.0);
        bytes.extend(packet.to.0);
        bytes.extend(part);
        let to = SockaddrIn::from(SocketAddrV4::new(packet.to.0.into(), 0));
        let sent = sendto(self.socket.as_raw_fd(), &bytes, &to, MsgFlags::MSG_DONTWAIT);
        sent.is_ok()
    }
}

/// The payload behind a UDP header; UDP does without a checksum.
fn with_udp_header(packet: &Packet) -> Vec<u8> {
    let len = (UDP_BYTES + packet.payload.len()) as u16;
    let mut bytes = Vec::with_capacity(usize::from(len));
    bytes.extend(packet.from.1.to_be_bytes());
    bytes.extend(packet.to.1.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(&packet.payload);
    bytes
}

/// What a node's network stack has counted.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// Datagrams that a UDP socket has taken.
    pub datagrams: u64,
    /// Packets that were put together from fragments.
    pub reassembled: u64,
}

impl Arrivals {
    /// At a node so far.
    pub fn at(node: usize) -> Result<Self> {
        let text = where_node_is(node, || {
            Ok(std::fs::read_to_string("/proc/thread-self/net/snmp")?)
        })?;
        Ok(Self {
            datagrams: snmp(&text, "Udp:", "InDatagrams")?,
            reassembled: snmp(&text, "Ip:", "ReasmOKs")?,
        })
    }
}

/// A figure of that file, in which a line of names precedes each line of numbers.
fn snmp(text: &str, protocol: &str, name: &str) -> Result<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (names, numbers) = (lines.next(), lines.next());
    let mut pairs = names
        .unwrap_or_default()
        .split_whitespace()
        .zip(numbers.unwrap_or_default().split_whitespace());
    let found = pairs.find(|(of, _)| *of == name);
    ensure!(found.is_some(), "the kernel counts no {name}");
    Ok(found.map_or(Ok(0), |(_, number)| number.parse())?)
}
