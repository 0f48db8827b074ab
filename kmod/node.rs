// SPDX-License-Identifier: GPL-2.0

//! Nodes: one for each RDMA port that has an IPv4 address. The port's agent
//! (`port_agent`) starts and stops it; `registry` has them by index. Sessions may hold
//! a stopped node; everything on it then ends with errors.

mod control;
mod netns;
mod port_agent;
mod registry;

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::dc::wire::Destination;
use weft_core::dc::MAX_CHUNK_BYTES;
use weft_core::gid::Gid;
use weft_core::meta::Record;
use weft_core::uapi::{Lookup, MetaInfo, MrReg, MwBind, NodeInfo};

use crate::bindings;
use crate::counters::{Counted, COUNTERS};
use crate::dc::SoftDc;
use crate::mem::{MrTable, NewRegion, UserPages};
use crate::meta::{Directory, Uplink};
use crate::net::{Endpoint, Netns, NodeBearer, UdpBearer};
use crate::pool::Pool;
use crate::quota::{Kind, Quota};
use crate::random::{random_u32, random_u64};
use crate::rc::Rc;
use crate::rdma::{Connector, Netdev, Pd, Port};
use crate::sync::{lock_interruptible, new_poll_queue, PollQueue};
use crate::vqp::{Peer, Sender, Vqp};

pub(crate) use netns::Namespaces;
pub(crate) use port_agent::Ports;
pub(crate) use registry::{count, get, init, of_caller};

/// A node's DC provider.
pub(crate) type Dc = crate::peer::Dc<Vqp>;
type DcCache = crate::peer::DcCache<Vqp>;

/// Peers that are looked up at the same time, at most.
const LOOKUP_LANES: usize = 16;

/// An RDMA port that Weft runs on.
#[pin_data]
pub(crate) struct Node {
    name: [u8; 64],
    port: u32,
    gid: Gid,
    netns: u64,
    record: Record,
    dc: Arc<Dc>,
    pool: Arc<Pool<Vqp>>,
    dccache: DcCache,
    quota: Arc<Quota>,
    #[pin]
    directory: Directory,
    /// Single-flight look-ups: held while a peer is looked up. Those who want the same
    /// one wait for the first instead of asking too, so a load spike asks once.
    #[pin]
    lookups: [Mutex<()>; LOOKUP_LANES],
    alive: AtomicBool,
    /// It has stopped. Held while it stops: its namespace and its device may go at the
    /// same time.
    #[pin]
    stopped: Mutex<bool>,
    /// Woken when it stops.
    #[pin]
    pollers: PollQueue,
    /// Calls that use the RDMA device; `stop` waits for them.
    users: AtomicI32,
    /// VQPs and memory regions of its sessions.
    vqps: AtomicU32,
    mrs: AtomicU32,
    _count: Counted,
}

/// Where a peer's record came from.
#[derive(Clone, Copy)]
pub(crate) enum RecordSource {
    /// The DCCache.
    Cache,
    /// A meta server, which was asked.
    MetaServer,
}

impl RecordSource {
    /// Counts a connection to the peer, once it is made.
    #[inline]
    pub(crate) fn count_connect(self) {
        match self {
            Self::Cache => COUNTERS.connects_cached.bump(),
            Self::MetaServer => COUNTERS.connects_uncached.bump(),
        }
    }
}

/// Lets a call use the RDMA device.
struct DeviceUse<'a>(&'a Node);

impl<'a> DeviceUse<'a> {
    fn new(node: &'a Node) -> Result<Self> {
        // Calls that come after `stop` has begun are not counted: it would find the node in
        // use as long as they come.
        if !node.is_alive() {
            return Err(ENODEV);
        }
        node.users.fetch_add(1, Ordering::AcqRel);
        let this = Self(node);
        // Looked at after the count too: either `stop` sees us, or we see `stop`.
        if node.alive.load(Ordering::SeqCst) {
            Ok(this)
        } else {
            Err(ENODEV)
        }
    }
}

