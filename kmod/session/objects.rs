// SPDX-License-Identifier: GPL-2.0

//! A session's rings, VQPs and peers: how they come and go.

use core::sync::atomic::{AtomicU32, Ordering};

use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::Receiver;
use weft_core::uapi::{
    self, Accept, CqNotify, PeerOpen, QBind, RingsCreate, VqpCreate, MAX_RINGS_PER_SESSION,
    RINGS_NONE, VQP_SHARED_RECEIVE, VQP_UNCONNECTED,
};
use weft_core::vqp::ReceiveUse;

use super::{is_usable, receiver, Owned, Session};
use crate::dc::Receives as _;
use crate::handles::{Handles, MorePlaces};
use crate::quota::Kind;
use crate::rings::Arena;
use crate::session::Opened;
use crate::sync::EventFd;
use crate::vqp::{OpenPeer, Owner, Queues, ReceiveQueue, Senders, Vqp, VqpConfig};

/// Numbers of flows. They come round: a receiver's that another one has is refused
/// ([`Session::take_in`]), and a stream on which one has failed starts anew before that
/// (`core::dc::FAILED_FLOW_NS`). 0 is nobody.
static NEXT_FLOW: AtomicU32 = AtomicU32::new(1);

pub(super) fn next_flow() -> u32 {
    loop {
        let flow = NEXT_FLOW.fetch_add(1, Ordering::Relaxed);
        if flow != 0 {
            return flow;
        }
    }
}

/// Whether the memory that is wanted with rings can be named so; or none is.
fn has_good_memory(request: &RingsCreate) -> bool {
    let (addr, bytes) = (request.memory_addr, request.memory_bytes);
    if bytes == 0 {
        return addr == 0 && request.memory_access == 0;
    }
    bytes <= uapi::MAX_RING_MEMORY
        && addr % PAGE_SIZE as u64 == 0
        && addr.checked_add(u64::from(bytes)).is_some()
        && is_usable(request.memory_access)
}

impl Session {
    /// Makes sure that a table has room, and runs `f` with the lock held.
    fn with_room<T, O>(
        &self,
        table: impl Fn(&mut Owned) -> &mut Handles<O>,
        f: impl FnOnce(&mut Owned) -> Result<T>,
    ) -> Result<T> {
        loop {
            let size = {
                let mut owned = self.owned.lock();
                match table(&mut owned).is_full() {
                    None => return f(&mut owned),
                    Some(size) => size,
                }
            };
            let more = MorePlaces::new(size)?;
            let unused = table(&mut self.owned.lock()).grow(more);
            drop(unused);
        }
    }

