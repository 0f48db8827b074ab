// SPDX-License-Identifier: GPL-2.0

//! A node's view of the meta servers: connected to each that is configured, in
//! the background, and asked in turn.
//!
//! A server that goes without a word (its host loses power, its process is stopped) is
//! noticed by a READ of the node's own record every few seconds, which has to end within
//! two. Then a new connection is made, and the old one goes only once that stands, or
//! cannot be made: a server that is slow for a moment keeps its node.
//!
//! Lock order, outermost first: `uplink`, a slot's, a link's own.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex, SpinLock};
use weft_core::gid::Gid;
use weft_core::meta::{Publication, Record};
use weft_core::uapi::{MetaInfo, MetaServer, Pod, MAX_META_SERVERS};

use crate::clock::now_ns;
use crate::counters::{Counted, COUNTERS};
use crate::errno;
use crate::meta::config;
use crate::meta::link::{Answer, Link};
use crate::rdma::{Connector, Netdev};
use crate::sync::cpu;
use crate::text::Shown;

/// Links to each server at most: CPUs share them, so that the server's queue
/// pairs do not multiply with cores.
const MAX_LANES: usize = 4;
/// Looks at the server's table for our own record before a publication counts as
/// refused.
const VERIFY_TRIES: usize = 50;

/// How long a link has to be up before connections are made over it again.
const STEADY_NS: u64 = 2_000_000_000;

/// All that connecting takes, as long as the device is there.
pub(crate) struct Uplink {
    connector: Connector,
    netdev: Netdev,
    link: LinkState,
}

/// Whether the network link can be relied upon. Connecting and disconnecting send
/// datagrams of the connection manager. If soft-RoCE cannot send one, its queue pair for
/// them (GSI) fails for good, and nobody connects over the device any more until it is
/// made anew. So a link that comes and goes is left alone until it stays.
struct LinkState {
    changes: u32,
    changed_ns: Option<u64>,
}

impl Uplink {
    pub(crate) fn new(connector: Connector, netdev: Netdev) -> Self {
        let link = LinkState {
            changes: netdev.link_changes(),
            changed_ns: None,
        };
        Self {
            connector,
            netdev,
            link,
        }
    }

    /// Looks at the link.
    fn look(&mut self) {
        let changes = self.netdev.link_changes();
        if changes != self.link.changes {
            self.link = LinkState {
                changes,
                changed_ns: Some(now_ns()),
            };
        }
    }

    /// Whether the connection manager may be used.
    fn is_steady(&self) -> bool {
        let changed_ns = self.link.changed_ns;
        self.connector.port.is_active()
            && changed_ns.is_none_or(|changed_ns| now_ns().saturating_sub(changed_ns) >= STEADY_NS)
    }
}

/// How often a server is asked whether it is still there.
const PROBE_NS: u64 = 2_000_000_000;

/// A connected server.
struct Server {
    addr: MetaServer,
    links: KVec<Arc<Link>>,
    /// The node's record was seen in its table.
    published: Option<Counted>,
    /// When it was asked last whether it is still there; links take turns.
    probed_ns: AtomicU64,
    probes: AtomicUsize,
}

/// The meta servers of a node.
#[pin_data]
pub(crate) struct Directory {
    gid: Gid,
    record: Record,
    #[pin]
    uplink: Mutex<Option<Uplink>>,
    #[pin]
    slots: [SpinLock<Option<Arc<Server>>>; MAX_META_SERVERS],
}

