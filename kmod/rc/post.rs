// SPDX-License-Identifier: GPL-2.0

//! Posting: keys are checked first, then the batch goes to the device at once
//! (krcore §4.4, alg. 2, lines 3 to 28).

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::OpKind;
use weft_core::mr::DC_ONLY;
use weft_core::rc::{Claim, Cut};
use weft_core::uapi::{Sge, WcStatus};

use crate::counters::COUNTERS;
use crate::dc::{Entry, Requester};
use crate::few::{room, Few};
use crate::mem::{NotHeld, RegionUse};
use crate::rc::chain::{access, Keys, CHAIN, SGES};
use crate::rc::long::Whole;
use crate::rc::queue::{Posting, RcQueue};
use crate::rc::slots::{CompletionTarget, Slot};

/// Times that a batch is looked at again because a key was revoked meanwhile: each
/// takes another letter of the peer's just then.
const PREPARE_TRIES: usize = 8;

/// What became of requests.
#[derive(Clone, Copy)]
pub(crate) enum Posted {
    /// So many were taken; of the others the first has no room.
    Taken(usize),
    /// None was: the first has to go by DC.
    NeedsDc,
}

/// Why a request is not posted.
enum Refusal {
    /// It ends with this status in its turn.
    Ends(WcStatus),
    /// It has to go by DC: the device does not take so much at once, or does not know
    /// memory that it names, or the peer's table of regions does not have its key. The
    /// last may be because the table is full; by DC the peer knows all regions.
    NeedsDc,
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
    /// context; may sleep for a READ of the peer's table.
    pub(crate) fn post(&self, requester: &Arc<R>, owner: u32, entries: &[Entry]) -> Posted {
        // Room for many is worth clearing for many alone.
        match entries.len() {
            0 => Posted::Taken(0),
            1 => self.post_batch::<1>(requester, owner, entries),
            _ => self.post_batches(requester, owner, entries),
        }
    }

    #[inline(never)]
    fn post_batches(&self, requester: &Arc<R>, owner: u32, entries: &[Entry]) -> Posted {
        let mut taken = 0;
        for batch in entries.chunks(CHAIN) {
            match self.post_batch::<CHAIN>(requester, owner, batch) {
                Posted::NeedsDc if taken == 0 => return Posted::NeedsDc,
                Posted::Taken(count) if count == batch.len() => taken += count,
                Posted::Taken(count) => return Posted::Taken(taken + count),
                Posted::NeedsDc => break,
            }
        }
        Posted::Taken(taken)
    }

    /// Posts a batch of at most `N`, which is at most [`CHAIN`].
    fn post_batch<const N: usize>(
        &self,
        requester: &Arc<R>,
        owner: u32,
        batch: &[Entry],
    ) -> Posted {
        let mut tries = 0..PREPARE_TRIES;
        let posted = tries.find_map(|_| self.try_post_batch::<N>(requester, owner, batch));
        // Somebody else comes first; the caller waits and tries again.
        posted.unwrap_or(Posted::Taken(0))
    }

