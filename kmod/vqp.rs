// SPDX-License-Identifier: GPL-2.0

//! Virtual queue pairs: what a session owns and connects. A VQP is software
//! alone; its requests run on a stream of a DC initiator that it shares with
//! others (krcore §4.3, §4.4).
//!
//! Lock order, outermost first: `reaper`, the stream's, `inner`.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::dc::wire::Operands;
use weft_core::dc::{Completion, Op, OpKind};
use weft_core::uapi::{self, Pod, SendWr, Wc};
use weft_core::vqp::SendQueue;

use crate::clock::now_ns;
use crate::counters::{Counted, COUNTERS};
use crate::dc::{Entry, Requester};
use crate::errno;
use crate::peer::{Peer, VqpStream};
use crate::rc::{self, Attending, RcQueue};
use crate::sync::{cpu, new_lock, BhLock, EventCount, Once, Woken};
use crate::user;

/// Requests copied and posted at a time.
const POST_BATCH: usize = 16;
/// Completions handed out at a time.
const REAP_BATCH: usize = 16;
/// How long a submission waits for room on the stream, whose requests all end
/// within a second.
const ROOM_WAIT_NS: u64 = 1_000_000_000;
/// How long a waiter looks for a completion before it sleeps.
const SPIN_NS: u64 = 20_000;

/// What a VQP is connected to.
struct Connection {
    peer: Arc<Peer>,
    /// Chosen when it is first used.
    path: Once<Path>,
}

/// What requests run on.
enum Path {
    /// The stream of the CPU on which the VQP was first used.
    Dc(Arc<VqpStream>),
    /// The RC queue pair to the peer.
    Rc(Arc<RcQueue<Vqp>>),
}

impl Path {
    fn post(&self, vqp: &Arc<Vqp>, entries: &[Entry]) -> usize {
        match self {
            Self::Dc(stream) => stream.post(vqp, entries),
            Self::Rc(queue) => queue.post(vqp, entries),
        }
    }

    fn room_seen(&self) -> u32 {
        match self {
            Self::Dc(stream) => stream.room().seen(),
            Self::Rc(queue) => queue.room_seen(),
        }
    }

    fn wait_for_room(&self, seen: u32) -> Woken {
        match self {
            Self::Dc(stream) => stream.room().wait(seen, ROOM_WAIT_NS, true),
            Self::Rc(queue) => queue.wait_for_room(seen, ROOM_WAIT_NS, true),
        }
    }
}

/// # Invariants
///
/// `cq` has as many places as `queue`; the completions that were not taken are in
/// the `queue.unreaped()` places from `head` on, in a circle.
struct Inner {
    queue: SendQueue,
    cq: KVec<Wc>,
    head: usize,
}

/// A virtual queue pair.
#[pin_data]
pub(crate) struct Vqp {
    /// Set when the session takes it in.
    handle: AtomicU32,
    flow: u32,
    owner: u32,
    /// A request has failed. Set under the stream's lock, so that what is posted
    /// after the failure sees it.
    failed: AtomicBool,
    connection: Once<Connection>,
    #[pin]
    inner: BhLock<Inner>,
    #[pin]
    reaper: Mutex<()>,
    /// Counts completions.
    #[pin]
    done: EventCount,
    _count: Counted,
}

/// What [`Vqp::enter`] has done.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entered {
    /// Requests taken.
    pub(crate) submitted: u32,
    /// Completions written.
    pub(crate) completed: u32,
}

impl Vqp {
    /// A VQP of session `owner` with room for `capacity` requests. `flow` names
    /// it to targets.
    pub(crate) fn new(flow: u32, owner: u32, capacity: u32) -> Result<Arc<Self>> {
        let cq = KVec::from_elem(Wc::zeroed(), capacity as usize, GFP_KERNEL)?;
        let inner = Inner {
            queue: SendQueue::new(capacity),
            cq,
            head: 0,
        };
        Arc::pin_init(
            pin_init!(Self {
                handle: AtomicU32::new(0),
                flow,
                owner,
                failed: AtomicBool::new(false),
                connection: Once::new(),
                inner <- new_lock!(inner, "weft_vqp"),
                reaper <- kernel::new_mutex!((), "weft_vqp_reaper"),
                done <- EventCount::new(),
                _count: Counted::one(&COUNTERS.vqps),
            }),
            GFP_KERNEL,
        )
    }

    /// Tells it its handle in the session.
    pub(crate) fn set_handle(&self, handle: u32) {
        self.handle.store(handle, Ordering::Relaxed);
    }

