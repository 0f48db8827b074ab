// SPDX-License-Identifier: GPL-2.0

//! Sessions: one open file that has said hello, on one node. It owns rings, VQPs, peers
//! that it has opened and memory regions; when it goes they go, whatever the process was
//! doing.
//!
//! Lock order: `keys` is around the locks of the node's table and of RC's list of regions.
//! `owned` is inside of a ring's `submission` and of `Branches::table`, because requests name
//! VQPs and peers by their handles; it is around a ring's `receives`, and a set of the DCCache
//! or of receivers. Otherwise each is held alone. Pages are pinned without either.

mod enter;
mod objects;

use core::sync::atomic::{AtomicU64, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::bindings as c;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::dc::wire::Receiver;
use weft_core::gid::Gid;
use weft_core::mr::{ACCESS_CHANGE, ACCESS_REMOTE};
use weft_core::uapi::{
    self, MrReg, MwBind, Pod, QConnect, RingsCreate, MAX_MRS_PER_SESSION, MAX_MWS_PER_SESSION,
};

use crate::counters::{Counted, COUNTERS};
use crate::dc::peer_changes;
use crate::handles::Handles;
use crate::mem::{is_writable, NewRegion};
use crate::node::{as_connect_error, Node, RecordSource};
use crate::pool::waits_for_queues;
use crate::quota::Held;
use crate::rings::{Arena, Rings};
use crate::sync::{new_lock, new_poll_queue, FastLock, PollQueue};
use crate::vqp::{OpenPeer, Peer, Queues, Vqp};

/// Events of `poll(2)`, as `uapi/linux/eventpoll.h` has them.
const EPOLLIN: u32 = 0x1;
const EPOLLRDNORM: u32 = 0x40;
pub(crate) const EPOLLERR: u32 = 0x8;
const EPOLLHUP: u32 = 0x10;

/// Numbers of sessions, each given once: whoever has a session's number may use its
/// memory. 0 is nobody.
static NEXT_SESSION: AtomicU64 = AtomicU64::new(1);

/// Objects of a session, behind its lock.
struct Owned {
    queues: Handles<Arc<Queues>>,
    vqps: Handles<Arc<Vqp>>,
    peers: Handles<Opened>,
    /// The peer that it connected to last.
    last: Option<Known>,
}

/// A peer that is open.
struct Opened {
    peer: Arc<OpenPeer>,
    /// Its place among the peers that its user may have open. Who still has requests to a
    /// closed one does not hold it.
    _held: Held,
}

impl Owned {
    const NOTHING: Self = Self {
        queues: Handles::new(),
        vqps: Handles::new(),
        peers: Handles::new(),
        last: None,
    };
}

/// A peer as the DCCache had it. A session that connects to the same one again
/// neither looks there nor touches what it shares with other CPUs, but the peer.
struct Known {
    gid: u128,
    /// Trusted as long as this is the number of changes.
    changes: u64,
    peer: Arc<Peer>,
}

/// The keys of a session's memory.
struct Keys {
    regions: KVec<u32>,
    windows: KVec<u32>,
}

/// A session.
#[pin_data(PinnedDrop)]
pub(crate) struct Session {
    id: u64,
    user: u32,
    node: Arc<Node>,
    arena: Arc<Arena>,
    /// Woken when a VQP of the session has a completion.
    pollers: Arc<PollQueue>,
    #[pin]
    owned: FastLock<Owned>,
    #[pin]
    keys: Mutex<Keys>,
    _count: Counted,
}

impl Session {
    /// A session of a user on a node.
    pub(crate) fn new(node: Arc<Node>, user: u32) -> Result<Arc<Self>> {
        let owned = Owned::NOTHING;
        let keys = Keys {
            regions: KVec::new(),
            windows: KVec::new(),
        };
        let arena = Arena::new()?;
        let pollers = Arc::pin_init(new_poll_queue!("weft_session_pollers"), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                id: NEXT_SESSION.fetch_add(1, Ordering::Relaxed),
                user,
                node,
                arena,
                pollers,
                owned <- new_lock!(owned, "weft_session"),
                keys <- kernel::new_mutex!(keys, "weft_session_keys"),
                _count: Counted::one(&COUNTERS.sessions),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The node.
    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// `poll(2)`: has the caller woken by what may change the answer, and answers what
    /// is so now, as [`uapi`] says.
    ///
    /// # Safety
    ///
    /// `file` and `table` are what C called the `poll` operation with, and the file
    /// holds this session.
    pub(crate) unsafe fn poll(&self, file: *mut c::file, table: *mut c::poll_table_struct) -> u32 {
        // SAFETY: the caller's promise; the file holds the session, which holds both
        // queues.
        unsafe {
            self.pollers.register(file, table);
            self.node.pollers().register(file, table);
        }
        let mut events = 0;
        if self.has_completions() {
            events |= EPOLLIN | EPOLLRDNORM;
        }
        if !self.node.is_alive() {
            events |= EPOLLERR | EPOLLHUP;
        }
        events
    }

    /// Whether any of its rings has completions to take, after receive buffers were handed
    /// back whose VQP is in error.
    fn has_completions(&self) -> bool {
        let mut flushed = 0;
        loop {
            let next = {
                let owned = self.owned.lock();
                if owned.queues.iter().any(|queues| queues.has_completions()) {
                    return true;
                }
                let mut flushing = owned.queues.iter().filter(|queues| queues.is_flushing());
                flushing.nth(flushed).cloned()
            };
            // Without the lock, because a ring holds many buffers.
            match next {
                Some(queues) => queues.flush_receives(),
                None => return false,
            }
            flushed += 1;
        }
    }

    fn check_alive(&self) -> Result {
        if self.node.is_alive() {
            Ok(())
        } else {
            Err(ENODEV)
        }
    }

    /// Connects a VQP.
    ///
    /// # Errors
    ///
    /// Those of [`QConnect`].
    pub(crate) fn connect(&self, request: &QConnect) -> Result {
        if request.gid.is_zero() || request.port > uapi::MAX_PORT || request.reserved != 0 {
            return Err(EINVAL);
        }
        // Who waits for a queue pair does so without the lock.
        let cached = match waits_for_queues() {
            false => self.connect_cached(request)?,
            true => None,
        };
        match cached {
            Some(()) => Ok(()),
            None => self.connect_uncached(request),
        }
    }

    /// The peer, once it can be used: with `pool=rc` there is a queue pair to it then.
    fn ready(&self, peer: Arc<Peer>) -> Result<Arc<Peer>> {
        if waits_for_queues() {
            let waited = peer.wait_for_queue(self.user);
            // A node that goes has no device any more, which is no reason of its own.
            waited.map_err(|error| match self.node.is_alive() {
                true => as_connect_error(error),
                false => ENODEV,
            })?;
        }
        Ok(peer)
    }

    /// Connects if the peer is in the DCCache. The path that counts: the VQP is
    /// used where it is, under the lock.
    fn connect_cached(&self, request: &QConnect) -> Result<Option<()>> {
        let mut owned = self.owned.lock();
        let Owned { vqps, last, .. } = &mut *owned;
        let vqp = vqps.get(request.vqp).ok_or(EBADF)?;
        let (gid, changes) = (word(&request.gid), peer_changes());
        // A node that stops flushes its cache, which is a change too.
        if let Some(known) = last {
            if known.gid == gid && known.changes == changes {
                vqp.connect(known.peer.clone(), receiver(request.port))?;
                RecordSource::Cache.count_connect();
                return Ok(Some(()));
            }
        }
        self.check_alive()?;
        let Some(peer) = self.node.cached_peer(&request.gid) else {
            return Ok(None);
        };
        let connected = vqp.connect(peer.clone(), receiver(request.port));
        let before = last.replace(Known { gid, changes, peer });
        // A peer that may be the last of its kind goes without the lock.
        drop(owned);
        drop(before);
        connected?;
        RecordSource::Cache.count_connect();
        Ok(Some(()))
    }

    #[inline(never)]
    fn connect_uncached(&self, request: &QConnect) -> Result {
        let vqp = self.vqp(request.vqp)?;
        if vqp.is_connected() {
            return Err(crate::errno::is_conn());
        }
        let (peer, source) = self.node.find_peer(&request.gid)?;
        vqp.connect(self.ready(peer)?, receiver(request.port))?;
        source.count_connect();
        Ok(())
    }

    /// The peer with this GID: the last one, or a cached one, or one that a meta server
    /// knows.
    ///
    /// # Errors
    ///
    /// Those of [`QConnect`] that are about the peer.
    fn peer(&self, gid: &Gid) -> Result<(Arc<Peer>, RecordSource)> {
        let changes = peer_changes();
        let wanted = word(gid);
        let known = {
            let owned = self.owned.lock();
            let is_it = |known: &&Known| known.gid == wanted && known.changes == changes;
            let known = owned.last.as_ref().filter(is_it);
            known.map(|known| known.peer.clone())
        };
        if let Some(peer) = known {
            return Ok((self.ready(peer)?, RecordSource::Cache));
        }
        self.check_alive()?;
        let peer = match self.node.cached_peer(gid) {
            Some(peer) => self.ready(peer)?,
            // It changes what is known: nothing to remember yet.
            None => {
                let (peer, source) = self.node.find_peer(gid)?;
                return Ok((self.ready(peer)?, source));
            }
        };
        let known = Known {
            gid: wanted,
            changes,
            peer: peer.clone(),
        };
        let before = self.owned.lock().last.replace(known);
        drop(before);
        Ok((peer, RecordSource::Cache))
    }

    /// Registers memory and answers its key. Memory that this session keeps for rings makes way
    /// for it.
    ///
    /// # Errors
    ///
    /// Those of [`MrReg`].
    pub(crate) fn register(&self, request: &MrReg) -> Result<u32> {
        let bad_len = request.len == 0 || request.len > uapi::MAX_MR_BYTES;
        if !is_usable(request.access) || bad_len || request.reserved != 0 {
            return Err(EINVAL);
        }
        self.check_alive()?;
        let pin = || self.node.pin(self.id, self.user, request);
        let region = pin().or_else(|error| {
            if error != ENOMEM {
                return Err(error);
            }
            self.arena.make_way();
            pin()
        })?;
        self.own_region(region)
    }

    /// Binds a memory window to a region, and answers its key.
    ///
    /// # Errors
    ///
    /// Those of [`MwBind`].
    pub(crate) fn bind_window(&self, request: &MwBind) -> Result<u32> {
        let is_known = request.access & !(ACCESS_REMOTE | uapi::ACCESS_RELAXED_ORDERING) == 0;
        let has_rights = request.access & ACCESS_REMOTE != 0;
        if !is_known || !has_rights || request.len == 0 || request.reserved != 0 {
            return Err(EINVAL);
        }
        self.check_alive()?;
        let windows = &mut self.keys.lock().windows;
        own_key(windows, MAX_MWS_PER_SESSION, || {
            self.node.bind_window(self.id, self.user, request)
        })
    }

    /// Registers the memory that comes with rings, and says its key.
    ///
    /// # Errors
    ///
    /// Those of [`RingsCreate`].
    fn register_rest(&self, rings: &Rings, request: &mut RingsCreate) -> Result {
        let region = MrReg {
            addr: request.memory_addr,
            len: u64::from(request.memory_bytes),
            access: request.memory_access,
            ..Pod::zeroed()
        };
        let pages = rings.rest(is_writable(&region))?;
        let region = self.node.lent(self.id, self.user, &region, pages)?;
        request.memory_key = self.own_region(region)?;
        Ok(())
    }

    /// Registers a region, which is the session's then, and answers its key.
    fn own_region(&self, region: NewRegion) -> Result<u32> {
        let regions = &mut self.keys.lock().regions;
        let register = || self.node.register(region);
        let key = own_key(regions, MAX_MRS_PER_SESSION, register)?;
        self.node.mrs().fetch_add(1, Ordering::Relaxed);
        Ok(key)
    }

    /// Deregisters memory, or ends a window. When this returns nobody touches it by this
    /// key any more.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `EBUSY`: as for [`uapi::MrDereg`].
    pub(crate) fn deregister(&self, key: u32) -> Result {
        let ticket = {
            let mut keys = self.keys.lock();
            let ticket = self.node.deregister(self.id, key)?;
            let windows = keys.windows.len();
            keys.windows.retain(|other| *other != key);
            if keys.windows.len() == windows {
                keys.regions.retain(|other| *other != key);
                self.node.mrs().fetch_sub(1, Ordering::Relaxed);
            }
            ticket
        };
        self.node.dc().mrs().wait(ticket, true);
        Ok(())
    }
}

/// Adds a key that `make` makes to those of a session.
fn own_key(keys: &mut KVec<u32>, most: usize, make: impl FnOnce() -> Result<u32>) -> Result<u32> {
    if keys.len() >= most {
        return Err(EMFILE);
    }
    // Room first: nothing can fail once the key is in the table.
    keys.reserve(1, GFP_KERNEL_ACCOUNT)?;
    let key = make()?;
    keys.push(key, GFP_KERNEL_ACCOUNT)?;
    Ok(key)
}

/// Whether access flags go together.
fn is_usable(access: u32) -> bool {
    let is_odd = access & ACCESS_CHANGE != 0 && access & uapi::ACCESS_LOCAL_WRITE == 0;
    access & !(uapi::ACCESS_ALL | uapi::ACCESS_RELAXED_ORDERING) == 0 && !is_odd
}

/// The receiver of messages to a port; `None`, if that is 0.
fn receiver(port: u32) -> Option<Receiver> {
    (port != 0).then_some(Receiver::Port(port))
}

/// A GID as one word, to compare.
fn word(gid: &Gid) -> u128 {
    u128::from_ne_bytes(gid.0)
}

#[pinned_drop]
impl PinnedDrop for Session {
    fn drop(self: Pin<&mut Self>) {
        // VQPs with requests on their way live on until those have ended; without
        // the regions those requests can touch nothing of ours.
        let owned = {
            let mut owned = self.owned.lock();
            core::mem::replace(&mut *owned, Owned::NOTHING)
        };
        for vqp in owned.vqps.iter() {
            self.silence(vqp);
        }
        for queues in owned.queues.iter() {
            queues.stop_work();
        }
        drop(owned);
        let keys = self.keys.lock();
        // Regions stay as long as they have windows.
        for list in [&keys.windows, &keys.regions] {
            for key in list {
                // It is there: only this session could have removed it.
                if let Ok(ticket) = self.node.deregister(self.id, *key) {
                    self.node.dc().mrs().wait(ticket, false);
                }
            }
        }
        let regions = keys.regions.len() as u32;
        self.node.mrs().fetch_sub(regions, Ordering::Relaxed);
    }
}
