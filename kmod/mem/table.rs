// SPDX-License-Identifier: GPL-2.0

//! A node's memory regions, found by their keys in softirqs.
//!
//! The table grows: each of its sets is a tree. Users have limits of their own
//! ([`crate::quota`]), and a region's memory is charged to who registers it.
//!
//! Keys are random: whoever knows one was told it. A region that is in use is
//! marked so: for the few microseconds of a copy, with softirqs disabled, or for
//! the time of an RC request. One that is taken out of the table is freed when
//! nobody uses it any more and no peer may still use what it has read of it.
//!
//! Lock order, outermost first: `hardware`, `state`, a set's.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::{KBox, KVBox};
use kernel::prelude::*;
use kernel::rbtree::{RBTree, RBTreeNodeReservation};
use kernel::sync::{Arc, Mutex};
use weft_core::mr::{Ledger, Notice, ACCESS_CHANGE};
use weft_core::uapi::{self, Pod};

use crate::bindings;
use crate::clock::now_ns;
use crate::counters::{Counted, COUNTERS};
use crate::mem::deferred::{DeferredFrees, Waits};
use crate::mem::device::Hardware;
use crate::mem::region::{Access, Mr, Piece, RegionUse, SharedPages};
use crate::mem::valid::{TableInfo, ValidMr};
use crate::mem::UserPages;
use crate::quota::Held;
use crate::random::random_u32;
use crate::rdma::TableMr;
use crate::sync::{
    new_event_count, new_lock, new_periodic, BhDisabled, BhLock, EventCount, Once, Periodic,
    Routine,
};

const SETS: usize = 1024;
/// Blocks of regions that peers find for RC. Requests for others go by DC.
pub(super) const VALID: u32 = 8192;
/// Keys tried: each is free, but for one in thousands.
const KEY_TRIES: usize = 64;
/// How often deferred frees are looked at while there are any.
const FREE_MS: u32 = 20;
/// Looks at a region that a softirq uses before sleeping.
const YIELDS: u32 = 100;
/// Longest sleep between two looks at a region that has to go: its process may be
/// killed meanwhile.
const NAP_NS: u64 = 19_000_000;

/// Regions with the same low bits in their key, by their keys.
type Set = RBTree<u32, KBox<Mr>>;

/// # Invariants
///
/// A region leaves the table, and is freed, only with this locked.
pub(super) struct State {
    frees: DeferredFrees,
    /// Queue pairs by which peers can reach the regions.
    ledger: KBox<Ledger>,
    /// The table that peers READ, once RC is used.
    pub(super) valid: Option<ValidMr>,
}

/// Why a request on an RC queue pair may not use a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotHeld {
    /// There is no such region, the range is not in it, or it is not for this.
    Denied,
    /// The device does not know it: the request has to go by DC.
    DcOnly,
}

/// Memory that stays where it is and is not registered yet.
pub(crate) struct NewRegion(KBox<Mr>);

/// The regions of a node.
#[pin_data]
pub(crate) struct MrTable {
    pub(super) sets: Pin<KVBox<[BhLock<Set>; SETS]>>,
    #[pin]
    pub(super) state: Mutex<State>,
    /// Where RC is possible, as long as the device is there.
    #[pin]
    pub(super) hardware: Mutex<Option<Hardware>>,
    /// Counts the times that regions were freed.
    #[pin]
    freed: EventCount,
    #[pin]
    free_work: Periodic<Self>,
}

/// Whether what is registered may be written.
pub(crate) fn is_writable(request: &uapi::MrReg) -> bool {
    request.access & uapi::ACCESS_LOCAL_WRITE != 0
}