    /// Posts a batch, unless the peer revoked a key since the batch's were looked
    /// at.
    fn try_post_batch<const N: usize>(
        &self,
        requester: &Arc<R>,
        owner: u32,
        batch: &[Entry],
    ) -> Option<Posted> {
        const { assert!(N <= CHAIN) };
        let seen = self.revocations.seen();
        let mut room = room::<_, N>();
        let mut prepared = Few::new(&mut room);
        let batch = self.prepare_batch(&mut prepared, owner, batch);
        if batch.is_empty() {
            return Some(Posted::NeedsDc);
        }
        let mut whole = match batch.iter().find(|entry| Cut::new(entry.len()).is_some()) {
            None => None,
            Some(long) => match self.whole_of(requester, long) {
                Ok(whole) => Some(whole),
                // As if there were no room: there may be memory later.
                Err(_) => return Some(Posted::Taken(0)),
            },
        };
        let (mut taken, mut refused) = (0, false);
        {
            let mut posting = self.posting.lock();
            // With the lock: what is posted from here on, a revocation waits for.
            if self.revocations.seen() != seen {
                return None;
            }
            posting.chain.clear();
            for (entry, prepared) in batch.iter().zip(prepared.as_mut_slice()) {
                if requester.is_being_cut() {
                    break;
                }
                let refusal = self.refusal(&posting, requester, prepared);
                if refusal.is_none() && Cut::new(entry.len()).is_some() {
                    let rkey = prepared.keys.rkey;
                    let Some(whole) = whole.take() else { break };
                    if self.begin_long(&mut posting, whole, owner, entry, rkey) {
                        taken += 1;
                    }
                    break;
                }
                let len = if refusal.is_some() { 0 } else { entry.len() };
                let Some(claim) = self.window.claim(&mut posting.poster, len) else {
                    break;
                };
                prepared.refused = refusal;
                refused |= refusal.is_some();
                self.fill(&mut posting, claim, requester, entry, prepared);
                taken += 1;
            }
            self.submit(&mut posting);
            if !posting.longs.is_empty() {
                refused |= self.post_pieces(&mut posting);
            }
        }
        // What was refused has its turn when those before it have ended: perhaps
        // now.
        if refused {
            self.poll();
        }
        if self.attendance.is_empty() {
            self.arm();
        }
        Some(Posted::Taken(taken))
    }

    /// Looks at the keys of a batch. Answers those of its requests, from the first
    /// on, that may go by RC.
    fn prepare_batch<'a>(
        &self,
        prepared: &mut Few<'_, Prepared>,
        owner: u32,
        batch: &'a [Entry],
    ) -> &'a [Entry] {
        let mut is_refused = false;
        for (index, entry) in batch.iter().enumerate() {
            prepared.push(Prepared::EMPTY);
            let Some(next) = prepared.as_mut_slice().last_mut() else {
                break;
            };
            // What follows one that is refused is flushed, whatever its keys.
            if is_refused {
                continue;
            }
            match self.prepare(next, owner, entry) {
                Ok(()) => {}
                Err(Refusal::Ends(status)) => {
                    next.refused = Some(status);
                    is_refused = true;
                }
                Err(Refusal::NeedsDc) => return batch.get(..index).unwrap_or_default(),
            }
        }
        batch
    }

    /// What cutting a request takes. May sleep.
    #[inline(never)]
    fn whole_of(&self, requester: &Arc<R>, long: &Entry) -> Result<Arc<Whole<R>>> {
        self.make_long_room()?;
        Whole::new(requester, long)
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
            Some(self.failure().unwrap_or(WcStatus::FatalErr))
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
                signaled: entry.is_signaled(),
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
            // What is posted after it, from now on, is flushed.
            requester.fail();
            return;
        }
        let signaled = posting.poster.signals(entry.is_signaled());
        posting
            .chain
            .push(claim.seq, entry, &prepared.keys, signaled);
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

    /// Looks at a request's keys.
    ///
    /// # Errors
    ///
    /// Why it is not posted.
    fn prepare(&self, prepared: &mut Prepared, owner: u32, entry: &Entry) -> Result<(), Refusal> {
        if let Some(status) = entry.failed() {
            return Err(status.into());
        }
        if self.failure().is_some() {
            // What it is told is for `fill` to say.
            return Ok(());
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
        prepared.keys.rkey = self.remote_key(entry, remote.flag())?;
        Ok(())
    }

    /// The device's key for the peer's memory that a request names.
    fn remote_key(&self, entry: &Entry, access: u32) -> Result<u32, Refusal> {
        // A READ or WRITE of no bytes touches nothing, and its key is not looked
        // at.
        if entry.len() == 0 && matches!(entry.kind(), OpKind::Read | OpKind::Write) {
            return Ok(0);
        }
        let (key, addr) = entry.remote();
        let record = self.remote_region(key)?.ok_or(Refusal::NeedsDc)?;
        if !record.allows(addr, entry.len(), access) {
            COUNTERS.access_errors.bump();
            return Err(WcStatus::RemAccessErr.into());
        }
        match record.rkey {
            DC_ONLY => Err(Refusal::NeedsDc),
            rkey => Ok(rkey),
        }
    }
}