impl Directory {
    /// Not connected to anybody yet.
    pub(crate) fn new(gid: Gid, record: Record, uplink: Uplink) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            gid,
            record,
            uplink <- kernel::new_mutex!(Some(uplink), "weft_uplink"),
            slots <- pin_init::pin_init_array_from_fn(|_| kernel::new_spinlock!(None, "weft_meta_slot")),
        })
    }

    fn slot(&self, index: usize) -> Option<Arc<Server>> {
        self.slots.get(index).and_then(|slot| slot.lock().clone())
    }

    fn connected(&self) -> impl Iterator<Item = Arc<Server>> + '_ {
        (0..MAX_META_SERVERS).filter_map(|index| self.slot(index))
    }

    /// Looks a node up at the first server that knows it.
    ///
    /// # Errors
    ///
    /// `EHOSTUNREACH` (a server answered, none knows it), `EAGAIN` (none is
    /// connected, or the record was being written), `ETIMEDOUT`, `EIO`, `EINTR`.
    pub(crate) fn look_up(&self, gid: &Gid) -> Result<(Record, u32)> {
        let lane = cpu();
        let (mut outcome, mut reads) = (EAGAIN, 0);
        for server in self.connected() {
            match server.look_up(gid, lane) {
                Ok(Answer {
                    record: Some(record),
                    reads: more,
                }) => return Ok((record, reads + more)),
                Ok(Answer {
                    record: None,
                    reads: more,
                }) => {
                    reads += more;
                    outcome = errno::host_unreach();
                }
                Err(EINTR) => return Err(EINTR),
                Err(error) if outcome != errno::host_unreach() => outcome = error,
                Err(_) => {}
            }
        }
        Err(outcome)
    }

    /// Posts the first READ of a look-up that will come soon, to the first server. The
    /// look-up finds it if it comes on this CPU.
    pub(crate) fn begin(&self, gid: &Gid) {
        if let Some(server) = self.connected().next() {
            server.begin(gid, cpu());
        }
    }

    /// Whether every configured server is connected and has our record; connects
    /// to those that are not, once the port is active. May sleep for seconds.
    pub(crate) fn maintain(&self) -> bool {
        let mut uplink = self.uplink.lock();
        let Some(uplink) = &mut *uplink else {
            return true;
        };
        uplink.look();
        let wanted = config::servers();
        let mut complete = true;
        for (index, wanted) in wanted.iter().enumerate() {
            complete &= self.maintain_slot(uplink, index, *wanted);
        }
        complete
    }

    fn maintain_slot(&self, uplink: &Uplink, index: usize, wanted: Option<MetaServer>) -> bool {
        let Some(slot) = self.slots.get(index) else {
            return true;
        };
        let have = slot.lock().clone();
        let have = have.filter(|server| Some(server.addr) == wanted);
        let fits = have
            .as_ref()
            .is_some_and(|server| server.is_well(&self.gid, &self.record));
        if fits || (wanted.is_none() && slot.lock().is_none()) {
            return true;
        }
        if !uplink.is_steady() {
            return false;
        }
        // The new connection stands before the old one goes. If none can be made, the
        // links that still work stay.
        let server = wanted.map(|addr| self.connect(uplink, addr));
        let (server, well) = match server {
            Some(Ok(server)) => {
                let complete = server.is_complete();
                (Some(server), complete)
            }
            Some(Err(_)) => (
                have.clone().filter(|server| server.answers(&self.gid)),
                false,
            ),
            None => (None, true),
        };
        let stale = core::mem::replace(&mut *slot.lock(), server);
        drop((have, stale));
        well
    }

    /// Connects to a server and makes the node known to it.
    fn connect(&self, uplink: &Uplink, addr: MetaServer) -> Result<Arc<Server>> {
        // All links are made while the namespace is held: each keeps it, and the last
        // reference may be that of a link that fails.
        let netns = uplink.netdev.netns().ok_or(ENODEV)?;
        let lanes = (kernel::cpu::nr_cpu_ids() as usize).clamp(1, MAX_LANES);
        let mut links = KVec::with_capacity(lanes, GFP_KERNEL)?;
        for _ in 0..lanes {
            let connection = uplink.connector.connect(&netns, addr.addr, addr.port)?;
            links.push(Link::new(connection)?, GFP_KERNEL)?;
        }
        let published = match links.first() {
            Some(link) if self.publish(link)? => Some(Counted::one(&COUNTERS.nodes_published)),
            _ => {
                pr_warn!(
                    "a meta server did not take the record of {}: is its table full?\n",
                    Shown(self.gid)
                );
                None
            }
        };
        Ok(Arc::new(
            Server {
                addr,
                links,
                published,
                probed_ns: AtomicU64::new(now_ns()),
                probes: AtomicUsize::new(0),
            },
            GFP_KERNEL,
        )?)
    }

    /// Answers whether the server took our record: it is in its table.
    fn publish(&self, link: &Link) -> Result<bool> {
        link.tell(&Publication::Publish(self.gid, self.record))?;
        for _ in 0..VERIFY_TRIES {
            if link
                .look_up(&self.gid)
                .is_ok_and(|answer| answer.record == Some(self.record))
            {
                return Ok(true);
            }
            kernel::time::delay::fsleep(kernel::time::Delta::from_millis(2));
        }
        Ok(false)
    }

    /// Takes our record back and disconnects. The RDMA device is not used after
    /// this. May sleep.
    pub(crate) fn shutdown(&self) {
        let mut uplink = self.uplink.lock();
        for slot in &self.slots {
            let server = slot.lock().take();
            let Some(server) = server else { continue };
            if let Some(link) = server.links.first() {
                // A server that is gone has no record to take back.
                let _ = link.tell(&Publication::Withdraw(self.gid, self.record.incarnation));
            }
        }
        *uplink = None;
    }

    /// Whether some server has our record.
    pub(crate) fn is_published(&self) -> bool {
        self.connected().any(|server| server.published.is_some())
    }

    /// The state of a configured server.
    ///
    /// # Errors
    ///
    /// `ENOENT`: none has this index.
    pub(crate) fn info(&self, index: u32) -> Result<MetaInfo> {
        let servers = config::servers();
        let server = servers
            .get(index as usize)
            .copied()
            .flatten()
            .ok_or(ENOENT)?;
        let mut info = MetaInfo {
            index,
            server,
            ..MetaInfo::zeroed()
        };
        if let Some(state) = self
            .slot(index as usize)
            .filter(|state| state.addr == server)
        {
            info.connected = u32::from(state.links.iter().all(|link| link.is_alive()));
            info.published = u32::from(state.published.is_some());
            info.buckets = state.links.first().map_or(0, |link| link.buckets());
        }
        Ok(info)
    }
}

