// SPDX-License-Identifier: GPL-2.0

//! A physical RC queue pair that virtual ones share (krcore §4.4, alg. 2).
//!
//! A thread that waits for a completion polls for all of them ([`super::polling`]);
//! while no thread does, the completion queue is armed ([`super::arming`]).
//!
//! Lock order: `ending` is outside of all; `posting` and `reaping` are never held together;
//! `control` is outside of both. A requester's own lock is inside of `reaping`, a set of memory
//! regions inside of `posting`. The last reference to a requester is dropped without any.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU8, Ordering};

use kernel::alloc::KBox;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::dc::OpKind;
use weft_core::gid::Gid;
use weft_core::kv::Geometry;
use weft_core::mr::Store;
use weft_core::pool::{Meter, Stopwatch};
use weft_core::rc::{
    Attendance, Blocks, Lane, Limits, Poster, Stall, Window, BUDGET_BYTES, DEPTH, SIGNAL_INTERVAL,
};
use weft_core::uapi::WcStatus;

use crate::clock::now_ns;
use crate::counters::{Counted, COUNTERS};
use crate::dc::Requester;
use crate::mem::MrTable;
use crate::net::PacketLink;
use crate::rc::arming::RELIEF;
use crate::rc::chain::Chain;
use crate::rc::long::Longs;
use crate::rc::polling::Reaping;
use crate::rc::revoke::Revocations;
use crate::rc::slots::Slots;
use crate::rc::Claim;
use crate::rdma::{DmaBuffer, Port, Qp, Ready};
use crate::sync::{new_event_count, new_lock, new_periodic, EventCount, FastLock, Once, Periodic};

/// Requests on their way up to which a waiter polls if threads of this host move
/// the data: of more than these the threads make more with the waiter's CPU than
/// waking it costs.
const POLLED_OF_SOFTWARE: u32 = 4;

/// Bytes that a probe READs.
pub(super) const PROBE_BYTES: usize = 8;

/// How a queue pair ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// A request of it has failed with this, or would have: the peer is out of reach.
    Broke(WcStatus),
    /// This node lets go of one that is closed, has another in its place or never came up.
    LetGo,
    /// The node stops.
    NodeStops,
}

impl Ending {
    /// How requests end that it leaves outstanding.
    fn status(self) -> WcStatus {
        match self {
            Self::Broke(status) => status,
            Self::LetGo => WcStatus::RetryExcErr,
            Self::NodeStops => WcStatus::FatalErr,
        }
    }
}

/// The state of a queue's poster.
pub(super) struct Posting<R> {
    pub(super) poster: Poster,
    /// `None` once the queue pair is gone, and before it is connected.
    pub(super) qp: Option<Qp<Ready>>,
    pub(super) chain: KBox<Chain>,
    pub(super) longs: Longs<R>,
    /// Once it is being closed: the READ behind all requests has ended when all up to this
    /// number have passed.
    pub(super) last_read: Option<u32>,
}

/// The peer's table of valid regions.
#[derive(Clone, Copy)]
pub(super) struct RemoteTable {
    pub(super) addr: u64,
    pub(super) rkey: u32,
    pub(super) geometry: Geometry,
    /// How both nodes' regions are registered.
    pub(super) blocks: Blocks,
}

