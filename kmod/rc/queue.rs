// SPDX-License-Identifier: GPL-2.0

//! A physical RC queue pair that virtual ones share (krcore §4.4, alg. 2).
//!
//! Whoever waits for a completion polls, for all; when nobody does, the
//! completion queue is armed and its event starts a work item that polls.
//!
//! Lock order: `poster` and `reaper` are never held together; `control` is
//! outside of both. A requester's own lock is inside of `reaper`, a set of memory
//! regions inside of `poster`. The last reference to a requester is dropped without any.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU8, Ordering};

use kernel::alloc::KBox;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::dc::{Completion, OpKind};
use weft_core::gid::Gid;
use weft_core::kv::Geometry;
use weft_core::mr::Store;
use weft_core::rc::{
    Attendance, Limits, Poster, Stall, Window, WrId, BUDGET_BYTES, DEPTH, SIGNAL_INTERVAL,
};
use weft_core::uapi::WcStatus;

use crate::clock::now_ns;
use crate::counters::{Counted, COUNTERS};
use crate::dc::Requester;
use crate::few::{room, Few};
use crate::mem::MrTable;
use crate::rc::chain::Chain;
use crate::rc::long::Longs;
use crate::rc::revoke::Revocations;
use crate::rc::slots::{Ended, Slots, Who};
use crate::rdma::{Cq, DmaBuffer, Notified, Port, Qp, Ready, WorkCompletion};
use crate::sync::{
    new_event_count, new_lock, new_periodic, EventCount, FastGuard, FastLock, Once, Periodic,
    Routine, Spinner, Woken,
};

/// Completions taken from the device at a time.
const POLL_BATCH: usize = 8;
/// Requests ended per hold of the reaper's lock.
const DRAIN_BATCH: usize = 16;
/// Times that the queue is armed and found not to be empty before it is left to
/// the work item.
const ARM_TRIES: u32 = 4;
/// Requests on their way up to which a waiter polls if threads of this host move
/// the data: of more than these the threads make more with the waiter's CPU than
/// waking it costs.
const POLLED_OF_SOFTWARE: u32 = 4;
/// Looks of a waiter between two at the clock.
const LOOKS_PER_CLOCK: u32 = 64;
/// How long a waiter polls without seeing an end before it sleeps: longer than a
/// chain of small requests takes, on soft-RoCE and a busy host too.
pub(crate) const SPIN_NS: u64 = 2_000_000;
/// How long it polls at most, whatever it sees: it hears no signals meanwhile.
pub(crate) const LONGEST_SPIN_NS: u64 = 20_000_000;

/// The poster's part.
pub(super) struct Posting<R> {
    pub(super) poster: Poster,
    /// `None` once the queue pair is gone, and before it is connected.
    pub(super) qp: Option<Qp<Ready>>,
    pub(super) chain: KBox<Chain>,
    pub(super) longs: Longs<R>,
}

/// The reaper's part.
pub(super) struct Reaping {
    pub(super) cq: Option<Arc<Cq>>,
    /// Completions that were taken from the device: those from `at` to `count`
    /// were not looked at.
    wcs: [WorkCompletion; POLL_BATCH],
    at: usize,
    count: usize,
    /// All requests up to this one have ended, this one so.
    news: Option<(u32, WcStatus)>,
    /// The queue pair is gone: what is left ends so.
    pub(super) rest: Option<WcStatus>,
}

