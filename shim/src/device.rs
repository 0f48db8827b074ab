// SPDX-License-Identifier: MIT OR Apache-2.0

//! A session with the module, and what concerns the host as a whole: nodes and
//! meta servers.

use crate::error::Error;
use crate::ioctl;
use crate::mr::{Access, MemoryRegion};
use crate::pool::{PoolPeer, Transport};
use crate::ring::Lot;
use crate::start::StartConfig;
use nix::errno::Errno;
use nix::fcntl::{open, OFlag};
use nix::sys::stat::Mode;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use weft_core::gid::Gid;
use weft_core::uapi::{
    self, Pod, ABI_VERSION, DEVICE_PATH, MAX_META_SERVERS, MAX_NODES, MAX_RING_MEMORY, NODE_ANY,
};

/// A session on one node. Clones are the same session, which ends with the last
/// of them and of the regions and VQPs made from them.
#[derive(Clone, Debug)]
pub struct Device {
    session: Arc<Session>,
}

#[derive(Debug)]
struct Session {
    fd: OwnedFd,
    node: u32,
    lot: Arc<Lot>,
}

/// An RDMA port that Weft runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its index, for [`Device::open_on`].
    pub index: u32,
    /// Its address.
    pub gid: Gid,
    /// The RDMA device's name.
    pub device: String,
    /// The RDMA device's port.
    pub port: u32,
    /// Its DC target number.
    pub dct_number: u32,
    /// Changes with each start of the node.
    pub incarnation: u32,
    /// UDP port of its software DC transport.
    pub udp_port: u32,
    /// VQPs that exist on it, of all sessions.
    pub vqps: u32,
    /// Memory regions that exist on it, of all sessions.
    pub mrs: u32,
    /// Peers in its DCCache.
    pub cached_peers: u32,
    /// Whether its record is at a meta server.
    pub published: bool,
    /// Inode number of its network namespace.
    pub netns: u64,
    /// Whether it uses RC queue pairs, or why it cannot.
    pub rc: RcUse,
}

/// Whether a node uses RC queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RcUse {
    /// It can; none was wanted yet.
    Unused,
    /// It does.
    Used,
    /// DC alone: the RDMA device registers no memory by requests on queue pairs, or too few
    /// pages with one, or is gone.
    NoFastRegistration,
    /// The module says something that this library does not know.
    Unknown,
}

impl std::fmt::Display for RcUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unused => "not yet",
            Self::Used => "yes",
            Self::NoFastRegistration => {
                "no: the device cannot register memory by work requests, or too few pages at once"
            }
            Self::Unknown => "unknown",
        })
    }
}

impl RcUse {
    fn from_raw(raw: u32) -> Self {
        match raw {
            uapi::RC_UNUSED => Self::Unused,
            uapi::RC_USED => Self::Used,
            uapi::RC_NO_FAST_REGISTRATION => Self::NoFastRegistration,
            _ => Self::Unknown,
        }
    }
}

/// A configured meta server, as the session's node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaServerInfo {
    /// Its address and rdma_cm port.
    pub addr: SocketAddr,
    /// Whether the node is connected to it.
    pub connected: bool,
    /// Whether the node's record was seen in its table.
    pub published: bool,
    /// Buckets of its table.
    pub buckets: u32,
}

/// What a meta server knows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The node.
    pub gid: Gid,
    /// One-sided READs that the look-up took.
    pub reads: u32,
    /// Its DC target number.
    pub dct_number: u32,
    /// Its incarnation.
    pub incarnation: u32,
    /// UDP port of its software DC transport.
    pub udp_port: u32,
}

#[cfg(test)]
impl Device {
    /// One whose calls the kernel refuses.
    pub(crate) fn of_null() -> Self {
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        let (node, lot) = (0, Lot::new());
        Self {
            session: Arc::new(Session { fd, node, lot }),
        }
    }
}

impl Device {
    /// Opens a session on the first node of the caller's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::NotLoaded`], [`Error::OpenDenied`], [`Error::AbiMismatch`],
    /// [`Error::NoNode`].
    pub fn open() -> Result<Self, Error> {
        Self::open_hello(NODE_ANY)
    }

