// SPDX-License-Identifier: GPL-2.0

//! Sessions: one open file that has said hello, on one node. It owns VQPs and
//! memory regions; when it goes they go, whatever the process was doing.
//!
//! Lock order: `mrs` and `owned` are each held alone, but for `mrs` around a set
//! of the node's table.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::bindings as c;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::dc::wire::Receiver;
use weft_core::uapi::{
    self, Accept, MrReg, QBind, QConnect, VqpCreate, MAX_MRS_PER_SESSION, MAX_VQPS_PER_SESSION,
};

use crate::counters::{Counted, COUNTERS};
use crate::dc::peer_changes;
use crate::node::Node;
use crate::peer::Peer;
use crate::quota::Kind;
use crate::rings::Arena;
use crate::sync::{new_lock, new_poll_queue, FastLock, PollQueue};
use crate::vqp::{Owner, Senders, Vqp};

/// What `poll(2)` answers, as `uapi/linux/eventpoll.h` has it.
const EPOLLIN: u32 = 0x1;
const EPOLLRDNORM: u32 = 0x40;
pub(crate) const EPOLLERR: u32 = 0x8;
const EPOLLHUP: u32 = 0x10;

/// Numbers of sessions, each given once: whoever has a session's number may use its
/// memory. 0 is nobody.
static NEXT_SESSION: AtomicU64 = AtomicU64::new(1);

/// Numbers of flows. They come round: a receiver's that another one has is refused
/// ([`Session::take_in`]). 0 is nobody.
static NEXT_FLOW: AtomicU32 = AtomicU32::new(1);

fn next_flow() -> u32 {
    loop {
        let flow = NEXT_FLOW.fetch_add(1, Ordering::Relaxed);
        if flow != 0 {
            return flow;
        }
    }
}

/// What a session's lock is for.
struct Owned {
    /// By handle. Room for all is made at the start.
    vqps: KVec<Option<Arc<Vqp>>>,
    /// The peer that it connected to last.
    last: Option<Known>,
}

/// A peer as the DCCache had it. A session that connects to the same one again
/// neither looks there nor touches what it shares with other CPUs, but the peer.
struct Known {
    gid: u128,
    /// Trusted as long as this is the number of changes.
    changes: u64,
    peer: Arc<Peer>,
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
    /// Keys.
    #[pin]
    mrs: Mutex<KVec<u32>>,
    _count: Counted,
}

