// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The contract between `weft.ko` and the programs that open `/dev/weft`.
//!
//! Every struct here is `repr(C)`, has no hidden padding and means the same on
//! both sides. Handles are small indices, never pointers. Numbers that exist in
//! verbs (`ibv_wc_status`, access flags) keep their verbs values.
//!
//! A session is one open file. It starts with [`IOC_HELLO`], which settles the
//! ABI version and the node; everything else but [`IOC_NOP`] answers `EPROTO`
//! before that. A pointer to anything that cannot be read or written is answered
//! with `EFAULT`, a reserved field that is not zero with `EINVAL`, an unknown
//! request with `ENOTTY`.
//!
//! # Rings
//!
//! A VQP has three rings in memory that its process maps (`mmap` with `MAP_SHARED`,
//! `ring_bytes` long, at `map_offset`, all from [`VqpCreate`]): work requests
//! ([`SendWr`]) at `sq_offset`, completions ([`Wc`]) at `cq_offset`, receive buffers
//! ([`RecvWr`]) at `rq_offset`. Each has a power of two of entries; a free-running
//! 32-bit index, modulo that number, is the entry's place. The indices are in the
//! [`RingHeader`] at offset 0.
//!
//! - Submission: the user fills entries from its own index on and tells their number
//!   in [`Enter`]. The kernel copies each once; its places are free again when
//!   `sq_head` has passed them.
//! - Completion: the kernel fills entries and moves `cq_tail` (release); the user takes
//!   them (acquire) and moves `cq_head` (release). That needs no system call.
//! - Receive: the user fills entries and moves `rq_tail` (release). The kernel copies one
//!   when a message arrives, and moves `rq_head`.
//!
//! Whatever a user writes there is judged; nonsense harms nobody else.
//!
//! A request that its process waits for can do without them: [`Run`].
//!
//! # Waiting
//!
//! [`Enter`] waits for completions of one VQP. `poll(2)`, `select(2)` and epoll on the
//! session's file wait for those of all its VQPs: the file is readable (`EPOLLIN`,
//! `EPOLLRDNORM`) while a VQP's `cq_tail` is not its `cq_head`. Edge-triggered epoll
//! reports each completion that comes after the ring was drained. `EPOLLERR` and
//! `EPOLLHUP` say that the node is gone, `EPOLLERR` alone that there is no session yet.
//!
//! A session keeps a few small rings when their VQP goes, and gives them to its next
//! VQPs, with indices of zero. A `map_offset` that was seen before is the same memory
//! as then: who has left it mapped need not map it again.

use crate::gid::Gid;

/// Path of the device.
pub const DEVICE_PATH: &str = "/dev/weft";

/// Version of this contract. Another version is answered with `EPROTONOSUPPORT`.
pub const ABI_VERSION: u32 = 3;