    /// Opens a session on the node with this index.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_on(node: u32) -> Result<Self, Error> {
        Self::open_hello(node)
    }

    fn open_hello(node: u32) -> Result<Self, Error> {
        let (device, _) = Self::hello(node, uapi::RingsCreate::zeroed(), Gid::default())?;
        Ok(device)
    }

    /// Opens a session with rings and memory, and answers what the kernel says of them.
    pub(crate) fn open_with(config: &StartConfig) -> Result<(Self, uapi::RingsCreate), Error> {
        let len = config.memory as u64;
        let memory_bytes = u32::try_from(len)
            .ok()
            .filter(|bytes| (1..=MAX_RING_MEMORY).contains(bytes))
            .ok_or(Error::BadRegion { len })?;
        let rings = uapi::RingsCreate {
            memory_bytes,
            memory_access: config.access.bits(),
            ..config.queues.to_raw()
        };
        let node = config.node.unwrap_or(NODE_ANY);
        Self::hello(node, rings, config.peer.unwrap_or_default())
    }

    fn hello(
        node: u32,
        rings: uapi::RingsCreate,
        peer: Gid,
    ) -> Result<(Self, uapi::RingsCreate), Error> {
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let fd = open(DEVICE_PATH, flags, Mode::empty()).map_err(Error::of_open)?;
        let mut arg = uapi::Hello {
            abi_version: ABI_VERSION,
            node,
            rings,
            peer,
            ..Pod::zeroed()
        };
        let node = (node != NODE_ANY).then_some(node);
        ioctl::hello(fd.as_fd(), &mut arg).map_err(|errno| Error::of_hello(errno, node, &rings))?;
        let device = Self {
            session: Arc::new(Session {
                fd,
                node: arg.node,
                lot: Lot::new(),
            }),
        };
        Ok((device, arg.rings))
    }

    /// The index of the session's node.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.session.node
    }

    /// The nodes of this host.
    ///
    /// # Errors
    ///
    /// [`Error::System`].
    pub fn nodes(&self) -> Result<Vec<Node>, Error> {
        let mut nodes = Vec::new();
        // Devices come and go, so that an index may be free below one in use.
        for index in (0..).take(MAX_NODES) {
            let mut arg = uapi::NodeInfo {
                index,
                ..Pod::zeroed()
            };
            match ioctl::node(self.fd(), &mut arg) {
                Ok(()) => nodes.push(Node::from_raw(&arg)),
                Err(Errno::ENODEV) => {}
                Err(errno) => {
                    return Err(Error::System {
                        call: "IOC_NODE",
                        errno,
                    })
                }
            }
        }
        Ok(nodes)
    }

    /// Registers memory that the caller owns; see
    /// [`MemoryRegion::register_raw`]. [`MemoryRegion::allocate`] needs no
    /// promises.
    ///
    /// # Errors
    ///
    /// As [`MemoryRegion::register_raw`].
    ///
    /// # Safety
    ///
    /// As [`MemoryRegion::register_raw`].
    pub unsafe fn register(
        &self,
        addr: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller promises the same.
        unsafe { MemoryRegion::register_raw(self, addr, len, access) }
    }

    /// Adds a meta server for all nodes of the host. The nodes connect to it in
    /// the background.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`], [`Error::BadMetaServer`],
    /// [`Error::MetaServerExists`], [`Error::TooManyMetaServers`].
    pub fn meta_add(&self, server: SocketAddr) -> Result<(), Error> {
        ioctl::meta_add(self.fd(), &mut meta_to_raw(server))
            .map_err(|errno| Error::of_meta("IOC_META_ADD", errno))
    }

    /// Removes a meta server.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`], [`Error::NoSuchMetaServer`].
    pub fn meta_remove(&self, server: SocketAddr) -> Result<(), Error> {
        ioctl::meta_remove(self.fd(), &mut meta_to_raw(server))
            .map_err(|errno| Error::of_meta("IOC_META_REMOVE", errno))
    }

    /// The configured meta servers.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`], [`Error::System`].
    pub fn meta_servers(&self) -> Result<Vec<MetaServerInfo>, Error> {
        let mut servers = Vec::new();
        for index in (0..).take(MAX_META_SERVERS) {
            let mut arg = uapi::MetaInfo {
                index,
                ..Pod::zeroed()
            };
            match ioctl::meta(self.fd(), &mut arg) {
                Ok(()) => servers.push(MetaServerInfo::from_raw(&arg)),
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(Error::of_node("IOC_META", errno)),
            }
        }
        Ok(servers)
    }

    /// Looks a node up at the meta server, past the DCCache.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownPeer`], [`Error::NoMetaServer`], [`Error::MetaTimeout`],
    /// [`Error::ZeroGid`], [`Error::NodeGone`], [`Error::Interrupted`].
    pub fn lookup(&self, gid: Gid) -> Result<Peer, Error> {
        let mut arg = uapi::Lookup {
            gid,
            ..Pod::zeroed()
        };
        ioctl::lookup(self.fd(), &mut arg)
            .map_err(|errno| Error::of_peer("IOC_LOOKUP", errno, gid))?;
        Ok(Peer {
            gid,
            reads: arg.reads,
            dct_number: arg.dct_number,
            incarnation: arg.incarnation,
            udp_port: arg.udp_port,
        })
    }

    /// Keeps an RC queue pair from the session's node to another (krcore §4.2). It is
    /// made in the background; VQPs to that node use it for one-sided requests as
    /// soon as it is there, and DC whenever it is not.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`], [`Error::NoRcPeer`], [`Error::NoRc`],
    /// [`Error::PoolFull`], [`Error::NodeGone`].
    pub fn pool_pin(&self, gid: Gid) -> Result<(), Error> {
        let mut arg = uapi::PoolPin { gid, reserved: 0 };
        ioctl::pool_pin(self.fd(), &mut arg)
            .map_err(|errno| Error::of_pool("IOC_POOL_PIN", errno, gid))
    }

    /// Chooses what carries the requests to a peer, whatever it costs; `None`: the pool does
    /// (krcore §4.6). VQPs in use change over without their programs' help. RC is used once its
    /// queue pair is there, which is made in the background.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`], [`Error::NoRcPeer`], [`Error::NoRc`],
    /// [`Error::PoolFull`], [`Error::NodeGone`].
    pub fn pool_use(&self, gid: Gid, transport: Option<Transport>) -> Result<(), Error> {
        let mut arg = uapi::PoolUse {
            gid,
            transport: match transport {
                None => uapi::POOL_USE_AUTO,
                Some(Transport::Dc) => uapi::POOL_USE_DC,
                Some(Transport::Rc) => uapi::POOL_USE_RC,
            },
            reserved: 0,
        };
        ioctl::pool_use(self.fd(), &mut arg)
            .map_err(|errno| Error::of_pool("IOC_POOL_USE", errno, gid))
    }

    /// The peers that the pool of the session's node has an eye on: those that were used
    /// lately, or have an RC queue pair.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`], [`Error::NodeGone`], [`Error::System`].
    pub fn pool_peers(&self) -> Result<Vec<PoolPeer>, Error> {
        let mut peers = Vec::new();
        loop {
            let mut arg = uapi::PoolPeer {
                index: peers.len() as u32,
                ..Pod::zeroed()
            };
            match ioctl::pool_peer(self.fd(), &mut arg) {
                Ok(()) => peers.push(PoolPeer::from_raw(&arg)),
                Err(Errno::ENOENT) => return Ok(peers),
                Err(Errno::EPERM) => return Err(Error::NotPermitted),
                Err(errno) => return Err(Error::of_node("IOC_POOL_PEER", errno)),
            }
        }
    }

    /// No longer keeps one. The module closes one that is there some seconds after its last
    /// use.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`], [`Error::NotPinned`], [`Error::NodeGone`].
    pub fn pool_unpin(&self, gid: Gid) -> Result<(), Error> {
        let mut arg = uapi::PoolPin { gid, reserved: 0 };
        ioctl::pool_unpin(self.fd(), &mut arg)
            .map_err(|errno| Error::of_pool("IOC_POOL_UNPIN", errno, gid))
    }

    /// Empties the DCCache of the session's node.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`], [`Error::NodeGone`].
    pub fn flush_dccache(&self) -> Result<(), Error> {
        ioctl::dccache_flush(self.fd()).map_err(|errno| Error::of_meta("IOC_DCCACHE_FLUSH", errno))
    }

    /// Does nothing, for measuring what a system call to the module costs.
    ///
    /// # Errors
    ///
    /// [`Error::System`].
    pub fn nop(&self) -> Result<(), Error> {
        ioctl::nop(self.fd()).map_err(|errno| Error::System {
            call: "IOC_NOP",
            errno,
        })
    }

    #[inline]
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.session.fd.as_fd()
    }

    /// Rings that are mapped and that no VQP has.
    pub(crate) fn lot(&self) -> &Arc<Lot> {
        &self.session.lot
    }
}

