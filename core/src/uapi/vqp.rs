// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Virtual queue pairs.

use super::{pod, Pod, Sge};
use crate::gid::Gid;

/// [`VqpCreate::rq`]: it receives nothing.
pub const RINGS_NONE: u32 = u32::MAX;
/// [`VqpCreate::flags`]: other VQPs take receive buffers from the same ring. They stay
/// there when a VQP fails. (`ibv_srq`) Without it a receive ring is one VQP's, and comes
/// back with that one's failure.
pub const VQP_SHARED_RECEIVE: u32 = 1;
/// [`VqpCreate::flags`]: it is not connected; each request names its peer.
pub const VQP_UNCONNECTED: u32 = 1 << 1;

pod! {
    /// `IOC_VQP_CREATE`: a VQP on rings of the session, connected at once if `gid` is
    /// not zero.
    ///
    /// Errors: `EBADF` (no such rings), `EINVAL` (`max_send_wr` of zero or over
    /// [`MAX_SEND_WR`](super::MAX_SEND_WR), no completion ring there, no receive ring
    /// there, an unknown flag, an unconnected VQP with a peer or a receive ring, a port
    /// without a peer), `EBUSY` (the receive ring is another VQP's, or one says that it
    /// is shared and the other does not), `EMFILE`
    /// ([`MAX_VQPS_PER_USER`](super::MAX_VQPS_PER_USER) reached), `ENODEV` (the node is
    /// gone), `ENOMEM`; with a peer those of [`QConnect`].
    pub struct VqpCreate [64] {
        /// In: the rings that its completions go to.
        pub cq: u32,
        /// In: the rings that its receive buffers come from, or [`RINGS_NONE`].
        pub rq: u32,
        /// In: work requests that may be outstanding; of an unconnected VQP, to one peer.
        pub max_send_wr: u32,
        /// In: `VQP_*`.
        pub flags: u32,
        /// In: the peer to connect to, or zero.
        pub gid: Gid,
        /// In: the peer's port that messages go to; 0: none will be sent.
        pub port: u32,
        /// Out: the handle.
        pub vqp: u32,
        /// Must be zero.
        pub reserved: [u32; 6],
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
    /// (zero GID, no such port, a VQP that is bound or unconnected), `EHOSTUNREACH` (no
    /// meta server knows the GID), `EAGAIN` (no meta server is connected and the peer is
    /// not cached), `ETIMEDOUT` (the meta server did not answer), `EINTR` (a signal came
    /// meanwhile; nothing has changed. Where the handler says `SA_RESTART`, the kernel calls
    /// again), `ENOMEM`, `ENODEV` (the local node is gone). With `pool=rc` the call also waits
    /// for an RC queue pair: `EHOSTDOWN` (the peer did not answer), `EOPNOTSUPP` (the RDMA device
    /// cannot do RC).
    pub struct QConnect [32] {
        /// The VQP.
        pub vqp: u32,
        /// The port that messages go to, up to [`MAX_PORT`](super::MAX_PORT); 0: none
        /// will be sent.
        pub port: u32,
        /// The peer.
        pub gid: Gid,
        /// Must be zero.
        pub reserved: u64,
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
        /// The port, 1 to [`MAX_PORT`](super::MAX_PORT).
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
        /// In: [`Wc::src`](super::Wc::src) of the message.
        pub src: u32,
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
    /// block of registered memory, cannot. Errors: `EAGAIN` (it cannot, or a signal came
    /// before it was posted; nothing was done, and the request has to go through the ring,
    /// where it gets its completion), `EBADF` (no such VQP), `EINVAL` (a reserved field),
    /// `EINTR` (a signal came; the request is on its way), `ENOENT` ([`RUN_RESUME`]: there is
    /// none to wait for).
    ///
    /// Before the request is posted the call may sleep as [`Enter`](super::Enter) says. It lasts
    /// until the request has ended; a request to a dead peer ends, with an error, in about a
    /// second. A signal ends the call and not the request, whose
    /// memory may still be read or written: [`RUN_RESUME`] goes on waiting for it and
    /// answers how it ended. Once it has, another request may take its place.
    ///
    /// [`WcStatus`]: super::WcStatus
    /// [`RUN_RESUME`]: super::RUN_RESUME
    pub struct Run [40] {
        /// The VQP.
        pub vqp: u32,
        /// [`OP_READ`] or [`OP_WRITE`]; or [`RUN_RESUME`], which looks at `vqp` alone of the
        /// fields that may be other than zero.
        ///
        /// [`OP_READ`]: super::OP_READ
        /// [`OP_WRITE`]: super::OP_WRITE
        /// [`RUN_RESUME`]: super::RUN_RESUME
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
    /// `IOC_PEER_OPEN`: finds a peer as [`QConnect`] does, and keeps it for requests of
    /// the session's unconnected VQPs. (The address handle of verbs.)
    ///
    /// Errors: those of [`QConnect`] but `EBADF` and `EISCONN`; `EMFILE`
    /// ([`MAX_PEERS_PER_USER`](super::MAX_PEERS_PER_USER) reached), `ENOMEM`.
    pub struct PeerOpen [32] {
        /// In: the peer.
        pub gid: Gid,
        /// In: the port that messages go to, up to [`MAX_PORT`](super::MAX_PORT); 0: none
        /// will be sent.
        pub port: u32,
        /// Out: the handle.
        pub peer: u32,
        /// Must be zero.
        pub reserved: u64,
    }
}

pod! {
    /// Names a peer that the session has opened. Requests to it that are under way go on
    /// when it is closed.
    ///
    /// Errors: `EBADF` (the session has no such peer).
    pub struct PeerHandle [8] {
        /// The handle from [`PeerOpen`].
        pub peer: u32,
        /// Must be zero.
        pub reserved: u32,
    }
}
