// SPDX-License-Identifier: GPL-2.0

//! Virtual queue pairs: what a session owns and connects. A VQP is software
//! alone; its requests run on a physical queue that it shares with others: an RC
//! queue pair to the peer if there is one, else a stream of a DC initiator (krcore
//! §4.3, §4.4). Messages always go by DC, on a stream of the VQP's own: a receiver
//! without buffers holds its stream up, and must not hold up others.
//!
//! A VQP changes from one to the other only while none of its requests is on its
//! way. So requests stay in order.
//!
//! Lock order, outermost first: `submitter`; the stream's or a set of contexts;
//! `queues`; `Senders::table`. `Vqp::queue` is held alone.

mod receive;
mod run;
mod senders;
mod submit;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;
use weft_core::dc::wire::Receiver;
use weft_core::dc::{Completion, OpKind};
use weft_core::uapi::{self, VqpCreate, Wc, WcStatus};
use weft_core::vqp::{Direct, Queues};

use crate::counters::{Counted, COUNTERS};
use crate::dc::Requester;
use crate::errno;
use crate::peer::{Peer, VqpQueue, VqpStream};
use crate::quota::Held;
use crate::rings::{Arena, Rings};
use crate::sync::{
    cpu, new_event_count, new_lock, BhLock, EventCount, FastLock, FastMutex, Once, PollQueue,
};

pub(crate) use senders::{Sender, Senders};

/// What a VQP is connected to.
struct Connection {
    peer: Arc<Peer>,
    /// Who gets its messages, if it may send any.
    to: Option<Receiver>,
    /// What carries requests by DC; made when the first one is posted.
    stream: Once<Arc<VqpStream>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let (Some(_), Some(stream)) = (self.to, self.stream.get()) {
            // It was ours alone.
            self.peer.close(stream);
        }
    }
}

/// Whose a VQP is.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    /// The session, whose memory its requests may use.
    pub(crate) session: u64,
    /// The user, with whose other VQPs it shares streams.
    pub(crate) user: u32,
}

/// What the thread that submits needs.
struct Submitter {
    /// Index of the next request to copy.
    head: u32,
    /// A reference to `Vqp::queue`'s to go on with: taking one costs more than
    /// having it. `None`: it has to be taken.
    queue: Option<Arc<VqpQueue>>,
}

impl Submitter {
    const NEW: Self = Self {
        head: 0,
        queue: None,
    };
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
    connection: Once<Connection>,
    /// What carries requests by RC, if that is what they go by now. Here, because
    /// `qconnect` has no time to allocate.
    #[pin]
    queue: FastLock<Option<Arc<VqpQueue>>>,
    /// It was destroyed: nothing lands in its receive buffers any more.
    deaf: AtomicBool,
    /// Softirqs that copy into them.
    landing: AtomicU32,
    /// Of a VQP that is bound to a port.
    bound: Once<Pin<KBox<Senders>>>,
    rings: Rings,
    #[pin]
    queues: BhLock<Queues>,
    #[pin]
    submitter: FastMutex<Submitter>,
    /// What its process waits for without a completion.
    direct: Direct,
    /// Counts the requests that have ended, and messages.
    #[pin]
    done: EventCount,
    /// The session's pollers.
    pollers: Arc<PollQueue>,
    _held: Held,
    _count: Counted,
}