impl NewRegion {
    /// A region of `pages`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        owner: u64,
        held: Held,
        request: &uapi::MrReg,
        pages: UserPages,
    ) -> Result<Self> {
        let shared = SharedPages {
            pages,
            windows: AtomicU32::new(0),
        };
        let shared = Arc::new(shared, GFP_KERNEL_ACCOUNT)?;
        Self::of(shared, None, owner, held, request)
    }

    /// A window of a region.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOMEM`: as for [`uapi::MwBind`].
    fn window(region: &Mr, held: Held, request: &uapi::MwBind) -> Result<Self> {
        let start = request.addr.checked_sub(region.addr).ok_or(EINVAL)?;
        let is_inside = start <= region.len && request.len <= region.len - start;
        // Devices want a region that peers may change to be its owner's to change, too.
        let local = match request.access & ACCESS_CHANGE {
            0 => 0,
            _ => uapi::ACCESS_LOCAL_WRITE,
        };
        if region.is_window || !is_inside || region.access & local != local {
            return Err(EINVAL);
        }
        let part = uapi::MrReg {
            addr: request.addr,
            len: request.len,
            access: request.access | local,
            ..Pod::zeroed()
        };
        let shared = region.shared.clone();
        Self::of(shared, Some(start as usize), region.owner, held, &part)
    }

    /// A region, or a window that begins so many bytes behind the region.
    fn of(
        shared: Arc<SharedPages>,
        window: Option<usize>,
        owner: u64,
        held: Held,
        request: &uapi::MrReg,
    ) -> Result<Self> {
        let mr = Mr {
            key: 0,
            owner,
            access: request.access,
            addr: request.addr,
            len: request.len,
            first: window.unwrap_or(0),
            is_window: window.is_some(),
            ib: Once::new(),
            is_registering: AtomicBool::new(false),
            shared,
            users: AtomicU32::new(0),
            is_shown: AtomicBool::new(false),
            held,
            _count: Counted::one(&COUNTERS.mrs),
        };
        Ok(Self(KBox::new(mr, GFP_KERNEL_ACCOUNT)?))
    }
}

