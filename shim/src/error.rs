// SPDX-License-Identifier: MIT OR Apache-2.0

//! What can go wrong, said so that the reader knows what to do about it.
//!
//! The module answers with an errno whose meaning depends on the call
//! (`weft_core::uapi` documents each); the functions here give it that meaning.

mod completion;

pub use completion::CompletionError;

use crate::listener::MAX_ACCEPTED;
use nix::errno::Errno;
use weft_core::gid::Gid;
use weft_core::uapi::{
    RingsCreate, ABI_VERSION, DEVICE_PATH, MAX_INLINE, MAX_META_SERVERS, MAX_MRS_PER_SESSION,
    MAX_MRS_PER_USER, MAX_MR_BYTES, MAX_MSG_BYTES, MAX_MWS_PER_SESSION, MAX_MWS_PER_USER,
    MAX_NOTIFY_COUNT, MAX_NOTIFY_US, MAX_PEERS_PER_USER, MAX_PORT, MAX_RECV_WR,
    MAX_RINGS_PER_SESSION, MAX_RING_MEMORY, MAX_SEND_WR, MAX_STREAMS_PER_USER, MAX_VQPS_PER_USER,
    MAX_WC,
};

/// An operation that did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The module is not loaded.
    #[error("{DEVICE_PATH} does not exist: load weft.ko, see README")]
    NotLoaded,
    /// The device's file mode forbids it.
    #[error("{DEVICE_PATH} may not be opened by this user: run as root or change its mode")]
    OpenDenied,
    /// Module and program are of different releases.
    #[error("weft.ko does not speak ABI version {ABI_VERSION}: take module and programs from the same release")]
    AbiMismatch,
    /// The network namespace has no node, or not this one.
    #[error("{}", no_node(*.0))]
    NoNode(Option<u32>),
    /// The node's device or network namespace was removed.
    #[error("the local node is gone, its device or network namespace was removed: open {DEVICE_PATH} again")]
    NodeGone,

    /// A VQP cannot have this capacity.
    #[error("a VQP has room for 1 to {MAX_SEND_WR} work requests and up to {MAX_RECV_WR} receive buffers, not for {send} and {recv}")]
    BadCapacity {
        /// `max_send_wr`.
        send: u32,
        /// `max_recv_wr`.
        recv: u32,
    },
    /// Queues cannot have this capacity, or their memory not these rights.
    #[error("queues have room for at most {MAX_SEND_WR} work requests, {MAX_WC} completions and {MAX_RECV_WR} receive buffers, and at most {MAX_RING_MEMORY} bytes of memory, but not for nothing at all: {send}, {wc}, {recv} and {memory} were asked for. Memory that peers may write or change needs Access::LOCAL_WRITE too")]
    BadQueues {
        /// `max_send_wr`.
        send: u32,
        /// `max_wc`.
        wc: u32,
        /// `max_recv_wr`.
        recv: u32,
        /// Bytes of memory.
        memory: u32,
    },
    /// The user's VQPs are used up.
    #[error("the user has {MAX_VQPS_PER_USER} VQPs on the node, which is the limit: drop some")]
    TooManyVqps,
    /// The user's open peers are used up.
    #[error(
        "the user has {MAX_PEERS_PER_USER} open peers on the node, which is the limit: drop some"
    )]
    TooManyPeers,
    /// The session's queues are used up.
    #[error("the session has {MAX_RINGS_PER_SESSION} queues, which is the limit, and each Vqp has queues of its own: drop some, or connect many queue pairs with Queues::connect")]
    TooManyQueues,
    /// The user's DC streams are used up; or its VQPs, of which an unconnected one needs one
    /// for each peer.
    #[error("the user has {MAX_STREAMS_PER_USER} DC streams on the node, which is the limit: one for each VQP that sends messages, and up to 8 for each peer of its other VQPs; drop VQPs that send messages (an unconnected one may lack a VQP for its next peer, of the user's {MAX_VQPS_PER_USER}: drop any)")]
    TooManyStreams,
    /// A listener keeps as many VQPs to senders as it may, and each has completions that
    /// were not taken.
    #[error("the listener has {MAX_ACCEPTED} VQPs to senders, each with completions that were not taken: poll them, or forget a sender")]
    TooManySenders,
    /// The queues have no places for what the queue pair needs.
    #[error("a queue pair needs queues with places for completions (max_wc), and with some for receive buffers (max_recv_wr) if it receives; an unconnected one cannot receive")]
    MissingQueue,
    /// The receive queue is another queue pair's own.
    #[error("the receive queue is another queue pair's own: make both with Receive::Shared, or give each its queues")]
    ReceiveQueueInUse,
    /// Completions cannot be signalled so.
    #[error("an eventfd is signalled for 1 to {MAX_NOTIFY_COUNT} completions, after at most {MAX_NOTIFY_US} µs, which have to be some if it is more than one completion")]
    BadModeration,
    /// The descriptor is another kind of file.
    #[error("the descriptor that is to be signalled is no eventfd: make it with eventfd(2)")]
    NotAnEventFd,
    /// A request names no queue pair, or no peer, of the session.
    #[error("a request names no queue pair or no peer of the session: say which with SendWr::on or SendWr::on_to, and keep both until the request was taken")]
    NoSuchVqp,
    /// The regions of the session or of its user are used up.
    #[error("there are too many memory regions: a session has at most {MAX_MRS_PER_SESSION}, the sessions of a user on a node {MAX_MRS_PER_USER}; drop some, or register fewer and larger ones")]
    TooManyRegions,
    /// The length or access of a region is none that exists.
    #[error("a memory region of {len} bytes cannot be registered: it takes 1 to {MAX_MR_BYTES} bytes, and remote writes need Access::LOCAL_WRITE too")]
    BadRegion {
        /// Its length in bytes.
        len: u64,
    },
    /// The windows of the session or of its user are used up.
    #[error("there are too many memory windows: a session has at most {MAX_MWS_PER_SESSION}, the sessions of a user on a node {MAX_MWS_PER_USER}; drop some")]
    TooManyWindows,
    /// A window has no bytes, or rights that it cannot have.
    #[error("a memory window takes some bytes, and rights for peers alone (REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, RELAXED_ORDERING): peers may change it only if its region has Access::LOCAL_WRITE")]
    BadWindow,
    /// Not all of the memory is there.
    #[error("the {len} bytes at {addr:#x} cannot be registered: not all of them are mapped, or they are read-only")]
    NotMapped {
        /// First byte.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Memory may not be locked, or there is none.
    #[error("out of memory: regions and the rings of VQPs count against RLIMIT_MEMLOCK, see `ulimit -l`")]
    OutOfMemory,

    /// The zero GID names nobody.
    #[error("the zero GID names no node")]
    ZeroGid,
    /// No such port.
    #[error("ports are 1 to {MAX_PORT}, and 0 if no messages will be sent; {0} is none")]
    BadPort(u32),
    /// Another VQP of the node is bound to it.
    #[error("port {0} of this node is taken: bind to another one")]
    PortInUse(u32),
    /// The VQP is connected or bound, or it cannot receive.
    #[error("only a new VQP can be bound, one that was made with max_recv_wr")]
    CannotBind,
    /// The sender of a message cannot be reached.
    #[error("the sender of this message is not known any more: it has to send again")]
    SenderGone,
    /// The VQP was connected before.
    #[error("the VQP is connected already: create another one")]
    AlreadyConnected,
    /// The queue pair is not one that can be connected.
    #[error("a queue pair that is bound or unconnected cannot be connected: SendWr::on_to names the peer of a request on an unconnected one")]
    CannotConnect,
    /// The VQP was not connected.
    #[error("the VQP is not connected: call qconnect first")]
    NotConnected,
    /// No meta server has a record of the peer.
    #[error("no meta server knows {0}: is weft loaded there, and does it publish to the same meta server? (`weftctl nodes`, `weftctl meta list`)")]
    UnknownPeer(Gid),
    /// There is nobody to ask for the peer's record.
    #[error("no meta server is connected: add one with `weftctl meta add`, or see `weftctl meta list` why")]
    NoMetaServer,
    /// The meta server is silent.
    #[error(
        "the meta server did not answer: is it running and within reach? (`weftctl meta list`)"
    )]
    MetaTimeout,

    /// The module was loaded with `pool=rc`, and the peer has not answered its offer of an RC
    /// queue pair.
    #[error("{0} did not answer within 3 s: is it up, and does its device do RC? (the module was loaded with pool=rc)")]
    PeerSilent(Gid),

    /// A range is not within the region.
    #[error("bytes {start}..{end} are not within a region of {len}")]
    OutOfBounds {
        /// First byte of the range.
        start: usize,
        /// One past its last byte.
        end: usize,
        /// Length of the region in bytes.
        len: usize,
    },
    /// An 8-byte access needs a multiple of 8.
    #[error("offset {0} is no multiple of 8")]
    Misaligned(usize),
    /// One request cannot move so much.
    #[error("a work request moves at most {MAX_MSG_BYTES} bytes, not {0}")]
    TooLong(usize),
    /// A request or buffer has fewer pieces.
    #[error("{given} pieces of memory are too many, {max} are the limit: post several requests")]
    TooManyElements {
        /// How many there are.
        given: usize,
        /// How many there may be.
        max: usize,
    },
    /// The request has less room.
    #[error("{0} bytes do not fit into a request, which has room for {MAX_INLINE}: put them into a MemoryRegion")]
    InlineTooLong(usize),
    /// More completions were waited for than can be returned.
    #[error("{min} completions cannot be waited for with room for {room}")]
    NoRoom {
        /// Completions to wait for.
        min: usize,
        /// Completions that fit.
        room: usize,
    },
    /// The VQP's queue, or what is kept of its completions, is full.
    #[error("the VQP's queue is full: poll for completions, then post again")]
    QueueFull,
    /// A signal came first; nothing was submitted, reaped, connected or registered.
    #[error("a signal came before anything was done: try again")]
    Interrupted,
    /// A work request of a synchronous call failed.
    #[error(transparent)]
    Completion(#[from] CompletionError),

    /// Only the administrator may.
    #[error("this needs CAP_NET_ADMIN: run it as root")]
    NotPermitted,
    /// No such address can be a meta server's.
    #[error("a meta server has an IPv4 address and a port, neither of them zero")]
    BadMetaServer,
    /// It was added before.
    #[error("this meta server is configured already")]
    MetaServerExists,
    /// An RC queue pair cannot lead there.
    #[error("{0} is this node itself, or no IPv4 address: pin the address of another node")]
    NoRcPeer(Gid),
    /// The RDMA device has no RC queue pairs for user memory.
    #[error("the RDMA device cannot run RC queue pairs on user memory: leave the peer to DC")]
    NoRc,
    /// The node keeps as many RC queue pairs as it may.
    #[error("the pool has no room for another RC queue pair: unpin a peer first")]
    PoolFull,
    /// It was never pinned.
    #[error("{0} is not pinned")]
    NotPinned(Gid),
    /// It was never added.
    #[error("this meta server is not configured: see `weftctl meta list`")]
    NoSuchMetaServer,
    /// No more can be added.
    #[error(
        "{MAX_META_SERVERS} meta servers are configured, which is the limit: remove one first"
    )]
    TooManyMetaServers,

    /// The module's contract has no such answer.
    #[error("{call} failed: {errno}")]
    System {
        /// The call.
        call: &'static str,
        /// Its answer.
        errno: Errno,
    },
}

