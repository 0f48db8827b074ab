// SPDX-License-Identifier: GPL-2.0

//! The transports of SoftDc's packets: UDP, and RC queue pairs where there are.

mod netns;
mod node_bearer;
mod packet_link;
mod skb;
mod train;
mod udp;

use kernel::sync::Arc;

pub(crate) use netns::Netns;
pub(crate) use node_bearer::NodeBearer;
pub(crate) use packet_link::{PacketLink, PacketOpening, PacketPeer};
pub(crate) use skb::Skb;
pub(crate) use train::Train;
pub(crate) use udp::{UdpBearer, UdpPath};

/// Where a bearer sends to and receives from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// IPv4 address in network byte order.
    pub(crate) addr: [u8; 4],
    /// UDP port.
    pub(crate) port: u16,
}

/// Takes the packets of a bearer.
pub(crate) trait Handler: Send + Sync {
    /// A packet, starting with our header, from there; `via`: it came over this link and
    /// not by UDP. Softirq context.
    fn receive(&self, packet: Skb, from: Endpoint, via: Option<&Arc<PacketLink>>);
}

/// Carries packets between nodes, as a datagram network does: it may lose,
/// repeat and reorder them. UD queue pairs can be another one.
pub(crate) trait Bearer: Send + Sync + 'static {
    /// The route to a peer, kept between packets.
    type Path: Send + Unpin;

    /// Largest chunk that fits into a packet with its headers, in bytes.
    fn payload_max(&self) -> u32;

    /// Largest packet, in bytes.
    fn packet_max(&self) -> u32;

    /// A path to a peer; nothing is sent.
    fn path(&self, to: Endpoint) -> Self::Path;

    /// Packets go over this link from now on, as far as it takes them; `None`: none does.
    fn go_over(&self, path: &mut Self::Path, link: Option<&Arc<PacketLink>>);

    /// Sends a packet. One that cannot be sent for want of a route counts as lost.
    /// Softirqs have to be disabled.
    fn send(&self, path: &mut Self::Path, packet: Skb);
}
