// SPDX-License-Identifier: GPL-2.0

//! RC queue pairs to peers (krcore §4.2, §4.4): a node's part of the hybrid pool
//! that is not DC. They are made in the background, never on a caller's path.
//!
//! ```text
//! begin() ── offer ──> peer's accept() ── answer ──> finish() ── first message ──> peer is up
//! ```
//!
//! Offer and answer travel as letters of the nodes (`dc::Inbox`), and so do those
//! about regions that go.
//!
//! Lock order: `wants`, `links`; `hardware` is held alone. None of them is held
//! while a queue is ended.

mod chain;
mod control;
mod link;
mod long;
mod one;
mod post;
mod queue;
mod register;
mod revoke;
mod slots;

use core::sync::atomic::Ordering;

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use weft_core::gid::Gid;
use weft_core::mr::NOTICE_BYTES;
use weft_core::rc::{Hello, Role, HELLO_BYTES};
use weft_core::uapi::WcStatus;

use crate::bindings;
use crate::clock::now_ns;
use crate::dc::Requester;
use crate::mem::{MrTable, RcUse};
use crate::rdma::{Pd, Port};
use crate::sync::{new_lock, new_periodic, FastLock, Once, Periodic, Routine};
use crate::text::Shown;

use link::{Hardware, Opening};
pub(crate) use one::One;
pub(crate) use post::Posted;
pub(crate) use queue::{Attending, RcQueue, LONGEST_SPIN_NS, SPIN_NS};

/// RC queue pairs of a node, and peers that it wants to have one to.
const MAX_LINKS: usize = 64;
/// How often links are looked at, and wanted ones tried.
const TICK_MS: u32 = 1000;
/// Looks at a link that its peer does not complete before it is given up.
const MAX_LOOKS: u32 = 5;

/// An offer or an answer.
pub(crate) type HelloBytes = [u8; HELLO_BYTES];
/// A letter about regions that go.
pub(crate) type NoticeBytes = [u8; NOTICE_BYTES];

/// Carries offers and other letters.
pub(crate) trait Exchange: Sync {
    /// Carries an offer to a peer and brings the answer. May sleep for seconds.
    fn exchange(&self, to: &Gid, offer: &HelloBytes) -> Result<HelloBytes>;

    /// Carries a letter to a peer, perhaps. May sleep.
    fn tell(&self, to: &Gid, letter: &NoticeBytes) -> Result;
}

/// Who carries letters, without its type.
///
/// # Invariants
///
/// `exchange` and `tell` take `carrier`, which is valid until [`Rc::stop`] has
/// returned.
struct Carrier {
    carrier: *const (),
    exchange: unsafe fn(*const (), &Gid, &HelloBytes) -> Result<HelloBytes>,
    tell: unsafe fn(*const (), &Gid, &NoticeBytes) -> Result,
}

// SAFETY: a carrier is `Sync`.
unsafe impl Send for Carrier {}
// SAFETY: as above.
unsafe impl Sync for Carrier {}

struct Link<R: Requester> {
    queue: Arc<RcQueue<R>>,
    /// Looks at it while it was not up.
    looks: u32,
}

struct Want {
    gid: Gid,
    pinned: bool,
    opening: bool,
    retry_ns: u64,
}

/// A node's RC side.
#[pin_data]
pub(crate) struct Rc<R: Requester> {
    gid: Gid,
    mrs: Arc<MrTable>,
    carrier: Once<Carrier>,
    /// `None` where the device cannot do it, and once it goes.
    #[pin]
    hardware: Mutex<Option<Hardware>>,
    /// Room for all is made at the start.
    #[pin]
    links: FastLock<KVec<Link<R>>>,
    #[pin]
    wants: FastLock<KVec<Want>>,
    #[pin]
    work: Periodic<Self>,
    /// Writes and answers letters about regions that go.
    #[pin]
    crier: Periodic<Self, 1>,
}

/// Whether every peer that is used is to get an RC queue pair (`pool=rc`).
pub(crate) fn is_default() -> bool {
    // SAFETY: the parameter is a C string that no longer changes.
    let text = unsafe { CStr::from_char_ptr(bindings::weft_param_pool()) };
    text.to_bytes().trim_ascii_end() == b"rc"
}