fn no_node(node: Option<u32>) -> String {
    match node {
        Some(node) => format!("there is no node {node} in this network namespace: see `weftctl nodes`"),
        None => "this network namespace has no weft node: is there an RDMA device, and is its port up? (`rdma link`)".into(),
    }
}

impl Error {
    pub(crate) fn of_open(errno: Errno) -> Self {
        match errno {
            Errno::ENOENT | Errno::ENXIO => Self::NotLoaded,
            Errno::EACCES | Errno::EPERM => Self::OpenDenied,
            errno => Self::System {
                call: "opening /dev/weft",
                errno,
            },
        }
    }

    /// `node`: the one that was asked for, if it was a certain one.
    /// `rings`: what was wanted with the session.
    pub(crate) fn of_hello(errno: Errno, node: Option<u32>, rings: &RingsCreate) -> Self {
        match errno {
            Errno::EPROTONOSUPPORT | Errno::ENOTTY => Self::AbiMismatch,
            Errno::ENODEV => Self::NoNode(node),
            // The session is new and has no rings yet, so it is the limit of regions.
            Errno::EMFILE => Self::TooManyRegions,
            Errno::EINVAL => Self::bad_queues(rings),
            Errno::ENOMEM => Self::OutOfMemory,
            errno => Self::System {
                call: "IOC_HELLO",
                errno,
            },
        }
    }