/// The session's descriptor, to wait for completions of all its VQPs with `poll`,
/// epoll or an asynchronous runtime: readable while there are completions that were
/// not taken; `POLLHUP` when the node is gone, after which completions of requests that
/// were under way may still follow. Wait first, then take completions with a call that
/// does not wait. It says nothing of completions that a synchronous call ([`crate::Vqp::run`])
/// has come across and kept: after such calls take completions until there are none, then wait.
/// The caller neither closes it nor passes it other requests.
impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl Node {
    fn from_raw(raw: &uapi::NodeInfo) -> Self {
        let name = raw
            .device
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        Self {
            index: raw.index,
            gid: raw.gid,
            device: String::from_utf8_lossy(name).into_owned(),
            port: raw.port,
            dct_number: raw.dct_number,
            incarnation: raw.incarnation,
            udp_port: raw.udp_port,
            vqps: raw.vqps,
            mrs: raw.mrs,
            cached_peers: raw.cached_peers,
            published: raw.published != 0,
            netns: raw.netns,
            rc: RcUse::from_raw(raw.rc),
        }
    }
}

impl MetaServerInfo {
    fn from_raw(raw: &uapi::MetaInfo) -> Self {
        let ip = std::net::Ipv6Addr::from(raw.server.addr.0).to_canonical();
        Self {
            addr: SocketAddr::new(ip, raw.server.port),
            connected: raw.connected != 0,
            published: raw.published != 0,
            buckets: raw.buckets,
        }
    }
}

