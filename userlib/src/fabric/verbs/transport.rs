// SPDX-License-Identifier: MIT OR Apache-2.0

//! One-sided requests over RC queue pairs.
//!
//! All queue pairs complete to one queue, which whoever waits polls. Most
//! requests make no completion; every [`SIGNAL_EVERY`]th does, which is how the
//! room in a queue is known.

use crate::fabric::rdma::health::Health;
use crate::fabric::rdma::words::{goes_inline, has_whole_words, WORD};
use crate::fabric::rdma::{Gone, Transport};
use crate::fabric::{Region, Write, WORD_ATOMIC_BYTES};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use weft_verbs::{Cq, Mr, Op, RcQp, Wc, WorkRequest, WrList, MAX_LIST_WORDS};

/// Requests outstanding to one peer. All peers' together fit into the smallest
/// completion queue in use, 32,767 entries.
pub(super) const SEND_QUEUE: u32 = 256;
const _: () = assert!(SEND_QUEUE as usize * crate::fabric::MAX_NODES < 32_767);
/// A quarter, so that a full queue empties in steps.
const SIGNAL_EVERY: u64 = SEND_QUEUE as u64 / 4;

const _: () = assert!(WORD_ATOMIC_BYTES == MAX_LIST_WORDS * WORD);

/// A request's number at its peer is in the lower bits of its `wr_id`, the peer
/// above, and above that which link to the peer it went by.
const SEQ_BITS: u32 = 48;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
const PEER_BITS: u32 = 6;
const PEER_MASK: u64 = (1 << PEER_BITS) - 1;
const _: () = assert!(crate::fabric::MAX_NODES <= 1 << PEER_BITS);
const LINK_MASK: u64 = u64::MAX >> (SEQ_BITS + PEER_BITS);

/// Completions taken at a time.
const REAP: usize = 32;
/// How long somebody who waits yields before it sleeps in between, and for how
/// long it does then.
const YIELDS: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

/// Where a peer's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

impl Target {
    fn at(self, offset: usize) -> (u64, u32) {
        (self.addr.wrapping_add(offset as u64), self.rkey)
    }
}

/// The connection to one peer.
#[derive(Debug)]
pub(super) struct Link {
    qp: RcQp,
    target: Target,
    /// Bytes that a request carries itself at most.
    inline_room: usize,
    /// Tells it apart from those to the same peer before it.
    number: u64,
    queue: Mutex<Queue>,
    /// Requests that have ended: all up to this number.
    done: AtomicU64,
}

/// What is being posted.
#[derive(Debug, Default)]
struct Queue {
    /// Requests made so far, those in the list included.
    made: u64,
    list: WrList,
}

impl Link {
    pub(super) fn new(qp: RcQp, target: Target, inline_room: usize) -> Self {
        Self {
            qp,
            target,
            inline_room,
            number: 0,
            queue: Mutex::default(),
            done: AtomicU64::new(0),
        }
    }
}

/// The queue pairs of a node.
#[derive(Debug)]
pub(super) struct VerbsTransport {
    /// By rank; none at the own one, and where nobody is. Before what they need, to be dropped
    /// first.
    links: Vec<RwLock<Option<Arc<Link>>>>,
    /// Links so far.
    made: AtomicU64,
    cq: Cq,
    mr: Mr,
    memory: Region,
    /// Whether words are written by ATOMIC WRITE.
    is_atomic: bool,
    health: Arc<Health>,
}

impl VerbsTransport {
    /// For so many nodes. `memory` is what `mr` registers.
    pub(super) fn new(nodes: usize, cq: Cq, mr: Mr, memory: Region, is_atomic: bool) -> Self {
        Self {
            links: (0..nodes).map(|_| RwLock::new(None)).collect(),
            made: AtomicU64::new(0),
            cq,
            mr,
            memory,
            is_atomic,
            health: Arc::new(Health::default()),
        }
    }