/// Judges the `pool` parameter.
///
/// # Errors
///
/// `EINVAL`: it is neither `dc` nor `rc`.
pub(crate) fn check_parameter() -> Result {
    // SAFETY: as above.
    let text = unsafe { CStr::from_char_ptr(bindings::weft_param_pool()) };
    if is_default() || text.to_bytes().trim_ascii_end() == b"dc" {
        return Ok(());
    }
    pr_err!("pool={text:?}: it has to be dc or rc\n");
    Err(EINVAL)
}

impl<R: Requester> Rc<R> {
    /// The RC side of a node whose regions are in `mrs`.
    pub(crate) fn new(gid: Gid, port: Port, pd: Arc<Pd>, mrs: Arc<MrTable>) -> Result<Arc<Self>> {
        let is_possible = mrs.rc_use() != RcUse::NoFastRegistration;
        let hardware = is_possible.then_some(Hardware { port, pd });
        let links = KVec::with_capacity(MAX_LINKS, GFP_KERNEL)?;
        let wants = KVec::with_capacity(MAX_LINKS, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                gid,
                mrs,
                carrier: Once::new(),
                hardware <- kernel::new_mutex!(hardware, "weft_rc"),
                links <- new_lock!(links, "weft_rc_links"),
                wants <- new_lock!(wants, "weft_rc_wants"),
                work <- new_periodic!("weft_rc_work"),
                crier <- new_periodic!("weft_rc_notice_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lets queue pairs be made, with `carrier` to carry the offers.
    ///
    /// # Safety
    ///
    /// `carrier` is valid until [`Rc::stop`] has returned.
    pub(crate) unsafe fn start<T: Exchange>(&self, carrier: *const T) {
        /// # Safety
        ///
        /// `carrier` is a valid `T`.
        unsafe fn exchange<T: Exchange>(
            carrier: *const (),
            to: &Gid,
            offer: &HelloBytes,
        ) -> Result<HelloBytes> {
            // SAFETY: the caller's promise.
            unsafe { &*carrier.cast::<T>() }.exchange(to, offer)
        }
        /// # Safety
        ///
        /// `carrier` is a valid `T`.
        unsafe fn tell<T: Exchange>(carrier: *const (), to: &Gid, letter: &NoticeBytes) -> Result {
            // SAFETY: the caller's promise.
            unsafe { &*carrier.cast::<T>() }.tell(to, letter)
        }
        // INVARIANT: the caller's promise, and the types agree.
        self.carrier.set(Carrier {
            carrier: carrier.cast(),
            exchange: exchange::<T>,
            tell: tell::<T>,
        });
    }

    /// The queue to a peer, if there is one that can be used.
    fn queue(&self, gid: &Gid) -> Option<Arc<RcQueue<R>>> {
        let links = self.links.lock();
        let link = links
            .iter()
            .find(|link| link.queue.gid() == gid && link.queue.is_usable())?;
        Some(link.queue.clone())
    }

    /// The queue that a VQP to this peer is to use; `None`: DC. If RC is what peers
    /// get, one is made in the background.
    pub(crate) fn choose(&self, gid: &Gid) -> Option<Arc<RcQueue<R>>> {
        let queue = self.queue(gid);
        if queue.is_none() && is_default() && *gid != self.gid {
            // One too many is served by DC.
            let _ = self.add_want(gid, false);
        }
        queue
    }

    /// Keeps a queue to a peer, whether or not it is used.
    ///
    /// # Errors
    ///
    /// `EINVAL` (its own GID, or no IPv4 address), `EOPNOTSUPP` (the device cannot
    /// do it), `ENOSPC` (too many).
    pub(crate) fn pin(&self, gid: &Gid) -> Result {
        if *gid == self.gid || gid.to_ipv4().is_none() {
            return Err(EINVAL);
        }
        if self.hardware.lock().is_none() {
            return Err(crate::errno::not_supported());
        }
        self.add_want(gid, true).then_some(()).ok_or(ENOSPC)
    }

    /// No longer keeps a queue to a peer; one that is there stays until it breaks.
    ///
    /// # Errors
    ///
    /// `ENOENT`: none was pinned.
    pub(crate) fn unpin(&self, gid: &Gid) -> Result {
        let mut wants = self.wants.lock();
        let before = wants.len();
        wants.retain(|want| want.gid != *gid || !want.pinned);
        (wants.len() != before).then_some(()).ok_or(ENOENT)
    }

    fn add_want(&self, gid: &Gid, pinned: bool) -> bool {
        {
            let mut wants = self.wants.lock();
            if let Some(want) = wants.iter_mut().find(|want| want.gid == *gid) {
                want.pinned |= pinned;
                return true;
            }
            let want = Want {
                gid: *gid,
                pinned,
                opening: false,
                retry_ns: 0,
            };
            if wants.push_within_capacity(want).is_err() {
                return false;
            }
        }
        self.work.hurry();
        true
    }

    /// Makes a queue pair to a peer, and the offer to send. The device has to be
    /// there until the result is finished or dropped.
    pub(crate) fn begin(&self, to: &Gid) -> Result<(Opening<R>, HelloBytes)> {
        let opening = self.open(to, Role::Offer, None)?;
        let offer = opening.hello().encode();
        Ok((opening, offer))
    }

    /// Takes a peer's answer: the queue is up, and the peer knows.
    pub(crate) fn finish(&self, opening: Opening<R>, answer: &[u8]) -> Result {
        let ours = *opening.hello();
        let theirs = Hello::decode(answer).ok_or_else(crate::errno::proto)?;
        let to = opening.peer();
        if theirs.role != Role::Answer || theirs.token != ours.token || theirs.gid != to {
            return Err(crate::errno::proto());
        }
        let queue = self.take_in(opening.connect(&theirs)?)?;
        queue
            .complete_offer()
            .inspect_err(|_| self.discard(&queue))?;
        pr_info!("RC to {} is up\n", Shown(to));
        self.work.schedule(TICK_MS);
        Ok(())
    }

    /// Answers a peer's offer. The peer's first message makes the queue usable.
    ///
    /// # Errors
    ///
    /// `EPROTO` (malformed), `EBUSY` (this node has offered too, and its offer
    /// counts), `EOPNOTSUPP`, `ENOSPC`, and those of ib_core.
    pub(crate) fn accept(&self, offer: &[u8]) -> Result<HelloBytes> {
        let theirs = Hello::decode(offer).ok_or_else(crate::errno::proto)?;
        if theirs.role != Role::Offer || theirs.gid == self.gid {
            return Err(crate::errno::proto());
        }
        // Of two that offer at once, the offer of the lower GID counts.
        let is_opening = |want: &Want| want.gid == theirs.gid && want.opening;
        if self.gid.0 < theirs.gid.0 && self.wants.lock().iter().any(is_opening) {
            return Err(EBUSY);
        }
        let opening = self.open(&theirs.gid, Role::Answer, Some(theirs.token))?;
        let answer = opening.hello().encode();
        let queue = self.take_in(opening.connect(&theirs)?)?;
        queue
            .complete_answer()
            .inspect_err(|_| self.discard(&queue))?;
        self.work.schedule(TICK_MS);
        Ok(answer)
    }

    fn open(&self, to: &Gid, role: Role, token: Option<u64>) -> Result<Opening<R>> {
        let hardware = self
            .hardware
            .lock()
            .clone()
            .ok_or_else(crate::errno::not_supported)?;
        Opening::new(hardware, &self.mrs, self.gid, *to, role, token)
    }

    /// Takes a connected queue in. What there was to that peer has lost it: a
    /// node makes a second only when the first is broken.
    fn take_in(&self, queue: Arc<RcQueue<R>>) -> Result<Arc<RcQueue<R>>> {
        let (old, pushed) = {
            let mut links = self.links.lock();
            let place = links.iter().position(|link| link.queue.gid == queue.gid);
            let old = place.and_then(|place| links.remove(place).ok());
            let link = Link {
                queue: queue.clone(),
                looks: 0,
            };
            (old, links.push_within_capacity(link).is_ok())
        };
        if let Some(old) = old {
            end(&old.queue, WcStatus::RetryExcErr);
        }
        if !pushed {
            end(&queue, WcStatus::FatalErr);
            return Err(ENOSPC);
        }
        Ok(queue)
    }

    /// Takes a queue out and ends it.
    fn discard(&self, queue: &Arc<RcQueue<R>>) {
        self.links
            .lock()
            .retain(|link| !Arc::ptr_eq(&link.queue, queue));
        end(queue, WcStatus::FatalErr);
    }

    /// The `index`th link's queue, and whether it has to go.
    fn inspect(&self, index: usize) -> Option<(Arc<RcQueue<R>>, bool)> {
        let mut links = self.links.lock();
        let link = links.get_mut(index)?;
        link.looks += u32::from(!link.queue.is_usable());
        let lost = link.queue.fate().is_some() || link.looks > MAX_LOOKS;
        Some((link.queue.clone(), lost))
    }

    /// Takes broken links out, and asks idle peers for a sign of life.
    fn look_after_links(&self) {
        let mut index = 0;
        while let Some((queue, lost)) = self.inspect(index) {
            if lost {
                pr_info!("RC to {} is lost: {:?}\n", Shown(queue.gid), queue.fate());
                self.discard(&queue);
                continue;
            }
            queue.look_after();
            index += 1;
        }
    }

    /// The next peer to connect to.
    fn next_want(&self) -> Option<Gid> {
        let now_ns = now_ns();
        let mut wants = self.wants.lock();
        let want = wants
            .iter_mut()
            .find(|want| !want.opening && want.retry_ns <= now_ns && !self.has_link(&want.gid))?;
        want.opening = true;
        want.retry_ns = now_ns.saturating_add(u64::from(TICK_MS) * 1_000_000);
        Some(want.gid)
    }

    fn has_link(&self, gid: &Gid) -> bool {
        self.links.lock().iter().any(|link| link.queue.gid == *gid)
    }

    fn connect(&self, gid: &Gid) -> Result {
        let (opening, offer) = self.begin(gid)?;
        let carrier = self.carrier.get().ok_or(EAGAIN)?;
        // SAFETY: by the invariant: `stop` waits for this work.
        let answer = unsafe { (carrier.exchange)(carrier.carrier, gid, &offer) }?;
        self.finish(opening, &answer)
    }

    /// Ends everything: the device goes. May sleep.
    pub(crate) fn stop(&self) {
        self.work.stop();
        self.crier.stop();
        *self.hardware.lock() = None;
        loop {
            let link = self.links.lock().pop();
            let Some(link) = link else { break };
            end(&link.queue, WcStatus::FatalErr);
        }
    }
}

/// Ends a queue that is in no list any more.
fn end<R: Requester>(queue: &RcQueue<R>, status: WcStatus) {
    queue.work.stop();
    queue.shut_down(status);
}

impl<R: Requester> RcQueue<R> {
    /// Now and then.
    fn look_after(&self) {
        self.poll();
        if self.stall.lock().look(&self.window, now_ns()) {
            pr_warn!("RC to {} makes no progress\n", Shown(self.gid));
            return self.fail(WcStatus::RetryExcErr);
        }
        let tail = self.window.published();
        if self.seen_tail.swap(tail, Ordering::Relaxed) == tail && self.is_usable() {
            self.probe();
        }
        self.arm();
    }
}

// SAFETY: the offset is the field's own; `stop` stops the work, and the node calls
// it before it lets go.
unsafe impl<R: Requester> Routine for Rc<R> {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        self.look_after_links();
        self.register_leftovers();
        while let Some(gid) = self.next_want() {
            if let Err(error) = self.connect(&gid) {
                pr_debug!("no RC to {}: {error:?}\n", Shown(gid));
            }
            let mut wants = self.wants.lock();
            if let Some(want) = wants.iter_mut().find(|want| want.gid == gid) {
                want.opening = false;
            }
        }
        let idle = self.links.lock().is_empty() && self.wants.lock().is_empty();
        if !idle {
            self.work.schedule(TICK_MS);
        }
    }
}