/// VQPs that one session may hold.
pub const MAX_VQPS_PER_SESSION: usize = 256;
/// Memory regions that one session may hold.
pub const MAX_MRS_PER_SESSION: usize = 256;
/// VQPs that the sessions of one user may hold on a node together.
pub const MAX_VQPS_PER_USER: u32 = 4096;
/// Memory regions that the sessions of one user may hold on a node together.
pub const MAX_MRS_PER_USER: u32 = 2048;
/// Registrations with a node's RDMA device that the sessions of one user may hold
/// together. A device takes large regions in several, of at most as many pages as it
/// lists (2 MiB on soft-RoCE). Regions beyond that are used by DC.
pub const MAX_BLOCKS_PER_USER: u32 = MAX_MRS_PER_USER;
/// Streams of DC initiators that one user may have on a node: one for each VQP that
/// sends messages, and for each peer that the user's other VQPs reach by DC one for
/// each CPU that they post from, of at most 8 (the module closes those when it
/// forgets the peer).
pub const MAX_STREAMS_PER_USER: u32 = 8192;
/// Bytes of one memory region.
pub const MAX_MR_BYTES: u64 = 1 << 30;
/// Work requests outstanding on one VQP.
pub const MAX_SEND_WR: u32 = 1024;
/// Receive buffers posted on one VQP.
pub const MAX_RECV_WR: u32 = 1024;
/// Rings without a VQP that a session keeps for its next ones.
pub const KEPT_RINGS: usize = 16;
/// Bytes that rings have at most which are kept.
pub const MAX_KEPT_RING_BYTES: u32 = 1 << 16;
/// Work requests in one [`IOC_ENTER`].
pub const MAX_BATCH: u32 = 1024;
/// Scatter/gather elements of one [`SendWr`].
pub const MAX_SGE: usize = 5;
/// Scatter/gather elements of one [`RecvWr`].
pub const MAX_RECV_SGE: usize = 3;
/// Bytes of inline data in one [`SendWr`].
pub const MAX_INLINE: u32 = 80;
/// Ports that VQPs may be bound to are 1 to this.
pub const MAX_PORT: u32 = 65_535;
/// Senders that a bound VQP tells apart at a time.
pub const MAX_SENDERS: usize = 512;
/// [`Wc::src`]: no sender that could be accepted.
pub const SRC_NONE: u32 = u32::MAX;
/// Bytes that one work request may move.
pub const MAX_MSG_BYTES: u32 = 1 << 30;
/// Longest that one [`IOC_ENTER`] waits, in nanoseconds; longer waits are cut to it.
pub const MAX_WAIT_NS: u64 = 3_600_000_000_000;
/// Meta servers that one host may be configured with.
pub const MAX_META_SERVERS: usize = 4;
/// Nodes (RDMA ports) that one host may have.
pub const MAX_NODES: usize = 64;
/// [`NodeInfo::rc`]: no RC queue pair was wanted yet; the device knows no region.
pub const RC_UNUSED: u32 = 0;
/// [`NodeInfo::rc`]: regions are registered with the device too.
pub const RC_USED: u32 = 1;
/// [`NodeInfo::rc`]: DC alone, because the device registers no memory by requests on
/// queue pairs (`IB_DEVICE_MEM_MGT_EXTENSIONS`), or is gone.
pub const RC_NO_FAST_REGISTRATION: u32 = 2;
/// [`Run::opcode`]: waits for the request that a signal left on its way.
pub const RUN_RESUME: u32 = u32::MAX;
/// [`Hello::node`]: the first node in the caller's network namespace.
pub const NODE_ANY: u32 = u32::MAX;

