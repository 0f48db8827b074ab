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

use crate::gid::Gid;

/// Path of the device.
pub const DEVICE_PATH: &str = "/dev/weft";

/// Version of this contract. Another version is answered with `EPROTONOSUPPORT`.
pub const ABI_VERSION: u32 = 1;

/// VQPs that one session may hold.
pub const MAX_VQPS_PER_SESSION: usize = 256;
/// Memory regions that one session may hold.
pub const MAX_MRS_PER_SESSION: usize = 256;
/// Bytes of one memory region.
pub const MAX_MR_BYTES: u64 = 1 << 30;
/// Work requests outstanding on one VQP.
pub const MAX_SEND_WR: u32 = 1024;
/// Work requests in one [`IOC_ENTER`].
pub const MAX_BATCH: u32 = 1024;
/// Bytes that one work request may move.
pub const MAX_MSG_BYTES: u32 = 1 << 30;
/// Longest that one [`IOC_ENTER`] waits, in nanoseconds; longer waits are cut to it.
pub const MAX_WAIT_NS: u64 = 3_600_000_000_000;
/// Meta servers that one host may be configured with.
pub const MAX_META_SERVERS: usize = 4;
/// Nodes (RDMA ports) that one host may have.
pub const MAX_NODES: usize = 64;
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
        // field is an integer or an array of integers.
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
/// Submits work requests and reaps completions. [`Enter`].
pub const IOC_ENTER: u32 = iowr::<Enter>(8);
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

// ---- requests ----

pod! {
    /// `IOC_HELLO`.
    ///
    /// Errors: `EPROTONOSUPPORT` (other ABI version), `ENODEV` (no such node, or
    /// none in this network namespace), `EALREADY` (said before).
    pub struct Hello [16] {
        /// In: the caller's [`ABI_VERSION`].
        pub abi_version: u32,
        /// In: the node's index or [`NODE_ANY`]. Out: the index.
        pub node: u32,
        /// Out: nodes that this host has.
        pub node_count: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

pod! {
    /// `IOC_NODE`: one RDMA port that Weft runs on.
    ///
    /// Errors: `ENODEV` (no node has this index).
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
        /// Out: zero.
        pub reserved: u32,
    }
}

pod! {
    /// `IOC_VQP_CREATE`.
    ///
    /// Errors: `EINVAL` (capacity of zero or over [`MAX_SEND_WR`]), `EMFILE`
    /// ([`MAX_VQPS_PER_SESSION`] reached), `ENODEV` (the node is gone), `ENOMEM`.
    pub struct VqpCreate [16] {
        /// In: work requests that may be outstanding.
        pub max_send_wr: u32,
        /// Out: the handle.
        pub vqp: u32,
        /// Must be zero.
        pub reserved: [u32; 2],
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
    /// (zero GID), `EHOSTUNREACH` (no meta server knows the GID), `EAGAIN` (no
    /// meta server is connected and the peer is not cached), `ETIMEDOUT` (the
    /// meta server did not answer), `ENODEV` (the local node is gone).
    pub struct QConnect [32] {
        /// The VQP.
        pub vqp: u32,
        /// The port that two-sided messages go to; one-sided requests ignore it.
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
    /// mapped, or not writable), `ENOMEM` (over `RLIMIT_MEMLOCK`), `EMFILE`
    /// ([`MAX_MRS_PER_SESSION`] reached), `ENODEV` (the node is gone).
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
    pub struct MrDereg [8] {
        /// The region's `lkey`.
        pub lkey: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

pod! {
    /// `IOC_ENTER`: submits, then waits, then reaps; one system call.
    ///
    /// A malformed request becomes an error completion on this VQP. Errors:
    /// `EBADF` (no such VQP), `ENOTCONN` (requests on an unconnected VQP),
    /// `EINVAL` (more than [`MAX_BATCH`], or waiting for more than fits),
    /// `EFAULT` (a pointer is wild), `EINTR` (a signal came and nothing was
    /// submitted or reaped), `ENOSPC` (the VQP's queue is full and nothing was
    /// submitted or reaped).
    pub struct Enter [64] {
        /// The VQP.
        pub vqp: u32,
        /// Work requests at `wrs`.
        pub wr_count: u32,
        /// Address of [`SendWr`]s.
        pub wrs: u64,
        /// Room at `wcs`, in completions.
        pub wc_max: u32,
        /// Completions to wait for.
        pub wc_min: u32,
        /// Address of [`Wc`]s.
        pub wcs: u64,
        /// Longest wait in nanoseconds. 0 does not wait.
        pub timeout_ns: u64,
        /// Out: requests accepted.
        pub submitted: u32,
        /// Out: completions written.
        pub completed: u32,
        /// Must be zero.
        pub reserved: [u64; 2],
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
/// RDMA READ. (`IBV_WR_RDMA_READ`)
pub const OP_READ: u8 = 4;
/// Compare and swap of an aligned 8-byte word. (`IBV_WR_ATOMIC_CMP_AND_SWP`) The
/// word's former value lands in the local 8 bytes.
pub const OP_CAS: u8 = 5;
/// Fetch and add, likewise. (`IBV_WR_ATOMIC_FETCH_AND_ADD`)
pub const OP_FAA: u8 = 6;

/// The request makes a completion. (`IBV_SEND_SIGNALED`)
pub const SEND_SIGNALED: u8 = 1 << 1;

pod! {
    /// A work request, one cache line.
    pub struct SendWr [64] {
        /// Comes back in the completion.
        pub wr_id: u64,
        /// `OP_*`.
        pub opcode: u8,
        /// `SEND_*`.
        pub flags: u8,
        /// Scatter/gather elements that follow: 1.
        pub num_sge: u16,
        /// Immediate data.
        pub imm: u32,
        /// Address in the peer's memory.
        pub remote_addr: u64,
        /// The peer's key for it.
        pub rkey: u32,
        /// The local region's key.
        pub lkey: u32,
        /// Local address.
        pub local_addr: u64,
        /// Bytes; 8 for an atomic operation.
        pub len: u32,
        /// Must be zero.
        pub reserved: u32,
        /// `OP_CAS`: what the word has to be. `OP_FAA`: what is added. Else zero.
        pub compare_add: u64,
        /// `OP_CAS`: what the word becomes. Else zero.
        pub swap: u64,
    }
}

pod! {
    /// A completion.
    pub struct Wc [32] {
        /// From the work request.
        pub wr_id: u64,
        /// A [`WcStatus`].
        pub status: u32,
        /// `OP_*` of the request.
        pub opcode: u32,
        /// Bytes moved; 0 if it failed.
        pub byte_len: u32,
        /// The VQP.
        pub vqp: u32,
        /// Zero.
        pub reserved: u64,
    }
}

/// How a work request ended, with the numbers of `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WcStatus {
    /// Done.
    Success = 0,
    /// Longer than a request may be.
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
    /// The peer did not answer; it is down or out of reach.
    RetryExcErr = 12,
    /// The peer was restarted since its metadata was looked up: connect again.
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
    fn a_status_survives_its_number() {
        let known = (0..32).filter_map(WcStatus::from_number).count();
        assert_eq!(known, 11);
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