impl Vqp {
    /// A VQP. `flow` names it to targets.
    pub(crate) fn new(
        flow: u32,
        owner: Owner,
        held: Held,
        arena: &Arc<Arena>,
        pollers: Arc<PollQueue>,
        request: &VqpCreate,
    ) -> Result<Arc<Self>> {
        let (sends, recvs) = (request.max_send_wr, request.max_recv_wr);
        let rings = Rings::new(arena, sends, recvs)?;
        Arc::pin_init(
            pin_init!(Self {
                handle: AtomicU32::new(0),
                flow,
                owner,
                failed: AtomicBool::new(false),
                being_cut: AtomicBool::new(false),
                only_dc: AtomicBool::new(false),
                connection: Once::new(),
                queue <- new_lock!(None, "weft_vqp_queue"),
                deaf: AtomicBool::new(false),
                landing: AtomicU32::new(0),
                bound: Once::new(),
                rings,
                queues <- new_lock!(Queues::new(sends, recvs), "weft_vqp"),
                submitter <- new_lock!(Submitter::NEW, "weft_vqp_submitter"),
                direct: Direct::new(),
                done <- new_event_count!("weft_vqp_done"),
                pollers,
                _held: held,
                _count: Counted::one(&COUNTERS.vqps),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Tells it its handle in the session.
    pub(crate) fn set_handle(&self, handle: u32) {
        self.handle.store(handle, Ordering::Relaxed);
    }

    /// The name by which targets know it, and by which messages reach it.
    pub(crate) fn flow(&self) -> u32 {
        self.flow
    }

    /// What it shares with its process.
    pub(crate) fn rings(&self) -> &Rings {
        &self.rings
    }

    /// Whether it is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.get().is_some()
    }

    /// Connects it to a peer, and its messages to a receiver there.
    ///
    /// # Errors
    ///
    /// `EISCONN`; `EINVAL` (it is bound to a port).
    #[inline]
    pub(crate) fn connect(&self, peer: Arc<Peer>, to: Option<Receiver>) -> Result {
        if self.bound.get().is_some() {
            return Err(EINVAL);
        }
        let connection = Connection {
            peer,
            to,
            stream: Once::new(),
        };
        if self.connection.set(connection) {
            Ok(())
        } else {
            Err(errno::is_conn())
        }
    }

    /// Requests that have not ended.
    fn in_flight(&self) -> u32 {
        self.queues.lock().in_flight() + u32::from(self.direct.is_under_way())
    }

    /// Whether a request would be taken.
    fn has_room(&self) -> bool {
        let mut queues = self.queues.lock();
        queues.reaped_to(self.rings.cq_head());
        queues.has_room()
    }

    /// Wakes those who wait for completions.
    #[inline]
    fn notify(&self) {
        self.done.notify();
        // The counter's locked instruction is the barrier that pollers need.
        self.pollers.notify();
    }

    /// Whether there are completions that the user says that it has not taken.
    pub(crate) fn has_completions(&self) -> bool {
        self.rings.unreaped() != 0
    }

    /// The same of a VQP in error: receive buffers that were posted since come back.
    pub(crate) fn has_completions_in_error(&self) -> bool {
        self.flush_receives(&mut self.queues.lock(), WcStatus::WrFlushErr);
        self.has_completions()
    }

    /// Whether it is in error.
    pub(crate) fn is_in_error(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// A completion of this VQP.
    fn wc(&self, wr_id: u64, status: WcStatus, opcode: u16) -> Wc {
        Wc {
            wr_id,
            status: status as u16,
            opcode,
            flags: 0,
            byte_len: 0,
            vqp: self.handle.load(Ordering::Relaxed),
            imm: 0,
            src: uapi::SRC_NONE,
        }
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
    /// The stream that requests go to by DC. The submitter's lock is held.
    fn stream(&self, user: u32) -> Result<&VqpStream> {
        if self.stream.get().is_none() {
            self.stream.set(match self.to {
                None => self.peer.stream(user, cpu())?,
                Some(_) => self.peer.own_stream(user)?,
            });
        }
        self.stream.get().map(|stream| &**stream).ok_or(EAGAIN)
    }
}

impl Vqp {
    /// What requests go to by RC now; `None`: they go by DC.
    fn queue(&self) -> Option<Arc<VqpQueue>> {
        self.queue.lock().clone()
    }

    /// What requests go to by RC from now on. It changes only while none is on its
    /// way.
    #[inline]
    fn choose(&self, submitter: &mut Submitter, peer: &Peer) -> Option<Arc<VqpQueue>> {
        let current = submitter.queue.take().or_else(|| self.queue());
        let is_usable = current.as_ref().is_some_and(|queue| queue.is_usable());
        if is_usable || self.in_flight() != 0 {
            return current;
        }
        let is_barred = self.only_dc.load(Ordering::Relaxed);
        let chosen = if is_barred {
            None
        } else {
            peer.rc_queue(self.owner.user)
        };
        if current.is_some() || chosen.is_some() {
            self.go_by(chosen.clone());
        }
        chosen
    }

    /// Changes what carries requests. With none on its way, and the submitter's lock
    /// held.
    fn go_by(&self, queue: Option<Arc<VqpQueue>>) {
        self.rings.set_by_rc(queue.is_some());
        let before = core::mem::replace(&mut *self.queue.lock(), queue);
        drop(before);
    }
}

impl Requester for Vqp {
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
            self.flush_receives(&mut self.queues.lock(), WcStatus::WrFlushErr);
        }
        self.direct.end(status);
        self.done.notify();
    }

    fn completed(&self, completion: &Completion, signaled: bool) {
        let ok = completion.status == WcStatus::Success;
        let mut queues = self.queues.lock();
        if let Some(index) = queues.complete(signaled, completion.status) {
            let wc = Wc {
                byte_len: if ok { completion.len } else { 0 },
                ..self.wc(completion.cookie, completion.status, opcode(completion))
            };
            self.rings.push(index, &wc);
        }
        if !ok {
            self.failed.store(true, Ordering::Relaxed);
            // As of any queue pair in error, what was posted to receive comes back.
            self.flush_receives(&mut queues, WcStatus::WrFlushErr);
        }
        drop(queues);
        self.notify();
    }
}