    /// Whether it is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.get().is_some()
    }

    /// Connects it to a peer.
    ///
    /// # Errors
    ///
    /// `EISCONN`.
    pub(crate) fn connect(&self, peer: Arc<Peer>) -> Result {
        let connection = Connection {
            peer,
            path: Once::new(),
        };
        if self.connection.set(connection) {
            Ok(())
        } else {
            Err(errno::is_conn())
        }
    }

    /// What requests run on.
    fn path(&self) -> Result<&Path> {
        let connection = self.connection.get().ok_or_else(errno::not_conn)?;
        if let Some(path) = connection.path.get() {
            return Ok(path);
        }
        let path = match connection.peer.rc_queue() {
            Some(queue) => Path::Rc(queue),
            None => Path::Dc(connection.peer.stream(cpu())?),
        };
        // Whoever comes second takes what the first has chosen.
        connection.path.set(path);
        connection.path.get().ok_or(EAGAIN)
    }

    /// The RC queue pair that requests run on, if it is one.
    fn rc(&self) -> Option<&RcQueue<Self>> {
        match self.connection.get()?.path.get()? {
            Path::Rc(queue) => Some(queue),
            Path::Dc(_) => None,
        }
    }

    /// Submits, waits and reaps: [`uapi::IOC_ENTER`].
    pub(crate) fn enter(self: &Arc<Self>, request: &uapi::Enter) -> Result<Entered> {
        if request.wr_count > uapi::MAX_BATCH || request.wc_min > request.wc_max {
            return Err(EINVAL);
        }
        let mut entered = Entered::default();
        let mut outcome = Ok(());
        if request.wr_count != 0 {
            self.path()?;
        }
        // Before posting: then completions need no event.
        let attending = self.rc().map(RcQueue::attend);
        if request.wr_count != 0 {
            outcome = self.submit(request, &mut entered.submitted);
        }
        // A full queue is a reason to reap, not to give up.
        if request.wc_max != 0 && outcome.map_or_else(|error| error == ENOSPC, |()| true) {
            outcome = self
                .reap_or_wait(request, &mut entered.completed, attending)
                .and(outcome);
        }
        // What was done is reported; the reason why no more was done comes back
        // with the next call.
        match outcome {
            Err(error) if entered.submitted == 0 && entered.completed == 0 => Err(error),
            _ => Ok(entered),
        }
    }

    fn submit(self: &Arc<Self>, request: &uapi::Enter, submitted: &mut u32) -> Result {
        let path = self.path()?;
        while *submitted < request.wr_count {
            let wanted = (request.wr_count - *submitted).min(POST_BATCH as u32);
            let places = self.inner.lock().queue.admit(wanted);
            if places == 0 {
                return Err(ENOSPC);
            }
            let seen = path.room_seen();
            let taken = match self.read_entries(request.wrs, *submitted, places) {
                Ok(entries) => {
                    path.post(self, entries.get(..places as usize).unwrap_or(&[])) as u32
                }
                Err(error) => {
                    self.inner.lock().queue.withdraw(places);
                    return Err(error);
                }
            };
            *submitted += taken;
            if taken < places {
                self.inner.lock().queue.withdraw(places - taken);
                if path.wait_for_room(seen) != Woken::Event {
                    return Err(EINTR);
                }
            }
        }
        Ok(())
    }

    /// Copies `count` requests from the user, once, and judges the copies.
    fn read_entries(&self, wrs: u64, from: u32, count: u32) -> Result<[Entry; POST_BATCH]> {
        const WR_BYTES: u64 = size_of::<SendWr>() as u64;
        let mut entries = [const { Entry::EMPTY }; POST_BATCH];
        for (index, entry) in (u64::from(from)..).zip(entries.iter_mut().take(count as usize)) {
            let addr = wrs.checked_add(index * WR_BYTES).ok_or(EFAULT)?;
            *entry = self.entry(&user::read(addr)?);
        }
        Ok(entries)
    }

    fn entry(&self, wr: &SendWr) -> Entry {
        // What is none of these, `check` refuses.
        let kind = match wr.opcode {
            uapi::OP_READ => OpKind::Read,
            uapi::OP_CAS => OpKind::CompareSwap,
            uapi::OP_FAA => OpKind::FetchAdd,
            _ => OpKind::Write,
        };
        Entry {
            op: Op {
                cookie: wr.wr_id,
                flow: self.flow,
                owner: self.owner,
                kind,
                lkey: wr.lkey,
                local_addr: wr.local_addr,
                rkey: wr.rkey,
                len: wr.len,
                remote_addr: wr.remote_addr,
                operands: Operands {
                    compare_add: wr.compare_add,
                    swap: wr.swap,
                },
            },
            signaled: wr.flags & uapi::SEND_SIGNALED != 0,
            failed: weft_core::vqp::check(wr).err(),
        }
    }

    fn reap_or_wait(
        &self,
        request: &uapi::Enter,
        completed: &mut u32,
        mut attending: Option<Attending<'_, Self>>,
    ) -> Result {
        let start_ns = now_ns();
        let timeout_ns = request.timeout_ns.min(uapi::MAX_WAIT_NS);
        loop {
            let seen = self.done.seen();
            if let Some(queue) = self.rc() {
                queue.poll();
            }
            self.reap(request, completed)?;
            let waited_ns = now_ns().saturating_sub(start_ns);
            if *completed >= request.wc_min || waited_ns >= timeout_ns {
                return Ok(());
            }
            let left_ns = timeout_ns - waited_ns;
            if let Some(polling) = attending.as_ref().filter(|_| waited_ns < rc::SPIN_NS) {
                polling.spin(&self.done, seen, left_ns.min(rc::SPIN_NS));
                continue;
            }
            // From here on the queue calls.
            drop(attending.take());
            if waited_ns < SPIN_NS {
                self.spin(seen, left_ns.min(SPIN_NS));
                continue;
            }
            if self.done.wait(seen, left_ns, true) == Woken::Signal {
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

    /// Hands completions to the user. They are taken out only after they have
    /// been copied: a wild pointer loses nothing.
    fn reap(&self, request: &uapi::Enter, completed: &mut u32) -> Result {
        let _reaper = self.reaper.lock();
        while *completed < request.wc_max {
            let mut batch = [Wc::zeroed(); REAP_BATCH];
            let room = (request.wc_max - *completed).min(REAP_BATCH as u32);
            let count = self.inner.lock().peek(&mut batch, room);
            if count == 0 {
                break;
            }
            let offset = u64::from(*completed) * size_of::<Wc>() as u64;
            let to = request.wcs.checked_add(offset).ok_or(EFAULT)?;
            for (i, wc) in batch.iter().enumerate().take(count as usize) {
                user::write(
                    to.checked_add((i * size_of::<Wc>()) as u64).ok_or(EFAULT)?,
                    wc,
                )?;
            }
            self.inner.lock().pop(count);
            *completed += count;
        }
        Ok(())
    }
}

impl Inner {
    fn push(&mut self, wc: Wc) {
        // INVARIANT: `SendQueue::complete` has just counted it, and there are as
        // many places as it may count.
        let places = self.cq.len();
        let place = (self.head + self.queue.unreaped() as usize).wrapping_sub(1) % places.max(1);
        if let Some(slot) = self.cq.get_mut(place) {
            *slot = wc;
        }
    }

    fn peek(&self, batch: &mut [Wc; REAP_BATCH], room: u32) -> u32 {
        let count = self.queue.unreaped().min(room);
        let places = self.cq.len().max(1);
        for (i, slot) in batch.iter_mut().enumerate().take(count as usize) {
            if let Some(wc) = self.cq.get((self.head + i) % places) {
                *slot = *wc;
            }
        }
        count
    }

    fn pop(&mut self, count: u32) {
        self.queue.reap(count);
        // INVARIANT: the head moves with the count.
        self.head = (self.head + count as usize) % self.cq.len().max(1);
    }
}

impl Requester for Vqp {
    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    fn completed(&self, completion: &Completion, signaled: bool) {
        if completion.status != uapi::WcStatus::Success {
            self.failed.store(true, Ordering::Relaxed);
        }
        let mut inner = self.inner.lock();
        if inner.queue.complete(signaled, completion.status) {
            let ok = completion.status == uapi::WcStatus::Success;
            let opcode = match completion.kind {
                OpKind::Read => uapi::OP_READ,
                OpKind::Write => uapi::OP_WRITE,
                OpKind::CompareSwap => uapi::OP_CAS,
                OpKind::FetchAdd => uapi::OP_FAA,
            };
            inner.push(Wc {
                wr_id: completion.cookie,
                status: completion.status as u32,
                opcode: u32::from(opcode),
                byte_len: if ok { completion.len } else { 0 },
                vqp: self.handle.load(Ordering::Relaxed),
                reserved: 0,
            });
        }
        drop(inner);
        self.done.notify();
    }
}
