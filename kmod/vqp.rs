// SPDX-License-Identifier: GPL-2.0

//! Virtual queue pairs: what a session owns and connects. A VQP is software
//! alone, of a few hundred bytes: its requests and completions are in rings of the
//! session ([`crate::queues`]), and its requests run on a physical queue that it shares
//! with others: an RC queue pair to the peer if there is one, else a stream of a DC
//! initiator (krcore §4.3, §4.4). Messages always go by DC, on a stream of the VQP's own: a
//! receiver without buffers holds its stream up, and must not hold up others.
//!
//! Which of them it is, the pool decides, and may change at any time ([`moves`]).
//!
//! One that is not connected has a VQP of its own for each peer ([`branches`]).
//!
//! Lock order, outermost first: `branches`; `submitter`; the stream's or a set of contexts;
//! the locks of `queues`; `Senders::table`. `Vqp::queue` is held alone.

mod branches;
mod moves;
mod receive;
mod run;
mod senders;
mod submit;

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::Receiver;
use weft_core::dc::{Completion, OpKind};
use weft_core::uapi::{self, Wc, WcStatus, SEND_PRIVATE, SEND_SIGNALED, WC_BY_RC, WC_PRIVATE};
use weft_core::vqp::{Direct, InFlight, ReceiveUse};

use crate::counters::{Counted, COUNTERS};
use crate::dc::Requester;
use crate::errno;
use crate::peer::PeerStream;
use crate::quota::Held;
use crate::sync::{cpu, new_lock, FastLock, FastMutex, Once, NO_VERSION};

pub(crate) use branches::{Branches, OpenPeer};
pub(crate) use senders::{Sender, Senders};
pub(crate) use submit::{Source, Unsent};

/// A peer as VQPs use it, and what their requests to it go by.
pub(crate) type Peer = crate::peer::Peer<Vqp>;
pub(crate) type VqpStream = PeerStream<Vqp>;
pub(crate) type VqpQueue = crate::rc::RcQueue<Vqp>;
/// The queues that VQPs share.
pub(crate) type Queues = crate::queues::Queues<Vqp>;

/// Where a VQP's receive buffers come from.
pub(crate) type ReceiveQueue = (Arc<Queues>, ReceiveUse);

/// A VQP's connection to a peer.
struct Connection {
    peer: Arc<Peer>,
    /// The receiver of its messages; `None`: it may not send any.
    to: Option<Receiver>,
    /// Carries requests by DC; made when the first one is posted.
    stream: Once<Arc<VqpStream>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let (Some(_), Some(stream)) = (self.to, self.stream.get()) {
            // It was ours alone.
            self.peer.close(stream);
        }
        self.peer.route().part();
    }
}

/// The session and the user that own a VQP.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    /// The session, whose memory its requests may use.
    pub(crate) session: u64,
    /// The user, with whose other VQPs it shares streams.
    pub(crate) user: u32,
}

/// A new VQP's description.
pub(crate) struct VqpConfig {
    /// Names it to targets.
    pub(crate) flow: u32,
    pub(crate) owner: Owner,
    /// Where its completions go.
    pub(crate) cq: Arc<Queues>,
    /// Where its receive buffers come from, if it receives, and whether other VQPs' do.
    pub(crate) rq: Option<ReceiveQueue>,
    /// Requests that may be outstanding.
    pub(crate) max_send_wr: u32,
    /// It is to be an unconnected one.
    pub(crate) is_unconnected: bool,
    /// Its place among the VQPs that its user may have.
    pub(crate) held: Held,
}