/// Marks a struct that user and kernel may hand to each other as bytes.
///
/// # Safety
///
/// The type is `repr(C)`, has no padding and no pointer, and every bit pattern
/// is a valid value.
pub unsafe trait Pod: Copy + Sized + 'static {
    /// The value with every bit clear.
    #[must_use]
    fn zeroed() -> Self {
        // SAFETY: the trait promises that every bit pattern is a valid value.
        unsafe { core::mem::zeroed() }
    }

    /// The value as bytes.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: the trait promises that there is no padding, so that every
        // byte is initialised; the length is the type's own.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// The value as bytes that may be overwritten.
    fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_bytes`; any bytes written are a valid value.
        unsafe {
            core::slice::from_raw_parts_mut(core::ptr::from_mut(self).cast(), size_of::<Self>())
        }
    }
}

macro_rules! pod {
    ($(#[$meta:meta])* pub struct $name:ident [$size:literal] { $($(#[$fmeta:meta])* pub $field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty,)* }

        const _: () = {
            // No padding: the size is the fields' sum, and it never changes.
            assert!(size_of::<$name>() == 0 $(+ size_of::<$ty>())*);
            assert!(size_of::<$name>() == $size);
        };

        // SAFETY: `repr(C)`, the assertion above rules padding out, and every
        // field is an integer, an array of integers, or such a struct.
        unsafe impl Pod for $name {}
    };
}

// ---- request numbers ----

/// The `type` byte of every request.
pub const IOC_TYPE: u8 = b'W';

const fn ioc(dir: u32, nr: u8, size: usize) -> u32 {
    (dir << 30) | ((size as u32) << 16) | ((IOC_TYPE as u32) << 8) | nr as u32
}

/// `_IO(IOC_TYPE, nr)`.
const fn io(nr: u8) -> u32 {
    ioc(0, nr, 0)
}

/// `_IOW(IOC_TYPE, nr, T)`: the kernel reads a `T`.
const fn iow<T>(nr: u8) -> u32 {
    ioc(1, nr, size_of::<T>())
}

/// `_IOWR(IOC_TYPE, nr, T)`: the kernel reads a `T` and writes it back.
const fn iowr<T>(nr: u8) -> u32 {
    ioc(3, nr, size_of::<T>())
}

/// Does nothing; what a system call to the module costs.
pub const IOC_NOP: u32 = io(0);
/// Opens the session on a node. [`Hello`].
pub const IOC_HELLO: u32 = iowr::<Hello>(1);
/// Describes a node by its index. [`NodeInfo`].
pub const IOC_NODE: u32 = iowr::<NodeInfo>(2);
/// Makes a VQP. [`VqpCreate`].
pub const IOC_VQP_CREATE: u32 = iowr::<VqpCreate>(3);
/// Destroys a VQP; its outstanding requests are dropped. [`VqpHandle`].
pub const IOC_VQP_DESTROY: u32 = iow::<VqpHandle>(4);
/// Connects a VQP to a node. [`QConnect`].
pub const IOC_QCONNECT: u32 = iow::<QConnect>(5);
/// Registers memory. [`MrReg`].
pub const IOC_MR_REG: u32 = iowr::<MrReg>(6);
/// Deregisters memory. [`MrDereg`].
pub const IOC_MR_DEREG: u32 = iow::<MrDereg>(7);
/// Submits work requests and waits for completions. Answers how many requests it
/// took. [`Enter`].
pub const IOC_ENTER: u32 = iow::<Enter>(8);
/// Adds a meta server. Needs `CAP_NET_ADMIN`. [`MetaServer`].
pub const IOC_META_ADD: u32 = iow::<MetaServer>(9);
/// Removes a meta server. Needs `CAP_NET_ADMIN`. [`MetaServer`].
pub const IOC_META_REMOVE: u32 = iow::<MetaServer>(10);
/// Describes a meta server by its index. [`MetaInfo`].
pub const IOC_META: u32 = iowr::<MetaInfo>(11);
/// Empties the node's DCCache. Needs `CAP_NET_ADMIN`.
pub const IOC_DCCACHE_FLUSH: u32 = io(12);
/// Looks a node's record up, always at the meta server. [`Lookup`].
pub const IOC_LOOKUP: u32 = iowr::<Lookup>(13);
/// Binds a VQP to a port, to receive what is sent there. [`QBind`].
pub const IOC_QBIND: u32 = iow::<QBind>(14);
/// Makes a VQP that is connected to a sender. [`Accept`].
pub const IOC_ACCEPT: u32 = iowr::<Accept>(15);
/// Keeps an RC queue pair to a node. Needs `CAP_NET_ADMIN`. [`PoolPin`].
pub const IOC_POOL_PIN: u32 = iow::<PoolPin>(16);
/// No longer keeps one. Needs `CAP_NET_ADMIN`. [`PoolPin`].
pub const IOC_POOL_UNPIN: u32 = iow::<PoolPin>(17);
/// Carries one READ or WRITE out, without the rings. Answers its [`WcStatus`]. [`Run`].
pub const IOC_RUN: u32 = iow::<Run>(18);

// ---- requests ----

pod! {
    /// `IOC_HELLO`.
    ///
    /// Errors: `EPROTONOSUPPORT` (other ABI version), `ENODEV` (no such node, or
    /// none in this network namespace; with `CAP_NET_ADMIN` any can be named),
    /// `EALREADY` (said before).
    pub struct Hello [16] {
        /// In: the caller's [`ABI_VERSION`].
        pub abi_version: u32,
        /// In: the node's index or [`NODE_ANY`]. Out: the index.
        pub node: u32,
        /// Out: nodes that the caller may name.
        pub node_count: u32,
        /// Must be zero.
        pub reserved: u32,
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
        /// Out: changes with each load of the module.
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

pod! {
    /// `IOC_VQP_CREATE`.
    ///
    /// Errors: `EINVAL` (capacity of zero or over [`MAX_SEND_WR`], more receive
    /// buffers than [`MAX_RECV_WR`]), `EMFILE` ([`MAX_VQPS_PER_SESSION`] or
    /// [`MAX_VQPS_PER_USER`] reached), `ENODEV` (the node is gone), `ENOMEM` (also: the rings exceed
    /// `RLIMIT_MEMLOCK`).
    pub struct VqpCreate [64] {
        /// In: work requests that may be outstanding.
        pub max_send_wr: u32,
        /// In: receive buffers that may be posted; 0 if it will not receive.
        pub max_recv_wr: u32,
        /// Out: the handle.
        pub vqp: u32,
        /// Out: bytes of the mapping.
        pub ring_bytes: u32,
        /// Out: where to `mmap` the rings in `/dev/weft`. In a session it is always the
        /// same memory.
        pub map_offset: u64,
        /// Out: entries of the ring of work requests.
        pub sq_entries: u32,
        /// Out: entries of the ring of completions.
        pub cq_entries: u32,
        /// Out: entries of the ring of receive buffers; 0 if there is none.
        pub rq_entries: u32,
        /// Out: where the ring of work requests begins, in bytes.
        pub sq_offset: u32,
        /// Out: where the ring of completions begins.
        pub cq_offset: u32,
        /// Out: where the ring of receive buffers begins.
        pub rq_offset: u32,
        /// Must be zero.
        pub reserved: [u32; 4],
    }
}

pod! {
    /// The indices of a VQP's rings, each on a cache line of its own.
    pub struct RingHeader [320] {
        /// Kernel: work requests that it has copied.
        pub sq_head: u32,
        /// Kernel: 1 while requests go by RC, so that [`Run`] is worth trying.
        pub by_rc: u32,
        /// Unused.
        pub pad0: [u32; 14],
        /// Kernel: completions that it has written.
        pub cq_tail: u32,
        /// Unused.
        pub pad1: [u32; 15],
        /// User: completions that it has taken.
        pub cq_head: u32,
        /// Unused.
        pub pad2: [u32; 15],
        /// User: receive buffers that it has posted.
        pub rq_tail: u32,
        /// Unused.
        pub pad3: [u32; 15],
        /// Kernel: receive buffers that it has copied.
        pub rq_head: u32,
        /// Unused.
        pub pad4: [u32; 15],
    }
}

pod! {
    /// Names a VQP of this session.
    ///
    /// Errors: `EBADF` (the session has no such VQP).
    pub struct VqpHandle [8] {
        /// The handle from [`VqpCreate`].
        pub vqp: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

pod! {
    /// `IOC_QCONNECT` (krcore §4.1, alg. 1).
    ///
    /// Errors: `EBADF` (no such VQP), `EISCONN` (connected already), `EINVAL`
    /// (zero GID, no such port), `EHOSTUNREACH` (no meta server knows the GID), `EAGAIN` (no
    /// meta server is connected and the peer is not cached), `ETIMEDOUT` (the
    /// meta server did not answer), `EINTR` (a signal came before the meta server's
    /// answer; nothing has changed. Where the handler says `SA_RESTART`, the kernel calls
    /// again), `ENODEV` (the local node is gone).
    pub struct QConnect [32] {
        /// The VQP.
        pub vqp: u32,
        /// The port that messages go to, up to [`MAX_PORT`]; 0: none will be sent.
        pub port: u32,
        /// The peer.
        pub gid: Gid,
        /// Must be zero.
        pub reserved: u64,
    }
}

pod! {
    /// `IOC_MR_REG`.
    ///
    /// Errors: `EINVAL` (no length, longer than [`MAX_MR_BYTES`], unknown access
    /// flags, remote write without local write), `EFAULT` (not all of it is
    /// mapped, or not writable), `EINTR` (a signal came; nothing is registered), `ENOMEM` (over `RLIMIT_MEMLOCK`), `EMFILE`
    /// ([`MAX_MRS_PER_SESSION`] or [`MAX_MRS_PER_USER`] reached), `ENODEV` (the node is gone).
    pub struct MrReg [32] {
        /// In: first byte.
        pub addr: u64,
        /// In: length in bytes.
        pub len: u64,
        /// In: `ACCESS_*`.
        pub access: u32,
        /// Out: names the region in this session's requests.
        pub lkey: u32,
        /// Out: names the region in a peer's requests.
        pub rkey: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

pod! {
    /// `IOC_MR_DEREG`. Errors: `ENOENT` (the session has no such region).
    ///
    /// When it returns nobody touches the memory any more. It waits for that through
    /// signals that do not kill: the key is gone at once, so an interrupted caller could
    /// not wait again. A peer that is silent is waited for 1.3 s, one that still uses
    /// the region 10 s.
    pub struct MrDereg [8] {
        /// The region's `lkey`.
        pub lkey: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

pod! {
    /// `IOC_ENTER`: submits what is in the ring, then waits; one system call. The
    /// answer is the number of requests taken.
    ///
    /// A malformed request becomes an error completion on this VQP. Errors:
    /// `EBADF` (no such VQP), `ENOTCONN` (requests on an unconnected VQP),
    /// `EINVAL` (more than [`MAX_BATCH`] or than the ring has, waiting for more
    /// than the completion ring has), `EINTR` (a signal came and no request was
    /// taken), `ENOSPC` (no request was taken, for want of room: completions have
    /// to be taken, or to come, first), `EMFILE` (its first requests on DC, and
    /// [`MAX_STREAMS_PER_USER`] reached), `ENODEV` (the node is gone), `ENOMEM`.
    ///
    /// After an error no request was taken and [`RingHeader::sq_head`] has not moved;
    /// otherwise it has moved by the answer, which may be less than `wr_count`. The
    /// reason why it is less comes back with the next call.
    ///
    /// If there is no room, a call that may wait (`wc_min` is not zero) waits for
    /// room, or until `wc_min` completions are there, or its time is over: the last
    /// two end with `ENOSPC` if nothing was taken. Unsignalled requests that succeed
    /// make room without a completion. One that may not wait is answered at once.
    ///
    /// The kernel takes requests from its own index on, whoever calls: calls with
    /// requests on one VQP have to be made one after the other, or their requests
    /// mix. Calls that only wait may overlap with anything.
    ///
    /// Once a request has failed the VQP stays in error: later requests complete
    /// with [`WcStatus::WrFlushErr`], and so do receive buffers; those that are posted
    /// after the failure when the next request ends, or at the next call that waits.
    pub struct Enter [32] {
        /// The VQP.
        pub vqp: u32,
        /// Work requests to submit.
        pub wr_count: u32,
        /// Completions that have to be in the ring before the call returns.
        pub wc_min: u32,
        /// Must be zero.
        pub flags: u32,
        /// Longest wait in nanoseconds. 0 does not wait.
        pub timeout_ns: u64,
        /// Must be zero.
        pub reserved: u64,
    }
}

pod! {
    /// `IOC_RUN`: one READ or WRITE of one piece of memory, from its post to its end in
    /// one call and without the rings. The answer is the [`WcStatus`] that it ended
    /// with. It takes its turn among the VQP's requests like any other; if it fails,
    /// the VQP is in error.
    ///
    /// Only a request that is well-formed, allowed by its keys and goes by RC as it is can
    /// be run, and one at a time on a VQP; one that is long, or goes across the end of a
    /// block of registered memory, cannot. Errors: `EAGAIN` (it cannot, and nothing was
    /// done: the request has to go through the ring, where it gets its completion),
    /// `EBADF` (no such VQP), `EINVAL` (a reserved field), `EINTR` (a signal came; the
    /// request is on its way), `ENOENT` ([`RUN_RESUME`]: there is none to wait for).
    ///
    /// The call lasts until the request has ended; a request to a dead peer ends, with
    /// an error, in about a second. A signal ends the call and not the request, whose
    /// memory may still be read or written: [`RUN_RESUME`] goes on waiting for it and
    /// answers how it ended. Once it has, another request may take its place.
    pub struct Run [40] {
        /// The VQP.
        pub vqp: u32,
        /// [`OP_READ`] or [`OP_WRITE`]; or [`RUN_RESUME`], which looks at no other field.
        pub opcode: u32,
        /// The peer's key.
        pub rkey: u32,
        /// Must be zero.
        pub reserved: u32,
        /// Address in the peer's memory.
        pub remote_addr: u64,
        /// Local memory, of some bytes.
        pub local: Sge,
    }
}

pod! {
    /// `IOC_QBIND` (krcore §4.1): messages to the port arrive at this VQP.
    ///
    /// Errors: `EBADF` (no such VQP), `EINVAL` (no such port, a VQP without receive
    /// ring, or one that is connected or bound), `EADDRINUSE`, `ENODEV`,
    /// `ENOMEM`.
    pub struct QBind [16] {
        /// The VQP.
        pub vqp: u32,
        /// The port, 1 to [`MAX_PORT`].
        pub port: u32,
        /// Must be zero.
        pub reserved: u64,
    }
}

pod! {
    /// `IOC_ACCEPT` (krcore §4.1, `qpop_msgs`): makes a VQP that is connected to the
    /// sender of a message. What it needs to know of the sender came with the
    /// message; nobody is asked.
    ///
    /// Errors: those of [`VqpCreate`]; `EBADF` (no such VQP), `EINVAL` (it is not
    /// bound), `ENOENT` (it does not know, or not any more, that sender).
    pub struct Accept [72] {
        /// The VQP to make.
        pub vqp: VqpCreate,
        /// In: the bound VQP that has the message.
        pub bound: u32,
        /// In: [`Wc::src`] of the message.
        pub src: u32,
    }
}

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

// ---- work requests and completions ----

/// The peer may not touch the region; this session may read it.
pub const ACCESS_LOCAL_READ: u32 = 0;
/// This session's READs may land in the region.
pub const ACCESS_LOCAL_WRITE: u32 = 1;
/// Peers may write the region.
pub const ACCESS_REMOTE_WRITE: u32 = 1 << 1;
/// Peers may read the region.
pub const ACCESS_REMOTE_READ: u32 = 1 << 2;
/// Peers may change words of the region atomically.
pub const ACCESS_REMOTE_ATOMIC: u32 = 1 << 3;
/// All access flags that exist.
pub const ACCESS_ALL: u32 =
    ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;

/// RDMA WRITE. (`IBV_WR_RDMA_WRITE`)
pub const OP_WRITE: u8 = 0;
/// RDMA WRITE that takes a receive buffer of the peer, and completes it with an
/// immediate. (`IBV_WR_RDMA_WRITE_WITH_IMM`)
pub const OP_WRITE_WITH_IMM: u8 = 1;
/// A message. (`IBV_WR_SEND`)
pub const OP_SEND: u8 = 2;
/// A message with an immediate. (`IBV_WR_SEND_WITH_IMM`)
pub const OP_SEND_WITH_IMM: u8 = 3;
/// RDMA READ. (`IBV_WR_RDMA_READ`)
pub const OP_READ: u8 = 4;
/// Compare and swap of an aligned 8-byte word. (`IBV_WR_ATOMIC_CMP_AND_SWP`) The
/// word's former value lands in the local 8 bytes.
pub const OP_CAS: u8 = 5;
/// Fetch and add, likewise. (`IBV_WR_ATOMIC_FETCH_AND_ADD`)
pub const OP_FAA: u8 = 6;

/// [`Wc::opcode`]: a message has arrived. (`IBV_WC_RECV`)
pub const WC_RECV: u16 = 128;
/// [`Wc::opcode`]: a WRITE with an immediate has arrived.
/// (`IBV_WC_RECV_RDMA_WITH_IMM`)
pub const WC_RECV_RDMA_WITH_IMM: u16 = 129;

/// The request makes a completion. (`IBV_SEND_SIGNALED`)
pub const SEND_SIGNALED: u8 = 1 << 1;
/// The data is in the request itself. (`IBV_SEND_INLINE`)
pub const SEND_INLINE: u8 = 1 << 3;

/// [`Wc::flags`]: there is an immediate. (`IBV_WC_WITH_IMM`)
pub const WC_WITH_IMM: u32 = 1 << 1;

pod! {
    /// A piece of local memory. (`ibv_sge`)
    pub struct Sge [16] {
        /// First byte.
        pub addr: u64,
        /// Bytes.
        pub len: u32,
        /// The region's key.
        pub lkey: u32,
    }
}

pod! {
    /// A work request, two cache lines.
    pub struct SendWr [128] {
        /// Comes back in the completion.
        pub wr_id: u64,
        /// `OP_*`.
        pub opcode: u8,
        /// `SEND_*`.
        pub flags: u8,
        /// Elements in `data`; 0 with [`SEND_INLINE`].
        pub num_sge: u16,
        /// Immediate data, of the operations that have it; else zero. In the order of
        /// the host's bytes: the peer's [`Wc::imm`] is the same number.
        pub imm: u32,
        /// Address in the peer's memory; zero for messages.
        pub remote_addr: u64,
        /// The peer's key for it; zero for messages.
        pub rkey: u32,
        /// Bytes in `data` with [`SEND_INLINE`]; else zero.
        pub inline_len: u32,
        /// `OP_CAS`: what the word has to be. `OP_FAA`: what is added. Else zero.
        pub compare_add: u64,
        /// `OP_CAS`: what the word becomes. Else zero.
        pub swap: u64,
        /// [`Sge`]s, or the data itself with [`SEND_INLINE`].
        pub data: [u64; 10],
    }
}

impl SendWr {
    /// The element with this index, as `data` has it.
    #[inline]
    #[must_use]
    pub fn sge(&self, index: usize) -> Sge {
        let Some(first) = index.checked_mul(2) else {
            return Sge::zeroed();
        };
        match self.data.get(first..) {
            Some(&[addr, rest, ..]) => Sge::from_words(addr, rest),
            _ => Sge::zeroed(),
        }
    }

    /// Puts an element in; one past the last place is ignored.
    #[inline]
    pub fn set_sge(&mut self, index: usize, sge: Sge) {
        if let Some(words) = self.data.chunks_exact_mut(2).nth(index) {
            words.copy_from_slice(&sge.to_words());
        }
    }
}

impl Sge {
    #[inline]
    fn from_words(addr: u64, rest: u64) -> Self {
        let (low, high) = (rest as u32, (rest >> 32) as u32);
        let (len, lkey) = match cfg!(target_endian = "little") {
            true => (low, high),
            false => (high, low),
        };
        Self { addr, len, lkey }
    }

    #[inline]
    fn to_words(self) -> [u64; 2] {
        let (low, high) = match cfg!(target_endian = "little") {
            true => (self.len, self.lkey),
            false => (self.lkey, self.len),
        };
        [self.addr, u64::from(low) | (u64::from(high) << 32)]
    }
}

pod! {
    /// A receive buffer, one cache line. (`ibv_recv_wr`)
    pub struct RecvWr [64] {
        /// Comes back in the completion.
        pub wr_id: u64,
        /// Elements in `sges`; 0: takes only messages without bytes.
        pub num_sge: u32,
        /// Must be zero.
        pub reserved: u32,
        /// Where the bytes go.
        pub sges: [Sge; MAX_RECV_SGE],
    }
}

pod! {
    /// A completion.
    pub struct Wc [32] {
        /// From the work request or the receive buffer.
        pub wr_id: u64,
        /// A [`WcStatus`].
        pub status: u16,
        /// `OP_*` of the request, or `WC_RECV*`.
        pub opcode: u16,
        /// `WC_*`.
        pub flags: u32,
        /// Bytes moved; 0 if it failed.
        pub byte_len: u32,
        /// The VQP.
        pub vqp: u32,
        /// The immediate, if there is one, as the number that the sender gave.
        pub imm: u32,
        /// Of a message to a bound VQP: its sender, for [`Accept`]. Else
        /// [`SRC_NONE`].
        pub src: u32,
    }
}

/// How a work request ended, with the numbers of `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WcStatus {
    /// Done.
    Success = 0,
    /// Longer than a request may be; of a receive buffer: shorter than the message.
    LocLenErr = 1,
    /// Unknown opcode, flag or element count.
    LocQpOpErr = 2,
    /// The local key, range or access was wrong.
    LocProtErr = 4,
    /// An earlier request on this VQP failed, or the VQP was torn down.
    WrFlushErr = 5,
    /// The peer did not understand the request.
    RemInvReqErr = 9,
    /// The remote key, range or access was wrong.
    RemAccessErr = 10,
    /// The peer could not carry the request out.
    RemOpErr = 11,
    /// The peer did not answer, is down or out of reach, or the queue pair to it broke,
    /// which others use too; or nobody receives where the message was sent.
    RetryExcErr = 12,
    /// The receiver had no buffer for too long.
    RnrRetryExcErr = 13,
    /// The peer was restarted since its metadata was looked up: connect again. Of a
    /// receive buffer: the sender went away in the middle of its message.
    RemAbortErr = 16,
    /// The local node went away.
    FatalErr = 19,
}

