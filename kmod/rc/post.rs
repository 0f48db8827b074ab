// SPDX-License-Identifier: GPL-2.0

//! Posting: keys are checked first, then the batch goes to the device at once
//! (krcore §4.4, alg. 2, lines 3 to 28).

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::OpKind;
use weft_core::rc::Claim;
use weft_core::uapi::{Sge, WcStatus};

use crate::counters::COUNTERS;
use crate::dc::{Entry, Requester};
use crate::few::{room, Few};
use crate::mem::RegionUse;
use crate::rc::chain::{access, Keys, CHAIN, SGES};
use crate::rc::queue::{Posting, RcQueue};
use crate::rc::slots::{CompletionTarget, Slot};

/// Times that a batch is looked at again because a key was revoked meanwhile: each
/// takes another letter of the peer's just then.
const PREPARE_TRIES: usize = 8;

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
    /// Posts as many of the entries as there is room for; answers how many it
    /// took. What may not be done ends with an error in its turn, on this
    /// requester alone. `owner` is the session whose memory they may use. Process
    /// context; may sleep for a READ of the peer's table.
    pub(crate) fn post(&self, requester: &Arc<R>, owner: u32, entries: &[Entry]) -> usize {
        // Room for many is worth clearing for many alone.
        match entries.len() {
            0 => 0,
            1 => self.post_batch::<1>(requester, owner, entries),
            _ => self.post_batches(requester, owner, entries),
        }
    }

    #[inline(never)]
    fn post_batches(&self, requester: &Arc<R>, owner: u32, entries: &[Entry]) -> usize {
        let mut taken = 0;
        for batch in entries.chunks(CHAIN) {
            let count = self.post_batch::<CHAIN>(requester, owner, batch);
            taken += count;
            if count < batch.len() {
                break;
            }
        }
        taken
    }

    /// Posts a batch of at most `N`, which is at most [`CHAIN`].
    fn post_batch<const N: usize>(&self, requester: &Arc<R>, owner: u32, batch: &[Entry]) -> usize {
        let mut tries = 0..PREPARE_TRIES;
        let posted = tries.find_map(|_| self.try_post_batch::<N>(requester, owner, batch));
        // Somebody else comes first; the caller waits and tries again.
        posted.unwrap_or(0)
    }

    /// Posts a batch, unless the peer revoked a key since the batch's were looked
    /// at.
    fn try_post_batch<const N: usize>(
        &self,
        requester: &Arc<R>,
        owner: u32,
        batch: &[Entry],
    ) -> Option<usize> {
        const { assert!(N <= CHAIN) };
        let seen = self.revocations.seen();
        let mut room = room::<_, N>();
        let mut prepared = Few::new(&mut room);
        let mut is_refused = false;
        for entry in batch {
            prepared.push(Prepared::EMPTY);
            let Some(next) = prepared.as_mut_slice().last_mut() else {
                break;
            };
            // What follows one that is refused is flushed, whatever its keys.
            if !is_refused {
                next.refused = self.prepare(next, owner, entry).err();
                is_refused = next.refused.is_some();
            }
        }
        let (mut taken, mut refused) = (0, false);
        {
            let mut posting = self.posting.lock();
            // With the lock: what is posted from here on, a revocation waits for.
            if self.revocations.seen() != seen {
                return None;
            }
            posting.chain.clear();
            for (entry, prepared) in batch.iter().zip(prepared.as_mut_slice()) {
                let Some(claim) = self.window.claim(&mut posting.poster, entry.len()) else {
                    break;
                };
                refused |= self.fill(&mut posting, claim, requester, entry, prepared);
                taken += 1;
            }
            self.submit(&mut posting);
        }
        // What was refused has its turn when those before it have ended: perhaps
        // now.
        if refused {
            self.poll();
        }
        if self.attendance.is_empty() {
            self.arm();
        }
        Some(taken)
    }

    /// Puts a request into its place and, if it may be posted, into the chain.
    /// Answers whether it may not.
    fn fill(
        &self,
        posting: &mut Posting,
        claim: Claim,
        requester: &Arc<R>,
        entry: &Entry,
        prepared: &mut Prepared,
    ) -> bool {
        let refused = if requester.has_failed() {
            Some(WcStatus::WrFlushErr)
        } else if posting.qp.is_none() || self.failure().is_some() {
            Some(self.failure().unwrap_or(WcStatus::FatalErr))
        } else {
            prepared.refused
        };
        let slot = Slot {
            target: CompletionTarget::Requester {
                requester: requester.clone(),
                signaled: entry.is_signaled(),
            },
            cookie: entry.cookie(),
            kind: entry.kind(),
            len: entry.len(),
            refused,
            uses: core::mem::replace(&mut prepared.uses, [const { None }; SGES]),
        };
        // SAFETY: not published yet, and the caller holds the poster's lock.
        unsafe { self.slots.fill(claim, slot) };
        if refused.is_some() {
            // What is posted after it, from now on, is flushed.
            requester.fail();
            return true;
        }
        let signaled = posting.poster.signals(entry.is_signaled());
        posting
            .chain
            .push(claim.seq, entry, &prepared.keys, signaled);
        false
    }

    /// Publishes what was claimed and posts the chain.
    fn submit(&self, posting: &mut Posting) {
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
            // Cannot be: it was checked, and there was room. Requests that were
            // not posted would never end.
            self.fail(WcStatus::FatalErr);
        }
    }

    /// Looks at a request's keys.
    ///
    /// # Errors
    ///
    /// The status that the request ends with, unless one before it fails.
    fn prepare(&self, prepared: &mut Prepared, owner: u32, entry: &Entry) -> Result<(), WcStatus> {
        if let Some(status) = entry.failed() {
            return Err(status);
        }
        if self.failure().is_some() {
            // What it is told is for `fill` to say.
            return Ok(());
        }
        let (local, remote) = access(entry.kind());
        let hold = |sge: Sge, place: &mut Option<RegionUse>, lkey: &mut u32| {
            let held = self.mrs.hold(sge.lkey, owner, sge.addr, sge.len, local);
            let (region, key) = held.ok_or(WcStatus::LocProtErr)?;
            *place = Some(region);
            *lkey = key;
            Ok(())
        };
        if let Some(sge) = entry.only_piece() {
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
    fn remote_key(&self, entry: &Entry, access: u32) -> Result<u32, WcStatus> {
        // A READ or WRITE of no bytes touches nothing, and its key is not looked
        // at.
        if entry.len() == 0 && matches!(entry.kind(), OpKind::Read | OpKind::Write) {
            return Ok(0);
        }
        let (key, addr) = entry.remote();
        let record = self.remote_region(key)?;
        record
            .filter(|record| record.allows(addr, entry.len(), access))
            .map(|record| record.rkey)
            .ok_or_else(|| {
                COUNTERS.access_errors.bump();
                WcStatus::RemAccessErr
            })
    }
}
