// SPDX-License-Identifier: MIT OR Apache-2.0

//! One-sided requests over VQPs that share their queues: one system call hands requests
//! for any number of peers to the module.
//!
//! Writes make no completion: the module frees their places by itself. Only a
//! read makes one, and a request that has failed, after which its VQP is no
//! more good.

use super::outgoing::{Outgoing, Payloads, Posted};
use crate::fabric::rdma::health::Health;
use crate::fabric::rdma::{Gone, Transport};
use crate::fabric::{Region, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft_shim::{Error, MemoryRegion, MemoryWindow, Qp, Queues, Remote, SendWr, Sges, Wc};

/// Requests outstanding to one peer.
pub(super) const SEND_QUEUE: u32 = 256;
/// Requests handed to the module at a time.
pub(super) const BATCH: usize = 64;
/// Completions taken at a time.
const REAP: usize = 32;
/// Longest wait in the module, so that a death that was noticed elsewhere ends
/// it soon.
const SLICE: Duration = Duration::from_millis(1);
/// Between two looks whether a peer's queue has room: writes leave it without a
/// completion, so there is nothing to wait for but time.
const FULL_WAIT: Duration = Duration::from_micros(50);

/// Fills places that no request has yet.
const NOWHERE: Remote = Remote { addr: 0, rkey: 0 };

/// The connection to one peer.
#[derive(Debug)]
pub(super) struct Link {
    qp: Qp,
    target: Remote,
    /// The peer's own key to this node's memory, which ends with the link.
    _key: MemoryWindow,
    /// Reads so far, and how many of them have ended.
    reads: AtomicU64,
    done: AtomicU64,
}

impl Link {
    pub(super) fn new(qp: Qp, target: Remote, key: MemoryWindow) -> Self {
        Self {
            qp,
            target,
            _key: key,
            reads: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }
}

/// By rank; none at the own one, and where nobody is.
type Links = Vec<Option<Arc<Link>>>;

#[derive(Debug)]
struct Shared {
    /// Before their memory, to be dropped first.
    links: Links,
    queues: Queues,
    outgoing: Outgoing,
}

/// The VQPs of a node.
#[derive(Debug)]
pub(super) struct WeftTransport {
    shared: Mutex<Shared>,
    mr: Arc<MemoryRegion>,
    payloads: Payloads,
    /// The thread whose posts wait for the end of [`Transport::together`]; 0: none.
    holder: AtomicU64,
    /// Whether something was posted that [`Transport::poll`] has not looked for.
    is_used: AtomicBool,
    health: Arc<Health>,
}

impl WeftTransport {
    /// For so many nodes. `memory` is what `mr` registers; `is_single`: words go one by one.
    pub(super) fn new(
        nodes: usize,
        queues: Queues,
        mr: Arc<MemoryRegion>,
        memory: Region,
        is_single: bool,
    ) -> Self {
        Self {
            shared: Mutex::new(Shared {
                links: (0..nodes).map(|_| None).collect(),
                queues,
                outgoing: Outgoing::default(),
            }),
            mr,
            payloads: Payloads { memory, is_single },
            holder: AtomicU64::new(0),
            is_used: AtomicBool::new(false),
            health: Arc::new(Health::default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link<'a>(&self, links: &'a Links, peer: usize) -> Result<&'a Arc<Link>, Gone> {
        match links.get(peer) {
            Some(Some(link)) if !self.health.is_down(peer) => Ok(link),
            _ => Err(Gone),
        }
    }

    fn lost(&self, peer: usize, why: &dyn std::fmt::Display) -> Gone {
        self.health.mark_down(peer, &why.to_string());
        Gone
    }

    /// The request of what was posted. `None`: its peer is down.
    fn request<'a>(&'a self, links: &'a Links, posted: &Posted) -> Option<SendWr<'a>> {
        let link = self.link(links, posted.peer).ok()?;
        let remote = link.target.offset(posted.write.remote as u64);
        let made = match posted.inline() {
            Some(payload) => payload.map(|payload| SendWr::write(payload, remote)),
            None => {
                let range = posted.write.local..posted.write.local + posted.write.len;
                self.mr
                    .slice(range)
                    .map(|slice| SendWr::write(slice, remote))
            }
        };
        match made {
            Ok(wr) => Some(wr.on(&link.qp)),
            Err(error) => {
                self.lost(posted.peer, &error);
                None
            }
        }
    }

    /// Hands all that was posted to the module, and waits while a peer's queue is full;
    /// what goes to others does not wait for that.
    fn flush(&self, shared: &mut Shared) {
        // Peers in a row whose queue was full.
        let mut full = 0;
        while !shared.outgoing.is_empty() {
            let Shared {
                links,
                queues,
                outgoing,
            } = &mut *shared;
            let blank = SendWr::write(Sges::EMPTY, NOWHERE);
            let mut batch = [blank; BATCH];
            let mut count = 0;
            outgoing.retain_first(BATCH, |posted| {
                let wr = self.request(links, posted);
                if let Some(wr) = wr {
                    batch[count] = wr;
                    count += 1;
                }
                wr.is_some()
            });
            if count == 0 {
                continue;
            }
            self.is_used.store(true, Ordering::Relaxed);
            let taken = match queues.post_send(&batch[..count]) {
                Ok(taken) => taken,
                Err(Error::QueueFull | Error::Interrupted) => 0,
                Err(error) => {
                    // It is about the first.
                    if let Some(peer) = outgoing.first() {
                        self.lost(peer, &error);
                    }
                    continue;
                }
            };
            outgoing.taken(taken);
            full = if taken == 0 { full + 1 } else { 1 };
            if taken < count && (full > links.len() || !outgoing.pass_by_first()) {
                self.reap(shared, FULL_WAIT);
                full = 0;
            }
        }
    }

    /// Takes completions, after waiting for one for a while.
    fn reap(&self, shared: &mut Shared, timeout: Duration) {
        let mut room = [Wc::default(); REAP];
        let min = usize::from(!timeout.is_zero());
        let taken = match shared.queues.enter(&[], &mut room, min, timeout) {
            Ok(progress) => progress.completed,
            Err(Error::Interrupted) => 0,
            Err(error) => {
                // Empty seats are not down: nodes may come.
                let linked = |&peer: &usize| shared.links[peer].is_some();
                for peer in (0..shared.links.len()).filter(linked) {
                    self.lost(peer, &error);
                }
                return;
            }
        };
        for wc in &room[..taken] {
            self.ended(&shared.links, wc);
        }
    }

    fn ended(&self, links: &Links, wc: &Wc) {
        let is_it = |link: &Option<Arc<Link>>| {
            let link = link.as_ref();
            link.is_some_and(|link| link.qp.number() == wc.vqp())
        };
        let Some(peer) = links.iter().position(is_it) else {
            return;
        };
        match (wc.result(), &links[peer]) {
            (Err(error), _) => {
                self.lost(peer, &error);
            }
            (Ok(_), Some(link)) => {
                link.done.fetch_max(wc.wr_id(), Ordering::Release);
            }
            (Ok(_), None) => {}
        }
    }
}

impl Transport for WeftTransport {
    type Link = Link;

    fn seat(&self, peer: usize, link: Link) {
        let mut shared = self.lock();
        shared.outgoing.forget(peer);
        let before = shared.links[peer].replace(Arc::new(link));
        drop(shared);
        // Its end is a system call.
        drop(before);
    }

    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), Gone> {
        let mut shared = self.lock();
        self.link(&shared.links, peer)?;
        for write in writes {
            for part in self.payloads.parts(write) {
                let posted = self.payloads.posted(peer, &part);
                shared
                    .outgoing
                    .push(posted.map_err(|error| self.lost(peer, &error))?);
            }
            if shared.outgoing.len() >= BATCH {
                self.flush(&mut shared);
            }
        }
        if self.holder.load(Ordering::Relaxed) != this_thread() {
            self.flush(&mut shared);
        }
        self.link(&shared.links, peer).map(drop)
    }

    fn together(&self, posts: &mut dyn FnMut()) {
        // Reset also if `posts` panics.
        struct Holding<'a>(&'a WeftTransport);
        impl Drop for Holding<'_> {
            fn drop(&mut self) {
                self.0.holder.store(0, Ordering::Relaxed);
                self.0.flush(&mut self.0.lock());
            }
        }
        self.holder.store(this_thread(), Ordering::Relaxed);
        let _holding = Holding(self);
        posts();
    }

    fn read(&self, peer: usize, what: Write) -> Result<(), Gone> {
        let range = what.local..what.local + what.len;
        let into = self.mr.slice(range);
        let into = into.map_err(|error| self.lost(peer, &error))?;
        let (link, number) = {
            let mut shared = self.lock();
            // It sees what was written before.
            self.flush(&mut shared);
            let link = Arc::clone(self.link(&shared.links, peer)?);
            let number = link.reads.fetch_add(1, Ordering::Relaxed) + 1;
            let from = link.target.offset(what.remote as u64);
            let request = SendWr::read(into, from).signaled().wr_id(number);
            let request = request.on(&link.qp);
            loop {
                match shared.queues.post_send(&[request]) {
                    Ok(1..) => break,
                    Ok(0) | Err(Error::QueueFull | Error::Interrupted) => {
                        self.reap(&mut shared, FULL_WAIT);
                    }
                    Err(error) => return Err(self.lost(peer, &error)),
                }
                self.link(&shared.links, peer)?;
            }
            (link, number)
        };
        while link.done.load(Ordering::Acquire) < number {
            let mut shared = self.lock();
            self.reap(&mut shared, SLICE);
            // Another node may have the peer's seat by now.
            let now = self.link(&shared.links, peer)?;
            if !Arc::ptr_eq(now, &link) {
                return Err(Gone);
            }
        }
        Ok(())
    }

    fn poll(&self) {
        // Whoever holds it reaps.
        if let Ok(mut shared) = self.shared.try_lock() {
            if self.is_used.swap(false, Ordering::Relaxed) {
                self.reap(&mut shared, Duration::ZERO);
            }
        }
    }

    /// Destroys the VQP and ends the peer's key, which waits for those of the peer's requests that
    /// have begun. This node's own that are under way go on until they end, and read its memory
    /// when they are sent: the module does not take them back.
    fn sever(&self, peer: usize) -> bool {
        let mut shared = self.lock();
        let Some(link) = shared.links[peer].take() else {
            return false;
        };
        shared.outgoing.forget(peer);
        drop(shared);
        // Not while somebody else, who reads, has it: that one sees that the peer is down.
        while Arc::strong_count(&link) > 1 {
            std::thread::yield_now();
        }
        true
    }

    fn system_calls(&self) -> Option<u64> {
        Some(self.lock().queues.system_calls())
    }

    fn health(&self) -> &Arc<Health> {
        &self.health
    }
}

/// A number of the calling thread, never 0: the address of something that it has alone.
fn this_thread() -> u64 {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr() as u64)
}
