// SPDX-License-Identifier: GPL-2.0

//! A node's bearer: UDP, and for streams of messages RC where there is a queue pair.

use kernel::sync::Arc;

use crate::net::{Bearer, Endpoint, PacketLink, Skb, UdpBearer, UdpPath};
use crate::sync::is_same;

/// A node's bearer.
pub(crate) struct NodeBearer {
    udp: UdpBearer,
}

/// The way to a peer.
pub(crate) struct NodePath {
    udp: UdpPath,
    /// Packets go over it, as far as it takes them.
    link: Option<Arc<PacketLink>>,
}

impl NodeBearer {
    /// By UDP, unless a path says otherwise.
    pub(crate) fn new(udp: UdpBearer) -> Self {
        Self { udp }
    }

    /// The part that carries packets by UDP.
    pub(crate) fn udp(&self) -> &UdpBearer {
        &self.udp
    }
}

impl Bearer for NodeBearer {
    type Path = NodePath;

    fn payload_max(&self) -> u32 {
        self.udp.payload_max()
    }

    fn packet_max(&self) -> u32 {
        self.udp.packet_max()
    }

    fn path(&self, to: Endpoint) -> NodePath {
        NodePath {
            udp: self.udp.path(to),
            link: None,
        }
    }

    fn go_over(&self, path: &mut NodePath, link: Option<&Arc<PacketLink>>) {
        if !is_same(path.link.as_ref(), link) {
            path.link = link.cloned();
        }
    }

    fn send(&self, path: &mut NodePath, packet: Skb) {
        let left = match &path.link {
            Some(link) => link.send(packet).err(),
            None => Some(packet),
        };
        if let Some(packet) = left {
            self.udp.send(&mut path.udp, packet);
        }
    }
}
