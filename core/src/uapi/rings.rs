// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Rings: queues that a process shares with the kernel.

use super::{pod, Pod};

pod! {
    /// `IOC_RINGS_CREATE`: a submission, a completion and a receive ring in one mapping;
    /// one of no entries is not there. Memory that is registered can be part of it.
    ///
    /// A completion ring has to have room for all requests of its VQPs that are under way
    /// or whose completions were not taken, and for the messages that have arrived.
    ///
    /// The memory is the module's, zeroed, and needs no pinning. From there on it is a
    /// region as others are, which [`MrDereg`](super::MrDereg) ends; it is there until the
    /// rings, the region and all mappings are gone. Requests name its bytes by
    /// `memory_addr`, a number of the user's choice that has nothing to do with where it is
    /// mapped (0 is what verbs call a zero-based region).
    ///
    /// Errors: `EINVAL` (no ring at all, or more than [`MAX_SEND_WR`](super::MAX_SEND_WR),
    /// [`MAX_WC`](super::MAX_WC), [`MAX_RECV_WR`](super::MAX_RECV_WR) or
    /// [`MAX_RING_MEMORY`](super::MAX_RING_MEMORY); without memory an address or access
    /// flags; an address that is not a page's, or from which the memory would pass the end
    /// of all addresses; access flags as for [`MrReg`](super::MrReg)), `EMFILE`
    /// ([`MAX_RINGS_PER_SESSION`](super::MAX_RINGS_PER_SESSION) reached, or a limit of
    /// regions), `ENODEV` (the node is gone), `ENOMEM` (also: they exceed `RLIMIT_MEMLOCK`).
    pub struct RingsCreate [80] {
        /// In: requests that the submission ring has room for.
        pub max_send_wr: u32,
        /// In: completions that there may be, of requests and receive buffers together. There
        /// may be as many as the ring has entries, which is the next power of two.
        pub max_wc: u32,
        /// In: receive buffers that may be posted.
        pub max_recv_wr: u32,
        /// Out: the handle.
        pub rings: u32,
        /// Out: where to `mmap` them in `/dev/weft`. In a session it is always the same
        /// memory.
        pub map_offset: u64,
        /// Out: bytes of the mapping.
        pub ring_bytes: u32,
        /// Out: entries of the submission ring.
        pub sq_entries: u32,
        /// Out: entries of the completion ring.
        pub cq_entries: u32,
        /// Out: entries of the receive ring.
        pub rq_entries: u32,
        /// Out: where the submission ring begins, in bytes.
        pub sq_offset: u32,
        /// Out: where the completion ring begins.
        pub cq_offset: u32,
        /// Out: where the receive ring begins.
        pub rq_offset: u32,
        /// In: bytes of memory that are registered; 0: none.
        pub memory_bytes: u32,
        /// In: the address of the first of them in requests, a multiple of the page size.
        pub memory_addr: u64,
        /// In: `ACCESS_*` to them.
        pub memory_access: u32,
        /// Out: where they begin in the mapping, at a page.
        pub memory_offset: u32,
        /// Out: their `lkey` and `rkey`.
        pub memory_key: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

pod! {
    /// Names rings of this session.
    ///
    /// Errors: `EBADF` (the session has no such rings), `EBUSY` (VQPs use them).
    pub struct RingsHandle [8] {
        /// The handle from [`RingsCreate`].
        pub rings: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}

/// [`CqNotify::eventfd`]: none.
pub const EVENTFD_NONE: u32 = u32::MAX;

pod! {
    /// `IOC_CQ_NOTIFY`: has an eventfd signalled when completions come to a ring, in place
    /// of the one before; the completion channel of verbs, with the moderation of
    /// `ibv_modify_cq`. An eventfd may serve many rings.
    ///
    /// It is signalled once `count` completions have come since it was last, and at the
    /// latest `period_us` after the first of them; and at once, if there are completions
    /// that were not taken. So whoever reads it and then takes completions until there are
    /// none misses none; it may be signalled more often. The end of the node is told by
    /// `poll(2)` alone. The module keeps the eventfd, not the descriptor, until the rings
    /// are gone.
    ///
    /// Receive buffers that are posted for a VQP that is in error already, or that found the
    /// completion ring full, come back only when a request of it ends, a call waits at the ring
    /// or the session is polled with `poll(2)` ([`Enter`]). The eventfd is signalled then, and
    /// not before: who waits at it alone does not see them.
    ///
    /// Errors: `EBADF` (no such rings, no such descriptor), `EINVAL` (no completion ring
    /// there, another kind of file, `count` of zero or over
    /// [`MAX_NOTIFY_COUNT`](super::MAX_NOTIFY_COUNT), `period_us` over
    /// [`MAX_NOTIFY_US`](super::MAX_NOTIFY_US), a `count` over 1 without a `period_us`;
    /// without an eventfd one of them that is not zero), `ENOMEM`.
    pub struct CqNotify [24] {
        /// The handle from [`RingsCreate`].
        pub rings: u32,
        /// The eventfd's descriptor, or [`EVENTFD_NONE`]: nothing is signalled any more.
        pub eventfd: u32,
        /// Completions that are told of at once; 1: each is.
        pub count: u32,
        /// Longest that fewer wait, in microseconds; not zero if `count` is more than 1.
        pub period_us: u32,
        /// Must be zero.
        pub reserved: u64,
    }
}

pod! {
    /// The indices of rings, each on a cache line of its own.
    pub struct RingHeader [320] {
        /// Kernel: work requests that it has copied.
        pub sq_head: u32,
        /// Unused.
        pub pad0: [u32; 15],
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
    /// `IOC_ENTER`: submits what is in a submission ring, then waits for what comes to a
    /// completion ring; one system call. The answer is the number of requests taken.
    ///
    /// Requests are taken in the ring's order; each names its VQP
    /// ([`SendWr::vqp`](super::SendWr::vqp)). Those of a VQP are carried out in that order (to a
    /// peer, if it is unconnected). A malformed request becomes an error completion of its VQP.
    /// Errors: `EBADF` (no such rings, or the next request names no VQP or no peer), `ENOTCONN`
    /// (its VQP is not connected), `EINVAL` (more than [`MAX_BATCH`](super::MAX_BATCH) or than
    /// the ring has, waiting for more than the completion ring has), `EINTR` (a signal came and no
    /// request was taken), `ENOSPC` (no request was taken, for want of room: completions
    /// have to be taken, or to come, first), `EMFILE` (its VQP's first requests on DC, and
    /// [`MAX_STREAMS_PER_USER`](super::MAX_STREAMS_PER_USER) reached; an unconnected VQP's
    /// first ones to a peer, and [`MAX_VQPS_PER_USER`](super::MAX_VQPS_PER_USER) reached),
    /// `ENOMEM`. When the node is gone, requests are still taken, and complete with
    /// [`WcStatus::FatalErr`](super::WcStatus::FatalErr).
    ///
    /// After an error no request was taken and [`RingHeader::sq_head`] has not moved;
    /// otherwise it has moved by the answer, which may be less than `wr_count`. The
    /// reason why it is less comes back with the next call. Requests of other VQPs behind
    /// one that cannot be taken wait: the user may put another in its place.
    ///
    /// If there is no room, a call that may wait (`wc_min` is not zero) waits for
    /// room, or until `wc_min` completions are there, or its time is over: the last
    /// two end with `ENOSPC` if nothing was taken. Unsignalled requests that succeed
    /// make room without a completion. One that may not wait is answered at once.
    ///
    /// Whatever `wc_min` and `timeout_ns` are, a call may sleep before it has taken a request:
    /// while the stream to the peer, which the user's VQPs share that post on this CPU, has 128
    /// requests (the RC queue pair to it, which all share, 256, or 2 MiB); while requests of the
    /// VQP before a fenced one, or before one for which it goes over to DC, are under way; while
    /// the peer's table of regions is READ by RC, behind what was posted before, for a key that
    /// was not looked up in the last half second. That takes seconds if the peer is silent or
    /// its receiver has no buffers. A signal ends it, within about a tenth of a second.
    ///
    /// The kernel takes requests from its own index on, whoever calls: calls with
    /// requests on one ring have to be made one after the other, or their requests
    /// mix. Calls that only wait may overlap with anything.
    ///
    /// Once a request of a VQP has failed that VQP stays in error: its later requests
    /// complete with [`WcStatus::WrFlushErr`](super::WcStatus::WrFlushErr), and so do
    /// receive buffers in a ring of its own; those that are posted after the failure soon
    /// after its next request ends, at the next call that waits for completions in that ring
    /// or at the next `poll(2)`. Other VQPs go on.
    pub struct Enter [32] {
        /// The rings to submit from.
        pub sq: u32,
        /// Work requests to submit.
        pub wr_count: u32,
        /// The rings to wait for completions in; mostly the same.
        pub cq: u32,
        /// Completions that have to be in that ring before the call returns.
        pub wc_min: u32,
        /// Longest wait for completions, or for room for them, in nanoseconds. 0 does not wait
        /// for these.
        pub timeout_ns: u64,
        /// Must be zero.
        pub reserved: u64,
    }
}
