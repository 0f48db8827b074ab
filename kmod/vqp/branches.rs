// SPDX-License-Identifier: GPL-2.0

//! A VQP that is not connected, as a DC initiator of verbs is: each request names its
//! peer. It has a VQP of its own, a *branch*, for each peer that requests of it are under
//! way to; so requests to a peer stay in order, and one that fails stops none to others.
//!
//! When there are many, a branch without requests becomes that of the next peer, unless it
//! has failed: requests to that peer are flushed until the user closes the peer. A branch
//! counts among the VQPs that the user may have, because nothing else limits how many fail.

use core::sync::atomic::{AtomicBool, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::Receiver;
use weft_core::vqp::{PlaceEntry, PlaceTable, Surplus};

use super::{Owner, Peer, Vqp, VqpConfig};
use crate::errno;
use crate::quota::Kind;
use crate::sync::{new_lock, FastMutex, Once, NO_VERSION};

/// Branches from which on the next peer gets one that is there, if it has no requests.
const MANY: usize = 32;
/// Branches with requests that are seen before another one is made. They are looked at in
/// turn, and requests that began first have mostly ended first.
const LOOKS: usize = 4;
/// All that are looked at: also failed ones, which say nothing of how many are needed.
const STEPS: usize = 64;

/// A peer that a session has opened.
pub(crate) struct OpenPeer {
    peer: Arc<Peer>,
    /// The receiver of messages; `None`: none may be sent.
    to: Option<Receiver>,
    is_closed: AtomicBool,
}

impl OpenPeer {
    /// A peer, and the receiver of messages to it.
    pub(crate) fn new(peer: Arc<Peer>, to: Option<Receiver>) -> Self {
        Self {
            peer,
            to,
            is_closed: AtomicBool::new(false),
        }
    }

    /// No further requests go to it.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

struct Branch {
    vqp: Arc<Vqp>,
    to: Arc<OpenPeer>,
    /// The peer's handle.
    handle: u32,
}

impl Branch {
    /// Whether it was let go of, which it is if it has no requests: another peer may have
    /// its place.
    fn retire(&self) -> bool {
        let is_done = self.to.is_closed() || !self.vqp.failed.load(Ordering::Relaxed);
        self.vqp.under_way() == 0 && is_done && self.vqp.retire()
    }
}

/// The branches. A handle leads to the one that is for it. There may be an older one for the same
/// handle, of a peer that was closed: nothing leads there.
struct Table {
    /// A place is empty if its branch was let go of and there could be no other.
    places: KVVec<Option<Branch>>,
    by_handle: PlaceTable<KVVec<PlaceEntry>>,
    /// The place that is looked at next.
    hand: usize,
    surplus: Surplus,
    /// The VQP was destroyed.
    is_stopped: bool,
}

impl Table {
    fn new() -> Result<Self> {
        Ok(Self {
            places: KVVec::new(),
            by_handle: PlaceTable::new(entries(2 * MANY)?).ok_or(EINVAL)?,
            hand: 0,
            surplus: Surplus::NEW,
            is_stopped: false,
        })
    }

    fn get(&self, handle: u32) -> Option<&Branch> {
        let place = self.by_handle.get(handle)?;
        self.places.get(place as usize)?.as_ref()
    }

    /// A place for another branch, and the branch that it had, which was let go of; or the
    /// place behind the last one. Some may be dropped here: no lock of a stream is held.
    fn make_place(&mut self) -> Result<(usize, Option<Branch>)> {
        // For a place that is taken again too: it may have had no handle.
        self.make_room()?;
        if self.places.len() >= MANY {
            self.shrink();
            let mut busy = 0;
            for _ in 0..STEPS.min(self.places.len()) {
                let at = self.next_in_turn();
                if let Some(branch) = self.free(at) {
                    return Ok((at, branch));
                }
                busy += usize::from(!self.has_failed(at));
                if busy == LOOKS {
                    break;
                }
            }
        }
        self.places.reserve(1, GFP_KERNEL_ACCOUNT)?;
        Ok((self.places.len(), None))
    }

    /// Lets go of the last branch if there were enough for a while.
    fn shrink(&mut self) {
        let last = self.places.len() - 1;
        if last >= MANY && self.surplus.may_shrink() && self.free(last).is_some() {
            self.places.pop();
            self.surplus.shrank(last == MANY);
        }
    }

    /// Empties a place whose branch can be let go of, which is answered.
    fn free(&mut self, at: usize) -> Option<Option<Branch>> {
        let place = self.places.get_mut(at)?;
        if !place.as_ref().is_none_or(Branch::retire) {
            return None;
        }
        let branch = place.take();
        if let Some(branch) = &branch {
            self.forget(branch.handle, at);
        }
        Some(branch)
    }

    /// The handle leads to that place no more.
    fn forget(&mut self, handle: u32, at: usize) {
        if self.by_handle.get(handle) == Some(at as u32) {
            self.by_handle.remove(handle);
        }
    }

    fn has_failed(&self, at: usize) -> bool {
        let place = self.places.get(at).and_then(Option::as_ref);
        place.is_some_and(|branch| branch.vqp.failed.load(Ordering::Relaxed))
    }

    fn next_in_turn(&mut self) -> usize {
        if self.hand >= self.places.len() {
            self.hand = 0;
            self.surplus.turned();
        }
        let at = self.hand;
        self.hand += 1;
        at
    }

    /// Makes room for one more handle.
    fn make_room(&mut self) -> Result {
        if !self.by_handle.has_room() {
            let more = entries(4 * self.places.len().next_power_of_two())?;
            self.by_handle.move_to(more).map_err(|_| EINVAL)?;
        }
        Ok(())
    }

    /// Puts a branch into a place that is empty, or behind the last one.
    fn put(&mut self, at: usize, branch: Branch) -> Result {
        let handle = branch.handle;
        match self.places.get_mut(at) {
            Some(place) => *place = Some(branch),
            None => {
                self.places.push(Some(branch), GFP_KERNEL_ACCOUNT)?;
                self.surplus.grew();
            }
        }
        match self.by_handle.insert(handle, at as u32) {
            true => Ok(()),
            false => Err(EINVAL),
        }
    }
}

/// Memory for a table of handles.
fn entries(len: usize) -> Result<KVVec<PlaceEntry>> {
    Ok(KVVec::from_elem(PlaceEntry::NONE, len, GFP_KERNEL_ACCOUNT)?)
}

/// The branches of an unconnected VQP.
#[pin_data]
pub(crate) struct Branches {
    #[pin]
    table: FastMutex<Table>,
}

impl Branches {
    pub(super) fn new() -> Result<Pin<KBox<Self>>> {
        let table = Table::new()?;
        KBox::pin_init(
            pin_init!(Self { table <- new_lock!(table, "weft_branches") }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Nobody hears of their requests any more.
    pub(super) fn stop(&self) {
        let mut table = self.table.lock();
        table.is_stopped = true;
        for branch in table.places.iter().flatten() {
            branch.vqp.stop();
        }
        // Those with requests under way live on until those have ended.
        let branches = core::mem::replace(&mut table.places, KVVec::new());
        drop(table);
        drop(branches);
    }
}

impl Vqp {
    /// Lets go of a branch, unless somebody posts to it: a thread that has found it before
    /// looks for its successor. So requests of a thread to a peer stay in order, and a
    /// destroyed VQP's branches are all known.
    fn retire(&self) -> bool {
        let Some(_submitter) = self.submitter.try_lock() else {
            return false;
        };
        let is_idle = self.under_way() == 0;
        self.is_retired.store(is_idle, Ordering::Relaxed);
        is_idle
    }

    /// Whether it is a branch that was let go of.
    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Whether each of its requests names its peer.
    pub(crate) fn is_unconnected(&self) -> bool {
        self.branches.is_some()
    }

    /// The branch for a peer, made if need be: `open` finds what the session has under the
    /// handle, and `next_flow` names a new one to targets.
    ///
    /// # Errors
    ///
    /// `EBADF` (the session has no such peer), `EMFILE`, `ENOMEM`.
    pub(crate) fn branch(
        &self,
        handle: u32,
        open: impl FnOnce() -> Result<Arc<OpenPeer>>,
        next_flow: impl FnOnce() -> u32,
    ) -> Result<Arc<Self>> {
        let branches = self.branches.as_ref().ok_or_else(errno::not_conn)?;
        let mut table = branches.table.lock();
        if table.is_stopped {
            return Err(EBADF);
        }
        let was_closed = match table.get(handle) {
            Some(branch) if !branch.to.is_closed() => return Ok(branch.vqp.clone()),
            known => known.is_some(),
        };
        let to = open()?;
        if was_closed {
            // After some thousand others the handle is that of another peer.
            table.by_handle.remove(handle);
        }
        let (at, before) = table.make_place()?;
        let flow = next_flow();
        let renewed = before.and_then(|branch| branch.vqp.renew(handle, flow));
        let vqp = match renewed {
            Some(vqp) => vqp,
            None => self.new_branch(handle, flow)?,
        };
        vqp.connect(to.peer.clone(), to.to)?;
        let branch = Branch {
            vqp: vqp.clone(),
            to,
            handle,
        };
        table.put(at, branch)?;
        Ok(vqp)
    }

    fn new_branch(&self, handle: u32, flow: u32) -> Result<Arc<Self>> {
        let Owner { session, user } = self.owner;
        let config = VqpConfig {
            flow,
            owner: Owner { session, user },
            cq: self.cq.clone(),
            rq: None,
            max_send_wr: self.in_flight.most(),
            is_unconnected: false,
            held: self.held.also(Kind::Vqps, 1)?,
        };
        let vqp = Self::with(config, None, handle)?;
        vqp.set_handle(self.handle());
        Ok(vqp)
    }

    /// Makes a branch that was let go of as a new one is, for the peer of another handle.
    /// `None`: a thread that has found it still looks at it.
    fn renew(self: Arc<Self>, handle: u32, flow: u32) -> Option<Arc<Self>> {
        let mut unique = Arc::into_unique_or_drop(self)?;
        // SAFETY: nothing is moved out of it or into its place: of the fields that are
        // pinned, the locks' contents alone change.
        let vqp = unsafe { unique.as_mut().get_unchecked_mut() };
        // All fields are named, so that none that comes is forgotten.
        let Self {
            handle: _,
            flow: its_flow,
            owner: _,
            failed,
            being_cut,
            only_dc,
            by_rc,
            deaf,
            is_retired,
            landing: _,
            in_flight: _,
            connection,
            queue,
            has_left,
            route_seen,
            lane,
            held_until_ns,
            bound: _,
            branches: _,
            branch_to,
            cq: _,
            rq: _,
            submitter,
            direct: _,
            held: _,
            _count: _,
        } = vqp;
        (*its_flow, *branch_to) = (flow, handle);
        if *by_rc.get_mut() {
            // Otherwise there is none in either. One lock at a time, and none when the last
            // reference goes.
            let before = submitter.lock().take();
            drop(before);
            let before = queue.lock().take();
            drop(before);
        }
        for flag in [
            failed, being_cut, only_dc, by_rc, deaf, is_retired, has_left,
        ] {
            *flag.get_mut() = false;
        }
        *route_seen.get_mut() = NO_VERSION;
        *lane.get_mut() = 0;
        *held_until_ns.get_mut() = 0;
        *connection = Once::new();
        Some(unique.into())
    }
}
