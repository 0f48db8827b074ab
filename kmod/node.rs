// SPDX-License-Identifier: GPL-2.0

//! Nodes: one for each RDMA port that has an IPv4 address.
//!
//! A port's [`PortAgent`] starts the node when the address is there, looks after
//! it in the background, and stops it when the device goes. Sessions may hold a
//! stopped node; everything on it then ends with errors.

mod letters;

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use kernel::prelude::*;
use kernel::sync::{global_lock, Arc, Mutex};
use weft_core::dc::wire::Destination;
use weft_core::dc::MAX_CHUNK_BYTES;
use weft_core::gid::Gid;
use weft_core::meta::Record;
use weft_core::uapi::{Lookup, MrReg, NodeInfo, Pod, MAX_NODES};

use crate::bindings;
use crate::counters::{Counted, COUNTERS};
use crate::dc::SoftDc;
use crate::mem::MrTable;
use crate::meta::{Directory, Uplink};
use crate::net::{Endpoint, UdpBearer};
use crate::peer::{DcCache, Peer};
use crate::quota::{Kind, Quota};
use crate::random::{random_u32, random_u64};
use crate::rc::Rc;
use crate::rdma::{Client, Connector, Device, Pd, Port};
use crate::sync::{new_periodic, Periodic, Routine};
use crate::text::Shown;
use crate::vqp::{Sender, Vqp};

/// A node's DC provider.
pub(crate) type Dc = SoftDc<UdpBearer, Vqp>;

/// Peers that are looked up at the same time, at most.
const FLIGHTS: usize = 16;

/// How often a node is looked after, when all is well and when not.
const CALM_MS: u32 = 1000;
const BUSY_MS: u32 = 100;

/// An RDMA port that Weft runs on.
#[pin_data]
pub(crate) struct Node {
    name: [u8; 64],
    port: u32,
    gid: Gid,
    netns: u64,
    record: Record,
    dc: Arc<Dc>,
    rc: Arc<Rc<Vqp>>,
    dccache: DcCache,
    quota: Arc<Quota>,
    #[pin]
    directory: Directory,
    /// Held while a peer is looked up: those who want the same one wait for the
    /// first instead of asking too. A load spike asks once.
    #[pin]
    flights: [Mutex<()>; FLIGHTS],
    alive: AtomicBool,
    /// Calls that use the RDMA device; `stop` waits for them.
    users: AtomicI32,
    /// VQPs and memory regions of its sessions.
    vqps: AtomicU32,
    mrs: AtomicU32,
    _count: Counted,
}

/// Lets a call use the RDMA device.
struct DeviceUse<'a>(&'a Node);

impl<'a> DeviceUse<'a> {
    fn new(node: &'a Node) -> Result<Self> {
        node.users.fetch_add(1, Ordering::AcqRel);
        let this = Self(node);
        // Looked at after the count: either `stop` sees us, or we see `stop`.
        if node.alive.load(Ordering::SeqCst) {
            Ok(this)
        } else {
            Err(ENODEV)
        }
    }
}