impl Reaping {
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

/// The peer's table of valid regions.
#[derive(Clone, Copy)]
pub(super) struct RemoteTable {
    pub(super) addr: u64,
    pub(super) rkey: u32,
    pub(super) geometry: Geometry,
}

/// An RC queue pair to a peer.
#[pin_data]
pub(crate) struct RcQueue<R: Requester> {
    pub(super) gid: Gid,
    /// The number of the connection, the same at both ends.
    pub(super) token: u64,
    /// What the device takes in one request.
    pub(super) limits: Limits,
    /// Its atomic operations are atomic with SoftDc's too.
    global_atomics: bool,
    /// Requests on their way up to which a waiter polls.
    polled: u32,
    pub(super) mrs: Arc<MrTable>,
    pub(super) window: Window,
    pub(super) attendance: Attendance,
    pub(super) slots: Slots<R>,
    #[pin]
    pub(super) posting: FastLock<Posting<R>>,
    #[pin]
    pub(super) reaping: FastLock<Reaping>,
    /// What was read of the peer's table.
    #[pin]
    pub(super) store: FastLock<KBox<Store>>,
    pub(super) remote: Once<RemoteTable>,
    #[pin]
    pub(super) revocations: Revocations,
    /// Memory for the queue's own requests, one at a time.
    #[pin]
    pub(super) control: Mutex<Option<DmaBuffer>>,
    pub(super) control_status: AtomicU32,
    /// The completion queue will call.
    armed: AtomicBool,
    /// Whether requests are being cut: a hint, without the poster's lock.
    pub(super) has_longs: AtomicBool,
    /// Both ends may post.
    pub(super) up: AtomicBool,
    /// Why it broke, as a [`WcStatus`]; 0 if it did not.
    fate: AtomicU8,
    /// What a maintainer has seen of its progress.
    #[pin]
    pub(super) stall: FastLock<Stall>,
    /// Requests published when it last looked.
    pub(super) seen_tail: AtomicU32,
    /// Counts the times that room was made.
    #[pin]
    room: EventCount,
    /// Counts the calls of the completion queue.
    #[pin]
    pub(super) events: EventCount,
    #[pin]
    pub(super) work: Periodic<Self>,
    _count: Counted,
}

/// Polls the queue, as long as it lives: completions need no event.
pub(crate) struct Attending<'a, R: Requester>(&'a RcQueue<R>);

impl<R: Requester> Attending<'_, R> {
    /// Polls until there `is_news`, for at most `time_ns`. Answers whether there is.
    #[inline]
    pub(crate) fn spin(&self, is_news: impl Fn() -> bool, time_ns: u64) -> bool {
        let spinner = Spinner::new();
        // What was just posted is a while away: now is the time for courtesy.
        spinner.turn(true);
        let start_ns = now_ns();
        loop {
            // Now and then the clock is read, and looked for what the device does
            // not tell of: others end requests too.
            self.0.poll();
            for _ in 0..LOOKS_PER_CLOCK {
                self.0.poll_news();
                if is_news() {
                    return true;
                }
                spinner.turn(self.0.window.outstanding() > 1);
            }
            if now_ns().saturating_sub(start_ns) >= time_ns {
                return false;
            }
        }
    }
}

impl<R: Requester> Drop for Attending<'_, R> {
    fn drop(&mut self) {
        if self.0.attendance.leave() {
            self.0.arm();
        }
    }
}

