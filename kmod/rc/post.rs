// SPDX-License-Identifier: GPL-2.0

//! Posting: keys are checked first, then the batch goes to the device at once
//! (krcore §4.4, alg. 2, lines 3 to 28).

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::OpKind;
use weft_core::rc::Claim;
use weft_core::uapi::{Sge, WcStatus};

use crate::array_vec::{room, ArrayVec};
use crate::clock::{coarse_ns, now_ns};
use crate::counters::COUNTERS;
use crate::dc::{Entry, Requester};
use crate::mem::{NotHeld, RegionUse};
use crate::rc::chain::{access, Keys, CHAIN, SGES};
use crate::rc::control::Probe;
use crate::rc::long::Whole;
use crate::rc::queue::{Posting, RcQueue};
use crate::rc::slots::{CompletionTarget, Slot};

/// Times that a batch is looked at again because a key was revoked meanwhile: each
/// takes another notice of the peer's just then.
const PREPARE_TRIES: usize = 8;

/// The outcome of posting requests.
#[derive(Clone, Copy)]
pub(crate) enum Posted {
    /// So many were taken; of the others the first has no room.
    Taken(usize),
    /// None was: the first has to go by DC.
    NeedsDc,
    /// None was: the queue pair is being closed.
    Closing,
    /// None was: a signal came while keys were looked up.
    Interrupted,
}

/// How a request is posted.
enum Form {
    /// As it is.
    Whole,
    /// In pieces.
    Cut,
}

/// Why a request is not posted.
pub(super) enum Refusal {
    /// It ends with this status in its turn.
    Ends(WcStatus),
    /// It has to go by DC: the device does not take so much at once, or does not know
    /// memory that it names, or the peer's table of regions does not have its key. The
    /// last may be because the table is full; by DC the peer knows all regions.
    NeedsDc,
    /// A signal came while its keys were looked up.
    Interrupted,
}

impl From<WcStatus> for Refusal {
    fn from(status: WcStatus) -> Self {
        Self::Ends(status)
    }
}

impl From<NotHeld> for Refusal {
    fn from(reason: NotHeld) -> Self {
        match reason {
            NotHeld::Denied => Self::Ends(WcStatus::LocProtErr),
            NotHeld::DcOnly => Self::NeedsDc,
        }
    }
}

/// Those of a batch's requests, from the first on, that may go by RC.
struct Batch<'a, R> {
    entries: &'a [Entry],
    /// The state that the pieces of the last of them share, if it has to be cut.
    whole: Option<Arc<Whole<R>>>,
}

/// A request whose keys were looked at.
struct Prepared {
    refused: Option<WcStatus>,
    keys: Keys,
    uses: [Option<RegionUse>; SGES],
}

impl Prepared {
    const EMPTY: Self = Self {
        refused: None,
        keys: Keys {
            lkeys: [0; SGES],
            rkey: 0,
        },
        uses: [const { None }; SGES],
    };
}

impl<R: Requester> RcQueue<R> {
    /// Posts as many of the entries as there is room for. One that is long counts as
    /// taken when it begins to be cut. What may not be done ends with an error in its turn, on this
    /// requester alone. `owner` is the session whose memory they may use. Process
    /// context; may sleep for a READ of the peer's table, after `before_wait`.
    pub(crate) fn post(
        &self,
        requester: &Arc<R>,
        owner: u64,
        entries: &[Entry],
        before_wait: &mut dyn FnMut(),
    ) -> Posted {
        // Room for many is worth clearing for many alone.
        match entries.len() {
            0 => Posted::Taken(0),
            1 => self.post_batch::<1>(requester, owner, entries, before_wait),
            _ => self.post_batches(requester, owner, entries, before_wait),
        }
    }