    /// The VQP of a handle.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub(crate) fn vqp(&self, handle: u32) -> Result<Arc<Vqp>> {
        self.owned.lock().vqps.get(handle).cloned().ok_or(EBADF)
    }

    /// The queues of a handle.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub(crate) fn queues(&self, handle: u32) -> Result<Arc<Queues>> {
        self.owned.lock().queues.get(handle).cloned().ok_or(EBADF)
    }

    /// The peer that was opened, of a handle.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub(super) fn open_peer(&self, handle: u32) -> Result<Arc<OpenPeer>> {
        let owned = self.owned.lock();
        let opened = owned.peers.get(handle).ok_or(EBADF)?;
        Ok(opened.peer.clone())
    }

    /// The queues whose rings are mapped from there.
    ///
    /// # Errors
    ///
    /// `EINVAL` (no rings begin there), `EBADF`.
    pub(crate) fn queues_at(&self, map_offset: u64) -> Result<Arc<Queues>> {
        if !Arena::is_place(map_offset) {
            return Err(EINVAL);
        }
        let owned = self.owned.lock();
        let mut there = owned.queues.iter();
        let found = there.find(|queues| queues.rings().are_at(map_offset));
        found.cloned().ok_or(EBADF)
    }

    /// Makes queues and says in `request` where their rings are, and the memory that is
    /// wanted with them.
    ///
    /// # Errors
    ///
    /// Those of [`RingsCreate`].
    pub(crate) fn create_rings(&self, request: &mut RingsCreate) -> Result {
        let RingsCreate {
            max_send_wr,
            max_wc,
            max_recv_wr,
            ..
        } = *request;
        let are_some = max_send_wr | max_wc | max_recv_wr | request.memory_bytes != 0;
        let fit = max_send_wr <= uapi::MAX_SEND_WR
            && max_wc <= uapi::MAX_WC
            && max_recv_wr <= uapi::MAX_RECV_WR;
        if !are_some || !fit || !has_good_memory(request) || request.reserved != 0 {
            return Err(EINVAL);
        }
        self.check_alive()?;
        let queues = Queues::new(&self.arena, self.pollers.clone(), request)?;
        if request.memory_bytes != 0 {
            self.register_rest(queues.rings(), request)?;
        }
        let made = self.with_room(
            |owned| &mut owned.queues,
            |owned| {
                if owned.queues.count() >= MAX_RINGS_PER_SESSION {
                    return Err(EMFILE);
                }
                // A copy: those that are not taken in are freed without the lock.
                owned.queues.insert(queues.clone()).map_err(|_| ENOMEM)
            },
        );
        match made {
            Ok(rings) => request.rings = rings,
            Err(error) => return self.forget_memory(request).and(Err(error)),
        }
        Ok(())
    }

    /// Takes back what [`Self::create_rings`] has made.
    ///
    /// # Errors
    ///
    /// `EBADF`, `EBUSY`, `ENOENT`: the user was quicker.
    pub(crate) fn uncreate_rings(&self, made: &RingsCreate) -> Result {
        let forgotten = self.forget_memory(made);
        self.destroy_rings(made.rings).and(forgotten)
    }

    /// Deregisters the memory that has come with rings.
    fn forget_memory(&self, made: &RingsCreate) -> Result {
        match made.memory_bytes {
            0 => Ok(()),
            _ => self.deregister(made.memory_key),
        }
    }

    /// Destroys queues.
    ///
    /// # Errors
    ///
    /// `EBADF`, `EBUSY`.
    pub(crate) fn destroy_rings(&self, handle: u32) -> Result {
        let queues = {
            let mut owned = self.owned.lock();
            if owned.queues.get(handle).ok_or(EBADF)?.are_used() {
                return Err(EBUSY);
            }
            owned.queues.remove(handle).ok_or(EBADF)?
        };
        queues.stop_work();
        Ok(())
    }

    /// Has an eventfd signalled when completions come to a ring, or none any more.
    ///
    /// # Errors
    ///
    /// Those of [`CqNotify`].
    pub(crate) fn notify(&self, request: &CqNotify) -> Result {
        let CqNotify {
            eventfd,
            count,
            period_us,
            ..
        } = *request;
        let queues = self.queues(request.rings)?;
        let is_none = eventfd == uapi::EVENTFD_NONE;
        let is_moderate = match is_none {
            true => count | period_us == 0,
            false => {
                (1..=uapi::MAX_NOTIFY_COUNT).contains(&count)
                    && period_us <= uapi::MAX_NOTIFY_US
                    // Otherwise too few would be told of never.
                    && (count == 1 || period_us != 0)
            }
        };
        if !is_moderate || request.reserved != 0 || queues.rings().cq_entries() == 0 {
            return Err(EINVAL);
        }
        let eventfd = match is_none {
            true => None,
            false => Some(EventFd::of_descriptor(eventfd)?),
        };
        queues.set_channel(eventfd, request)
    }

    /// Makes a VQP, connects it if that is wanted, and says in `request` what it is.
    ///
    /// # Errors
    ///
    /// Those of [`VqpCreate`].
    pub(crate) fn create_vqp(&self, request: &mut VqpCreate) -> Result {
        let vqp = self.new_vqp(request)?;
        if request.gid.is_zero() {
            return self.take_in(vqp, request);
        }
        let (peer, source) = self.peer(&request.gid)?;
        vqp.connect(peer, receiver(request.port))?;
        self.take_in(vqp, request)?;
        source.count_connect();
        Ok(())
    }

    fn new_vqp(&self, request: &VqpCreate) -> Result<Arc<Vqp>> {
        let is_unconnected = request.flags & VQP_UNCONNECTED != 0;
        let is_alone = request.gid.is_zero();
        let is_odd = is_unconnected && (!is_alone || request.rq != RINGS_NONE);
        let flags = request.flags & !(VQP_SHARED_RECEIVE | VQP_UNCONNECTED);
        let no_port = request.port > uapi::MAX_PORT || (is_alone && request.port != 0);
        if !(1..=uapi::MAX_SEND_WR).contains(&request.max_send_wr)
            || is_odd
            || no_port
            || flags != 0
            || request.reserved != [0; 6]
        {
            return Err(EINVAL);
        }
        self.check_alive()?;
        let (cq, rq) = self.queues_for(request)?;
        Vqp::new(VqpConfig {
            flow: next_flow(),
            owner: Owner {
                session: self.id,
                user: self.user,
            },
            cq,
            rq,
            max_send_wr: request.max_send_wr,
            is_unconnected,
            held: self.node.quota().take(self.user, Kind::Vqps)?,
        })
    }

    /// The queues that a VQP is to use.
    fn queues_for(&self, request: &VqpCreate) -> Result<(Arc<Queues>, Option<ReceiveQueue>)> {
        let owned = self.owned.lock();
        let cq = owned.queues.get(request.cq).ok_or(EBADF)?;
        let how = match request.flags & VQP_SHARED_RECEIVE {
            0 => ReceiveUse::Own,
            _ => ReceiveUse::Shared,
        };
        if cq.rings().cq_entries() == 0 {
            return Err(EINVAL);
        }
        if request.rq == RINGS_NONE {
            return match how {
                ReceiveUse::Own => Ok((cq.clone(), None)),
                ReceiveUse::Shared => Err(EINVAL),
            };
        }
        let rq = owned.queues.get(request.rq).ok_or(EBADF)?;
        // A ring of its own comes back with its failure, where its completions go.
        let is_elsewhere = how == ReceiveUse::Own && !Arc::ptr_eq(rq, cq);
        if rq.rings().rq_entries() == 0 || is_elsewhere {
            return Err(EINVAL);
        }
        Ok((cq.clone(), Some((rq.clone(), how))))
    }

    /// Gives a VQP a handle. From now on messages reach it.
    fn take_in(&self, vqp: Arc<Vqp>, request: &mut VqpCreate) -> Result {
        let (cq, rq) = (request.cq, request.rq);
        request.vqp = self.with_room(
            |owned| &mut owned.vqps,
            |owned| {
                // They may have been destroyed meanwhile.
                let is_same = |handle, queues: &Arc<Queues>| {
                    let found: Option<&Arc<Queues>> = owned.queues.get(handle);
                    found.is_some_and(|found| Arc::ptr_eq(found, queues))
                };
                if !is_same(cq, vqp.cq()) || !vqp.rq().is_none_or(|(queues, _)| is_same(rq, queues))
                {
                    return Err(EBADF);
                }
                let handle = owned.vqps.insert(vqp.clone()).map_err(|_| ENOMEM)?;
                vqp.set_handle(handle);
                if let Err(error) = self.begin(&vqp) {
                    owned.vqps.remove(handle);
                    return Err(error);
                }
                Ok(handle)
            },
        )?;
        // A node that stops tells the receivers that it has, once. One that comes after that
        // sees, by the lock of its set of receivers, that the node is no longer alive.
        if vqp.receives() && !self.node.is_alive() {
            vqp.node_gone();
        }
        Ok(())
    }

    /// A VQP begins to use its queues, and to receive. With the lock held.
    fn begin(&self, vqp: &Arc<Vqp>) -> Result {
        if let Some((queues, how)) = vqp.rq() {
            queues.begin_receiving(*how)?;
            let receivers = self.node.dc().receivers();
            let name = Receiver::Flow(vqp.flow());
            if let Err(error) = receivers.insert(name, vqp.clone()) {
                queues.end_receiving();
                return Err(error);
            }
            queues.add_user();
        }
        vqp.cq().add_user();
        self.node.vqps().fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Destroys a VQP.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub(crate) fn destroy_vqp(&self, handle: u32) -> Result {
        let vqp = self.owned.lock().vqps.remove(handle).ok_or(EBADF)?;
        self.silence(&vqp);
        self.let_go(&vqp);
        vqp.cq().tidy();
        Ok(())
    }

    /// A VQP no longer uses its queues.
    fn let_go(&self, vqp: &Vqp) {
        let _owned = self.owned.lock();
        if let Some((queues, _)) = vqp.rq() {
            queues.end_receiving();
            queues.remove_user();
        }
        vqp.cq().remove_user();
    }

    /// Messages do not reach a VQP any more that has left the session, and nobody hears of
    /// its requests.
    pub(super) fn silence(&self, vqp: &Vqp) {
        for name in vqp.receivers().into_iter().flatten() {
            self.node.dc().receivers().remove(name);
        }
        vqp.stop();
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
        let vqp = owned.vqps.get(request.vqp).ok_or(EBADF)?;
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
        if !request.vqp.gid.is_zero() || request.vqp.flags & VQP_UNCONNECTED != 0 {
            return Err(EINVAL);
        }
        let vqp = self.new_vqp(&request.vqp)?;
        let to = Receiver::Flow(sender.flow);
        vqp.connect(self.node.peer_of(&sender)?, Some(to))?;
        self.take_in(vqp, &mut request.vqp)
    }

    /// Opens a peer for unconnected VQPs.
    ///
    /// # Errors
    ///
    /// Those of [`PeerOpen`].
    pub(crate) fn open(&self, request: &mut PeerOpen) -> Result {
        if request.gid.is_zero() || request.port > uapi::MAX_PORT || request.reserved != 0 {
            return Err(EINVAL);
        }
        let held = self.node.quota().take(self.user, Kind::Peers)?;
        let (peer, _) = self.peer(&request.gid)?;
        let peer = OpenPeer::new(peer, receiver(request.port));
        let peer = Arc::new(peer, kernel::alloc::flags::GFP_KERNEL_ACCOUNT)?;
        let opened = Opened { peer, _held: held };
        request.peer = self.with_room(
            |owned| &mut owned.peers,
            |owned| owned.peers.insert(opened).map_err(|_| ENOMEM),
        )?;
        Ok(())
    }

    /// Closes a peer.
    ///
    /// # Errors
    ///
    /// `EBADF`.
    pub(crate) fn close(&self, handle: u32) -> Result {
        let opened = self.owned.lock().peers.remove(handle).ok_or(EBADF)?;
        opened.peer.close();
        Ok(())
    }
}