impl<R: Requester> RcQueue<R> {
    /// A queue to a peer, not connected. Its `work` has to be stopped before it is
    /// dropped.
    pub(super) fn new(gid: Gid, token: u64, mrs: Arc<MrTable>, port: Port) -> Result<Arc<Self>> {
        let device = port.device;
        let (pieces, read_pieces) = device.most_pieces();
        let limits = Limits {
            pieces,
            read_pieces,
            bytes: port.longest_message().ok_or(ENODEV)?,
        };
        let buffer = DmaBuffer::new(device)?;
        let (window, poster) = Window::new(DEPTH, SIGNAL_INTERVAL, BUDGET_BYTES).ok_or(EINVAL)?;
        let posting = Posting {
            poster,
            qp: None,
            chain: Chain::new()?,
            longs: Longs::new(),
        };
        let reaping = Reaping {
            cq: None,
            wcs: [WorkCompletion::default(); POLL_BATCH],
            at: 0,
            count: 0,
            news: None,
            rest: None,
        };
        let store = KBox::new(Store::EMPTY, GFP_KERNEL)?;
        let slots = Slots::new()?;
        Arc::pin_init(
            pin_init!(Self {
                gid,
                token,
                limits,
                global_atomics: device.has_global_atomics(),
                polled: match device.is_software() {
                    true => POLLED_OF_SOFTWARE,
                    false => DEPTH,
                },
                mrs,
                window,
                attendance: Attendance::new(),
                slots,
                posting <- new_lock!(posting, "weft_rc_posting"),
                reaping <- new_lock!(reaping, "weft_rc_reaping"),
                store <- new_lock!(store, "weft_rc_store"),
                remote: Once::new(),
                revocations <- Revocations::new(),
                control <- kernel::new_mutex!(Some(buffer), "weft_rc_control"),
                control_status: AtomicU32::new(0),
                armed: AtomicBool::new(false),
                has_longs: AtomicBool::new(false),
                up: AtomicBool::new(false),
                fate: AtomicU8::new(0),
                stall <- new_lock!(Stall::NEW, "weft_rc_stall"),
                seen_tail: AtomicU32::new(0),
                room <- new_event_count!("weft_rc_room"),
                events <- new_event_count!("weft_rc_events"),
                work <- new_periodic!("weft_rc_queue_work"),
                _count: Counted::one(&COUNTERS.rc_queues),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether operations of this kind may go by it: atomic ones have to be atomic
    /// with those that go by DC.
    pub(crate) fn takes(&self, kind: OpKind) -> bool {
        match kind {
            OpKind::Read | OpKind::Write => true,
            OpKind::CompareSwap | OpKind::FetchAdd => self.global_atomics,
            OpKind::Send => false,
        }
    }

    /// The peer.
    pub(crate) fn gid(&self) -> &Gid {
        &self.gid
    }

    /// Whether requests may be posted, and it has not broken.
    pub(crate) fn is_usable(&self) -> bool {
        self.up.load(Ordering::Acquire) && self.fate().is_none()
    }

    /// Whether requests are on their way: those of all who use it.
    pub(crate) fn is_busy(&self) -> bool {
        self.window.outstanding() != 0
    }

    /// Whether their ends are worth polling for.
    pub(crate) fn is_worth_polling(&self) -> bool {
        (1..=self.polled).contains(&self.window.outstanding())
    }

    /// Why it broke, if it did.
    pub(crate) fn fate(&self) -> Option<WcStatus> {
        match self.fate.load(Ordering::Acquire) {
            0 => None,
            status => Some(WcStatus::from_number(u32::from(status)).unwrap_or(WcStatus::FatalErr)),
        }
    }

    /// Counts the times that room was made; to be read before posting.
    pub(crate) fn room_seen(&self) -> u32 {
        self.room.seen()
    }

    /// Has those look again who wait for room.
    pub(super) fn wake_posters(&self) {
        self.room.notify();
    }

    /// Sleeps until room was made after `seen`, also while the caller attends.
    pub(crate) fn wait_for_room(&self, seen: u32, timeout_ns: u64, interruptible: bool) -> Woken {
        self.poll();
        self.arm();
        self.room.wait(seen, timeout_ns, interruptible)
    }

    /// Polls until the result is dropped: the caller calls [`RcQueue::poll`] again
    /// and again. To be taken before posting.
    pub(crate) fn attend(&self) -> Attending<'_, R> {
        self.attendance.enter();
        Attending(self)
    }

    /// It broke: nothing is posted any more, and what is outstanding is ended in
    /// the background. Any context; only the first reason counts.
    pub(super) fn fail(&self, status: WcStatus) {
        let status = status as u8;
        let first = self
            .fate
            .compare_exchange(0, status, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_ok() {
            pr_debug!("an RC queue pair ends with status {status}\n");
            COUNTERS.rc_lost.bump();
            self.work.schedule(0);
        }
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
    fn poll_news(&self) {
        let mut reaping = self.reaping.lock();
        if !reaping.fetch() {
            return;
        }
        if self.hear_of_only(&mut reaping) {
            let ended = self.end_oldest(WcStatus::Success);
            drop(reaping);
            self.room.notify();
            drop(ended);
            if self.advance() {
                self.poll();
            }
        } else if let Some(status) = self.next_end(&mut reaping) {
            if self.drain(reaping, status) == DRAIN_BATCH || self.advance() {
                self.poll();
            }
        }
    }

    /// Whether one request alone is outstanding, and the next completion says that
    /// it has ended well: the short way for those who wait for each.
    #[inline]
    fn hear_of_only(&self, reaping: &mut Reaping) -> bool {
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
        // Most looks find nothing: what clears room for many comes after.
        match self.next_end(&mut reaping) {
            Some(status) => self.drain(reaping, status),
            None => 0,
        }
    }

    /// Ends requests: the oldest so, and others.
    #[inline(never)]
    fn drain(&self, mut reaping: FastGuard<'_, Reaping>, first: WcStatus) -> usize {
        let mut room = room::<_, DRAIN_BATCH>();
        let mut drained = Few::new(&mut room);
        let (mut count, mut next) = (0, Some(first));
        while let Some(status) = next {
            if let Some(requester) = self.end_oldest(status) {
                drained.push(requester);
            }
            count += 1;
            // What is asked for has to be ended: it is told once. If nothing is
            // outstanding, there is nothing to ask for.
            next = match count < DRAIN_BATCH && self.window.oldest().is_some() {
                true => self.next_end(&mut reaping),
                false => None,
            };
        }
        drop(reaping);
        self.room.notify();
        count
    }

    /// How the oldest request has ended, if it has.
    fn next_end(&self, reaping: &mut Reaping) -> Option<WcStatus> {
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
                    // Requests end in order: it was not signalled.
                    (Some(_), None) => return Some(WcStatus::Success),
                    (None, None) => {}
                }
            }
            if !self.hear(reaping) {
                return self.window.oldest().and(reaping.rest);
            }
        }
    }

    /// Looks at the next completion; `false` if there is none.
    fn hear(&self, reaping: &mut Reaping) -> bool {
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
            Some(WrId::Receive) if status == WcStatus::Success => {
                self.up.store(true, Ordering::Release);
            }
            _ => {}
        }
        true
    }

    /// Ends the oldest request. The caller holds the reaper's lock, and drops what
    /// this answers without it.
    #[inline]
    fn end_oldest(&self, status: WcStatus) -> Option<Arc<R>> {
        let oldest = self.window.oldest()?;
        // SAFETY: outstanding, and the caller holds the reaper's lock.
        let ended = unsafe { self.slots.take(&self.window, oldest) }?;
        let Ended {
            who,
            cookie,
            kind,
            len,
        } = ended;
        match &who {
            Who::Piece { .. } => self.window.retire_piece(len),
            _ => self.window.retire(len),
        }
        match who {
            Who::Piece { whole, is_last } => Some(whole.piece_ended(is_last, status)),
            Who::Requester {
                requester,
                signaled,
            } => {
                let completion = Completion {
                    slot: 0,
                    cookie,
                    status,
                    kind,
                    with_imm: false,
                    len,
                };
                requester.completed(&completion, signaled);
                Some(requester)
            }
            Who::Direct(requester) => {
                requester.answered(status);
                Some(requester)
            }
            Who::Control => {
                self.control_status.store(status as u32, Ordering::Release);
                self.events.notify();
                None
            }
            Who::Nobody => None,
        }
    }

    /// Nobody polls, and the device will not call.
    pub(super) fn needs_event(&self) -> bool {
        self.attendance.is_empty() && !self.armed.load(Ordering::Acquire)
    }

    /// Nothing will complete.
    fn is_quiet(&self) -> bool {
        self.window.outstanding() == 0 && self.up.load(Ordering::Acquire)
    }

    /// Makes sure that completions are noticed though nobody polls.
    #[inline]
    pub(super) fn arm(&self) {
        if !self.is_quiet() {
            self.arm_or_poll();
        }
    }

    #[inline(never)]
    fn arm_or_poll(&self) {
        for _ in 0..ARM_TRIES {
            {
                let reaping = self.reaping.lock();
                let Some(cq) = &reaping.cq else { return };
                // One that was armed before, and has not called, will call.
                if self.armed.swap(true, Ordering::AcqRel) || cq.arm() {
                    return;
                }
                self.armed.store(false, Ordering::Release);
            }
            self.poll();
            if self.is_quiet() {
                return;
            }
        }
        self.work.schedule(0);
    }
}

impl<R: Requester> Notified for RcQueue<R> {
    fn on_completion(&self) {
        self.armed.store(false, Ordering::Release);
        self.events.notify();
        self.work.schedule(0);
    }
}

// SAFETY: the offset is the field's own; `Link`s, which own the queues, stop the
// work before they let go of them.
unsafe impl<R: Requester> Routine for RcQueue<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        self.poll();
        if let Some(fate) = self.fate() {
            self.shut_down(fate);
        } else if self.attendance.is_empty() {
            self.arm();
        }
    }
}