/// An RC queue pair to a peer.
#[pin_data]
pub(crate) struct RcQueue<R: Requester> {
    /// The peer, and its place among the queue pairs to it.
    pub(super) lane: Lane,
    /// The number of the connection, the same at both ends.
    pub(super) token: u64,
    /// The device's limits for one request.
    pub(super) limits: Limits,
    /// Where probes READ to: the end of `control`'s buffer, which nothing else uses.
    pub(super) probe_addr: u64,
    /// Probes go in place of requests of no bytes. If soft-RoCE repeats the answer to a
    /// READ, and the last request that it carried out had no bytes, it copies from a
    /// region that is not there (`read_reply` in rxe_resp.c): a warning, and the queue
    /// pair breaks.
    pub(super) avoids_empty: bool,
    /// The peer's first message has to carry this, if it has to speak first.
    pub(super) nonce: u32,
    /// Its atomic operations are atomic with SoftDc's too.
    global_atomics: bool,
    /// Requests on their way up to which a waiter polls.
    polled: u32,
    pub(super) mrs: Arc<MrTable>,
    pub(super) window: Window,
    pub(super) attendance: Attendance,
    pub(super) slots: Slots<R>,
    /// Held by who shuts it down: another one waits for the end of that.
    #[pin]
    pub(super) ending: Mutex<()>,
    #[pin]
    pub(super) posting: FastLock<Posting<R>>,
    #[pin]
    pub(super) reaping: FastLock<Reaping>,
    /// Entries of the peer's table that were READ.
    #[pin]
    pub(super) store: FastLock<KBox<Store>>,
    pub(super) remote: Once<RemoteTable>,
    /// Where notices to the peer go; set once it is connected.
    pub(super) peer: Once<Claim>,
    /// Carries packets to the peer, if both ends can.
    pub(super) packets: Once<Arc<PacketLink>>,
    #[pin]
    pub(super) revocations: Revocations,
    /// Memory for the queue's own requests, one at a time.
    #[pin]
    pub(super) control: Mutex<Option<DmaBuffer>>,
    pub(super) control_status: AtomicU32,
    /// The completion queue will call.
    pub(super) armed: AtomicBool,
    /// Whether requests are being cut: a hint, without the poster's lock.
    pub(super) has_longs: AtomicBool,
    /// When it was made.
    pub(super) made_ns: u64,
    /// Both ends may post.
    pub(super) up: AtomicBool,
    /// Users post nothing more: it is being closed.
    pub(super) closing: AtomicBool,
    /// What is seen of its users' traffic.
    meter: Meter,
    /// Takes the time of some of their requests.
    pub(super) watch: Stopwatch,
    /// Why it ended, as a [`WcStatus`]; 0 if it did not.
    failure: AtomicU8,
    /// Requests that no user has posted.
    pub(super) own_requests: AtomicU32,
    /// The queue's progress, as upkeep saw it last.
    #[pin]
    pub(super) stall: FastLock<Stall>,
    /// Requests published at the last upkeep.
    pub(super) seen_tail: AtomicU32,
    /// Those of them that users had posted.
    pub(super) seen_users: AtomicU32,
    /// Counts the times that room was made.
    #[pin]
    pub(super) room: EventCount,
    /// Counts the calls of the completion queue.
    #[pin]
    pub(super) events: EventCount,
    #[pin]
    pub(super) work: Periodic<Self>,
    /// Threads that sleep until a request of theirs has ended.
    pub(super) sleepers: AtomicU32,
    /// Counts the calls of the completion queue, for those.
    #[pin]
    pub(super) calls: EventCount,
    /// Polls in place of threads that attend and have lost their CPU.
    #[pin]
    pub(super) relief: Periodic<Self, RELIEF>,
    _count: Counted,
}

impl<R: Requester> RcQueue<R> {
    /// A queue to a peer, not connected. Its work has to be stopped before it is dropped
    /// ([`Self::stop_work`]).
    pub(super) fn new(
        lane: Lane,
        token: u64,
        nonce: u32,
        mrs: Arc<MrTable>,
        port: Port,
    ) -> Result<Arc<Self>> {
        let device = port.device;
        let (pieces, read_pieces) = device.most_pieces();
        let limits = Limits {
            pieces,
            read_pieces,
            bytes: port.longest_message().ok_or(ENODEV)?,
        };
        let buffer = DmaBuffer::new(device, PAGE_SIZE)?;
        let probe_addr = buffer.addr() + (PAGE_SIZE - PROBE_BYTES) as u64;
        let (window, poster) = Window::new(DEPTH, SIGNAL_INTERVAL, BUDGET_BYTES).ok_or(EINVAL)?;
        let posting = Posting {
            poster,
            qp: None,
            chain: Chain::new()?,
            longs: Longs::new(),
            last_read: None,
        };
        let store = KBox::new(Store::EMPTY, GFP_KERNEL)?;
        let slots = Slots::new()?;
        Arc::pin_init(
            pin_init!(Self {
                lane,
                token,
                limits,
                probe_addr,
                avoids_empty: device.is_software(),
                nonce,
                global_atomics: device.has_global_atomics(),
                polled: match device.is_software() {
                    true => POLLED_OF_SOFTWARE,
                    false => DEPTH,
                },
                mrs,
                window,
                attendance: Attendance::new(),
                slots,
                ending <- kernel::new_mutex!((), "weft_rc_ending"),
                posting <- new_lock!(posting, "weft_rc_posting"),
                reaping <- new_lock!(Reaping::NEW, "weft_rc_reaping"),
                store <- new_lock!(store, "weft_rc_store"),
                remote: Once::new(),
                peer: Once::new(),
                packets: Once::new(),
                revocations <- Revocations::new(),
                control <- kernel::new_mutex!(Some(buffer), "weft_rc_control"),
                control_status: AtomicU32::new(0),
                armed: AtomicBool::new(false),
                has_longs: AtomicBool::new(false),
                made_ns: now_ns(),
                up: AtomicBool::new(false),
                closing: AtomicBool::new(false),
                meter: Meter::new(),
                watch: Stopwatch::new(),
                failure: AtomicU8::new(0),
                stall <- new_lock!(Stall::NEW, "weft_rc_stall"),
                own_requests: AtomicU32::new(0),
                seen_tail: AtomicU32::new(0),
                seen_users: AtomicU32::new(0),
                room <- new_event_count!("weft_rc_room"),
                events <- new_event_count!("weft_rc_events"),
                work <- new_periodic!("weft_rc_queue_work"),
                sleepers: AtomicU32::new(0),
                calls <- new_event_count!("weft_rc_calls"),
                relief <- new_periodic!("weft_rc_relief_work"),
                _count: Counted::one(&COUNTERS.rc_queues),
            }),
            GFP_KERNEL,
        )
    }