    #[inline(never)]
    fn post_batches(
        &self,
        requester: &Arc<R>,
        owner: u64,
        entries: &[Entry],
        before_wait: &mut dyn FnMut(),
    ) -> Posted {
        let mut taken = 0;
        for batch in entries.chunks(CHAIN) {
            match self.post_batch::<CHAIN>(requester, owner, batch, before_wait) {
                Posted::Taken(count) if count == batch.len() => taken += count,
                Posted::Taken(count) => return Posted::Taken(taken + count),
                posted if taken == 0 => return posted,
                Posted::NeedsDc | Posted::Closing | Posted::Interrupted => break,
            }
        }
        Posted::Taken(taken)
    }

    /// Posts a batch of at most `N`, which is at most [`CHAIN`].
    fn post_batch<const N: usize>(
        &self,
        requester: &Arc<R>,
        owner: u64,
        batch: &[Entry],
        before_wait: &mut dyn FnMut(),
    ) -> Posted {
        let mut tries = 0..PREPARE_TRIES;
        let posted =
            tries.find_map(|_| self.try_post_batch::<N>(requester, owner, batch, before_wait));
        // Somebody else comes first; the caller waits and tries again.
        posted.unwrap_or(Posted::Taken(0))
    }

    /// Posts a batch, unless the peer revoked a key since the batch's were looked
    /// at.
    fn try_post_batch<const N: usize>(
        &self,
        requester: &Arc<R>,
        owner: u64,
        batch: &[Entry],
        before_wait: &mut dyn FnMut(),
    ) -> Option<Posted> {
        const { assert!(N <= CHAIN) };
        // Its turn is not yet: its keys are looked at then.
        if requester.is_being_cut() {
            return Some(Posted::Taken(0));
        }
        if self.is_closing() {
            return Some(Posted::Closing);
        }
        let seen = self.revocations.seen();
        let mut room = room::<_, N>();
        let mut prepared = ArrayVec::new(&mut room);
        let Batch { entries, mut whole } =
            match self.prepare_batch(&mut prepared, requester, owner, batch, before_wait) {
                Ok(prepared) => prepared,
                Err(EINTR) => return Some(Posted::Interrupted),
                // As if there were no room: there may be memory later.
                Err(_) => return Some(Posted::Taken(0)),
            };
        if entries.is_empty() {
            return Some(match self.is_closing() {
                // Its own requests were refused for that reason.
                true => Posted::Closing,
                false => Posted::NeedsDc,
            });
        }
        let (mut taken, mut refused) = (0, false);
        {
            let mut posting = self.posting.lock();
            // With the lock: what is posted from here on, a revocation waits for.
            if self.revocations.seen() != seen {
                return None;
            }
            if self.is_closing() {
                return Some(Posted::Closing);
            }
            posting.chain.clear();
            for (index, entry) in entries.iter().enumerate() {
                let Some(prepared) = prepared.as_mut_slice().get_mut(index) else {
                    break;
                };
                if requester.is_being_cut() {
                    break;
                }
                let refusal = self.refusal(&posting, requester, prepared);
                if refusal.is_none() && index + 1 == entries.len() {
                    if let Some(whole) = whole.take() {
                        let began = self.begin_long(&mut posting, whole, owner, entry);
                        taken += usize::from(began);
                        break;
                    }
                }
                let len = if refusal.is_some() { 0 } else { entry.len() };
                let Some(claim) = self.window.claim(&mut posting.poster, len) else {
                    break;
                };
                prepared.refused = refusal;
                refused |= refusal.is_some();
                if refusal.is_none() {
                    self.time(claim.seq);
                }
                self.fill(&mut posting, claim, requester, entry, prepared);
                taken += 1;
            }
            self.submit(&mut posting);
            if !posting.longs.is_empty() {
                refused |= self.post_pieces(&mut posting);
            }
        }
        // A refused request has its turn when those before it have ended: perhaps
        // now.
        if refused {
            self.poll();
        }
        if self.attendance.is_empty() {
            self.arm();
        }
        Some(Posted::Taken(taken))
    }