impl Server {
    /// Looks a node up by the link of this lane, or by the next one that is not known
    /// to be broken.
    ///
    /// # Errors
    ///
    /// Those of [`Link::look_up`]; `EAGAIN` if all links are broken.
    fn look_up(&self, gid: &Gid, lane: usize) -> Result<Answer> {
        let count = self.links.len();
        for turn in 0..count {
            let link = self.links.get(lane.wrapping_add(turn) % count);
            match link.map(|link| link.look_up(gid)) {
                // It was broken before, and this took no time.
                Some(Err(error)) if error == errno::not_conn() => {}
                Some(answer) => return answer,
                None => break,
            }
        }
        Err(EAGAIN)
    }

    /// As [`Link::begin`], by the link that [`Self::look_up`] would take.
    fn begin(&self, gid: &Gid, lane: usize) {
        let count = self.links.len();
        let mut links =
            (0..count).filter_map(|turn| self.links.get(lane.wrapping_add(turn) % count));
        // A link that is broken is passed over, as there.
        let _ = links.any(|link| link.begin(gid));
    }

    /// Whether the server answers by one of its links; those by which it does not are
    /// known to be broken afterwards.
    fn answers(&self, gid: &Gid) -> bool {
        let mut alive = self.links.iter().filter(|link| link.is_alive());
        alive.any(|link| matches!(link.probe(gid), Ok(_) | Err(EAGAIN)))
    }

    /// Whether it is connected, has the node's record, and answers.
    fn is_well(&self, gid: &Gid, record: &Record) -> bool {
        if !self.is_complete() {
            return false;
        }
        let now_ns = now_ns();
        if now_ns.saturating_sub(self.probed_ns.load(Ordering::Relaxed)) < PROBE_NS {
            return true;
        }
        self.probed_ns.store(now_ns, Ordering::Relaxed);
        let turn = self.probes.fetch_add(1, Ordering::Relaxed);
        let link = self.links.get(turn % self.links.len().max(1));
        match link.map(|link| link.probe(gid)) {
            Some(Ok(found)) => found == Some(*record),
            // The record was being written.
            Some(Err(EAGAIN)) => self.is_complete(),
            Some(Err(_)) | None => false,
        }
    }

    fn is_complete(&self) -> bool {
        self.published.is_some() && self.links.iter().all(|link| link.is_alive())
    }
}
