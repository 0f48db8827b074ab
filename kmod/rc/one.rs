// SPDX-License-Identifier: GPL-2.0

//! The short way for one request of one piece whose process waits for it. What is
//! in its way takes the long one ([`RcQueue::post`]), which also says what is wrong.

use kernel::sync::Arc;
use weft_core::dc::OpKind;
use weft_core::mr::DC_ONLY;
use weft_core::rc::{Cut, WrId};
use weft_core::uapi::{Sge, WcStatus};

use crate::bindings::ib_sge;
use crate::counters::COUNTERS;
use crate::dc::Requester;
use crate::mem::RegionUse;
use crate::rc::chain::{access, opcode, rdma_wr};
use crate::rc::queue::RcQueue;
use crate::rc::slots::{Slot, Who};

/// A READ or WRITE whose form was checked.
pub(crate) struct One {
    pub(crate) kind: OpKind,
    pub(crate) local: Sge,
    pub(crate) rkey: u32,
    pub(crate) remote_addr: u64,
}

/// The device's keys for it.
struct Held {
    region: RegionUse,
    lkey: u32,
    rkey: u32,
}

impl<R: Requester> RcQueue<R> {
    /// Posts the request, unless its keys do not allow it, there is no room, or the
    /// requester or the queue has failed. Answers whether it did: then the requester
    /// hears of its end by [`Requester::answered`]. `owner` is the session whose
    /// memory it may use; the caller attends. Process context; may sleep for a READ
    /// of the peer's table.
    #[inline]
    pub(crate) fn post_one(&self, requester: &Arc<R>, owner: u32, one: &One) -> bool {
        let seen = self.revocations.seen();
        match self.hold(owner, one) {
            Some(held) => self.post_held(requester, one, held, seen).is_some(),
            None => false,
        }
    }

    #[inline]
    fn hold(&self, owner: u32, one: &One) -> Option<Held> {
        let (local, remote) = access(one.kind);
        let Sge { addr, len, lkey } = one.local;
        let (region, lkey) = self.mrs.hold(lkey, owner, addr, len, local).ok()?;
        let record = self.remote_region(one.rkey).ok()??;
        let is_allowed = record.rkey != DC_ONLY
            && self.limits.allow(one.kind, 1, len)
            && record.allows(one.remote_addr, len, remote.flag());
        is_allowed.then_some(Held {
            region,
            lkey,
            rkey: record.rkey,
        })
    }

    /// Posts it, unless the peer has revoked a key since `seen` was.
    #[inline]
    fn post_held(&self, requester: &Arc<R>, one: &One, held: Held, seen: u32) -> Option<()> {
        let len = one.local.len;
        let mut posting = self.posting.lock();
        let posting = &mut *posting;
        // With the lock: what is posted from here on, a revocation waits for.
        let is_barred = self.revocations.seen() != seen
            || requester.has_failed()
            || requester.is_being_cut()
            || Cut::new(len).is_some();
        let qp = posting.qp.as_ref().filter(|_| !is_barred)?;
        if self.fate().is_some() {
            return None;
        }
        let claim = self.window.claim(&mut posting.poster, len)?;
        let mut slot = Slot {
            who: Who::Direct(requester.clone()),
            kind: one.kind,
            len,
            ..Slot::EMPTY
        };
        slot.uses[0] = Some(held.region);
        // SAFETY: not published yet, and we hold the poster's lock.
        unsafe { self.slots.fill(claim, slot) };
        let _ = posting.poster.signals(true);
        self.window.publish(&posting.poster);
        COUNTERS.rc_chains.bump();
        let mut sge = ib_sge {
            addr: one.local.addr,
            length: len,
            lkey: held.lkey,
        };
        let mut wr = rdma_wr(opcode(one.kind), WrId::Request(claim.seq).encode());
        wr.remote_addr = one.remote_addr;
        wr.rkey = held.rkey;
        wr.wr.sg_list = &mut sge;
        wr.wr.num_sge = 1;
        // SAFETY: the slot holds the memory until the request has ended.
        if unsafe { qp.post(&wr.wr) }.is_err() {
            // As in `RcQueue::submit`.
            self.fail(WcStatus::FatalErr);
        }
        Some(())
    }
}
