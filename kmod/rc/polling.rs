// SPDX-License-Identifier: GPL-2.0

//! Polling an RC queue pair: completions are taken from the device and handed to
//! the requesters they belong to, whichever thread polls (krcore §4.4, alg. 2).

use core::sync::atomic::Ordering;

use kernel::sync::Arc;
use weft_core::dc::Completion;
use weft_core::pool::{Tally, Transport};
use weft_core::rc::{Attendance, WrId};
use weft_core::uapi::WcStatus;

use crate::array_vec::{room, ArrayVec};
use crate::clock::{coarse_ns, now_ns};
use crate::dc::Requester;
use crate::rc::queue::RcQueue;
use crate::rc::slots::{CompletionTarget, Ended};
use crate::rdma::{Cq, WorkCompletion};
use crate::sync::{FastGuard, Spinner};

/// Completions taken from the device at a time.
const POLL_BATCH: usize = 8;
/// Requests ended per hold of the reaper's lock.
const DRAIN_BATCH: usize = 16;
/// Looks of a waiter between two at the clock.
const LOOKS_PER_CLOCK: u32 = 64;
/// Bytes of which one of the driver's threads makes one packet: of more, a second one can take
/// in packets while the first makes them.
const ONE_PACKET: u64 = 4096;
/// How long a waiter polls without seeing an end before it sleeps: longer than a
/// chain of small requests takes, on soft-RoCE and a busy host too.
const SPIN_NS: u64 = 2_000_000;
/// On top of that, for each byte on its way: twice what soft-RoCE takes.
const SPIN_NS_PER_BYTE: u64 = 16;
/// How long it polls at most, whatever it sees: it hears no signals meanwhile.
pub(crate) const LONGEST_SPIN_NS: u64 = 20_000_000;

/// The state of a queue's reaper.
pub(super) struct Reaping {
    pub(super) cq: Option<Arc<Cq>>,
    /// Completions that were taken from the device: those from `at` to `count`
    /// were not looked at.
    wcs: [WorkCompletion; POLL_BATCH],
    at: usize,
    count: usize,
    /// All requests up to this one have ended, this one so.
    news: Option<(u32, WcStatus)>,
    /// The queue pair is gone: requests that are left end with this.
    pub(super) rest: Option<WcStatus>,
    /// Users' requests that have ended.
    tally: Tally,
}

impl Reaping {
    /// Not connected.
    pub(super) const NEW: Self = Self {
        cq: None,
        wcs: [WorkCompletion::NONE; POLL_BATCH],
        at: 0,
        count: 0,
        news: None,
        rest: None,
        tally: Tally::NEW,
    };

    /// Takes completions from the device if all were looked at. Answers whether
    /// there is one to look at.
    #[inline]
    fn fetch(&mut self) -> bool {
        if self.at < self.count {
            return true;
        }
        let Some(cq) = self.cq.as_ref().filter(|cq| cq.has_some()) else {
            return false;
        };
        self.count = cq.poll(&mut self.wcs);
        self.at = 0;
        self.count != 0
    }
}

/// Polls the queue, as long as it lives: completions need no event.
pub(crate) struct Attending<'a, R: Requester>(&'a RcQueue<R>);

impl<R: Requester> Attending<'_, R> {
    /// Polls until `is_done`, for at most `time_ns`. Answers whether it is.
    #[inline]
    pub(crate) fn spin(&self, is_done: impl Fn() -> bool, time_ns: u64) -> bool {
        let spinner = Spinner::new();
        // A request that was just posted takes a while: let other threads run first.
        spinner.turn(true);
        let start_ns = now_ns();
        let mut turn = Turn::new(&self.0.attendance);
        loop {
            // Read the clock and poll in full now and then: another thread may have
            // reaped our completion, which the device's queue no longer shows; or it has
            // the turn, but no CPU.
            self.0.poll();
            for _ in 0..LOOKS_PER_CLOCK {
                if turn.is_mine() {
                    self.0.poll_if_any();
                }
                if is_done() {
                    return true;
                }
                spinner.turn(self.0.is_much_under_way());
            }
            if now_ns().saturating_sub(start_ns) >= time_ns {
                return false;
            }
        }
    }
}