/// A virtual queue pair.
#[pin_data]
pub(crate) struct Vqp {
    /// Set when the session takes it in.
    handle: AtomicU32,
    flow: u32,
    owner: Owner,
    /// A request has failed. Set under the stream's lock, so that what is posted
    /// after the failure sees it.
    failed: AtomicBool,
    /// A request is posted by RC piece by piece.
    being_cut: AtomicBool,
    /// A request named a region that the peer has no room to show for RC: requests
    /// go by DC from then on.
    only_dc: AtomicBool,
    /// Requests go by RC now.
    by_rc: AtomicBool,
    /// It was destroyed: nothing lands in its receive buffers any more, and nobody hears of
    /// its requests.
    deaf: AtomicBool,
    /// A branch that its VQP has let go of: another one takes its place. Set under
    /// `submitter`, so that nothing is posted here afterwards.
    is_retired: AtomicBool,
    /// Softirqs that copy into them.
    landing: AtomicU32,
    in_flight: InFlight,
    connection: Once<Connection>,
    /// Carries requests by RC, if they go by RC now. It stands here because
    /// `qconnect` has no time to allocate.
    #[pin]
    queue: FastLock<Option<Arc<VqpQueue>>>,
    /// It has left RC for requests that cannot go by it.
    has_left: AtomicBool,
    /// What has been decided of its route so far ([`crate::pool::Route::version`]).
    route_seen: AtomicU32,
    /// The number of the RC queue pair to its peer that it takes, if there are several.
    lane: AtomicU8,
    /// Requests are not held before that for others to pass.
    held_until_ns: AtomicU64,
    /// Of a VQP that is bound to a port.
    bound: Once<Pin<KBox<Senders>>>,
    /// Of one that is not connected.
    branches: Option<Pin<KBox<Branches>>>,
    /// The peer that it is the branch for, as users know it; else nobody.
    branch_to: u32,
    cq: Arc<Queues>,
    /// Where its receive buffers come from, and whether other VQPs' do.
    rq: Option<ReceiveQueue>,
    /// The thread that submits requests has a reference to `queue`'s to go on with: taking
    /// one costs more than having it. `None`: it has to be taken.
    #[pin]
    submitter: FastMutex<Option<Arc<VqpQueue>>>,
    /// The request that its process waits for without a completion (`IOC_RUN`).
    direct: Direct,
    /// Its place among the VQPs that its user may have.
    held: Held,
    _count: Counted,
}

impl Vqp {
    /// A VQP of a session.
    pub(crate) fn new(config: VqpConfig) -> Result<Arc<Self>> {
        let branches = match config.is_unconnected {
            true => Some(Branches::new()?),
            false => None,
        };
        Self::with(config, branches, uapi::SRC_NONE)
    }

    fn with(
        config: VqpConfig,
        branches: Option<Pin<KBox<Branches>>>,
        branch_to: u32,
    ) -> Result<Arc<Self>> {
        let VqpConfig {
            flow,
            owner,
            cq,
            rq,
            max_send_wr,
            is_unconnected: _,
            held,
        } = config;
        Arc::pin_init(
            pin_init!(Self {
                handle: AtomicU32::new(0),
                flow,
                owner,
                failed: AtomicBool::new(false),
                being_cut: AtomicBool::new(false),
                only_dc: AtomicBool::new(false),
                by_rc: AtomicBool::new(false),
                deaf: AtomicBool::new(false),
                is_retired: AtomicBool::new(false),
                landing: AtomicU32::new(0),
                in_flight: InFlight::new(max_send_wr),
                connection: Once::new(),
                queue <- new_lock!(None, "weft_vqp_queue"),
                has_left: AtomicBool::new(false),
                route_seen: AtomicU32::new(NO_VERSION),
                lane: AtomicU8::new(0),
                held_until_ns: AtomicU64::new(0),
                bound: Once::new(),
                branches,
                branch_to,
                cq,
                rq,
                submitter <- new_lock!(None, "weft_vqp_submitter"),
                direct: Direct::new(),
                held,
                _count: Counted::one(&COUNTERS.vqps),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Tells it its handle in the session.
    pub(crate) fn set_handle(&self, handle: u32) {
        self.handle.store(handle, Ordering::Relaxed);
    }

    fn handle(&self) -> u32 {
        self.handle.load(Ordering::Relaxed)
    }

    /// The name by which targets know it, and by which messages reach it.
    pub(crate) fn flow(&self) -> u32 {
        self.flow
    }

    /// Where its completions go.
    pub(crate) fn cq(&self) -> &Arc<Queues> {
        &self.cq
    }

    /// Where its receive buffers come from, if it receives, and whether other VQPs' do.
    pub(crate) fn rq(&self) -> Option<&ReceiveQueue> {
        self.rq.as_ref()
    }

    /// Whether it is connected, or never can be.
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.get().is_some() || self.branches.is_some()
    }

    /// Connects it to a peer, and its messages to a receiver there.
    ///
    /// # Errors
    ///
    /// `EISCONN`; `EINVAL` (it is bound to a port, or an unconnected one).
    #[inline]
    pub(crate) fn connect(&self, peer: Arc<Peer>, to: Option<Receiver>) -> Result {
        if self.bound.get().is_some() || self.branches.is_some() {
            return Err(EINVAL);
        }
        let connection = Connection::new(peer, to);
        if self.connection.set(connection) {
            Ok(())
        } else {
            Err(errno::is_conn())
        }
    }

    /// Requests that have not ended.
    fn under_way(&self) -> u32 {
        self.in_flight.count() + u32::from(self.direct.is_under_way())
    }

    /// Whether a request would be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight.has_room() && self.cq.has_room()
    }

    /// Hands back the buffers that were posted for it, if it has a receive ring of its own.
    fn fail_receives(&self) {
        if let Some((queues, ReceiveUse::Own)) = &self.rq {
            queues.fail_receives(self.handle(), || self.is_deaf());
        }
    }

    /// Whether it was destroyed, so that nobody hears of it any more.
    fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::SeqCst)
    }

