// SPDX-License-Identifier: GPL-2.0

//! Long READs and WRITEs, and those that go across the end of a block of memory, posted
//! piece by piece in turns (`weft_core::rc::Cut`).
//!
//! A virtual queue pair has one such request at most; what it posts after that
//! waits until the last piece is posted, so that its requests stay in order. Whoever
//! polls posts the next pieces when others have ended: no thread of the user's has
//! to. Memory and keys are looked at again for each piece: a request ends early if
//! either side's region goes.

use core::sync::atomic::{AtomicBool, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::KVVec;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::{Completion, OpKind};
use weft_core::mr::BlockSize;
use weft_core::rc::{cut_sges, Claim, Cut, CutPiece, PIECES_BYTES};
use weft_core::uapi::{Sge, WcStatus};

use crate::bindings;
use crate::clock::now_ns;
use crate::dc::{Entry, Requester};
use crate::mem::RegionUse;
use crate::rc::chain::{access, Keys, CHAIN, SGES};
use crate::rc::post::Refusal;
use crate::rc::queue::{Posting, RcQueue};
use crate::rc::slots::{CompletionTarget, Slot};

/// Room for the first of them, in a queue's list.
const FIRST_ROOM: usize = 8;

/// State that the pieces of a request share.
pub(super) struct Whole<R> {
    pub(super) requester: Arc<R>,
    cookie: u64,
    kind: OpKind,
    len: u32,
    /// Its `SEND_*` flags.
    flags: u8,
    /// The device's keys for the peer's memory, block by block.
    rkeys: KVVec<u32>,
    /// When it was posted.
    begun_ns: u64,
    /// Its requester has heard of its end.
    ended: AtomicBool,
}

impl<R: Requester> Whole<R> {
    fn new(requester: &Arc<R>, entry: &Entry, rkeys: KVVec<u32>) -> Result<Arc<Self>> {
        let whole = Self {
            requester: requester.clone(),
            cookie: entry.cookie(),
            kind: entry.kind(),
            len: entry.len(),
            flags: entry.flags(),
            rkeys,
            begun_ns: now_ns(),
            ended: AtomicBool::new(false),
        };
        Ok(Arc::new(whole, GFP_KERNEL_ACCOUNT)?)
    }

    /// How many bytes it has, and how long it has taken so far.
    pub(super) fn time(&self) -> (u32, u64) {
        (self.len, now_ns().saturating_sub(self.begun_ns))
    }

    /// A piece has ended; the whole does with the last one or the first that fails.
    /// Answers whom to drop without a lock.
    pub(super) fn piece_ended(&self, is_last: bool, status: WcStatus) -> Arc<R> {
        let ends = is_last || status != WcStatus::Success;
        if ends && !self.ended.swap(true, Ordering::Relaxed) {
            let completion = Completion {
                slot: 0,
                cookie: self.cookie,
                status,
                kind: self.kind,
                with_imm: false,
                len: self.len,
            };
            self.requester.completed(&completion, self.flags);
        }
        self.requester.clone()
    }
}

/// A request of which pieces are to be posted.
struct Long<R> {
    whole: Arc<Whole<R>>,
    /// The session, whose memory it may use.
    owner: u64,
    cut: Cut,
    sges: [Sge; SGES],
    /// The peer's key as the user named it.
    key: u32,
    remote_addr: u64,
    /// Its key was revoked.
    is_revoked: bool,
}

/// The requests of a queue that are being cut, and whose turn it is.
pub(super) struct Longs<R> {
    list: KVVec<Long<R>>,
    turn: usize,
}

impl<R> Long<R> {
    /// The device's key for the peer's memory from byte `offset` on.
    fn rkey(&self, size: BlockSize, offset: u32) -> Option<u32> {
        let block = size.block_of(self.remote_addr.wrapping_add(u64::from(offset)));
        let index = block.wrapping_sub(size.block_of(self.remote_addr));
        self.whole.rkeys.get(usize::try_from(index).ok()?).copied()
    }
}

impl<R> Longs<R> {
    pub(super) const fn new() -> Self {
        Self {
            list: KVVec::new(),
            turn: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Uses these keys no more.
    pub(super) fn revoke(&mut self, keys: &[u32]) {
        for long in &mut self.list {
            long.is_revoked |= keys.contains(&long.key);
        }
    }

    fn current(&mut self) -> Option<&mut Long<R>> {
        if self.turn >= self.list.len() {
            self.turn = 0;
        }
        self.list.get_mut(self.turn)
    }

    fn take_current(&mut self) -> Option<Long<R>> {
        self.list.remove(self.turn).ok()
    }

    /// Has as many of them as there are moved to a longer list; answers the list to
    /// free, which is empty unless it is not longer.
    fn move_to(&mut self, mut longer: KVVec<Long<R>>) -> KVVec<Long<R>> {
        if longer.capacity() > self.list.capacity() {
            for long in self.list.drain_all() {
                // There is room: it is longer.
                let _ = longer.push_within_capacity(long);
            }
            core::mem::swap(&mut self.list, &mut longer);
        }
        longer
    }
}

impl<R: Requester> RcQueue<R> {
    /// Reserves all that cutting a request takes: room in the list, and the device's keys for all
    /// that it names of the peer's memory. May sleep.
    ///
    /// # Errors
    ///
    /// Why it is not posted; or, inside, `ENOMEM`.
    #[inline(never)]
    pub(super) fn prepare_long(
        &self,
        requester: &Arc<R>,
        entry: &Entry,
        before_wait: &mut dyn FnMut(),
    ) -> Result<Result<Arc<Whole<R>>>, Refusal> {
        let (key, addr) = entry.remote();
        let size = self.blocks().ok_or(WcStatus::FatalErr)?.remote;
        let (_, remote) = access(entry.kind());
        let len = u64::from(entry.len());
        let mut rkeys = KVVec::new();
        if let Err(error) = rkeys.reserve(size.count(addr, len) as usize, GFP_KERNEL_ACCOUNT) {
            return Ok(Err(error.into()));
        }
        for (part, bytes) in size.parts(addr, len) {
            // Each of them may take as long as what was posted before.
            // SAFETY: no requirement.
            if unsafe { bindings::weft_signal_pending() } {
                return Err(Refusal::Interrupted);
            }
            let (bytes, access) = (bytes as u32, remote.flag());
            let rkey = self.remote_key(key, part, bytes, access, before_wait)?;
            // There is room for all.
            let _ = rkeys.push_within_capacity(rkey);
        }
        if let Err(error) = self.make_long_room() {
            return Ok(Err(error));
        }
        Ok(Whole::new(requester, entry, rkeys))
    }

    /// Makes room for one more request that is cut. May sleep.
    fn make_long_room(&self) -> Result {
        let len = {
            let longs = &self.posting.lock().longs.list;
            if longs.len() < longs.capacity() {
                return Ok(());
            }
            longs.len()
        };
        let longer = KVVec::with_capacity(FIRST_ROOM.max(len * 2), GFP_KERNEL_ACCOUNT)?;
        let old = self.posting.lock().longs.move_to(longer);
        drop(old);
        Ok(())
    }

    /// Begins to cut a request whose keys were looked at. `false`: there is no room.
    pub(super) fn begin_long(
        &self,
        posting: &mut Posting<R>,
        whole: Arc<Whole<R>>,
        owner: u64,
        entry: &Entry,
    ) -> bool {
        let Some(cut) = Cut::new(entry.len()) else {
            return false;
        };
        let mut sges = [NO_SGE; SGES];
        for (place, sge) in sges.iter_mut().zip(entry.pieces()) {
            *place = sge;
        }
        let requester = whole.requester.clone();
        let (key, remote_addr) = entry.remote();
        let pushed = posting.longs.list.push_within_capacity(Long {
            whole,
            owner,
            cut,
            sges,
            key,
            remote_addr,
            is_revoked: false,
        });
        if pushed.is_ok() {
            requester.set_being_cut(true);
            self.has_longs.store(true, Ordering::Relaxed);
        }
        pushed.is_ok()
    }

    /// Posts what there is room for of the requests that are cut. Answers whether
    /// any of them is at its end without a completion of the device's: then the
    /// caller polls. Without a lock.
    pub(super) fn advance(&self) -> bool {
        if !self.has_longs.load(Ordering::Relaxed) {
            return false;
        }
        let (refused, has_left) = {
            let mut posting = self.posting.lock();
            let before = posting.longs.list.len();
            let refused = self.post_pieces(&mut posting);
            (refused, posting.longs.list.len() < before)
        };
        // Those wait whose request was in the list. Nobody is woken for less: a poster that
        // waits for room polls, and would wake itself.
        if has_left {
            self.wake_posters();
        }
        if self.needs_event() {
            self.work.schedule(0);
        }
        refused
    }

    /// Likewise, with the poster's lock and no chain.
    pub(super) fn post_pieces(&self, posting: &mut Posting<R>) -> bool {
        let mut refused = false;
        posting.chain.clear();
        for _ in 0..CHAIN {
            match self.post_piece(posting) {
                Some(is_refused) => refused |= is_refused,
                None => break,
            }
        }
        self.submit(posting);
        self.has_longs
            .store(!posting.longs.is_empty(), Ordering::Relaxed);
        refused
    }

    /// Puts the next piece of the request whose turn it is into the chain, or its end
    /// into a place if it may not go on: answers whether it may not. `None`: there
    /// is no room, or no request.
    fn post_piece(&self, posting: &mut Posting<R>) -> Option<bool> {
        let is_gone = posting.qp.is_none();
        let Posting {
            poster,
            chain,
            longs,
            ..
        } = posting;
        let blocks = self.blocks()?;
        let long = longs.current()?;
        let piece = long.cut.next(blocks, &long.sges, long.remote_addr);
        let (mut uses, mut list) = ([const { None }; SGES], [NO_SGE; SGES]);
        let mut keys = Keys {
            lkeys: [0; SGES],
            rkey: long.rkey(blocks.remote, piece.offset)?,
        };
        let count = cut_sges(&long.sges, piece.offset, piece.len, &mut list);
        let refused = self.end_of(long, is_gone).or_else(|| {
            let sges = list.iter().take(count);
            let places = uses.iter_mut().zip(&mut keys.lkeys);
            let mut pairs = sges.zip(places);
            pairs.find_map(|(sge, (place, lkey))| self.hold_piece(long, sge, place, lkey).err())
        });
        let claim = match refused {
            Some(_) => self.window.claim(poster, 0)?,
            None => self.window.claim_piece(poster, piece.len, PIECES_BYTES)?,
        };
        if refused.is_none() {
            let _ = poster.signals(true);
            let remote_addr = long.remote_addr.wrapping_add(u64::from(piece.offset));
            let sges = list.get(..count).unwrap_or_default();
            chain.push_piece(claim.seq, long.whole.kind, sges, &keys, remote_addr);
        }
        self.fill_piece(longs, claim, piece, refused, uses);
        Some(refused.is_some())
    }

    /// Why a request may not go on, if it may not.
    fn end_of(&self, long: &Long<R>, is_gone: bool) -> Option<WcStatus> {
        if long.whole.requester.has_failed() {
            Some(WcStatus::WrFlushErr)
        } else if is_gone || self.failure().is_some() {
            Some(self.end_of_others())
        } else {
            long.is_revoked.then_some(WcStatus::RemAccessErr)
        }
    }

    fn hold_piece(
        &self,
        long: &Long<R>,
        sge: &Sge,
        place: &mut Option<RegionUse>,
        lkey: &mut u32,
    ) -> Result<(), WcStatus> {
        let (local, _) = access(long.whole.kind);
        let held = self
            .mrs
            .hold(sge.lkey, long.owner, sge.addr, sge.len, local);
        let (region, key) = held.map_err(|_| WcStatus::LocProtErr)?;
        *place = Some(region);
        *lkey = key;
        Ok(())
    }

    /// Fills the place of a piece, or of the end of a request that may not go on.
    /// With the poster's lock.
    fn fill_piece(
        &self,
        longs: &mut Longs<R>,
        claim: Claim,
        piece: CutPiece,
        refused: Option<WcStatus>,
        uses: [Option<RegionUse>; SGES],
    ) {
        let is_last = piece.is_last || refused.is_some();
        let whole = if is_last {
            // Its reference moves on: the last one may not be dropped here.
            longs.take_current().map(|long| long.whole)
        } else {
            let whole = longs.current().map(|long| {
                long.cut.advance(piece);
                long.whole.clone()
            });
            longs.turn += 1;
            whole
        };
        let Some(whole) = whole else { return };
        if is_last {
            whole.requester.set_being_cut(false);
        }
        if refused.is_some() {
            // Requests posted after it, from now on, are flushed.
            whole.requester.fail();
        }
        let slot = Slot {
            kind: whole.kind,
            target: CompletionTarget::Piece { whole, is_last },
            len: if refused.is_some() { 0 } else { piece.len },
            refused,
            uses,
            ..Slot::EMPTY
        };
        // SAFETY: not published yet, and the caller holds the poster's lock.
        unsafe { self.slots.fill(claim, slot) };
    }
}

const NO_SGE: Sge = Sge {
    addr: 0,
    len: 0,
    lkey: 0,
};
