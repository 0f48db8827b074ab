// SPDX-License-Identifier: GPL-2.0

//! Submission, and waiting for completions.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::{Operands, Receiver};
use weft_core::dc::{Local, Op, OpKind};
use weft_core::uapi::{self, SendWr, Sge, WcStatus};

use super::{Connection, Vqp};
use crate::clock::now_ns;
use crate::dc::Entry;
use crate::sync::Woken;

/// Requests copied and posted at a time.
const POST_BATCH: usize = 16;
/// How long a submission waits for room on the stream.
const ROOM_WAIT_NS: u64 = 1_000_000_000;
/// How long a waiter looks for a completion before it sleeps.
const SPIN_NS: u64 = 20_000;

/// Some entries. Filling an array with empty ones first would cost as much as a
/// small request.
///
/// # Invariants
///
/// The first `len` are initialised.
struct Batch {
    entries: [MaybeUninit<Entry>; POST_BATCH],
    len: usize,
}

impl Batch {
    fn new() -> Self {
        // INVARIANT: none.
        Self {
            entries: [const { MaybeUninit::uninit() }; POST_BATCH],
            len: 0,
        }
    }

    fn push(&mut self, entry: Entry) {
        if let Some(place) = self.entries.get_mut(self.len) {
            place.write(entry);
            // INVARIANT: written just above.
            self.len += 1;
        }
    }

    fn entries(&self) -> &[Entry] {
        // SAFETY: the first `len` are initialised, by the invariant; entries need
        // no drop.
        unsafe { core::slice::from_raw_parts(self.entries.as_ptr().cast(), self.len) }
    }
}

impl Vqp {
    /// Submits and waits: [`uapi::IOC_ENTER`]. Answers how many requests it took.
    pub(crate) fn enter(self: &Arc<Self>, request: &uapi::Enter) -> Result<u32> {
        let too_many = request.wr_count > uapi::MAX_BATCH.min(self.rings.sq_entries());
        if too_many || request.wc_min > self.rings.cq_entries() {
            return Err(EINVAL);
        }
        let mut submitted = 0;
        let mut outcome = Ok(());
        if request.wr_count != 0 {
            outcome = self.submit(request.wr_count, &mut submitted);
        }
        // Full queues are a reason to wait, not to give up.
        if request.wc_min != 0 && outcome.map_or_else(|error| error == ENOSPC, |()| true) {
            outcome = self.wait(request).and(outcome);
        }
        // What was done is reported; the reason why no more was done comes back
        // with the next call.
        match outcome {
            Err(error) if submitted == 0 => Err(error),
            _ => Ok(submitted),
        }
    }

    fn submit(self: &Arc<Self>, count: u32, submitted: &mut u32) -> Result {
        let mut head = self.submitter.lock();
        let (connection, stream) = self.connection()?;
        while *submitted < count {
            let wanted = (count - *submitted).min(POST_BATCH as u32);
            let places = {
                let mut queues = self.queues.lock();
                queues.reaped_to(self.rings.cq_head());
                queues.admit(wanted)
            };
            if places == 0 {
                return Err(ENOSPC);
            }
            let mut batch = Batch::new();
            for index in 0..places {
                let wr = self.rings.send_wr(head.wrapping_add(index));
                batch.push(self.entry(connection, &wr));
            }
            let seen = stream.room().seen();
            let taken = stream.post(self, batch.entries()) as u32;
            *submitted += taken;
            *head = head.wrapping_add(taken);
            self.rings.set_sq_head(*head);
            if taken < places {
                self.queues.lock().withdraw(places - taken);
                if stream.room().wait(seen, ROOM_WAIT_NS, true) == Woken::Signal {
                    return Err(EINTR);
                }
            }
        }
        Ok(())
    }

    /// Judges a copied request.
    fn entry(&self, connection: &Connection, wr: &SendWr) -> Entry {
        let kind = match wr.opcode {
            uapi::OP_READ => OpKind::Read,
            uapi::OP_SEND | uapi::OP_SEND_WITH_IMM => OpKind::Send,
            uapi::OP_CAS => OpKind::CompareSwap,
            uapi::OP_FAA => OpKind::FetchAdd,
            // What is none of these either, `check` refuses.
            _ => OpKind::Write,
        };
        let with_imm = matches!(wr.opcode, uapi::OP_SEND_WITH_IMM | uapi::OP_WRITE_WITH_IMM);
        let needs_receiver = with_imm || kind == OpKind::Send;
        let mut failed = weft_core::vqp::check(wr).err();
        if needs_receiver && connection.to.is_none() {
            failed = failed.or(Some(WcStatus::LocQpOpErr));
        }
        Entry {
            op: Op {
                cookie: wr.wr_id,
                flow: self.flow,
                owner: self.owner,
                kind,
                imm: with_imm.then_some(wr.imm),
                to: connection.to.unwrap_or(Receiver::Port(0)),
                rkey: wr.rkey,
                // What is too long, `check` refuses.
                len: weft_core::vqp::length(wr).unwrap_or(0),
                remote_addr: wr.remote_addr,
                operands: Operands {
                    compare_add: wr.compare_add,
                    swap: wr.swap,
                },
                local: local(wr),
            },
            signaled: wr.flags & uapi::SEND_SIGNALED != 0,
            failed,
        }
    }

    fn wait(&self, request: &uapi::Enter) -> Result {
        let start_ns = now_ns();
        let timeout_ns = request.timeout_ns.min(uapi::MAX_WAIT_NS);
        loop {
            let seen = self.done.seen();
            if self.failed.load(Ordering::Relaxed) {
                self.flush_receives(&mut self.queues.lock(), WcStatus::WrFlushErr);
            }
            let waited_ns = now_ns().saturating_sub(start_ns);
            if self.unreaped() >= request.wc_min || waited_ns >= timeout_ns {
                return Ok(());
            }
            let left_ns = timeout_ns - waited_ns;
            if waited_ns < SPIN_NS {
                self.spin(seen, left_ns.min(SPIN_NS));
            } else if self.done.wait(seen, left_ns, true) == Woken::Signal {
                return Err(EINTR);
            }
        }
    }

    /// Looks for a completion without sleeping.
    fn spin(&self, seen: u32, time_ns: u64) {
        let start_ns = now_ns();
        while self.done.seen() == seen && now_ns().saturating_sub(start_ns) < time_ns {
            // SAFETY: no requirement.
            unsafe { crate::bindings::weft_cpu_relax() };
        }
    }
}

/// The bytes of a request on this side. Of a malformed one it does not matter
/// which.
fn local(wr: &SendWr) -> Local {
    if wr.flags & uapi::SEND_INLINE != 0 {
        return Local::Inline(wr.data);
    }
    const NONE: Sge = Sge {
        addr: 0,
        len: 0,
        lkey: 0,
    };
    let mut sges = [NONE; uapi::MAX_SGE];
    for (index, sge) in sges.iter_mut().enumerate().take(usize::from(wr.num_sge)) {
        *sge = wr.sge(index);
    }
    Local::Sges(sges)
}