impl WcStatus {
    /// The status with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Success,
            1 => Self::LocLenErr,
            2 => Self::LocQpOpErr,
            4 => Self::LocProtErr,
            5 => Self::WrFlushErr,
            9 => Self::RemInvReqErr,
            10 => Self::RemAccessErr,
            11 => Self::RemOpErr,
            12 => Self::RetryExcErr,
            13 => Self::RnrRetryExcErr,
            16 => Self::RemAbortErr,
            19 => Self::FatalErr,
            _ => return None,
        })
    }
}

// SAFETY: a transparent array of bytes.
unsafe impl Pod for Gid {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_numbers_follow_the_kernels_encoding() {
        assert_eq!(IOC_NOP, 0x5700);
        assert_eq!(IOC_HELLO, 0xc010_5701);
        assert_eq!(IOC_QCONNECT, 0x4020_5705);
    }

    #[test]
    fn an_element_survives_its_place() {
        let sge = Sge {
            addr: 0x1122_3344_5566_7788,
            len: 9,
            lkey: 10,
        };
        let mut wr = SendWr::zeroed();
        wr.set_sge(MAX_SGE - 1, sge);
        wr.set_sge(MAX_SGE, sge);
        assert_eq!(wr.sge(MAX_SGE - 1), sge);
        assert_eq!(wr.sge(MAX_SGE), Sge::zeroed());
        assert_eq!(wr.data[..8], [0; 8]);
    }

    #[test]
    fn a_status_survives_its_number() {
        let known = (0..32).filter_map(WcStatus::from_number).count();
        assert_eq!(known, 12);
        for status in (0..32).filter_map(WcStatus::from_number) {
            assert_eq!(WcStatus::from_number(status as u32), Some(status));
        }
    }

    #[test]
    fn bytes_written_into_a_struct_are_its_fields() {
        let mut wc = Wc::zeroed();
        wc.as_bytes_mut()[..8].copy_from_slice(&7u64.to_ne_bytes());
        assert_eq!(wc.wr_id, 7);
        assert_eq!(wc.as_bytes().len(), 32);
    }
}