impl Session {
    /// A session of a user on a node.
    pub(crate) fn new(node: Arc<Node>, user: u32) -> Result<Arc<Self>> {
        let owned = Owned {
            vqps: KVec::with_capacity(MAX_VQPS_PER_SESSION, GFP_KERNEL_ACCOUNT)?,
            last: None,
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
                mrs <- kernel::new_mutex!(KVec::new(), "weft_session_mrs"),
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

    /// Whether any of its VQPs has completions to take.
    fn has_completions(&self) -> bool {
        let mut at = 0;
        loop {
            let in_error = {
                let owned = self.owned.lock();
                let rest = owned.vqps.get(at..).unwrap_or_default();
                if rest.iter().flatten().any(|vqp| vqp.has_completions()) {
                    return true;
                }
                let is_in_error =
                    |vqp: &Option<Arc<Vqp>>| vqp.as_ref().is_some_and(|vqp| vqp.is_in_error());
                let found = rest.iter().position(is_in_error);
                let found = found.and_then(|index| Some((index, rest.get(index)?.clone()?)));
                found.map(|(index, vqp)| (at + index + 1, vqp))
            };
            // Without the lock, because it takes those of the VQP.
            match in_error {
                Some((_, vqp)) if vqp.has_completions_in_error() => return true,
                Some((next, _)) => at = next,
                None => return false,
            }
        }
    }

    fn check_alive(&self) -> Result {
        if self.node.is_alive() {
            Ok(())
        } else {
            Err(ENODEV)
        }
    }

    /// The VQP of a handle.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub(crate) fn vqp(&self, handle: u32) -> Result<Arc<Vqp>> {
        self.owned
            .lock()
            .vqps
            .get(handle as usize)
            .cloned()
            .flatten()
            .ok_or(EBADF)
    }

    /// The VQP whose rings are mapped from there.
    ///
    /// # Errors
    ///
    /// `EINVAL` (no rings begin there), `EBADF`.
    pub(crate) fn vqp_at(&self, map_offset: u64) -> Result<Arc<Vqp>> {
        if !Arena::is_place(map_offset) {
            return Err(EINVAL);
        }
        let owned = self.owned.lock();
        let mut there = owned.vqps.iter().flatten();
        let found = there.find(|vqp| vqp.rings().are_at(map_offset));
        found.cloned().ok_or(EBADF)
    }

    /// Makes a VQP and says in `request` what it is.
    ///
    /// # Errors
    ///
    /// Those of [`VqpCreate`].
    pub(crate) fn create_vqp(&self, request: &mut VqpCreate) -> Result {
        let vqp = self.new_vqp(request)?;
        self.take_in(vqp, request)
    }

    fn new_vqp(&self, request: &VqpCreate) -> Result<Arc<Vqp>> {
        let sends = (1..=uapi::MAX_SEND_WR).contains(&request.max_send_wr);
        if !sends || request.max_recv_wr > uapi::MAX_RECV_WR || request.reserved != [0; 4] {
            return Err(EINVAL);
        }
        self.check_alive()?;
        let held = self.node.quota().take(self.user, Kind::Vqps)?;
        let owner = Owner {
            session: self.id,
            user: self.user,
        };
        let pollers = self.pollers.clone();
        Vqp::new(next_flow(), owner, held, &self.arena, pollers, request)
    }

    /// Gives a VQP a handle. From now on messages reach it.
    fn take_in(&self, vqp: Arc<Vqp>, request: &mut VqpCreate) -> Result {
        let mut owned = self.owned.lock();
        let vqps = &mut owned.vqps;
        let handle = match vqps.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                // There is room, until all handles are taken.
                vqps.push_within_capacity(None).map_err(|_| EMFILE)?;
                vqps.len() - 1
            }
        };
        vqp.set_handle(handle as u32);
        vqp.rings().describe(request);
        request.vqp = handle as u32;
        if vqp.receives() {
            let receivers = self.node.dc().receivers();
            receivers.insert(Receiver::Flow(vqp.flow()), vqp.clone())?;
        }
        if let Some(slot) = vqps.get_mut(handle) {
            *slot = Some(vqp);
            self.node.vqps().fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Destroys a VQP.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub(crate) fn destroy_vqp(&self, handle: u32) -> Result {
        let vqp = self
            .owned
            .lock()
            .vqps
            .get_mut(handle as usize)
            .and_then(Option::take);
        let vqp = vqp.ok_or(EBADF)?;
        self.retire(&vqp);
        Ok(())
    }

    /// Messages do not reach a VQP any more that has left the session.
    fn retire(&self, vqp: &Vqp) {
        for name in vqp.receivers().into_iter().flatten() {
            self.node.dc().receivers().remove(name);
        }
        vqp.stop_receiving();
        self.node.vqps().fetch_sub(1, Ordering::Relaxed);
    }

    /// Binds a VQP to a port.
    ///
    /// # Errors
    ///
    /// Those of [`QBind`].
    pub(crate) fn bind(&self, request: &QBind) -> Result {
        if !(1..=uapi::MAX_PORT).contains(&request.port) || request.reserved != 0 {
            return Err(EINVAL);
        }
        self.check_alive()?;
        let senders = Senders::new(request.port)?;
        // Held until all is done: whoever destroys the VQP comes before or after.
        let owned = self.owned.lock();
        let vqp = owned.vqps.get(request.vqp as usize);
        let vqp = vqp.and_then(Option::as_ref);
        let vqp = vqp.ok_or(EBADF)?;
        if !vqp.receives() || vqp.is_connected() || vqp.is_bound() {
            return Err(EINVAL);
        }
        let name = Receiver::Port(request.port);
        self.node.dc().receivers().insert(name, vqp.clone())?;
        vqp.bind(senders);
        Ok(())
    }

    /// Makes a VQP that is connected to the sender of a message.
    ///
    /// # Errors
    ///
    /// Those of [`Accept`].
    pub(crate) fn accept(&self, request: &mut Accept) -> Result {
        let sender = self.vqp(request.bound)?.sender(request.src)?;
        let vqp = self.new_vqp(&request.vqp)?;
        let to = Receiver::Flow(sender.flow);
        vqp.connect(self.node.peer_of(&sender)?, Some(to))?;
        self.take_in(vqp, &mut request.vqp)
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
        match self.connect_cached(request)? {
            Some(()) => Ok(()),
            None => self.connect_uncached(request),
        }
    }

    /// Connects if the peer is in the DCCache. The path that counts: the VQP is
    /// used where it is, under the lock.
    fn connect_cached(&self, request: &QConnect) -> Result<Option<()>> {
        let mut owned = self.owned.lock();
        let Owned { vqps, last } = &mut *owned;
        let vqp = vqps.get(request.vqp as usize);
        let vqp = vqp.and_then(Option::as_ref).ok_or(EBADF)?;
        let (gid, changes) = (u128::from_ne_bytes(request.gid.0), peer_changes());
        // A node that stops flushes its cache, which is a change too.
        if let Some(known) = last {
            if known.gid == gid && known.changes == changes {
                COUNTERS.connects_cached.bump();
                let connected = vqp.connect(known.peer.clone(), receiver(request));
                return connected.map(Some);
            }
        }
        self.check_alive()?;
        let Some(peer) = self.node.cached_peer(&request.gid) else {
            return Ok(None);
        };
        let connected = vqp.connect(peer.clone(), receiver(request));
        let before = last.replace(Known { gid, changes, peer });
        // A peer that may be the last of its kind goes without the lock.
        drop(owned);
        drop(before);
        connected.map(Some)
    }

    #[inline(never)]
    fn connect_uncached(&self, request: &QConnect) -> Result {
        let vqp = self.vqp(request.vqp)?;
        if vqp.is_connected() {
            return Err(crate::errno::is_conn());
        }
        vqp.connect(self.node.find_peer(&request.gid)?, receiver(request))
    }

    /// Registers memory and answers its key.
    ///
    /// # Errors
    ///
    /// Those of [`MrReg`].
    pub(crate) fn register(&self, request: &MrReg) -> Result<u32> {
        let access = request.access;
        let changes = uapi::ACCESS_REMOTE_WRITE | uapi::ACCESS_REMOTE_ATOMIC;
        let unusable = access & changes != 0 && access & uapi::ACCESS_LOCAL_WRITE == 0;
        let bad_len = request.len == 0 || request.len > uapi::MAX_MR_BYTES;
        if access & !uapi::ACCESS_ALL != 0 || unusable || bad_len || request.reserved != 0 {
            return Err(EINVAL);
        }
        self.check_alive()?;
        let mut mrs = self.mrs.lock();
        if mrs.len() >= MAX_MRS_PER_SESSION {
            return Err(EMFILE);
        }
        // Room first: nothing can fail once the region is in the table.
        mrs.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let key = self.node.register(self.id, self.user, request)?;
        mrs.push(key, GFP_KERNEL_ACCOUNT)?;
        self.node.mrs().fetch_add(1, Ordering::Relaxed);
        Ok(key)
    }

    /// Deregisters memory. When this returns nobody touches it any more.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub(crate) fn deregister(&self, key: u32) -> Result {
        let ticket = {
            let mut mrs = self.mrs.lock();
            let ticket = self.node.deregister(self.id, key)?;
            mrs.retain(|other| *other != key);
            self.node.mrs().fetch_sub(1, Ordering::Relaxed);
            ticket
        };
        self.node.dc().mrs().wait(ticket, true);
        Ok(())
    }
}

/// Who gets the messages of a VQP that is connected so.
fn receiver(request: &QConnect) -> Option<Receiver> {
    (request.port != 0).then_some(Receiver::Port(request.port))
}

#[pinned_drop]
impl PinnedDrop for Session {
    fn drop(self: Pin<&mut Self>) {
        // VQPs with requests on their way live on until those have ended; without
        // the regions those requests can touch nothing of ours.
        let (vqps, last) = {
            let mut owned = self.owned.lock();
            (core::mem::take(&mut owned.vqps), owned.last.take())
        };
        for vqp in vqps.iter().flatten() {
            self.retire(vqp);
        }
        drop((vqps, last));
        for key in self.mrs.lock().iter() {
            // It is there: only this session could have removed it.
            if let Ok(ticket) = self.node.deregister(self.id, *key) {
                self.node.dc().mrs().wait(ticket, false);
            }
            self.node.mrs().fetch_sub(1, Ordering::Relaxed);
        }
    }
}
