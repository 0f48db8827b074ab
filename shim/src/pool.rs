// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a node's pool knows of its peers.

use weft_core::gid::Gid;
use weft_core::uapi;

/// What carries requests to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The node's DC initiators, which serve all peers.
    Dc,
    /// An RC queue pair to that peer.
    Rc,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Dc => "DC",
            Self::Rc => "RC",
        })
    }
}

/// What requests to a peer take by one transport, as measured on the traffic itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportCost {
    /// A request of up to 4 KiB, from post to completion, in nanoseconds.
    pub small_ns: Option<u64>,
    /// A byte of longer ones, in picoseconds.
    pub byte_ps: Option<u64>,
}

/// Traffic to a peer, and what it takes by each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTraffic {
    /// Requests of up to 4 KiB a second.
    pub small_ops: u64,
    /// Bytes of longer ones a second.
    pub large_bytes: u64,
    /// Cost of DC; of messages, that of UDP.
    pub dc: TransportCost,
    /// Cost of RC.
    pub rc: TransportCost,
}

impl PeerTraffic {
    fn from_raw(raw: &uapi::PoolTraffic) -> Self {
        Self {
            small_ops: raw.small_ops,
            large_bytes: raw.large_bytes,
            dc: TransportCost {
                small_ns: known(raw.dc_small_ns),
                byte_ps: known(raw.dc_byte_ps),
            },
            rc: TransportCost {
                small_ns: known(raw.rc_small_ns),
                byte_ps: known(raw.rc_byte_ps),
            },
        }
    }
}

/// A peer that a node's pool has an eye on (krcore §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPeer {
    /// The peer.
    pub gid: Gid,
    /// What carries its requests now.
    pub transport: Transport,
    /// The packets of its messages go by RC.
    pub messages_by_rc: bool,
    /// An administrator keeps an RC queue pair to it.
    pub is_pinned: bool,
    /// An administrator has chosen its transport.
    pub is_forced: bool,
    /// The transport in use is being tried.
    pub is_in_trial: bool,
    /// How long there has been a queue pair to it, in nanoseconds; `None`: there is none.
    pub age_ns: Option<u64>,
    /// Queue pairs to it. There may be one for each processor of either host, up to the module's
    /// parameter `rc_lanes` there.
    pub queue_pairs: u32,
    /// Times that its requests were sent another way.
    pub moves: u32,
    /// VQPs of all users that are connected to it; of an unconnected one, each peer counts.
    pub vqps: u32,
    /// The user (uid) of most of its traffic, for whom its queue pair counts; `None`: none was seen
    /// yet.
    pub user: Option<u32>,
    /// One-sided requests to it.
    pub requests: PeerTraffic,
    /// Messages to it: each of their packets is counted, and timed until it is answered.
    pub messages: PeerTraffic,
}

/// A number of which 0 says that it is not known.
fn known(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

impl PoolPeer {
    pub(crate) fn from_raw(raw: &uapi::PoolPeer) -> Self {
        let has = |flag| raw.flags & flag != 0;
        Self {
            gid: raw.gid,
            transport: match raw.transport {
                uapi::POOL_USE_RC => Transport::Rc,
                _ => Transport::Dc,
            },
            messages_by_rc: has(uapi::POOL_MESSAGES_BY_RC),
            is_pinned: has(uapi::POOL_PINNED),
            is_forced: has(uapi::POOL_FORCED),
            is_in_trial: has(uapi::POOL_TRIAL),
            age_ns: known(raw.age_ns),
            queue_pairs: raw.flags >> uapi::POOL_QUEUE_PAIRS_SHIFT,
            moves: raw.moves,
            vqps: raw.vqps,
            user: has(uapi::POOL_HAS_USER).then_some(raw.user),
            requests: PeerTraffic::from_raw(&raw.requests),
            messages: PeerTraffic::from_raw(&raw.messages),
        }
    }
}