fn meta_to_raw(server: SocketAddr) -> uapi::MetaServer {
    let addr = match server {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => Gid::default(),
        SocketAddr::V4(v4) => Gid::from_ipv4(v4.ip().octets()),
        SocketAddr::V6(v6) => Gid(v6.ip().octets()),
    };
    uapi::MetaServer {
        addr,
        port: server.port(),
        ..Pod::zeroed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_servers_address_survives_the_way_into_the_kernel_and_back() {
        for addr in ["10.1.2.3:7471", "[fe80::1]:18"] {
            let addr: SocketAddr = addr.parse().unwrap();
            let raw = uapi::MetaInfo {
                server: meta_to_raw(addr),
                connected: 1,
                ..Pod::zeroed()
            };
            let info = MetaServerInfo::from_raw(&raw);
            assert_eq!(info.addr, addr);
            assert!(info.connected && !info.published);
        }
    }

    #[test]
    fn the_unspecified_ipv4_address_is_as_zero_as_the_ipv6_one() {
        assert!(meta_to_raw("0.0.0.0:1".parse().unwrap()).addr.is_zero());
    }

    #[test]
    fn a_device_name_ends_at_its_zero_byte_or_at_the_end_of_its_field() {
        let mut raw = uapi::NodeInfo::zeroed();
        raw.device[..4].copy_from_slice(b"rxe0");
        assert_eq!(Node::from_raw(&raw).device, "rxe0");
        raw.device = [b'x'; 64];
        assert_eq!(Node::from_raw(&raw).device.len(), 64);
    }

    #[test]
    fn without_the_module_opening_says_so() {
        if !std::path::Path::new(DEVICE_PATH).exists() {
            assert_eq!(Device::open().err(), Some(Error::NotLoaded));
        }
    }
}