impl Drop for DeviceUse<'_> {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Node {
    /// Starts a node on a port whose address is there.
    ///
    /// # Errors
    ///
    /// `EAGAIN`: the port has no network device or no IPv4 address yet. Those of
    /// its parts.
    fn start(port: Port, udp_port: u16) -> Result<Arc<Self>> {
        let netdev = port.netdev().ok_or(EAGAIN)?;
        let gid = port.ipv4_gid().ok_or(EAGAIN)?;
        let addr = gid.to_ipv4().ok_or(EAGAIN)?;
        let net = netdev.net().ok_or(EAGAIN)?;
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
        // SAFETY: the namespace outlives the network devices in it, and `stop`
        // closes the bearer before ours is let go.
        let bearer = unsafe { UdpBearer::open(net, local, netdev.mtu(), MAX_CHUNK_BYTES) }?;
        let pd = Arc::new(Pd::new(port.device)?, GFP_KERNEL)?;
        let mrs = MrTable::new()?;
        if port.device.has_user_mrs() {
            mrs.enable_rc(port.device, pd.clone())
                .unwrap_or_else(|error| pr_warn!("{}: no RC: {error:?}\n", Shown(gid)));
        }
        let rc = Rc::new(gid, port, pd.clone(), mrs.clone())?;
        let dc = SoftDc::new(bearer, identity, mrs)?;
        let connector = Connector {
            port,
            pd,
            source: addr,
        };
        // SAFETY: `net` is valid as above.
        let netns = unsafe { bindings::weft_net_inum(net.as_ptr()) };
        let dccache = DcCache::new()?;
        let quota = Quota::new()?;
        let directory = Directory::new(gid, record, Uplink { connector, netdev });
        let node = Arc::pin_init(
            try_pin_init!(Self {
                name: port.device.name(),
                port: port.number,
                gid,
                netns,
                record,
                dc,
                rc,
                dccache,
                quota,
                directory <- directory,
                flights <- pin_init::pin_init_array_from_fn(|_| kernel::new_mutex!((), "weft_flight")),
                alive: AtomicBool::new(true),
                users: AtomicI32::new(0),
                vqps: AtomicU32::new(0),
                mrs: AtomicU32::new(0),
                _count: Counted::one(&COUNTERS.nodes),
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: the provider lives as long as the node, which closes the bearer
        // before it goes.
        unsafe { node.dc.bearer().start(&raw const *node.dc) };
        // SAFETY: the node closes the inbox before it goes.
        unsafe { node.dc.inbox().open(&raw const *node) };
        // `stop` takes the reference back.
        node.rc.start(node.clone());
        Ok(node)
    }

    /// Ends everything that runs on the node. The RDMA device and the network
    /// device are not used after this. May sleep.
    fn stop(&self) {
        self.alive.store(false, Ordering::SeqCst);
        while self.users.load(Ordering::SeqCst) != 0 {
            kernel::time::delay::fsleep(kernel::time::Delta::from_millis(1));
        }
        self.rc.stop();
        self.directory.shutdown();
        self.dc.bearer().stop();
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

    /// What users hold of it.
    pub(crate) fn quota(&self) -> &Arc<Quota> {
        &self.quota
    }

    /// Whether the device is still there.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// The DC provider.
    pub(crate) fn dc(&self) -> &Arc<Dc> {
        &self.dc
    }

    /// Keeps an RC queue pair to a peer.
    ///
    /// # Errors
    ///
    /// Those of [`Rc::pin`].
    pub(crate) fn pin(&self, gid: &Gid) -> Result {
        self.rc.pin(gid)
    }

    /// No longer keeps one.
    ///
    /// # Errors
    ///
    /// Those of [`Rc::unpin`].
    pub(crate) fn unpin(&self, gid: &Gid) -> Result {
        self.rc.unpin(gid)
    }

    /// Registers memory of the caller and answers its key.
    ///
    /// # Errors
    ///
    /// `ENODEV`, and those of [`MrTable::register`].
    pub(crate) fn register(&self, owner: u32, user: u32, request: &MrReg) -> Result<u32> {
        let _using = DeviceUse::new(self)?;
        let held = self.quota.take(user, Kind::Regions)?;
        self.dc.mrs().register(owner, held, request)
    }

    /// Takes a region of `owner` out, and has the peers told that may use it. Answers
    /// the ticket to wait with.
    ///
    /// # Errors
    ///
    /// Those of [`MrTable::remove`].
    pub(crate) fn deregister(&self, owner: u32, key: u32) -> Result<u64> {
        let ticket = self.dc.mrs().remove(owner, key)?;
        self.rc.tell_peers();
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

    /// The meta servers.
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The cache of peers.
    pub(crate) fn dccache(&self) -> &DcCache {
        &self.dccache
    }

    /// The peer with this GID, if the cache has it (krcore alg. 1, line 14).
    pub(crate) fn cached_peer(&self, gid: &Gid) -> Option<Arc<Peer>> {
        let peer = self.dccache.find(gid)?;
        COUNTERS.connects_cached.bump();
        Some(peer)
    }

    /// The peer with this GID, from a meta server; the cache has it afterwards
    /// (krcore alg. 1, lines 15 to 17).
    ///
    /// # Errors
    ///
    /// Those of [`weft_core::uapi::QConnect`].
    pub(crate) fn find_peer(&self, gid: &Gid) -> Result<Arc<Peer>> {
        let _using = DeviceUse::new(self)?;
        let _flight = self.flights[DcCache::lane(gid, FLIGHTS)].lock();
        if let Some(peer) = self.cached_peer(gid) {
            return Ok(peer);
        }
        let (record, _) = self.directory.look_up(gid).map_err(as_connect_error)?;
        let peer = Peer::new(*gid, &record, self.dc.clone(), self.rc.clone())?;
        self.dccache.insert(peer.clone());
        COUNTERS.connects_uncached.bump();
        Ok(peer)
    }

    /// The peer that a message came from. What has to be known of it came with
    /// the message (krcore §4.4).
    ///
    /// # Errors
    ///
    /// `ENODEV` (the node is gone), `ENOMEM`.
    pub(crate) fn peer_of(&self, sender: &Sender) -> Result<Arc<Peer>> {
        let _using = DeviceUse::new(self)?;
        let record = Record {
            dct_number: sender.node.dct_number,
            dct_key: sender.node.dct_key,
            incarnation: sender.node.incarnation,
            udp_port: sender.from.port,
        };
        let gid = Gid::from_ipv4(sender.from.addr);
        self.dccache
            .find_or_insert(gid, &record, &self.dc, &self.rc)
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
        let _using = DeviceUse::new(self)?;
        let (record, reads) = self
            .directory
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

    /// What users may know of it.
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
            published: u32::from(self.directory.is_published()),
            netns: self.netns,
            udp_port: u32::from(self.record.udp_port),
            ..NodeInfo::zeroed()
        }
    }
}

/// A link that broke is to the user a server that did not answer.
fn as_connect_error(error: Error) -> Error {
    if error == EIO {
        ETIMEDOUT
    } else {
        error
    }
}

/// The nodes by their index.
type Nodes = [Option<Arc<Node>>; MAX_NODES];

global_lock! {
    // SAFETY: `init` initialises it before anything else runs.
    unsafe(uninit) static NODES: Mutex<Nodes> = [const { None }; MAX_NODES];
}

/// Prepares the list of nodes.
///
/// # Safety
///
/// Called once, before anything else here.
pub(crate) unsafe fn init() {
    // SAFETY: as the caller promises.
    unsafe { NODES.init() };
}

/// How many nodes there are.
pub(crate) fn count() -> usize {
    NODES.lock().iter().flatten().count()
}

/// The node with this index.
///
/// # Errors
///
/// `ENODEV`.
pub(crate) fn get(index: u32) -> Result<Arc<Node>> {
    NODES
        .lock()
        .get(index as usize)
        .cloned()
        .flatten()
        .ok_or(ENODEV)
}

/// The first node in the caller's network namespace, and its index.
///
/// # Errors
///
/// `ENODEV`.
pub(crate) fn of_caller() -> Result<(u32, Arc<Node>)> {
    // SAFETY: called from a system call, so that there is a current task.
    let netns = unsafe { bindings::weft_current_net_inum() };
    let nodes = NODES.lock();
    let found = nodes.iter().enumerate().find_map(|(index, node)| {
        node.as_ref()
            .filter(|node| node.netns == netns)
            .map(|node| (index as u32, node.clone()))
    });
    found.ok_or(ENODEV)
}

/// Takes a node in, under the first free index.
fn insert(node: &Arc<Node>) -> Result {
    let mut nodes = NODES.lock();
    *nodes.iter_mut().find(|slot| slot.is_none()).ok_or(ENOSPC)? = Some(node.clone());
    Ok(())
}

/// Takes a node out.
fn remove(node: &Arc<Node>) {
    for slot in NODES.lock().iter_mut() {
        if slot.as_ref().is_some_and(|other| Arc::ptr_eq(other, node)) {
            *slot = None;
        }
    }
}

/// Looks after one port.
#[pin_data]
struct PortAgent {
    port: Port,
    #[pin]
    node: Mutex<Option<Arc<Node>>>,
    #[pin]
    work: Periodic<Self>,
}

impl PortAgent {
    fn new(port: Port) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                port,
                node <- kernel::new_mutex!(None, "weft_port_agent"),
                work <- new_periodic!("weft_port_agent_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts, keeps or stops the node; answers whether all is well.
    fn look_after(&self) -> bool {
        let mut slot = self.node.lock();
        if let Some(node) = slot.take_if(|node| self.port.ipv4_gid() != Some(node.gid)) {
            pr_info!("{}: the address is gone\n", Shown(node.gid));
            retire(&node);
        }
        if let Some(node) = &*slot {
            return node.maintain();
        }
        match self.start() {
            Ok(node) => {
                let well = node.maintain();
                *slot = Some(node);
                well
            }
            Err(error) => {
                if error != EAGAIN {
                    pr_warn!("cannot start a node: {error:?}; will try again\n");
                }
                false
            }
        }
    }

    fn start(&self) -> Result<Arc<Node>> {
        let node = Node::start(self.port, crate::udp_port())?;
        insert(&node).inspect_err(|_| node.stop())?;
        pr_info!("node {} is up, port {}\n", Shown(node.gid), node.port);
        Ok(node)
    }

    fn stop(&self) {
        self.work.stop();
        let node = self.node.lock().take();
        if let Some(node) = node {
            retire(&node);
        }
    }
}

fn retire(node: &Arc<Node>) {
    remove(node);
    node.stop();
}

// SAFETY: the offset is the field's own; `Ports::remove` stops the work before
// it drops the agent.
unsafe impl Routine for PortAgent {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        let well = self.look_after();
        self.work.schedule(if well { CALM_MS } else { BUSY_MS });
    }
}

/// The ports of a device.
pub(crate) struct Ports {
    agents: KVec<Pin<KBox<PortAgent>>>,
}

impl Client for Ports {
    fn add(device: Device) -> Result<KBox<Self>> {
        let mut agents = KVec::new();
        for port in device.ports() {
            agents.push(PortAgent::new(port)?, GFP_KERNEL)?;
        }
        // The first start here, so that nodes are numbered in the order of their
        // devices; connecting to meta servers is left to the background.
        for agent in &agents {
            if let Ok(node) = agent.start() {
                *agent.node.lock() = Some(node);
            }
            agent.work.schedule(0);
        }
        Ok(KBox::new(Self { agents }, GFP_KERNEL)?)
    }

    fn remove(self: KBox<Self>) {
        for agent in &self.agents {
            agent.stop();
        }
    }
}
