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
//! Rings are memory of a session that its process maps (`mmap` with `MAP_SHARED`,
//! `ring_bytes` long, at `map_offset`, all from [`RingsCreate`]): a submission ring of work
//! requests ([`SendWr`]) at `sq_offset`, a completion ring ([`Wc`]) at `cq_offset`, a
//! receive ring of buffers ([`RecvWr`]) at `rq_offset`. Any number of VQPs may use them, as
//! a completion queue and a shared receive queue of verbs. Each ring has a power of two of
//! entries; a free-running 32-bit index, modulo that number, is the entry's place. The
//! indices are in the [`RingHeader`] at offset 0.
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
//! [`Enter`] waits for completions in one ring. `poll(2)`, `select(2)` and epoll on the
//! session's file wait for those of all its rings: the file is readable (`EPOLLIN`,
//! `EPOLLRDNORM`) while a ring's `cq_tail` is not its `cq_head`. Edge-triggered epoll
//! reports each completion that comes after the ring was drained. `EPOLLERR` and
//! `EPOLLHUP` say that the node is gone, after which completions of requests that were under
//! way may still follow; `EPOLLERR` alone says that there is no session yet.
//! [`CqNotify`] has an eventfd signalled for one ring alone, for each completion or for many
//! together.
//!
//! A session keeps a few small rings when they are destroyed, and gives their memory to its
//! next ones, with indices of zero. A `map_offset` that was seen before is the same memory
//! as then: who has left it mapped need not map it again.

mod admin;
mod ioctl;
mod memory;
mod pod;
mod rings;
mod session;
mod status;
mod vqp;
mod work;

use crate::gid::Gid;
use pod::pod;

pub use admin::*;
pub use ioctl::*;
pub use memory::*;
pub use pod::Pod;
pub use rings::{CqNotify, Enter, RingHeader, RingsCreate, RingsHandle, EVENTFD_NONE};
pub use session::{Hello, NodeInfo};
pub use status::WcStatus;
pub use vqp::*;
pub use work::*;

/// Path of the device.
pub const DEVICE_PATH: &str = "/dev/weft";

/// Version of this contract. Another version is answered with `EPROTONOSUPPORT`.
pub const ABI_VERSION: u32 = 7;

/// Rings that one session may hold.
pub const MAX_RINGS_PER_SESSION: usize = 4096;
/// Memory regions that one session may hold.
pub const MAX_MRS_PER_SESSION: usize = 256;
/// Memory windows that one session may hold.
pub const MAX_MWS_PER_SESSION: usize = 4096;
/// VQPs that the sessions of one user may hold on a node together. An unconnected one counts
/// once more for each peer that it keeps a VQP for: those that its requests are under way to,
/// those that it has failed to reach and that are still open, and some that it may need again.
pub const MAX_VQPS_PER_USER: u32 = 1 << 17;
/// Peers that the sessions of one user may have opened on a node together.
pub const MAX_PEERS_PER_USER: u32 = 1 << 17;
/// Memory regions that the sessions of one user may hold on a node together.
pub const MAX_MRS_PER_USER: u32 = 2048;
/// Memory windows that the sessions of one user may hold on a node together.
pub const MAX_MWS_PER_USER: u32 = 1 << 14;
/// Registrations with a node's RDMA device that the sessions of one user may hold
/// together. A device takes large regions in several, of at most as many pages as it
/// lists (2 MiB on soft-RoCE), and each window anew. What is beyond that is used by DC.
pub const MAX_BLOCKS_PER_USER: u32 = MAX_MRS_PER_USER;
/// Streams of DC initiators that one user may have on a node: one for each VQP that
/// sends messages, and for each peer that the user's other VQPs reach by DC one for
/// each CPU that they post from, of at most 8 (the module closes those when it
/// forgets the peer).
pub const MAX_STREAMS_PER_USER: u32 = 8192;
/// Bytes of one memory region.
pub const MAX_MR_BYTES: u64 = 1 << 30;
/// Work requests outstanding on one VQP, and requests in one submission ring.
pub const MAX_SEND_WR: u32 = 1024;
/// Receive buffers in one ring.
pub const MAX_RECV_WR: u32 = 1 << 14;
/// Completions in one ring.
pub const MAX_WC: u32 = 1 << 17;
/// Bytes of registered memory that may come with rings.
pub const MAX_RING_MEMORY: u32 = 1 << 23;
/// Completions that an eventfd may be signalled for together.
pub const MAX_NOTIFY_COUNT: u32 = 65_535;
/// Longest that an eventfd may be signalled later, in microseconds.
pub const MAX_NOTIFY_US: u32 = 65_535;
/// Rings that were destroyed and that a session keeps for its next ones.
pub const KEPT_RINGS: usize = 16;
/// Bytes that kept rings have at most.
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
/// queue pairs (`IB_DEVICE_MEM_MGT_EXTENSIONS`), or too few pages with one, or is gone.
pub const RC_NO_FAST_REGISTRATION: u32 = 2;
/// [`Run::opcode`]: waits for the request that a signal left on its way.
pub const RUN_RESUME: u32 = u32::MAX;
/// [`Hello::node`]: the first node in the caller's network namespace.
pub const NODE_ANY: u32 = u32::MAX;

// SAFETY: a transparent array of bytes.
unsafe impl Pod for Gid {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_numbers_follow_the_kernels_encoding() {
        assert_eq!(IOC_NOP, 0x5700);
        assert_eq!(IOC_HELLO, 0xc070_5701);
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
