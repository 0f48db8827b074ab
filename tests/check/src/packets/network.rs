// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attacker's sockets: raw IP in node 2's namespace, so that any source address can
//! be forged, and a capture of what passes the bridge.

use std::collections::VecDeque;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{anyhow, Context, Result};
use nix::sched::{setns, CloneFlags};
use nix::sys::socket::{
    recv, sendto, socket, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn,
};

use super::grammar::{Packet, OWN};
use crate::world::system;

const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ETHERNET_BYTES: usize = 14;
const UDP: u8 = 17;
/// Packets that are kept of those that were captured.
const KEPT: usize = 512;

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

/// Sends packets with any source.
pub struct Sender(OwnedFd);

impl Sender {
    /// From node 2's namespace. The nodes know where its own address is.
    pub fn new() -> Result<Self> {
        let link = "$(ip netns exec n2 cat /sys/class/net/v2/address)";
        let own = Ipv4Addr::from(OWN);
        for neighbour in ["ip neigh", "ip -n n1 neigh"].into_iter().zip(["v0", "v1"]) {
            let (command, device) = neighbour;
            system(&format!(
                "{command} replace {own} lladdr {link} dev {device}"
            ))?;
        }
        let open = || {
            let kind = (AddressFamily::Inet, SockType::Raw);
            Ok(socket(
                kind.0,
                kind.1,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::Raw,
            )?)
        };
        in_namespace("n2", open).map(Self)
    }

    /// Sends one; answers whether the network took it.
    pub fn send(&mut self, packet: &Packet) -> bool {
        let bytes = with_headers(packet);
        let to = SockaddrIn::from(SocketAddrV4::new(packet.to.0.into(), 0));
        sendto(self.0.as_raw_fd(), &bytes, &to, MsgFlags::MSG_DONTWAIT).is_ok()
    }
}

/// The packet with IPv4 and UDP headers; the kernel fills in the lengths and checksum of
/// IP, and UDP does without one.
fn with_headers(packet: &Packet) -> Vec<u8> {
    let udp_len = (UDP_BYTES + packet.payload.len()) as u16;
    let mut bytes = Vec::with_capacity(IP_BYTES + usize::from(udp_len));
    bytes.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, UDP, 0, 0]);
    bytes.extend(packet.from.0);
    bytes.extend(packet.to.0);
    bytes.extend(packet.from.1.to_be_bytes());
    bytes.extend(packet.to.1.to_be_bytes());
    bytes.extend(udp_len.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(&packet.payload);
    bytes
}

/// The payloads that passed last, for the attacker to change.
pub struct Capture(Arc<Mutex<VecDeque<Vec<u8>>>>);

impl Capture {
    /// On the bridge. It ends with the program.
    pub fn start() -> Result<Self> {
        let open = || {
            let kind = (AddressFamily::Packet, SockType::Raw);
            Ok(socket(
                kind.0,
                kind.1,
                SockFlag::SOCK_CLOEXEC,
                SockProtocol::EthAll,
            )?)
        };
        let socket = in_namespace("fabric", open)?;
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let keep = Arc::downgrade(&kept);
        thread::spawn(move || {
            let mut frame = vec![0; 1 << 16];
            while let Ok(len) = recv(socket.as_raw_fd(), &mut frame, MsgFlags::empty()) {
                let Some(kept) = keep.upgrade() else { return };
                let Some(payload) = udp_payload(&frame[..len]) else {
                    continue;
                };
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == KEPT {
                    kept.pop_front();
                }
                kept.push_back(payload.to_vec());
            }
        });
        Ok(Self(kept))
    }

    /// One of them.
    pub fn pick(&self, chosen: u64) -> Option<Vec<u8>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = chosen as usize % kept.len().max(1);
        kept.get(at).cloned()
    }
}

/// The payload of an Ethernet frame, if it is UDP over IPv4.
fn udp_payload(frame: &[u8]) -> Option<&[u8]> {
    let ip = frame.get(ETHERNET_BYTES..)?;
    let is_ipv4 = frame.get(12..14)? == [8, 0];
    let header = usize::from(ip.first()? & 0xf) * 4;
    if !is_ipv4 || *ip.get(9)? != UDP {
        return None;
    }
    ip.get(header + UDP_BYTES..)
        .filter(|payload| !payload.is_empty())
}
