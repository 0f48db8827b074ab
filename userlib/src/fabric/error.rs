// SPDX-License-Identifier: MIT OR Apache-2.0

//! What can go wrong below the protocols, and what to do about it.

use super::{NodeSet, MAX_HELLO_BYTES, MAX_NODES, MAX_REGION_BYTES};
use nix::errno::Errno;
use std::net::SocketAddr;

/// An operation of a fabric that did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// A range is not within a region.
    #[error("bytes {offset} to {offset}+{len} are not within the region of {region_bytes} bytes")]
    BadRange {
        /// First byte.
        offset: usize,
        /// Length.
        len: usize,
        /// Length of the region.
        region_bytes: usize,
    },
    /// A word is not at a multiple of 8.
    #[error("offset {0} is not a multiple of 8, which a word's has to be")]
    Misaligned(usize),
    /// The rank names no peer.
    #[error("node {peer} is no peer of a fabric of {nodes} nodes: peers are the other ranks below {nodes}")]
    NoSuchPeer {
        /// The rank.
        peer: usize,
        /// Nodes of the fabric.
        nodes: usize,
    },
    /// Nobody has called for the seat, or its former node is not cut off yet.
    #[error(
        "no newcomer can be admitted to seat {0}: see Endpoint::callers for those that have called"
    )]
    NoCaller(usize),
    /// All seats are taken.
    #[error("all {seats} seats of {name:?} are taken: found the group with more seats, or wait until a member has gone")]
    NoSeat {
        /// The name of the meeting.
        name: String,
        /// Seats.
        seats: usize,
    },
    /// The peer died or disconnected.
    #[error("node {0} is gone: form a new group without it")]
    PeerDown(usize),

    /// The number of nodes or the rank is none that exists.
    #[error(
        "rank {rank} of {nodes} nodes: a fabric has 1 to {MAX_NODES} nodes, ranks are below that"
    )]
    BadRank {
        /// The rank.
        rank: usize,
        /// Nodes of the fabric.
        nodes: usize,
    },
    /// The length of a region is none that exists.
    #[error("a region of {0} bytes: it takes 1 to {MAX_REGION_BYTES}")]
    BadRegion(usize),
    /// The hello is too long.
    #[error("a hello of {0} bytes: it takes at most {MAX_HELLO_BYTES}")]
    BadHello(usize),
    /// The name of the meeting is none that can be used.
    #[error("the name {0:?}: it takes 1 to {max} characters", max = super::shm::MAX_NAME_BYTES)]
    BadName(String),
    /// Somebody else has this rank.
    #[error("rank {rank} of {name:?} is taken: another process runs with that name and rank")]
    RankTaken {
        /// The name of the meeting.
        name: String,
        /// The rank.
        rank: usize,
    },
    /// Not all nodes came in time.
    #[error("nodes {missing:?} did not come in time: start them, with the same name and number of nodes, or wait longer")]
    Timeout {
        /// Those who did not come.
        missing: NodeSet,
    },
    /// Two ranks have one address.
    #[error("the address {0} is in the list twice: each node needs one of its own")]
    SameAddress(SocketAddr),
    /// The node's address is none of this host.
    #[error("the address {0} is not of this host: is the rank right, and the order of addresses?")]
    NotHere(SocketAddr),
    /// The RDMA device or the module does not do what the fabric needs.
    #[error("RDMA at {addr}: {reason}")]
    Rdma {
        /// The node's own address.
        addr: SocketAddr,
        /// What the lower layer says.
        reason: String,
    },
    /// The region is longer than the fabric can register.
    #[error("a region of {bytes} bytes: this fabric takes at most {max}")]
    RegionTooLong {
        /// The length.
        bytes: usize,
        /// The longest.
        max: usize,
    },
    /// A peer was told another number of nodes.
    #[error("node {peer} was told that there are {theirs} nodes, this one {ours}: start all with the same number")]
    NodesDiffer {
        /// The peer.
        peer: usize,
        /// What it was told.
        theirs: usize,
        /// What this node was told.
        ours: usize,
    },
    /// A peer speaks something else.
    #[error("node {peer} does not speak this protocol ({what}): run the same release of weft everywhere")]
    Protocol {
        /// The peer.
        peer: usize,
        /// What was odd.
        what: &'static str,
    },
    /// The system refused.
    #[error("{call}: {errno}")]
    System {
        /// The system call.
        call: &'static str,
        /// Why.
        errno: Errno,
    },
}

impl FabricError {
    /// From the errno of a system call.
    #[must_use]
    pub fn system(call: &'static str, errno: Errno) -> Self {
        Self::System { call, errno }
    }

    pub(crate) fn io(call: &'static str, error: &std::io::Error) -> Self {
        Self::system(call, Errno::from_raw(error.raw_os_error().unwrap_or(0)))
    }
}