    /// How both nodes' regions are registered; `None`: it was never connected.
    #[inline]
    pub(super) fn blocks(&self) -> Option<Blocks> {
        Some(self.remote.get()?.blocks)
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

    /// Whether requests may be posted, and it has not broken.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        self.up.load(Ordering::Acquire) && self.failure().is_none() && !self.is_closing()
    }

    /// The peer.
    pub(crate) fn gid(&self) -> &Gid {
        &self.lane.gid
    }

    /// The link that carries packets to the peer, if both ends can.
    pub(crate) fn packets(&self) -> Option<&Arc<PacketLink>> {
        self.packets.get()
    }

    /// What is seen of its users' traffic.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Whether requests of any user are outstanding.
    pub(crate) fn is_busy(&self) -> bool {
        self.window.outstanding() != 0
    }

    /// Whether the completions of the outstanding requests are worth polling for.
    pub(crate) fn is_worth_polling(&self) -> bool {
        (1..=self.polled).contains(&self.window.outstanding())
    }

    /// Whether both ends could post once, whatever has become of it.
    pub(super) fn was_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Whether it has carried requests, and can still prove that they are in place
    /// ([`RcQueue::read_behind`]).
    #[inline]
    pub(crate) fn can_prove(&self) -> bool {
        self.was_up() && self.failure().is_none()
    }

    /// Why it ended, if it did.
    pub(crate) fn failure(&self) -> Option<WcStatus> {
        match self.failure.load(Ordering::Acquire) {
            0 => None,
            status => Some(WcStatus::from_number(u32::from(status)).unwrap_or(WcStatus::FatalErr)),
        }
    }

    /// How it ends, once it has broken, the requests of users of whom none has failed: what
    /// broke it may be another user's matter. To them the peer is out of reach, unless
    /// their own node goes.
    pub(super) fn end_of_others(&self) -> WcStatus {
        match self.failure() {
            None | Some(WcStatus::FatalErr) => WcStatus::FatalErr,
            Some(_) => WcStatus::RetryExcErr,
        }
    }

    /// How a request has ended for its user. All that were behind the one that broke the
    /// queue pair are flushed, whoever posted them; to a user of whom none has failed
    /// before, that would say nothing. (If a request behind it was refused meanwhile, that
    /// one says what the user did wrong, and this one is flushed.)
    #[inline]
    pub(super) fn end_for(&self, requester: &R, status: WcStatus) -> WcStatus {
        match status {
            WcStatus::WrFlushErr if !requester.has_failed() => self.end_of_others(),
            _ => status,
        }
    }

    /// Counts the times that room was made; to be read before posting.
    pub(crate) fn room_seen(&self) -> u32 {
        self.room.seen()
    }

    /// Wakes the threads that wait for room.
    pub(super) fn wake_posters(&self) {
        self.room.notify();
    }

    /// It broke: nothing is posted any more, and what is outstanding is ended in the background.
    /// Any context.
    pub(super) fn fail(&self, status: WcStatus) {
        self.retire(Ending::Broke(status));
    }

    /// Likewise, for any reason; the first one counts.
    pub(super) fn retire(&self, ending: Ending) {
        let status = ending.status();
        let first =
            self.failure
                .compare_exchange(0, status as u8, Ordering::AcqRel, Ordering::Relaxed);
        if first.is_ok() {
            pr_debug!("an RC queue pair ends: {ending:?}\n");
            if matches!(ending, Ending::Broke(_)) && self.was_up() && !self.is_closing() {
                COUNTERS.rc_lost.bump();
            }
            if let Some(packets) = self.packets() {
                packets.close();
            }
            self.work.schedule(0);
        }
    }
}
