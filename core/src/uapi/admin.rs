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

/// Requests to a peer take what the pool finds best.
pub const POOL_USE_AUTO: u32 = 0;
/// They go by DC.
pub const POOL_USE_DC: u32 = 1;
/// They go by RC, as far as they can.
pub const POOL_USE_RC: u32 = 2;

pod! {
    /// `IOC_POOL_USE`: what carries the requests to a peer, whatever it costs, until another
    /// word of an administrator. A queue pair that this takes is made in the background.
    ///
    /// Errors: `EPERM`, `EINVAL` (no such transport, the node itself, or no IPv4-mapped
    /// GID), `EOPNOTSUPP` (the RDMA device cannot do RC), `ENOSPC` (the pool has an eye on too
    /// many peers that have to stay).
    pub struct PoolUse [24] {
        /// The peer.
        pub gid: Gid,
        /// `POOL_USE_*`.
        pub transport: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

/// An administrator keeps a queue pair to the peer.
pub const POOL_PINNED: u32 = 1;
/// An administrator has chosen its transport.
pub const POOL_FORCED: u32 = 2;
/// The transport in use is being tried.
pub const POOL_TRIAL: u32 = 4;
/// There is a queue pair to it.
pub const POOL_UP: u32 = 8;
/// The packets of messages to it go by RC.
pub const POOL_MESSAGES_BY_RC: u32 = 16;
/// [`PoolPeer::user`] is known.
pub const POOL_HAS_USER: u32 = 32;
/// The upper bits of the flags, from this one on, say how many queue pairs there are to it.
pub const POOL_QUEUE_PAIRS_SHIFT: u32 = 24;

pod! {
    /// Traffic to a peer, and what it takes by each way. 0 where that is not known.
    pub struct PoolTraffic [48] {
        /// Requests of up to 4 KiB a second.
        pub small_ops: u64,
        /// Bytes of longer ones a second.
        pub large_bytes: u64,
        /// Time of a request of up to 4 KiB by DC, in nanoseconds.
        pub dc_small_ns: u64,
        /// Time of a byte of longer ones by DC, in picoseconds.
        pub dc_byte_ps: u64,
        /// The same by RC.
        pub rc_small_ns: u64,
        /// The same by RC.
        pub rc_byte_ps: u64,
    }
}

pod! {
    /// `IOC_POOL_PEER`: one of the peers that the pool of the session's node has an eye on:
    /// those that were used lately, or have a queue pair (krcore §4.2).
    ///
    /// It tells of the traffic of all users.
    ///
    /// Errors: `EPERM`, `ENOENT` (no peer has this index).
    pub struct PoolPeer [144] {
        /// In: which peer.
        pub index: u32,
        /// Out: what its requests take, [`POOL_USE_DC`] or [`POOL_USE_RC`].
        pub transport: u32,
        /// Out: the peer.
        pub gid: Gid,
        /// Out: `POOL_*` flags.
        pub flags: u32,
        /// Out: times that its requests were sent another way.
        pub moves: u32,
        /// Out: its one-sided requests.
        pub requests: PoolTraffic,
        /// Out: its messages, of which each packet is counted and timed; DC is UDP here.
        pub messages: PoolTraffic,
        /// Out: how long there has been a queue pair, in nanoseconds; 0: there is none.
        pub age_ns: u64,
        /// Out: VQPs that are connected to it, one for each peer of an unconnected VQP.
        pub vqps: u32,
        /// Out: the user of most of its traffic, for whom its queue pair counts; zero without
        /// [`POOL_HAS_USER`].
        pub user: u32,
    }
}

pod! {
    /// A meta server's address, IPv4-mapped, with its rdma_cm port.
    ///
    /// Errors: `EPERM`, `EINVAL` (no IPv4-mapped address, or port 0), `EEXIST`, `ENOSPC`
    /// ([`MAX_META_SERVERS`](super::MAX_META_SERVERS) reached), `ENOENT` (remove: not
    /// configured).
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
    /// Errors: as [`QConnect`](super::QConnect).
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
