// SPDX-License-Identifier: GPL-2.0

//! The queue's own requests: READs of the peer's table of valid regions, what
//! setting up takes, and probes.

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use weft_core::kv::{Lookup, Step};
use weft_core::mr::{BlockName, Record};
use weft_core::rc::WrId;
use weft_core::uapi::{Sge, WcStatus};

use crate::bindings::*;
use crate::clock::{coarse_ns, now_ns};
use crate::counters::COUNTERS;
use crate::dc::Requester;
use crate::rc::chain::{rdma_wr, Keys, SGES};
use crate::rc::post::Refusal;
use crate::rc::queue::{Posting, RcQueue, PROBE_BYTES};
use crate::rc::slots::{CompletionTarget, Slot};
use crate::rdma::{Qp, Ready};
use crate::sync::{lock_interruptible, Woken};

/// No answer yet.
const PENDING: u32 = u32::MAX;
/// How long an answer is looked for before sleeping.
const SPIN_NS: u64 = 100_000;
/// Longest sleep between two looks. A signal is heard after the first one: a call that is made
/// again asks again, and would never get an answer if signals came faster than that.
const NAP_NS: u64 = 50_000_000;
/// A queue pair answers, or breaks, well before this, whatever is queued before.
const PATIENCE_NS: u64 = 20_000_000_000;

/// The outcome of posting a READ behind all requests.
pub(crate) enum Behind {
    /// It is on its way; when all requests up to this number have passed it has ended.
    Posted(u32),
    /// There is no room now.
    Full,
    /// The queue pair is gone.
    Gone,
}

/// A READ of a word of the peer's table.
pub(super) struct Probe {
    pub(super) local: Sge,
    pub(super) keys: Keys,
    pub(super) remote_addr: u64,
}

impl<R: Requester> RcQueue<R> {
    /// The record of a block of the peer's region of a key; `None`: peers have to use
    /// it by DC, if there is such a region. Runs `before_wait` if the peer has to be asked.
    ///
    /// # Errors
    ///
    /// Why a request that names it is not posted.
    #[inline]
    pub(super) fn remote_block(
        &self,
        key: u32,
        addr: u64,
        before_wait: &mut dyn FnMut(),
    ) -> Result<Option<Record>, Refusal> {
        let Some(blocks) = self.blocks() else {
            return Ok(None);
        };
        let block = blocks.remote.block_of(addr);
        let name = BlockName { key, block };
        // How long a record is trusted is no matter of ticks.
        if let Some(record) = self.store.lock().find(name, coarse_ns()) {
            return Ok(Some(record));
        }
        before_wait();
        match self.look_up(name) {
            Err(EINTR) => Err(Refusal::Interrupted),
            Err(_) if self.is_closing() => Ok(None),
            answer => answer.map_err(|_| self.end_of_others().into()),
        }
    }

    /// READs the peer's table (krcore §4.2, ValidMR).
    #[inline(never)]
    fn look_up(&self, name: BlockName) -> Result<Option<Record>> {
        let table = *self.remote.get().ok_or_else(crate::errno::not_conn)?;
        let mut control = lock_interruptible(&self.control)?;
        let buffer = (*control).as_mut().ok_or(EIO)?;
        let asked_ns = coarse_ns();
        // Somebody may have asked for it while we waited for the lock.
        if let Some(record) = self.store.lock().find(name, asked_ns) {
            return Ok(Some(record));
        }
        self.store.lock().ask(name);
        let lkey = self.posting.lock().qp.as_ref().map(Qp::lkey).ok_or(EIO)?;
        let mut lookup = Lookup::new(table.geometry, name.table_key());
        let mut at = lookup.next_read();
        loop {
            COUNTERS.rc_mr_reads.bump();
            let mut sge = ib_sge {
                addr: buffer.addr(),
                length: at.len,
                lkey,
            };
            self.request(|qp, wr_id| {
                let mut wr = rdma_wr(ib_wr_opcode_IB_WR_RDMA_READ, wr_id);
                wr.remote_addr = table.addr.wrapping_add(at.offset);
                wr.rkey = table.rkey;
                wr.wr.sg_list = &mut sge;
                wr.wr.num_sge = 1;
                // SAFETY: the buffer is ours until the queue pair is gone: it is
                // taken away after that only, with `control` locked.
                unsafe { qp.post(&wr.wr) }
            })?;
            match lookup.feed(buffer.received(at.len as usize)) {
                Step::Read(next) => at = next,
                Step::Found(value) => {
                    let record = Record::from_value(&value);
                    let there = self.store.lock().learn(name, record, asked_ns);
                    return Ok(there.then_some(record));
                }
                Step::Absent | Step::GaveUp => return Ok(None),
            }
        }
    }