impl MrTable {
    /// A table without regions.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let sets = KVBox::pin_init(
            pin_init::pin_init_array_from_fn(|_| new_lock!(RBTree::new(), "weft_mr_set")),
            GFP_KERNEL,
        )?;
        let state = State {
            frees: DeferredFrees::new(),
            ledger: KBox::new(Ledger::EMPTY, GFP_KERNEL)?,
            valid: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                sets,
                state <- kernel::new_mutex!(state, "weft_mrs"),
                hardware <- kernel::new_mutex!(None, "weft_mrs_hardware"),
                freed <- new_event_count!("weft_mr_freed"),
                free_work <- new_periodic!("weft_mr_free_work"),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn set(&self, key: u32) -> &BhLock<Set> {
        &self.sets[key as usize % SETS]
    }

    /// A peer can reach the regions from now on, by the queue pair of this token.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: there are too many, or one has the token.
    pub(crate) fn add_link(&self, token: u64) -> Result {
        let opened = self.state.lock().ledger.open(token);
        opened.then_some(()).ok_or(ENOSPC)
    }

    /// A peer's queue pair is gone.
    pub(crate) fn remove_link(&self, token: u64) {
        let mut state = self.state.lock();
        state.ledger.close(token);
        self.free_due(&mut state);
    }

    /// The next notice about regions that go, to the peer of the queue pair that it names.
    pub(crate) fn next_notice(&self) -> Option<Notice> {
        let mut state = self.state.lock();
        let State { frees, ledger, .. } = &mut *state;
        ledger.next(frees.removed(), now_ns())
    }

    /// A peer has answered one.
    pub(crate) fn answered(&self, token: u64, seq: u64) {
        let mut state = self.state.lock();
        state.ledger.answered(token, seq);
        self.free_due(&mut state);
    }

    /// A peer still uses what it was told of.
    pub(crate) fn in_use(&self, token: u64, seq: u64) {
        let mut state = self.state.lock();
        state.ledger.in_use(token, seq, now_ns());
    }

    /// Whether a peer should have answered long ago: its queue pair has to go.
    pub(crate) fn is_overdue(&self, token: u64) -> bool {
        self.state.lock().ledger.is_overdue(token, now_ns())
    }

    /// Whether any peer has something to be told or to answer.
    pub(crate) fn waits_for_peers(&self) -> bool {
        self.state.lock().ledger.is_waiting()
    }

    /// Pins and charges memory of the caller. May sleep for as long as a page fault takes,
    /// which is for ever if a process answers it (userfaultfd, FUSE): a fatal signal alone
    /// ends that. So nobody waits for the caller meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`UserPages::pin`]; `ENOMEM`.
    pub(crate) fn pin(owner: u64, held: Held, request: &uapi::MrReg) -> Result<NewRegion> {
        let (addr, len) = (request.addr as usize, request.len as usize);
        let pages = UserPages::pin(addr, len, is_writable(request))?;
        NewRegion::new(owner, held, request, pages)
    }

    /// Registers memory and answers its key. The device learns of it later, if
    /// ever ([`Self::unregistered`]).
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn insert(&self, region: NewRegion) -> Result<u32> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        self.insert_in(&mut self.state.lock(), node, region)
    }

    /// Binds a window to a region of `owner` and answers its key.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `EINVAL`, `ENOMEM`: as for [`uapi::MwBind`].
    pub(crate) fn bind_window(
        &self,
        owner: u64,
        held: Held,
        request: &uapi::MwBind,
    ) -> Result<u32> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut state = self.state.lock();
        let region = {
            let set = self.set(request.lkey).lock();
            let own = set.get(&request.lkey).filter(|mr| mr.owner == owner);
            RegionUse::new(own.ok_or(ENOENT)?)
        };
        // With `state` locked the region stays.
        let window = NewRegion::window(region.mr(), held, request)?;
        let key = self.insert_in(&mut state, node, window)?;
        region.mr().note_window();
        Ok(key)
    }

    fn insert_in(
        &self,
        state: &mut State,
        node: RBTreeNodeReservation<u32, KBox<Mr>>,
        NewRegion(mut mr): NewRegion,
    ) -> Result<u32> {
        state.frees.reserve()?;
        for _ in 0..KEY_TRIES {
            let key = random_u32();
            let mut set = self.set(key).lock();
            if key == 0 || set.get(&key).is_some() {
                continue;
            }
            mr.key = key;
            set.insert(node.into_node(key, mr));
            return Ok(key);
        }
        state.frees.unreserve();
        Err(ENOMEM)
    }

    /// Takes a region of `owner` out: no request finds it any more. Answers the
    /// ticket to wait with. Peers may have to be told.
    ///
    /// # Errors
    ///
    /// `ENOENT`: the owner has no such region. `EBUSY`: it has windows.
    pub(crate) fn remove(&self, owner: u64, key: u32) -> Result<u64> {
        let mut state = self.state.lock();
        let mr = {
            let mut set = self.set(key).lock();
            let mr = set.get(&key).filter(|mr| mr.owner == owner).ok_or(ENOENT)?;
            if mr.has_windows() {
                return Err(EBUSY);
            }
            set.remove(&key).ok_or(ENOENT)?
        };
        mr.note_removed();
        let is_shown = mr.is_shown.load(Ordering::Relaxed);
        if let Some(valid) = state.valid.as_mut().filter(|_| is_shown) {
            valid.remove(&mr);
        }
        // A peer that connects later reads a table without it.
        let known = is_shown && state.ledger.has_peers();
        let seq = known.then(|| state.ledger.remove());
        let ticket = state.frees.defer(mr, seq);
        self.free_due(&mut state);
        if !state.frees.is_empty() {
            self.free_work.schedule(FREE_MS);
        }
        Ok(ticket)
    }

    fn free_due(&self, state: &mut State) {
        let State { frees, ledger, .. } = &mut *state;
        if frees.free_due(ledger) {
            self.freed.notify();
        }
    }

    /// Waits until the memory of a ticket is freed: a round trip to the peers that
    /// may use it, at most `LEASE_MAX_NS`. Ends early, with the rest done in the
    /// background, if the process is killed, or, unless `patient`, if there are
    /// such peers. May sleep.
    pub(crate) fn wait(&self, ticket: u64, patient: bool) {
        let mut yields = 0;
        loop {
            let seen = self.freed.seen();
            let waits = {
                let mut state = self.state.lock();
                self.free_due(&mut state);
                state.frees.waits(ticket, &state.ledger)
            };
            let nap_ns = match waits {
                Waits::Gone => return,
                Waits::Peers if !patient => return,
                Waits::Peers => NAP_NS,
                // Softirqs copy at most one chunk each; RC requests take longer.
                Waits::Users if yields < YIELDS => {
                    yields += 1;
                    // SAFETY: no requirement but process context.
                    unsafe { bindings::weft_yield() };
                    continue;
                }
                Waits::Users if !patient => return,
                Waits::Users => 1_000_000,
            };
            self.freed.wait(seen, nap_ns, false);
            // SAFETY: no requirement.
            if unsafe { bindings::weft_fatal_signal_pending() } {
                return;
            }
        }
    }

    /// Where peers find the table of regions; `None`: RC is not used.
    pub(crate) fn table_info(&self) -> Option<TableInfo> {
        self.state.lock().valid.as_ref().map(ValidMr::info)
    }

    /// The table's registration, if its key is not valid yet.
    pub(crate) fn unregistered_table(&self) -> Option<Arc<TableMr>> {
        self.state.lock().valid.as_ref()?.unregistered()
    }

    /// How the registration of the table ended.
    pub(crate) fn table_registered(&self, well: bool) -> Result {
        match &mut self.state.lock().valid {
            Some(valid) if well => valid.set_registered(),
            Some(valid) => valid.renew()?,
            None => {}
        }
        Ok(())
    }

    /// The device goes: no request is on its way, and no peer connected, any
    /// more. Regions stay, without the device. May sleep.
    pub(crate) fn stop(&self) {
        self.free_work.stop();
        *self.hardware.lock() = None;
        let mut state = self.state.lock();
        while !state.frees.is_empty() {
            self.free_due(&mut state);
            // SAFETY: no requirement but process context.
            unsafe { bindings::weft_yield() };
        }
        for set in self.sets.iter() {
            // Nobody looks for a region any more, and none comes or goes while
            // `state` is locked: they can be away while what may sleep is done.
            let regions = core::mem::take(&mut *set.lock());
            for mr in regions.values() {
                if let Some(ib) = mr.ib.get() {
                    ib.release();
                }
            }
            *set.lock() = regions;
        }
        state.valid = None;
    }

    /// Finds `len` bytes at `addr` in the region of `key` for `access`. `owner`
    /// has to be the region's own if the access is local. `None`: no such
    /// region, out of its range, or not allowed.
    pub(crate) fn find<'a>(
        &self,
        bh: &'a BhDisabled,
        key: u32,
        owner: u64,
        addr: u64,
        len: u32,
        access: Access,
    ) -> Option<Piece<'a>> {
        let set = self.set(key).lock();
        let mr = set.get(&key)?;
        let start = mr.start_of(owner, addr, len, access)?;
        mr.users.fetch_add(1, Ordering::Relaxed);
        // INVARIANT: counted above, under the set's lock, which `remove` takes
        // before anybody looks at the count.
        Some(Piece {
            mr: &raw const **mr,
            start: mr.first + start as usize,
            _bh: bh,
        })
    }

    /// As [`MrTable::find`], for a request on an RC queue pair: a use of the
    /// region, and the device's key for its block at `addr`.
    ///
    /// # Errors
    ///
    /// [`NotHeld`].
    pub(crate) fn hold(
        &self,
        key: u32,
        owner: u64,
        addr: u64,
        len: u32,
        access: Access,
    ) -> Result<(RegionUse, u32), NotHeld> {
        let set = self.set(key).lock();
        let mr = set.get(&key).ok_or(NotHeld::Denied)?;
        mr.start_of(owner, addr, len, access)
            .ok_or(NotHeld::Denied)?;
        let lkey = mr.ib.get().and_then(|blocks| blocks.lkey(addr));
        Ok((RegionUse::new(mr), lkey.ok_or(NotHeld::DcOnly)?))
    }
}

// SAFETY: the offset is the field's own. `stop` stops the work; a table that was
// never stopped belongs to a node that never started, and had no region.
unsafe impl Routine for MrTable {
    const OFFSET: usize = core::mem::offset_of!(Self, free_work);

    fn run(&self) {
        let mut state = self.state.lock();
        self.free_due(&mut state);
        if !state.frees.is_empty() {
            self.free_work.schedule(FREE_MS);
        }
    }
}
