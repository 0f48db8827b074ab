// SPDX-License-Identifier: GPL-2.0

//! What carries SoftDc's packets.

mod netns;
mod skb;
mod train;
mod udp;

pub(crate) use netns::Netns;
pub(crate) use skb::Skb;
pub(crate) use train::Train;
pub(crate) use udp::{Handler, UdpBearer};

/// Where a bearer sends to and receives from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// IPv4 address in network byte order.
    pub(crate) addr: [u8; 4],
    /// UDP port.
    pub(crate) port: u16,
}

/// Carries packets between nodes, as a datagram network does: it may lose,
/// repeat and reorder them. UD queue pairs can be another one.
pub(crate) trait Bearer: Send + Sync + 'static {
    /// What it remembers of the way to a peer.
    type Path: Send + Unpin;

    /// Largest chunk that fits into a packet with its headers, in bytes.
    fn payload_max(&self) -> u32;

    /// Largest packet, in bytes.
    fn packet_max(&self) -> u32;

    /// A path to a peer; nothing is sent.
    fn path(&self, to: Endpoint) -> Self::Path;

    /// Sends a packet. One that cannot be sent for want of a route counts as lost.
    /// Softirqs have to be disabled.
    fn send(&self, path: &mut Self::Path, packet: Skb);
}
