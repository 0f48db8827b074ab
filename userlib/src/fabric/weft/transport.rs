// SPDX-License-Identifier: MIT OR Apache-2.0

//! One-sided requests over VQPs.
//!
//! Writes make no completion: the module frees their places by itself. Only a
//! read makes one, and a request that has failed, after which its VQP is no
//! more good.

use crate::fabric::rdma::health::Health;
use crate::fabric::rdma::words::{has_whole_words, WORD};
use crate::fabric::rdma::{Gone, Transport};
use crate::fabric::{Region, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft_shim::{
    Error, LocalSlice, MemoryRegion, Payload, Remote, SendWr, Sges, Vqp, Wc, MAX_INLINE,
};

/// Requests outstanding to one peer.
pub(super) const SEND_QUEUE: u32 = 256;
/// Requests handed to the module at a time.
const BATCH: usize = 32;
/// Completions taken at a time.
const REAP: usize = 32;
/// Longest wait in the module, so that a death that was noticed elsewhere ends
/// it soon.
const SLICE: Duration = Duration::from_millis(5);

/// Bytes of words that a request carries itself.
const INLINE_BYTES: usize = MAX_INLINE as usize / WORD * WORD;
const _: () = assert!(INLINE_BYTES >= crate::fabric::COPIED_BYTES);

/// The connection to one peer.
#[derive(Debug)]
pub(super) struct Link {
    target: Remote,
    queue: Mutex<Queue>,
    /// Whether something was posted that [`Transport::poll`] has not looked for.
    is_used: AtomicBool,
}

#[derive(Debug)]
struct Queue {
    vqp: Vqp,
    /// Reads so far, and how many of them have ended.
    reads: u64,
    done: u64,
}

impl Link {
    pub(super) fn new(vqp: Vqp, target: Remote) -> Self {
        Self {
            target,
            queue: Mutex::new(Queue {
                vqp,
                reads: 0,
                done: 0,
            }),
            is_used: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The VQPs of a node.
#[derive(Debug)]
pub(super) struct WeftTransport {
    /// By rank; none at the own one. Before their memory, to be dropped first.
    pub(super) links: Vec<Option<Link>>,
    pub(super) mr: Arc<MemoryRegion>,
    pub(super) memory: Region,
    /// Whether words go one by one.
    pub(super) is_single: bool,
    pub(super) health: Arc<Health>,
}

impl WeftTransport {
    fn link(&self, peer: usize) -> Result<&Link, Gone> {
        match self.links.get(peer) {
            Some(Some(link)) if !self.health.is_down(peer) => Ok(link),
            _ => Err(Gone),
        }
    }

    fn lost(&self, peer: usize, why: &dyn std::fmt::Display) -> Gone {
        self.health.mark_down(peer, &why.to_string());
        Gone
    }

    fn slice(&self, peer: usize, what: &Write) -> Result<LocalSlice<'_>, Gone> {
        let range = what.local..what.local + what.len;
        self.mr
            .slice(range)
            .map_err(|error| self.lost(peer, &error))
    }

    /// A write's request. Few words travel in it, as they are now.
    fn request(&self, peer: usize, link: &Link, write: &Write) -> Result<SendWr<'_>, Gone> {
        let remote = link.target.offset(write.remote as u64);
        if !has_whole_words(write) || write.len > INLINE_BYTES {
            return Ok(SendWr::write(self.slice(peer, write)?, remote));
        }
        let mut bytes = [0; INLINE_BYTES];
        let places = (write.local..write.local + write.len).step_by(WORD);
        for (to, at) in bytes.chunks_exact_mut(WORD).zip(places) {
            let word = self.memory.word(at);
            let word = word.map_err(|error| self.lost(peer, &error))?;
            to.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
        }
        let payload = Payload::inline(&bytes[..write.len]);
        let payload = payload.map_err(|error| self.lost(peer, &error))?;
        Ok(SendWr::write(payload, remote))
    }

    /// The requests that a write becomes, as writes.
    fn parts(&self, write: &Write) -> impl Iterator<Item = Write> + use<> {
        let write = *write;
        let step = match self.is_single && has_whole_words(&write) {
            true => WORD,
            false => write.len.max(1),
        };
        (0..write.len).step_by(step).map(move |at| Write {
            local: write.local + at,
            remote: write.remote + at,
            len: step,
        })
    }

    /// Hands requests to the module, and waits while its queue is full.
    fn submit(&self, peer: usize, queue: &mut Queue, wrs: &[SendWr<'_>]) -> Result<(), Gone> {
        let mut rest = wrs;
        while !rest.is_empty() {
            match queue.vqp.post_send(rest) {
                Ok(taken) => rest = &rest[taken..],
                // Writes leave the queue without a completion, so there is
                // nothing to wait for but time.
                Err(Error::QueueFull) => self.reap(peer, queue, 1, Duration::from_micros(50))?,
                Err(Error::Interrupted) => {}
                Err(error) => return Err(self.lost(peer, &error)),
            }
        }
        Ok(())
    }

    /// Takes completions, after waiting for `min` of them for a while.
    fn reap(
        &self,
        peer: usize,
        queue: &mut Queue,
        min: usize,
        timeout: Duration,
    ) -> Result<(), Gone> {
        let mut room = [Wc::default(); REAP];
        let taken = match queue.vqp.enter(&[], &mut room, min, timeout) {
            Ok(progress) => progress.completed,
            Err(Error::Interrupted) => 0,
            Err(error) => return Err(self.lost(peer, &error)),
        };
        for wc in &room[..taken] {
            if let Err(error) = wc.result() {
                return Err(self.lost(peer, &error));
            }
            queue.done = queue.done.max(wc.wr_id());
        }
        if self.health.is_down(peer) {
            return Err(Gone);
        }
        Ok(())
    }
}

impl Transport for WeftTransport {
    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), Gone> {
        let link = self.link(peer)?;
        let mut queue = link.lock();
        let mut batch = [SendWr::write(Sges::EMPTY, link.target); BATCH];
        let mut filled = 0;
        for write in writes.iter().flat_map(|write| self.parts(write)) {
            batch[filled] = self.request(peer, link, &write)?;
            filled += 1;
            if filled == BATCH {
                self.submit(peer, &mut queue, &batch)?;
                filled = 0;
            }
        }
        self.submit(peer, &mut queue, &batch[..filled])?;
        link.is_used.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, peer: usize, what: Write) -> Result<(), Gone> {
        let link = self.link(peer)?;
        let mut queue = link.lock();
        queue.reads += 1;
        let number = queue.reads;
        let from = link.target.offset(what.remote as u64);
        let request = SendWr::read(self.slice(peer, &what)?, from);
        self.submit(peer, &mut queue, &[request.signaled().wr_id(number)])?;
        while queue.done < number {
            self.reap(peer, &mut queue, 1, SLICE)?;
        }
        Ok(())
    }

    fn poll(&self) {
        for (peer, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            if !link.is_used.load(Ordering::Relaxed) || self.health.is_down(peer) {
                continue;
            }
            // Whoever holds it reaps.
            if let Ok(mut queue) = link.queue.try_lock() {
                link.is_used.store(false, Ordering::Relaxed);
                // A failure has been noted.
                let _ = self.reap(peer, &mut queue, 0, Duration::ZERO);
            }
        }
    }

    fn system_calls(&self) -> Option<u64> {
        let links = self.links.iter().flatten();
        Some(links.map(|link| link.lock().vqp.system_calls()).sum())
    }

    fn health(&self) -> &Arc<Health> {
        &self.health
    }
}