    /// Tells the peer that this end is ready, and waits until it knows. `nonce` is that
    /// of the peer's answer.
    pub(super) fn tell_ready(&self, nonce: u32) -> Result {
        let _control = self.control.lock();
        self.request(|qp, wr_id| {
            let mut wr = rdma_wr(ib_wr_opcode_IB_WR_SEND_WITH_IMM, wr_id);
            wr.wr.ex.imm_data = nonce.to_be();
            // SAFETY: it names no memory.
            unsafe { qp.post(&wr.wr) }
        })
    }

    /// A probe's READ: source and destination; `None`: it was never connected.
    pub(super) fn probe_read(&self, qp: &Qp<Ready>) -> Option<Probe> {
        let table = self.remote.get()?;
        let mut keys = Keys {
            lkeys: [0; SGES],
            rkey: table.rkey,
        };
        keys.lkeys[0] = qp.lkey();
        Some(Probe {
            local: Sge {
                addr: self.probe_addr,
                len: PROBE_BYTES as u32,
                lkey: 0,
            },
            keys,
            remote_addr: table.addr,
        })
    }

    /// Asks the peer for a sign of life, if nothing was posted since the last
    /// call: a READ of a word of its table. If there is none, the queue breaks.
    pub(super) fn probe(&self) {
        let mut posting = self.posting.lock();
        if self.is_usable() && self.window.outstanding() == 0 {
            self.post_read(&mut posting);
        }
    }

    /// Posts a READ behind all requests of the caller, which have ended. Once it has ended too,
    /// what they have written is in the peer's memory; their own ends do not say that much (IBTA
    /// vol. 1, 9.5).
    pub(crate) fn read_behind(&self) -> Behind {
        let behind = self.post_behind(&mut self.posting.lock());
        if self.attendance.is_empty() {
            self.arm();
        }
        behind
    }

    fn post_behind(&self, posting: &mut Posting<R>) -> Behind {
        if !self.can_prove() {
            return Behind::Gone;
        }
        // Pieces of long requests may still come. They are not the caller's, whose requests have
        // ended: it does not wait for them.
        match self.is_closing() && posting.longs.is_empty() {
            true => self.post_last_read(posting),
            false => self.post_read(posting),
        }
    }

    /// Whether all requests have passed that there were when [`Behind::Posted`] said so.
    pub(crate) fn has_passed(&self, until: u32) -> bool {
        self.window.has_passed(until)
    }

    /// Posts the READ behind all requests of a queue that is being closed, for all VQPs that leave
    /// it from then on, unless it was posted. It is the last request: the peer is asked to let go
    /// once it has ended.
    pub(super) fn post_last_read(&self, posting: &mut Posting<R>) -> Behind {
        if !self.can_prove() {
            return Behind::Gone;
        }
        if let Some(until) = posting.last_read {
            return Behind::Posted(until);
        }
        // More pieces of these are going to be posted.
        if !posting.longs.is_empty() {
            return Behind::Full;
        }
        let behind = self.post_read(posting);
        if let Behind::Posted(until) = behind {
            posting.last_read = Some(until);
        }
        behind
    }

