// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The numbers of requests, as `uapi/asm-generic/ioctl.h` makes them.

use super::{
    Accept, CqNotify, Enter, Hello, Lookup, MetaInfo, MetaServer, MrDereg, MrReg, MwBind, NodeInfo,
    PeerHandle, PeerOpen, PoolPeer, PoolPin, PoolUse, QBind, QConnect, RingsCreate, RingsHandle,
    Run, VqpCreate, VqpHandle,
};

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
/// Opens the session on a node, and makes its first rings if that is wanted. [`Hello`].
pub const IOC_HELLO: u32 = iowr::<Hello>(1);
/// Describes a node by its index. [`NodeInfo`].
pub const IOC_NODE: u32 = iowr::<NodeInfo>(2);
/// Makes a VQP, and connects it if that is wanted. [`VqpCreate`].
pub const IOC_VQP_CREATE: u32 = iowr::<VqpCreate>(3);
/// Destroys a VQP. Requests that were posted go on, without completions: local memory is read
/// and written by them until it is deregistered. [`VqpHandle`].
pub const IOC_VQP_DESTROY: u32 = iow::<VqpHandle>(4);
/// Connects a VQP to a node. [`QConnect`].
pub const IOC_QCONNECT: u32 = iow::<QConnect>(5);
/// Registers memory. [`MrReg`].
pub const IOC_MR_REG: u32 = iowr::<MrReg>(6);
/// Deregisters memory, or ends a memory window. [`MrDereg`].
pub const IOC_MR_DEREG: u32 = iow::<MrDereg>(7);
/// Submits work requests of any VQPs and waits for completions. Answers how many
/// requests it took. [`Enter`].
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
/// Carries one READ or WRITE out, without the rings. Answers its
/// [`WcStatus`](super::WcStatus). [`Run`].
pub const IOC_RUN: u32 = iow::<Run>(18);
/// Makes rings. [`RingsCreate`].
pub const IOC_RINGS_CREATE: u32 = iowr::<RingsCreate>(19);
/// Destroys rings that no VQP uses. [`RingsHandle`].
pub const IOC_RINGS_DESTROY: u32 = iow::<RingsHandle>(20);
/// Finds a peer for requests of unconnected VQPs. [`PeerOpen`].
pub const IOC_PEER_OPEN: u32 = iowr::<PeerOpen>(21);
/// Forgets a peer that was opened. [`PeerHandle`].
pub const IOC_PEER_CLOSE: u32 = iow::<PeerHandle>(22);
/// Has an eventfd signalled when completions come to a ring. [`CqNotify`].
pub const IOC_CQ_NOTIFY: u32 = iow::<CqNotify>(23);
/// Chooses what carries the requests to a peer. Needs `CAP_NET_ADMIN`. [`PoolUse`].
pub const IOC_POOL_USE: u32 = iow::<PoolUse>(24);
/// Describes a peer of the pool. Needs `CAP_NET_ADMIN`. [`PoolPeer`].
pub const IOC_POOL_PEER: u32 = iowr::<PoolPeer>(25);
/// Binds a memory window to a region. [`MwBind`].
pub const IOC_MW_BIND: u32 = iowr::<MwBind>(26);