impl DeviceUse<'_> {
    /// The meta servers. Whoever looks at them may hold a connection for a moment, and
    /// may be the last to do so: that takes the device.
    fn directory(&self) -> &Directory {
        &self.0.directory
    }
}

impl Drop for DeviceUse<'_> {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Node {
    /// Starts a node on a port whose address is there. The caller holds the namespace
    /// of the port's network device until the node is in the registry, or has stopped.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the port has no IPv4 address yet. Those of its parts.
    fn start(port: Port, netdev: Netdev, netns: &Netns, udp_port: u16) -> Result<Arc<Self>> {
        let gid = port.first_ipv4_gid().ok_or(EAGAIN)?;
        let addr = gid.to_ipv4().ok_or(EAGAIN)?;
        let identity = Destination {
            dct_number: random_u32(),
            dct_key: random_u64(),
            incarnation: random_u32(),
        };
        let record = Record {
            dct_number: identity.dct_number,
            dct_key: identity.dct_key,
            incarnation: identity.incarnation,
            udp_port,
        };
        let local = Endpoint {
            addr,
            port: udp_port,
        };
        // SAFETY: until the node is in the registry the caller holds the namespace. After
        // that a namespace that goes finds the node there and waits until it has stopped,
        // and its bearer with it (`netns`).
        let bearer = unsafe { UdpBearer::open(netns, local, netdev.mtu(), MAX_CHUNK_BYTES) }?;
        let pd = Arc::new(Pd::new(port.device)?, GFP_KERNEL)?;
        let mrs = MrTable::new()?;
        if port.device.has_fast_registration() {
            // Without it there is DC; `RcUse` says so.
            let _ = mrs.allow_rc(port.device, pd.clone());
        }
        let pool = Pool::new(
            Rc::new(gid, port, pd, mrs.clone())?,
            port.device.is_software(),
        )?;
        let quota = Quota::new()?;
        let dc = SoftDc::new(NodeBearer::new(bearer), identity, mrs, quota.clone())?;
        // A domain of its own: meta servers are programs, and regions are for nodes.
        let connector = Connector {
            port,
            pd: Arc::new(Pd::new(port.device)?, GFP_KERNEL)?,
            source: addr,
        };
        let netns = netns.inum();
        let dccache = DcCache::new()?;
        let directory = Directory::new(gid, record, Uplink::new(connector, netdev));
        let node = Arc::pin_init(
            try_pin_init!(Self {
                name: port.device.name(),
                port: port.number,
                gid,
                netns,
                record,
                dc,
                pool,
                dccache,
                quota,
                directory <- directory,
                lookups <- pin_init::pin_init_array_from_fn(|_| kernel::new_mutex!((), "weft_lookup")),
                alive: AtomicBool::new(true),
                stopped <- kernel::new_mutex!(false, "weft_node_stopped"),
                pollers <- new_poll_queue!("weft_node_pollers"),
                users: AtomicI32::new(0),
                vqps: AtomicU32::new(0),
                mrs: AtomicU32::new(0),
                _count: Counted::one(&COUNTERS.nodes),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: the provider lives as long as the node, which closes the bearer
        // before it goes.
        unsafe { node.dc.bearer().udp().start(&raw const *node.dc) };
        // `stop` closes the inbox and ends the RC side, which give the references back.
        node.dc.inbox().open(node.clone());
        node.rc().start(node.clone());
        Ok(node)
    }

    /// Ends everything that runs on the node, once. The RDMA device, the network device
    /// and the namespace are not used after this. May sleep.
    fn stop(&self) {
        let mut stopped = self.stopped.lock();
        if core::mem::replace(&mut *stopped, true) {
            return;
        }
        // A locked instruction, and so the barrier that pollers need.
        self.alive.swap(false, Ordering::SeqCst);
        self.pollers.notify();
        while self.users.load(Ordering::SeqCst) != 0 {
            kernel::time::delay::fsleep(kernel::time::Delta::from_millis(1));
        }
        self.pool.stop();
        self.rc().stop();
        self.directory.shutdown();
        self.dc.bearer().udp().stop();
        self.dc.stop();
        self.dc.mrs().stop();
        self.dccache.flush();
    }

    /// Looks after the node; answers whether all is well.
    fn maintain(&self) -> bool {
        self.dc.reap_idle();
        self.directory.maintain()
    }

    /// Whether the caller is in the node's network namespace.
    pub(crate) fn is_in_callers_netns(&self) -> bool {
        // SAFETY: called from a system call, so that there is a current task.
        self.netns == unsafe { bindings::weft_current_net_inum() }
    }

    /// Counts what users hold of the node.
    pub(crate) fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }

    /// Woken when the device goes.
    pub(crate) fn pollers(&self) -> &PollQueue {
        &self.pollers
    }

    /// Whether the device is still there.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// The DC provider.
    pub(crate) fn dc(&self) -> &Arc<Dc> {
        &self.dc
    }

    /// What carries the requests to its peers.
    pub(crate) fn pool(&self) -> &Pool<Vqp> {
        &self.pool
    }

    fn rc(&self) -> &Arc<Rc<Vqp>> {
        self.pool.rc()
    }

    /// Memory of the caller, to be registered. A page fault may last for ever: nobody waits
    /// for the caller meanwhile.
    ///
    /// # Errors
    ///
    /// `EMFILE`, and those of [`MrTable::pin`].
    pub(crate) fn pin(&self, owner: u64, user: u32, request: &MrReg) -> Result<NewRegion> {
        let held = self.quota.take(user, Kind::Regions)?;
        MrTable::pin(owner, held, request)
    }

    /// Memory that was lent to the caller, `pages`, to be registered.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENOMEM`.
    pub(crate) fn lent(
        &self,
        owner: u64,
        user: u32,
        request: &MrReg,
        pages: UserPages,
    ) -> Result<NewRegion> {
        let held = self.quota.take(user, Kind::Regions)?;
        NewRegion::new(owner, held, request, pages)
    }

    /// Registers memory and answers its key.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `ENOMEM`.
    pub(crate) fn register(&self, region: NewRegion) -> Result<u32> {
        let _using = DeviceUse::new(self)?;
        let key = self.dc.mrs().insert(region)?;
        self.rc().on_new_region(key);
        Ok(key)
    }

    /// Binds a memory window to a region of `owner` and answers its key.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EMFILE`, and those of [`MrTable::bind_window`].
    pub(crate) fn bind_window(&self, owner: u64, user: u32, request: &MwBind) -> Result<u32> {
        let held = self.quota.take(user, Kind::Windows)?;
        let _using = DeviceUse::new(self)?;
        let key = self.dc.mrs().bind_window(owner, held, request)?;
        self.rc().on_new_region(key);
        Ok(key)
    }

    /// Takes a region of `owner` out, and has the peers told that may use it. Answers
    /// the ticket to wait with.
    ///
    /// # Errors
    ///
    /// Those of [`MrTable::remove`].
    pub(crate) fn deregister(&self, owner: u64, key: u32) -> Result<u64> {
        let ticket = self.dc.mrs().remove(owner, key)?;
        self.rc().tell_peers();
        Ok(ticket)
    }

    /// How many VQPs its sessions have, for them to keep.
    pub(crate) fn vqps(&self) -> &AtomicU32 {
        &self.vqps
    }

    /// How many memory regions its sessions have, for them to keep.
    pub(crate) fn mrs(&self) -> &AtomicU32 {
        &self.mrs
    }

    /// The state of a configured meta server.
    ///
    /// # Errors
    ///
    /// `ENODEV`, and those of [`Directory::info`].
    pub(crate) fn meta_info(&self, index: u32) -> Result<MetaInfo> {
        DeviceUse::new(self)?.directory().info(index)
    }

    /// The cache of peers.
    pub(crate) fn dccache(&self) -> &DcCache {
        &self.dccache
    }

    /// The peer with this GID, if the cache has it (krcore alg. 1, line 14).
    pub(crate) fn cached_peer(&self, gid: &Gid) -> Option<Arc<Peer>> {
        self.dccache.find(gid)
    }

    /// The peer with this GID, from a meta server unless the cache has it by now; the cache
    /// has it afterwards (krcore alg. 1, lines 15 to 17).
    ///
    /// # Errors
    ///
    /// Those of [`weft_core::uapi::QConnect`].
    pub(crate) fn find_peer(&self, gid: &Gid) -> Result<(Arc<Peer>, RecordSource)> {
        let using = DeviceUse::new(self)?;
        let lane = &self.lookups[DcCache::lane(gid, LOOKUP_LANES)];
        let _lookup = lock_interruptible(lane).map_err(as_connect_error)?;
        if let Some(peer) = self.cached_peer(gid) {
            return Ok((peer, RecordSource::Cache));
        }
        let (record, _) = using.directory().look_up(gid).map_err(as_connect_error)?;
        let peer = Peer::new(*gid, &record, self.dc.clone(), self.pool.clone())?;
        self.dccache.insert(peer.clone());
        Ok((peer, RecordSource::MetaServer))
    }

    /// Begins to look a peer up that somebody will connect to soon, unless the cache has it
    /// or its GID is zero. Waits for nothing and tells nobody how it ends.
    pub(crate) fn look_up_ahead(&self, gid: &Gid) {
        if gid.is_zero() || self.dccache.find(gid).is_some() {
            return;
        }
        if let Ok(using) = DeviceUse::new(self) {
            using.directory().begin(gid);
        }
    }

    /// The peer that a message came from, to answer it. What has to be known of it
    /// came with the message (krcore §4.4); nothing else relies on that.
    ///
    /// # Errors
    ///
    /// `ENODEV` (the node is gone), `ENOMEM`.
    pub(crate) fn peer_of(&self, sender: &Sender) -> Result<Arc<Peer>> {
        let _using = DeviceUse::new(self)?;
        self.dccache
            .find_sender(sender.from, sender.node, &self.dc, &self.pool)
    }

    /// A look-up past the cache.
    ///
    /// # Errors
    ///
    /// As for [`Node::peer`].
    pub(crate) fn look_up(&self, request: &mut Lookup) -> Result {
        if request.gid.is_zero() {
            return Err(EINVAL);
        }
        let using = DeviceUse::new(self)?;
        let (record, reads) = using
            .directory()
            .look_up(&request.gid)
            .map_err(as_connect_error)?;
        *request = Lookup {
            gid: request.gid,
            reads,
            dct_number: record.dct_number,
            incarnation: record.incarnation,
            udp_port: u32::from(record.udp_port),
            reserved: [0; 4],
        };
        Ok(())
    }

    /// Whether some meta server has its record.
    fn is_published(&self) -> bool {
        DeviceUse::new(self).is_ok_and(|using| using.directory().is_published())
    }

    /// The node's description for users.
    pub(crate) fn info(&self, index: u32) -> NodeInfo {
        NodeInfo {
            index,
            dct_number: self.record.dct_number,
            incarnation: self.record.incarnation,
            port: self.port,
            gid: self.gid,
            device: self.name,
            vqps: self.vqps.load(Ordering::Relaxed),
            mrs: self.mrs.load(Ordering::Relaxed),
            cached_peers: self.dccache.count() as u32,
            published: u32::from(self.is_published()),
            netns: self.netns,
            udp_port: u32::from(self.record.udp_port),
            rc: self.dc.mrs().rc_use() as u32,
        }
    }
}

/// A link that broke is to the user a server that did not answer. A look-up that a signal
/// interrupted has changed nothing, nor has waiting for a queue pair: unless the signal's
/// handler forbids it, the kernel calls again.
pub(crate) fn as_connect_error(error: Error) -> Error {
    if error == EIO {
        ETIMEDOUT
    } else if error == EINTR {
        ERESTARTSYS
    } else {
        error
    }
}