    fn bad_queues(rings: &RingsCreate) -> Self {
        Self::BadQueues {
            send: rings.max_send_wr,
            wc: rings.max_wc,
            recv: rings.max_recv_wr,
            memory: rings.memory_bytes,
        }
    }

    /// Of rings without memory.
    pub(crate) fn of_rings_create(errno: Errno, rings: &RingsCreate) -> Self {
        match errno {
            Errno::EINVAL => Self::bad_queues(rings),
            Errno::EMFILE => Self::TooManyQueues,
            errno => Self::of_node("IOC_RINGS_CREATE", errno),
        }
    }

    /// `send`, `recv`: what there was to be room for.
    pub(crate) fn of_vqp_create(errno: Errno, send: u32, recv: u32) -> Self {
        match errno {
            Errno::EINVAL => Self::BadCapacity { send, recv },
            Errno::EMFILE => Self::TooManyVqps,
            errno => Self::of_node("IOC_VQP_CREATE", errno),
        }
    }

    pub(crate) fn of_ring_map(errno: Errno) -> Self {
        match errno {
            Errno::EPROTO => Self::AbiMismatch,
            errno => Self::of_node("mapping rings", errno),
        }
    }

    pub(crate) fn of_bind(errno: Errno, port: u32) -> Self {
        match errno {
            Errno::EINVAL => Self::CannotBind,
            Errno::EADDRINUSE => Self::PortInUse(port),
            errno => Self::of_node("IOC_QBIND", errno),
        }
    }

