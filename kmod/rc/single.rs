// SPDX-License-Identifier: GPL-2.0

//! The short way for one request of one piece whose process waits for it. A request
//! that cannot go this way takes [`RcQueue::post`], which also reports what is wrong.

use kernel::sync::Arc;
use weft_core::dc::OpKind;
use weft_core::rc::WrId;
use weft_core::uapi::{Sge, WcStatus};

use crate::bindings::ib_sge;
use crate::counters::COUNTERS;
use crate::dc::Requester;
use crate::mem::RegionUse;
use crate::rc::chain::{access, opcode, rdma_wr};
use crate::rc::queue::RcQueue;
use crate::rc::slots::{CompletionTarget, Slot};

/// A READ or WRITE whose form was checked.
pub(crate) struct SingleRequest {
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
    pub(crate) fn post_single(
        &self,
        requester: &Arc<R>,
        owner: u64,
        request: &SingleRequest,
    ) -> bool {
        let seen = self.revocations.seen();
        match self.hold(owner, request) {
            Some(held) => self.post_held(requester, request, held, seen).is_some(),
            None => false,
        }
    }

    #[inline]
    fn hold(&self, owner: u64, request: &SingleRequest) -> Option<Held> {
        let (local, remote) = access(request.kind);
        let Sge { addr, len, lkey } = request.local;
        let (region, lkey) = self.mrs.hold(lkey, owner, addr, len, local).ok()?;
        let record = self
            .remote_block(request.rkey, request.remote_addr, &mut || {})
            .ok()??;
        let local = core::iter::once(request.local);
        let is_allowed = self.blocks()?.hold(local, request.remote_addr, len)
            && self.limits.allow(request.kind, 1, len)
            && record.allows(request.remote_addr, len, remote.flag());
        is_allowed.then_some(Held {
            region,
            lkey,
            rkey: record.rkey,
        })
    }

    /// Posts it, unless the peer has revoked a key since `seen` was.
    #[inline]
    fn post_held(
        &self,
        requester: &Arc<R>,
        request: &SingleRequest,
        held: Held,
        seen: u32,
    ) -> Option<()> {
        let len = request.local.len;
        let mut posting = self.posting.lock();
        let posting = &mut *posting;
        // With the lock: what is posted from here on, a revocation waits for.
        let is_barred = self.revocations.seen() != seen
            || requester.has_failed()
            || requester.is_being_cut()
            || self.is_closing();
        let qp = posting.qp.as_ref().filter(|_| !is_barred)?;
        if self.failure().is_some() {
            return None;
        }
        let claim = self.window.claim(&mut posting.poster, len)?;
        let mut slot = Slot {
            target: CompletionTarget::Direct(requester.clone()),
            kind: request.kind,
            len,
            ..Slot::EMPTY
        };
        slot.uses[0] = Some(held.region);
        // SAFETY: not published yet, and we hold the poster's lock.
        unsafe { self.slots.fill(claim, slot) };
        let _ = posting.poster.signals(true);
        self.time(claim.seq);
        self.window.publish(&posting.poster);
        COUNTERS.rc_chains.bump();
        let mut sge = ib_sge {
            addr: request.local.addr,
            length: len,
            lkey: held.lkey,
        };
        let mut wr = rdma_wr(opcode(request.kind), WrId::Request(claim.seq).encode());
        wr.remote_addr = request.remote_addr;
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