    /// A completion of this VQP.
    fn wc(&self, wr_id: u64, status: WcStatus, opcode: u16) -> Wc {
        Wc {
            wr_id,
            status: status as u16,
            opcode,
            flags: 0,
            byte_len: 0,
            vqp: self.handle(),
            imm: 0,
            src: self.branch_to,
        }
    }

    /// The `WC_*` flags of the completion of a request with these flags.
    fn wc_flags(&self, flags: u8) -> u32 {
        let private = match flags & SEND_PRIVATE {
            0 => 0,
            _ => WC_PRIVATE,
        };
        let by_rc = match self.by_rc.load(Ordering::Relaxed) {
            true => WC_BY_RC,
            false => 0,
        };
        private | by_rc
    }
}

/// The opcode of the request that has ended.
fn opcode(completion: &Completion) -> u16 {
    let opcode = match (completion.kind, completion.with_imm) {
        (OpKind::Read, _) => uapi::OP_READ,
        (OpKind::Write, false) => uapi::OP_WRITE,
        (OpKind::Write, true) => uapi::OP_WRITE_WITH_IMM,
        (OpKind::Send, false) => uapi::OP_SEND,
        (OpKind::Send, true) => uapi::OP_SEND_WITH_IMM,
        (OpKind::CompareSwap, _) => uapi::OP_CAS,
        (OpKind::FetchAdd, _) => uapi::OP_FAA,
    };
    u16::from(opcode)
}

impl Connection {
    #[inline]
    fn new(peer: Arc<Peer>, to: Option<Receiver>) -> Self {
        peer.route().join();
        Self {
            peer,
            to,
            stream: Once::new(),
        }
    }

    /// The stream that requests go to by DC. The submitter's lock is held.
    fn stream(&self, user: u32) -> Result<&Arc<VqpStream>> {
        if self.stream.get().is_none() {
            self.stream.set(match self.to {
                None => self.peer.stream(user, cpu())?,
                Some(_) => self.peer.own_stream(user)?,
            });
        }
        self.stream.get().ok_or(EAGAIN)
    }
}

impl Vqp {
    /// The RC queue that requests go to now; `None`: they go by DC.
    fn queue(&self) -> Option<Arc<VqpQueue>> {
        self.queue.lock().clone()
    }

    /// Changes what carries requests. With none on its way, and the submitter's lock
    /// held.
    fn go_by(&self, queue: Option<Arc<VqpQueue>>) {
        self.by_rc.store(queue.is_some(), Ordering::Relaxed);
        let before = core::mem::replace(&mut *self.queue.lock(), queue.clone());
        if let Some(before) = before {
            self.cq.leaves(&before);
        }
        if let Some(queue) = queue {
            self.cq.goes_by(queue);
        }
    }
}

impl Requester for Vqp {
    fn user(&self) -> u32 {
        self.owner.user
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    fn is_being_cut(&self) -> bool {
        self.being_cut.load(Ordering::Relaxed)
    }

    fn set_being_cut(&self, is_being_cut: bool) {
        self.being_cut.store(is_being_cut, Ordering::Relaxed);
    }

    fn answered(&self, status: WcStatus) {
        if status != WcStatus::Success {
            self.failed.store(true, Ordering::Relaxed);
            self.fail_receives();
        }
        self.direct.end(status);
        self.cq.done().notify();
    }

    fn completed(&self, completion: &Completion, flags: u8) {
        let ok = completion.status == WcStatus::Success;
        if !ok {
            self.failed.store(true, Ordering::Relaxed);
        }
        let is_shown = !ok || flags & SEND_SIGNALED != 0;
        let wc = is_shown.then(|| Wc {
            byte_len: if ok { completion.len } else { 0 },
            flags: self.wc_flags(flags),
            ..self.wc(completion.cookie, completion.status, opcode(completion))
        });
        self.cq.complete(wc.as_ref(), || self.is_deaf());
        self.in_flight.end(1);
        if !ok {
            // As of any queue pair in error, what was posted to receive comes back.
            self.fail_receives();
        }
        self.cq.notify();
    }
}