    /// Posts a READ of a word of the peer's table.
    fn post_read(&self, posting: &mut Posting<R>) -> Behind {
        let Some(qp) = posting.qp.as_ref() else {
            return Behind::Gone;
        };
        let Some(probe) = self.probe_read(qp) else {
            return Behind::Gone;
        };
        let Some(claim) = self.window.claim(&mut posting.poster, 0) else {
            return Behind::Full;
        };
        // SAFETY: not published yet, and we hold the poster's lock.
        unsafe { self.slots.fill(claim, Slot::EMPTY) };
        let _ = posting.poster.signals(true);
        self.own_requests.fetch_add(1, Ordering::Relaxed);
        self.window.publish(&posting.poster);
        let mut sge = ib_sge {
            addr: probe.local.addr,
            length: probe.local.len,
            lkey: probe.keys.lkeys[0],
        };
        let mut wr = rdma_wr(
            ib_wr_opcode_IB_WR_RDMA_READ,
            WrId::Request(claim.seq).encode(),
        );
        wr.remote_addr = probe.remote_addr;
        wr.rkey = probe.keys.rkey;
        wr.wr.sg_list = &mut sge;
        wr.wr.num_sge = 1;
        // SAFETY: the buffer is there until the queue pair is gone.
        if unsafe { qp.post(&wr.wr) }.is_err() {
            self.fail(WcStatus::FatalErr);
        }
        Behind::Posted(claim.seq.wrapping_add(1))
    }

    /// Posts one request of the queue's own and waits for its end. The caller
    /// holds `control`.
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal came first. The request may be on its way then, and the next one waits
    /// for its end; `EAGAIN`, `EIO`, `ETIMEDOUT`: the queue pair is closing, gone or full.
    pub(super) fn request(&self, post: impl FnOnce(&Qp<Ready>, u64) -> Result) -> Result {
        let _attending = self.attend();
        // One that a signal left on its way has the buffer, and would be taken for this one.
        self.wait_for_answer()?;
        let start_ns = now_ns();
        let mut post = Some(post);
        while let Some(this) = post.take() {
            let seen = self.room_seen();
            post = self.try_request(this)?;
            if post.is_none() {
                break;
            }
            if self.wait_for_room(seen, NAP_NS, true) == Woken::Signal {
                return Err(EINTR);
            }
            if now_ns().saturating_sub(start_ns) > PATIENCE_NS {
                return Err(ETIMEDOUT);
            }
        }
        match self.wait_for_answer()? == WcStatus::Success as u32 {
            true => Ok(()),
            false => Err(EIO),
        }
    }

    /// Waits until the last request of [`Self::request`] has ended, and answers how, as a
    /// [`WcStatus`]. The caller attends, and holds `control`.
    ///
    /// # Errors
    ///
    /// `EINTR`.
    fn wait_for_answer(&self) -> Result<u32> {
        let start_ns = now_ns();
        loop {
            let seen = self.events.seen();
            self.poll();
            let status = self.control_status.load(Ordering::Acquire);
            if status != PENDING {
                return Ok(status);
            }
            let waited_ns = now_ns().saturating_sub(start_ns);
            if waited_ns > PATIENCE_NS {
                // The work item, or whoever stops it, ends the request.
                self.fail(WcStatus::RetryExcErr);
            }
            if waited_ns > SPIN_NS {
                self.arm();
                if self.events.wait(seen, NAP_NS, waited_ns > NAP_NS) == Woken::Signal {
                    return Err(EINTR);
                }
            }
        }
    }

    /// Posts a request if there is room; gives it back if there is none.
    fn try_request<F>(&self, post: F) -> Result<Option<F>>
    where
        F: FnOnce(&Qp<Ready>, u64) -> Result,
    {
        let mut posting = self.posting.lock();
        let posting = &mut *posting;
        if self.is_closing() {
            return Err(EAGAIN);
        }
        let qp = posting.qp.as_ref().ok_or(EIO)?;
        let Some(claim) = self.window.claim(&mut posting.poster, 0) else {
            return Ok(Some(post));
        };
        let slot = Slot {
            target: CompletionTarget::Control,
            ..Slot::EMPTY
        };
        // SAFETY: not published yet, and we hold the poster's lock.
        unsafe { self.slots.fill(claim, slot) };
        let _ = posting.poster.signals(true);
        self.own_requests.fetch_add(1, Ordering::Relaxed);
        // Before it is published: it may end at once.
        self.control_status.store(PENDING, Ordering::Relaxed);
        self.window.publish(&posting.poster);
        post(qp, WrId::Request(claim.seq).encode())
            .inspect_err(|_| self.fail(WcStatus::FatalErr))
            .map(|()| None)
    }
}
