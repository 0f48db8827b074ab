// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Sessions and the nodes that they are on.

use super::{pod, Pod, RingsCreate};
use crate::gid::Gid;

pod! {
    /// `IOC_HELLO`. It makes the session's first rings too, if any are wanted, so that a
    /// worker has all that it needs for its requests after one call and one `mmap`.
    ///
    /// Errors: `EPROTONOSUPPORT` (other ABI version), `ENODEV` (no such node, or
    /// none in this network namespace; with `CAP_NET_ADMIN` any can be named),
    /// `EALREADY` (said before), those of [`RingsCreate`]. After an error there is no
    /// session.
    pub struct Hello [112] {
        /// In: the caller's [`ABI_VERSION`](super::ABI_VERSION).
        pub abi_version: u32,
        /// In: the node's index or [`NODE_ANY`](super::NODE_ANY). Out: the index.
        pub node: u32,
        /// Out: nodes that the caller may name.
        pub node_count: u32,
        /// Must be zero.
        pub reserved: u32,
        /// The first rings; all zero: none.
        pub rings: RingsCreate,
        /// In: a peer that the session will connect to, or zero. If the node's DCCache lacks
        /// it, it is looked up meanwhile, so that [`QConnect`](super::QConnect) waits for
        /// less of that. A hint: nothing is told of how the look-up ends, and one may be left
        /// out when there are many.
        pub peer: Gid,
    }
}

pod! {
    /// `IOC_NODE`: one RDMA port that Weft runs on.
    ///
    /// Errors: `ENODEV` (no node has this index, or one in another network namespace;
    /// with `CAP_NET_ADMIN` any can be named).
    pub struct NodeInfo [128] {
        /// In: which node.
        pub index: u32,
        /// Out: the node's DC target number.
        pub dct_number: u32,
        /// Out: changes with each start of the node.
        pub incarnation: u32,
        /// Out: the RDMA device's port.
        pub port: u32,
        /// Out: the node's address.
        pub gid: Gid,
        /// Out: the RDMA device's name, ended by a zero byte.
        pub device: [u8; 64],
        /// Out: VQPs that exist on it.
        pub vqps: u32,
        /// Out: memory regions that exist on it.
        pub mrs: u32,
        /// Out: peers in its DCCache.
        pub cached_peers: u32,
        /// Out: 1 when its record is at a meta server.
        pub published: u32,
        /// Out: identifies the node's network namespace (its inode number).
        pub netns: u64,
        /// Out: the UDP port that the software DC transport listens on.
        pub udp_port: u32,
        /// Out: whether it uses RC queue pairs, or why it cannot: `RC_*`.
        pub rc: u32,
    }
}