    pub(crate) fn of_accept(errno: Errno) -> Self {
        match errno {
            Errno::ENOENT => Self::SenderGone,
            Errno::EMFILE => Self::TooManyVqps,
            errno => Self::of_node("IOC_ACCEPT", errno),
        }
    }

    pub(crate) fn of_mr_reg(errno: Errno, addr: u64, len: u64) -> Self {
        match errno {
            Errno::EINVAL => Self::BadRegion { len },
            Errno::EFAULT => Self::NotMapped { addr, len },
            Errno::EMFILE => Self::TooManyRegions,
            Errno::EINTR => Self::Interrupted,
            errno => Self::of_node("IOC_MR_REG", errno),
        }
    }

    /// Of a memory window.
    #[cold]
    pub(crate) fn of_mw_bind(errno: Errno) -> Self {
        match errno {
            Errno::EINVAL => Self::BadWindow,
            Errno::EMFILE => Self::TooManyWindows,
            errno => Self::of_node("IOC_MW_BIND", errno),
        }
    }

    /// Of a connection or a look-up.
    #[cold]
    pub(crate) fn of_peer(call: &'static str, errno: Errno, gid: Gid) -> Self {
        match errno {
            Errno::EINVAL if gid.is_zero() => Self::ZeroGid,
            Errno::EINVAL => Self::CannotConnect,
            Errno::EISCONN => Self::AlreadyConnected,
            Errno::EHOSTUNREACH => Self::UnknownPeer(gid),
            Errno::EAGAIN => Self::NoMetaServer,
            Errno::ETIMEDOUT => Self::MetaTimeout,
            Errno::EHOSTDOWN => Self::PeerSilent(gid),
            Errno::EOPNOTSUPP => Self::NoRc,
            Errno::EINTR => Self::Interrupted,
            errno => Self::of_node(call, errno),
        }
    }

    pub(crate) fn of_enter(errno: Errno) -> Self {
        match errno {
            Errno::ENOTCONN => Self::NotConnected,
            Errno::EINTR => Self::Interrupted,
            Errno::ENOSPC => Self::QueueFull,
            Errno::EBADF => Self::NoSuchVqp,
            Errno::EMFILE => Self::TooManyStreams,
            errno => Self::of_node("IOC_ENTER", errno),
        }
    }