/// The turn at a queue, if it can be had; given back on drop.
struct Turn<'a> {
    attendance: &'a Attendance,
    is_mine: bool,
}

impl<'a> Turn<'a> {
    fn new(attendance: &'a Attendance) -> Self {
        Self {
            attendance,
            is_mine: false,
        }
    }

    /// Whether the caller has it, now if not before.
    #[inline]
    fn is_mine(&mut self) -> bool {
        self.is_mine = self.is_mine || self.attendance.take_turn();
        self.is_mine
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.is_mine {
            self.attendance.end_turn();
        }
    }
}

impl<R: Requester> Drop for Attending<'_, R> {
    fn drop(&mut self) {
        if self.0.attendance.leave() {
            self.0.arm();
        } else {
            // The others poll for the requests that are left, unless they sleep or lose their CPUs.
            self.0.relieve_later();
        }
    }
}

impl<R: Requester> RcQueue<R> {
    /// Polls until the result is dropped: the caller calls [`RcQueue::poll`] again
    /// and again. To be taken before posting.
    pub(crate) fn attend(&self) -> Attending<'_, R> {
        self.attendance.enter();
        Attending(self)
    }

    /// How long a waiter polls without seeing an end.
    #[inline]
    pub(crate) fn spin_ns(&self) -> u64 {
        let for_bytes = self.window.bytes().saturating_mul(SPIN_NS_PER_BYTE);
        SPIN_NS.saturating_add(for_bytes).min(LONGEST_SPIN_NS)
    }

    /// Whether there is work for more than one of the driver's threads at a time.
    #[inline]
    fn is_much_under_way(&self) -> bool {
        self.window.outstanding() > 1 || self.window.bytes() > ONE_PACKET
    }

    /// Hands out what has ended; answers how many requests that were.
    pub(crate) fn poll(&self) -> usize {
        let mut total = 0;
        loop {
            let count = self.poll_some();
            total += count;
            if count < DRAIN_BATCH && !self.advance() {
                return total;
            }
        }
    }

    /// Hands out what has ended, if the device may have completions.
    #[inline]
    fn poll_if_any(&self) {
        let mut reaping = self.reaping.lock();
        if !reaping.fetch() {
            return;
        }
        if self.take_only_completion(&mut reaping) {
            let ended = self.complete_oldest(&mut reaping.tally, WcStatus::Success);
            drop(reaping);
            self.room.notify();
            drop(ended);
            if self.advance() {
                self.poll();
            }
        } else if let Some(status) = self.next_status(&mut reaping) {
            if self.drain(reaping, status) == DRAIN_BATCH || self.advance() {
                self.poll();
            }
        }
    }

    /// Whether one request alone is outstanding, and the next completion says that
    /// it has ended well: the short way for those who wait for each.
    #[inline]
    fn take_only_completion(&self, reaping: &mut Reaping) -> bool {
        let Some(wc) = reaping.wcs.get(reaping.at) else {
            return false;
        };
        let is_so = wc.status == WcStatus::Success as u32
            && self.window.only().map(|seq| WrId::Request(seq).encode()) == Some(wc.wr_id);
        if is_so {
            reaping.at += 1;
        }
        is_so
    }

    fn poll_some(&self) -> usize {
        let mut reaping = self.reaping.lock();
        // Most polls find nothing, so the room for a batch is made only after this.
        match self.next_status(&mut reaping) {
            Some(status) => self.drain(reaping, status),
            None => 0,
        }
    }

    /// Completes requests: the oldest with `first`, and those after it that have ended.
    #[inline(never)]
    fn drain(&self, mut reaping: FastGuard<'_, Reaping>, first: WcStatus) -> usize {
        let mut room = room::<_, DRAIN_BATCH>();
        let mut drained = ArrayVec::new(&mut room);
        let (mut count, mut next) = (0, Some(first));
        while let Some(status) = next {
            if let Some(requester) = self.complete_oldest(&mut reaping.tally, status) {
                drained.push(requester);
            }
            count += 1;
            // Each completion is reported once, so finish it before asking for the
            // next. Without outstanding requests there is none.
            next = match count < DRAIN_BATCH && self.window.oldest().is_some() {
                true => self.next_status(&mut reaping),
                false => None,
            };
        }
        drop(reaping);
        self.room.notify();
        count
    }

    /// How the oldest request has ended, if it has.
    fn next_status(&self, reaping: &mut Reaping) -> Option<WcStatus> {
        loop {
            if let Some(oldest) = self.window.oldest() {
                // SAFETY: outstanding, and we hold the reaper's lock.
                let refused = unsafe { self.slots.refused(&self.window, oldest) };
                match (reaping.news, refused) {
                    (_, Some(status)) => return Some(status),
                    (Some((seq, status)), None) if seq == oldest => {
                        reaping.news = None;
                        return Some(status);
                    }
                    // Requests end in order (IBTA vol. 1, 9.5): it was not signalled, and
                    // would have made a completion of its own if it had failed (10.7.3.1).
                    (Some(_), None) => return Some(WcStatus::Success),
                    (None, None) => {}
                }
            }
            if !self.next_completion(reaping) {
                return self.window.oldest().and(reaping.rest);
            }
        }
    }

    /// Looks at the next completion; `false` if there is none.
    fn next_completion(&self, reaping: &mut Reaping) -> bool {
        if !reaping.fetch() {
            return false;
        }
        let Some(wc) = reaping.wcs.get(reaping.at) else {
            return false;
        };
        reaping.at += 1;
        let status = WcStatus::from_number(wc.status).unwrap_or(WcStatus::RemOpErr);
        match WrId::decode(wc.wr_id) {
            Some(WrId::Request(seq)) if self.window.covers(seq) => {
                reaping.news = Some((seq, status));
                if status != WcStatus::Success {
                    self.fail(status);
                }
            }
            // The peer's first message: it has seen our answer, or is somebody else.
            Some(WrId::Receive) if status == WcStatus::Success => match wc.imm {
                Some(nonce) if nonce == self.nonce => self.up.store(true, Ordering::Release),
                _ => self.fail(WcStatus::RemOpErr),
            },
            _ => {}
        }
        true
    }

    /// A user's request, or a piece of one, has ended well.
    #[inline]
    fn note(&self, tally: &mut Tally, seq: u32, len: u32, target: &CompletionTarget<R>) {
        tally.count(len);
        tally.hand_on(coarse_ns(), self.meter());
        if let Some(begun_ns) = self.watch.stop(seq) {
            let took_ns = now_ns().saturating_sub(begun_ns);
            self.meter()
                .sample(Transport::Rc, len, took_ns, target.user());
        }
    }

    /// Ends the oldest request. The caller holds the reaper's lock, and drops what
    /// this answers without it.
    #[inline]
    fn complete_oldest(&self, tally: &mut Tally, status: WcStatus) -> Option<Arc<R>> {
        let oldest = self.window.oldest()?;
        // SAFETY: outstanding, and the caller holds the reaper's lock.
        let ended = unsafe { self.slots.take(&self.window, oldest) }?;
        let Ended {
            target,
            cookie,
            kind,
            len,
        } = ended;
        match &target {
            CompletionTarget::Piece { .. } => self.window.retire_piece(len),
            _ => self.window.retire(len),
        }
        if status == WcStatus::Success && target.is_users() {
            self.note(tally, oldest, len, &target);
        }
        match target {
            CompletionTarget::Piece { whole, is_last } => {
                if is_last && status == WcStatus::Success {
                    let (len, took_ns) = whole.time();
                    let user = Some(whole.requester.user());
                    self.meter().sample(Transport::Rc, len, took_ns, user);
                }
                let status = self.end_for(&whole.requester, status);
                Some(whole.piece_ended(is_last, status))
            }
            CompletionTarget::Requester { requester, flags } => {
                let completion = Completion {
                    slot: 0,
                    cookie,
                    status: self.end_for(&requester, status),
                    kind,
                    with_imm: false,
                    len,
                };
                requester.completed(&completion, flags);
                Some(requester)
            }
            CompletionTarget::Direct(requester) => {
                requester.answered(self.end_for(&requester, status));
                Some(requester)
            }
            CompletionTarget::Control => {
                self.control_status.store(status as u32, Ordering::Release);
                self.events.notify();
                None
            }
            CompletionTarget::None => None,
        }
    }
}