    /// Looks at the keys of a batch.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EINTR` (a signal came).
    fn prepare_batch<'a>(
        &self,
        prepared: &mut ArrayVec<'_, Prepared>,
        requester: &Arc<R>,
        owner: u64,
        batch: &'a [Entry],
        before_wait: &mut dyn FnMut(),
    ) -> Result<Batch<'a, R>> {
        let mut is_refused = false;
        for (index, entry) in batch.iter().enumerate() {
            prepared.push(Prepared::EMPTY);
            let Some(next) = prepared.as_mut_slice().last_mut() else {
                break;
            };
            // Requests after one that is refused are flushed, whatever their keys.
            if is_refused {
                continue;
            }
            let prepared = match self.prepare(next, owner, entry, before_wait) {
                Ok(Form::Whole) => continue,
                Ok(Form::Cut) => self.prepare_long(requester, entry, before_wait),
                Err(refusal) => Err(refusal),
            };
            match prepared {
                Ok(whole) => {
                    return Ok(Batch {
                        entries: batch.get(..=index).unwrap_or_default(),
                        whole: Some(whole?),
                    });
                }
                Err(Refusal::Ends(status)) => {
                    next.refused = Some(status);
                    is_refused = true;
                }
                Err(Refusal::Interrupted) => return Err(EINTR),
                Err(Refusal::NeedsDc) => {
                    return Ok(Batch {
                        entries: batch.get(..index).unwrap_or_default(),
                        whole: None,
                    });
                }
            }
        }
        Ok(Batch {
            entries: batch,
            whole: None,
        })
    }

    /// How a request ends without being posted, if it does.
    fn refusal(
        &self,
        posting: &Posting<R>,
        requester: &Arc<R>,
        prepared: &Prepared,
    ) -> Option<WcStatus> {
        if requester.has_failed() {
            Some(WcStatus::WrFlushErr)
        } else if posting.qp.is_none() || self.failure().is_some() {
            Some(self.end_of_others())
        } else {
            prepared.refused
        }
    }

    /// Puts a request into its place and, if it is not refused, into the chain.
    fn fill(
        &self,
        posting: &mut Posting<R>,
        claim: Claim,
        requester: &Arc<R>,
        entry: &Entry,
        prepared: &mut Prepared,
    ) {
        let refused = prepared.refused;
        let slot = Slot {
            target: CompletionTarget::Requester {
                requester: requester.clone(),
                flags: entry.flags(),
            },
            cookie: entry.cookie(),
            kind: entry.kind(),
            len: if refused.is_some() { 0 } else { entry.len() },
            refused,
            uses: core::mem::replace(&mut prepared.uses, [const { None }; SGES]),
        };
        // SAFETY: not published yet, and the caller holds the poster's lock.
        unsafe { self.slots.fill(claim, slot) };
        if refused.is_some() {
            // Requests posted after it, from now on, are flushed.
            requester.fail();
            return;
        }
        let probe = match &posting.qp {
            Some(qp) if self.avoids_empty && entry.len() == 0 => self.probe_read(qp),
            _ => None,
        };
        if let Some(Probe {
            local,
            keys,
            remote_addr,
        }) = probe
        {
            let _ = posting.poster.signals(true);
            let chain = &mut posting.chain;
            chain.push_piece(claim.seq, OpKind::Read, &[local], &keys, remote_addr);
            return;
        }
        let signaled = posting.poster.signals(entry.is_signaled());
        posting
            .chain
            .push(claim.seq, entry, &prepared.keys, signaled);
    }

    /// Takes the time of a user's request that is posted, if that of another is not being
    /// taken. The caller holds the poster's lock.
    #[inline]
    pub(super) fn time(&self, seq: u32) {
        let tick = coarse_ns();
        if self.watch.is_due(tick) {
            self.watch.start(seq, tick, now_ns());
        }
    }

    /// Publishes what was claimed and posts the chain.
    pub(super) fn submit(&self, posting: &mut Posting<R>) {
        if posting.poster.signals_last() {
            posting.chain.signal_last();
        }
        self.window.publish(&posting.poster);
        if posting.chain.is_empty() {
            return;
        }
        COUNTERS.rc_chains.bump();
        let first = posting.chain.first();
        let posted = match &posting.qp {
            // SAFETY: the chain is whole until it is cleared for the next one; the
            // memory that it names is held by the slots until the requests have
            // ended.
            Some(qp) => unsafe { qp.post(first) },
            None => Ok(()),
        };
        if posted.is_err() {
            // The driver saw more wrong than its limits say. Requests that were not
            // posted would never end.
            self.fail(WcStatus::FatalErr);
        }
    }

    /// Looks at a request's keys; of one that has to be cut, not at those of the peer.
    ///
    /// # Errors
    ///
    /// Why it is not posted.
    fn prepare(
        &self,
        prepared: &mut Prepared,
        owner: u64,
        entry: &Entry,
        before_wait: &mut dyn FnMut(),
    ) -> Result<Form, Refusal> {
        if let Some(status) = entry.failed() {
            return Err(status.into());
        }
        if self.failure().is_some() {
            // `fill` decides how it ends.
            return Ok(Form::Whole);
        }
        let (local, remote) = access(entry.kind());
        let hold = |sge: Sge, place: &mut Option<RegionUse>, lkey: &mut u32| {
            let held = self.mrs.hold(sge.lkey, owner, sge.addr, sge.len, local);
            let (region, key) = held?;
            *place = Some(region);
            *lkey = key;
            Ok::<_, Refusal>(())
        };
        let only = entry.only_piece();
        let pieces = only.map_or_else(|| entry.pieces().count(), |_| 1);
        if !self.limits.allow(entry.kind(), pieces as u32, entry.len()) {
            return Err(Refusal::NeedsDc);
        }
        if let Some(sge) = only {
            hold(sge, &mut prepared.uses[0], &mut prepared.keys.lkeys[0])?;
        } else {
            let places = prepared.uses.iter_mut().zip(&mut prepared.keys.lkeys);
            for (sge, (place, lkey)) in entry.pieces().zip(places) {
                hold(sge, place, lkey)?;
            }
        }
        // A READ or WRITE of no bytes touches nothing, and its key is not looked
        // at.
        if entry.len() == 0 && matches!(entry.kind(), OpKind::Read | OpKind::Write) {
            return Ok(Form::Whole);
        }
        let (key, addr) = entry.remote();
        let blocks = self.blocks().ok_or(WcStatus::FatalErr)?;
        let is_whole = match only {
            Some(sge) => blocks.hold(core::iter::once(sge), addr, entry.len()),
            None => blocks.hold(entry.pieces(), addr, entry.len()),
        };
        if is_whole {
            let (len, access) = (entry.len(), remote.flag());
            prepared.keys.rkey = self.remote_key(key, addr, len, access, before_wait)?;
            Ok(Form::Whole)
        } else if entry.inline().is_none() && !entry.kind().is_atomic() {
            Ok(Form::Cut)
        } else {
            // Of the few bytes in a request of this kind no piece is posted.
            Err(Refusal::NeedsDc)
        }
    }

    /// The device's key for the peer's memory that a request, or a part of it in one
    /// block, names.
    pub(super) fn remote_key(
        &self,
        key: u32,
        addr: u64,
        len: u32,
        access: u32,
        before_wait: &mut dyn FnMut(),
    ) -> Result<u32, Refusal> {
        let record = self.remote_block(key, addr, before_wait)?;
        let record = record.ok_or(Refusal::NeedsDc)?;
        if !record.allows(addr, len, access) {
            COUNTERS.access_errors.bump();
            return Err(WcStatus::RemAccessErr.into());
        }
        Ok(record.rkey)
    }
}