    pub(crate) fn of_meta(call: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::EPERM => Self::NotPermitted,
            Errno::EINVAL => Self::BadMetaServer,
            Errno::EEXIST => Self::MetaServerExists,
            Errno::ENOSPC => Self::TooManyMetaServers,
            Errno::ENOENT => Self::NoSuchMetaServer,
            errno => Self::of_node(call, errno),
        }
    }

    pub(crate) fn of_pool(call: &'static str, errno: Errno, gid: Gid) -> Self {
        match errno {
            Errno::EPERM => Self::NotPermitted,
            Errno::EINVAL => Self::NoRcPeer(gid),
            Errno::EOPNOTSUPP => Self::NoRc,
            Errno::ENOSPC => Self::PoolFull,
            Errno::ENOENT => Self::NotPinned(gid),
            errno => Self::of_node(call, errno),
        }
    }

    pub(crate) fn of_node(call: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::ENODEV => Self::NodeGone,
            Errno::ENOMEM => Self::OutOfMemory,
            errno => Self::System { call, errno },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::uapi::Pod as _;

    #[test]
    fn a_missing_device_says_how_to_get_it() {
        let message = Error::of_open(Errno::ENOENT).to_string();
        assert_eq!(
            message,
            "/dev/weft does not exist: load weft.ko, see README"
        );
    }

    #[test]
    fn an_unknown_peer_is_named() {
        let gid = Gid::from_ipv4([10, 0, 0, 9]);
        let error = Error::of_peer("IOC_QCONNECT", Errno::EHOSTUNREACH, gid);
        assert_eq!(error, Error::UnknownPeer(gid));
        assert!(error.to_string().contains("::ffff:10.0.0.9"), "{error}");
    }

    #[test]
    fn a_queue_pair_that_cannot_be_connected_is_not_a_zero_gid() {
        let of = |gid| Error::of_peer("IOC_QCONNECT", Errno::EINVAL, gid);
        assert_eq!(of(Gid::default()), Error::ZeroGid);
        assert_eq!(of(Gid::from_ipv4([10, 0, 0, 9])), Error::CannotConnect);
    }

    #[test]
    fn an_errno_means_what_its_call_says() {
        let rings = RingsCreate::zeroed();
        for node in [None, Some(3)] {
            let error = Error::of_hello(Errno::ENODEV, node, &rings);
            assert_eq!(error, Error::NoNode(node));
        }
        assert_eq!(Error::of_vqp_create(Errno::ENODEV, 1, 0), Error::NodeGone);
        assert_eq!(
            Error::of_vqp_create(Errno::EINVAL, 0, 9),
            Error::BadCapacity { send: 0, recv: 9 }
        );
        assert_eq!(Error::of_bind(Errno::EADDRINUSE, 7), Error::PortInUse(7));
        assert_eq!(Error::of_accept(Errno::ENOENT), Error::SenderGone);
        assert_eq!(Error::of_ring_map(Errno::ENOMEM), Error::OutOfMemory);
        assert_eq!(
            Error::of_mr_reg(Errno::EINVAL, 0, 0),
            Error::BadRegion { len: 0 }
        );
        assert_eq!(Error::of_mr_reg(Errno::ENOMEM, 0, 1), Error::OutOfMemory);
        assert_eq!(Error::of_enter(Errno::ENOSPC), Error::QueueFull);
        assert_eq!(Error::of_enter(Errno::EMFILE), Error::TooManyStreams);
        assert_eq!(Error::of_accept(Errno::EMFILE), Error::TooManyVqps);
        assert_eq!(
            Error::of_meta("IOC_META_ADD", Errno::ENOSPC),
            Error::TooManyMetaServers
        );
    }

    #[test]
    fn a_limit_is_named_with_its_value() {
        let rings = RingsCreate {
            max_wc: 200_000,
            ..RingsCreate::zeroed()
        };
        for (error, names) in [
            (
                Error::of_vqp_create(Errno::EMFILE, 1, 0),
                vec!["131072 VQPs"],
            ),
            (Error::TooManyPeers, vec!["131072 open peers"]),
            (
                Error::of_rings_create(Errno::EMFILE, &rings),
                vec!["4096 queues"],
            ),
            (
                Error::of_rings_create(Errno::EINVAL, &rings),
                vec!["131072 completions", "200000"],
            ),
            (
                Error::of_hello(Errno::EINVAL, None, &rings),
                vec!["131072 completions", "200000", "Access::LOCAL_WRITE"],
            ),
            (
                Error::of_hello(Errno::EMFILE, None, &rings),
                vec!["at most 256", "2048"],
            ),
            (
                Error::of_mr_reg(Errno::EMFILE, 0, 1),
                vec!["at most 256", "2048"],
            ),
        ] {
            let text = error.to_string();
            for name in names {
                assert!(text.contains(name), "{name}: {text}");
            }
        }
    }

    #[test]
    fn an_errno_outside_of_the_contract_is_shown_as_it_is() {
        let error = Error::of_enter(Errno::EIO);
        assert_eq!(
            error,
            Error::System {
                call: "IOC_ENTER",
                errno: Errno::EIO
            }
        );
        assert!(error.to_string().contains("EIO"), "{error}");
    }
}