    /// The link to a peer, if there is one.
    fn known(&self, peer: usize) -> Option<Arc<Link>> {
        let link = self.links.get(peer)?.read();
        link.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn link(&self, peer: usize) -> Result<Arc<Link>, Gone> {
        let link = self.known(peer).filter(|_| !self.health.is_down(peer));
        link.ok_or(Gone)
    }

    /// The next request's `wr_id`, and whether it makes a completion. Waits
    /// until there is room for it.
    fn next(&self, peer: usize, link: &Link, queue: &mut Queue) -> Result<(u64, bool), Gone> {
        let is_full = |made: u64| made - link.done.load(Ordering::Acquire) >= u64::from(SEND_QUEUE);
        if queue.list.is_full() || is_full(queue.made) {
            self.flush(peer, link, queue)?;
            self.wait(peer, link, || !is_full(queue.made))?;
        }
        queue.made += 1;
        let of_link = ((link.number & LINK_MASK) << PEER_BITS) | peer as u64;
        let wr_id = (of_link << SEQ_BITS) | (queue.made & SEQ_MASK);
        Ok((wr_id, queue.made % SIGNAL_EVERY == 0))
    }

    fn flush(&self, peer: usize, link: &Link, queue: &mut Queue) -> Result<(), Gone> {
        link.qp.post_list(&mut queue.list).map_err(|error| {
            if self.is_live(peer, link) {
                self.health.mark_down(peer, &error.to_string());
            }
            Gone
        })
    }

    /// Whether this is the link to a peer that is not down.
    fn is_live(&self, peer: usize, link: &Link) -> bool {
        let live = self.link(peer);
        live.is_ok_and(|live| live.number == link.number)
    }

    /// Reaps completions until `done`, or until the peer is down.
    fn wait(&self, peer: usize, link: &Link, done: impl Fn() -> bool) -> Result<(), Gone> {
        let mut rounds = 0;
        while !done() {
            if !self.is_live(peer, link) {
                return Err(Gone);
            }
            self.poll();
            rounds += 1;
            if rounds < YIELDS {
                std::thread::yield_now();
            } else {
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    /// The words of a write's source as they are now.
    fn words<'a>(&'a self, write: &Write) -> impl Iterator<Item = u64> + 'a {
        let places = (write.local..write.local + write.len).step_by(WORD);
        places.map_while(|at| Some(self.memory.word(at).ok()?.load(Ordering::Acquire)))
    }

    fn add(&self, peer: usize, link: &Link, queue: &mut Queue, write: &Write) -> Result<(), Gone> {
        if self.is_atomic && has_whole_words(write) {
            for (at, word) in self.words(write).enumerate() {
                let (wr_id, signaled) = self.next(peer, link, queue)?;
                let remote = link.target.at(write.remote + at * WORD);
                queue.list.push_atomic(wr_id, remote, signaled, word);
            }
            return Ok(());
        }
        let (wr_id, signaled) = self.next(peer, link, queue)?;
        if goes_inline(write, link.inline_room) {
            let remote = link.target.at(write.remote);
            queue
                .list
                .push_words(wr_id, remote, signaled, self.words(write));
        } else {
            let request = self.request(Op::Write, wr_id, link, write);
            queue.list.push(&request, signaled);
        }
        Ok(())
    }

    fn request(&self, op: Op, wr_id: u64, link: &Link, what: &Write) -> WorkRequest {
        let (remote_addr, rkey) = link.target.at(what.remote);
        WorkRequest {
            wr_id,
            op,
            local_addr: self.mr.pages().addr() + what.local as u64,
            lkey: self.mr.lkey(),
            // Pieces are shorter than 4 GiB.
            len: what.len as u32,
            remote_addr,
            rkey,
        }
    }

    fn ended(&self, wc: &Wc) {
        let of_link = wc.wr_id() >> SEQ_BITS;
        let peer = (of_link & PEER_MASK) as usize;
        let is_it = |link: &Arc<Link>| link.number & LINK_MASK == of_link >> PEER_BITS;
        let Some(link) = self.known(peer).filter(is_it) else {
            // Of one that has gone.
            return;
        };
        if let Some(why) = wc.failure() {
            self.health.mark_down(peer, &why);
        } else {
            // Completions of a queue pair come in order, and say that the requests
            // before theirs have ended (IBTA vol. 1, 9.5), but two threads may
            // take them off the queue together.
            link.done.fetch_max(wc.wr_id() & SEQ_MASK, Ordering::AcqRel);
        }
    }
}

impl Transport for VerbsTransport {
    type Link = Link;

    fn seat(&self, peer: usize, mut link: Link) {
        link.number = self.made.fetch_add(1, Ordering::Relaxed);
        let mut place = self.links[peer]
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *place = Some(Arc::new(link));
    }

    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), Gone> {
        let link = self.link(peer)?;
        let mut queue = link.queue.lock().unwrap_or_else(PoisonError::into_inner);
        for write in writes {
            self.add(peer, &link, &mut queue, write)?;
        }
        self.flush(peer, &link, &mut queue)
    }

    fn read(&self, peer: usize, what: Write) -> Result<(), Gone> {
        let link = self.link(peer)?;
        let seq = {
            let mut queue = link.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let (wr_id, _) = self.next(peer, &link, &mut queue)?;
            let request = self.request(Op::Read, wr_id, &link, &what);
            queue.list.push(&request, true);
            self.flush(peer, &link, &mut queue)?;
            queue.made
        };
        let is_done = || link.done.load(Ordering::Acquire) >= seq;
        self.wait(peer, &link, is_done)
    }

    fn poll(&self) {
        let mut room = [Wc::default(); REAP];
        loop {
            match self.cq.poll(&mut room) {
                Ok(taken) => {
                    taken.iter().for_each(|wc| self.ended(wc));
                    if taken.len() < REAP {
                        return;
                    }
                }
                Err(error) => {
                    // The device is gone, and with it all peers.
                    let linked = |&peer: &usize| self.known(peer).is_some();
                    for peer in (0..self.links.len()).filter(linked) {
                        self.health.mark_down(peer, &error.to_string());
                    }
                    return;
                }
            }
        }
    }

    fn sever(&self, peer: usize) -> bool {
        let Some(link) = self.known(peer) else {
            return false;
        };
        // Nobody is posting, and nobody will: the peer is down.
        let _queue = link.queue.lock().unwrap_or_else(PoisonError::into_inner);
        match link.qp.reset() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(peer, %error, "its queue pair cannot be reset");
                false
            }
        }
    }

    fn health(&self) -> &Arc<Health> {
        &self.health
    }
}
