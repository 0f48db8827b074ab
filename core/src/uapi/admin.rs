// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Requests of administrators: meta servers, look-ups, the pool.

use super::{pod, Pod};
use crate::gid::Gid;

pod! {
    /// A node that the session's node keeps an RC queue pair to (krcore §4.2). It is
    /// made in the background; until it is there, and whenever it breaks, requests
    /// to the node go by DC.
    ///
    /// Errors: `EPERM`, `EINVAL` (the node itself, or no IPv4-mapped GID),
    /// `EOPNOTSUPP` (the RDMA device cannot do it), `ENOSPC` (too many), `ENOENT`
    /// (unpin: not pinned).
    pub struct PoolPin [24] {
        /// The peer.
        pub gid: Gid,
        /// Must be zero.
        pub reserved: u64,
    }
}

pod! {
    /// A meta server's address, IPv4-mapped, with its rdma_cm port.
    ///
    /// Errors: `EPERM`, `EINVAL` (no IPv4-mapped address, or port 0), `EEXIST`, `ENOSPC`
    /// ([`MAX_META_SERVERS`] reached), `ENOENT` (remove: not configured).
    pub struct MetaServer [24] {
        /// The address.
        pub addr: Gid,
        /// The rdma_cm port.
        pub port: u16,
        /// Must be zero.
        pub reserved: [u16; 3],
    }
}

pod! {
    /// `IOC_META`: one configured meta server as the session's node sees it.
    ///
    /// Errors: `ENOENT` (no server has this index).
    pub struct MetaInfo [40] {
        /// In: which server.
        pub index: u32,
        /// Out: 1 when the node is connected to it.
        pub connected: u32,
        /// Out: the server.
        pub server: MetaServer,
        /// Out: buckets of its table.
        pub buckets: u32,
        /// Out: 1 when the node's record was seen in its table.
        pub published: u32,
    }
}

pod! {
    /// `IOC_LOOKUP`: one look-up at the meta server, past the DCCache.
    ///
    /// Errors: as [`QConnect`].
    pub struct Lookup [64] {
        /// In: the node.
        pub gid: Gid,
        /// Out: one-sided READs that it took.
        pub reads: u32,
        /// Out: the node's DC target number.
        pub dct_number: u32,
        /// Out: the node's incarnation.
        pub incarnation: u32,
        /// Out: the node's UDP port.
        pub udp_port: u32,
        /// Must be zero.
        pub reserved: [u64; 4],
    }
}
