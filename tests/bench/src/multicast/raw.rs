// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a fabric moves without multicast: the same senders write messages of the
//! same length in full, the same members read them in full, each with one thread
//! that goes from one to the other.
//!
//! Each sender has a ring of as many messages as the window. Where others can look
//! into it, as over shared memory, they read there; else all that is written in a
//! go travels as one one-sided write. A word behind it says how much there is, and
//! one in the other direction how much was read, so that nothing is written over
//! before. There is no order among senders, and nobody waits for a third.

use std::hint::spin_loop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure, Context as _, Result};
use weft::fabric::{Endpoint, Fabric as _, FabricError, Region, Write};
use weft_testkit::place::Placed;

use super::args::Pace;
use super::case::Case;
use super::member::{cpu_time, PATIENCE};
use super::payload;
use super::seen::Seen;
use crate::child::{say_ready, wait_for_end, wait_for_word};

const LINE: usize = 64;
/// Bytes after which a sender lets others read, and a reader the sender write: a
/// part of what a core's own caches hold.
const GO_BYTES: usize = 32 << 10;
/// The same where they travel: so many that a request's own cost does not show.
const TRAVEL_BYTES: usize = 128 << 10;
/// Rounds in which there was nothing to do, after which the processor is yielded.
const SPINS: u32 = 64;

/// Writes and reads until its input ends.
pub fn run(node: Placed, case: &Case, pace: Pace) -> Result<()> {
    let layout = Layout::new(case);
    // SAFETY: both sides have the layout of the same case.
    let connected = unsafe { node.connect(layout.region_bytes(), &[], PATIENCE) }?;
    let endpoint = connected.endpoint;
    let mut side = Side::new(Arc::clone(&endpoint), case, layout)?;
    let (stop, moved) = (Arc::clone(&side.stop), Arc::clone(&side.moved));
    say_ready(&"met")?;
    wait_for_word()?;
    let moving = thread::spawn(move || side.run());
    thread::sleep(Duration::from_millis(pace.warm_up_ms));
    let count = || {
        anyhow::Ok((
            moved.load(Ordering::Relaxed),
            endpoint.posted(),
            endpoint.system_calls(),
            cpu_time()?,
        ))
    };
    let (before, began) = (count()?, Instant::now());
    thread::sleep(pace.slice());
    let (after, seconds) = (count()?, began.elapsed().as_secs_f64());
    ensure!(!moving.is_finished(), "it has ended: {:?}", moving.join());
    say_ready(&Seen {
        seconds,
        sent: after.0 - before.0,
        delivered: after.0 - before.0,
        posts: after.1 - before.1,
        system_calls: after.2.zip(before.2).map(|(now, then)| now - then),
        cpu: Some((after.3 - before.3).as_secs_f64()),
        ..Seen::default()
    })?;
    wait_for_end()?;
    stop.store(true, Ordering::Relaxed);
    match moving.join().map_err(|_| anyhow!("it panicked"))? {
        // Another member has ended before this one was told to.
        Err(error) if matches!(error.downcast_ref(), Some(FabricError::PeerDown(_))) => Ok(()),
        outcome => outcome,
    }
}

/// Where everything is, the same at each member.
#[derive(Clone, Copy)]
struct Layout {
    members: usize,
    senders: usize,
    /// Bytes from one message to the next.
    stride: usize,
    window: usize,
}

impl Layout {
    fn new(case: &Case) -> Self {
        Self {
            members: case.members,
            senders: case.senders.of(case.members),
            stride: case.bytes.next_multiple_of(8),
            window: case.window,
        }
    }

    /// How much a sender has sent: its own word, and where it arrives.
    fn sent(self, sender: usize) -> usize {
        sender * LINE
    }

    /// How much a reader has read of a sender: where it arrives at the sender.
    fn read_by(self, reader: usize) -> usize {
        (self.members + reader) * LINE
    }

    /// The same where it is written, at the reader.
    fn read_of(self, sender: usize) -> usize {
        (2 * self.members + sender) * LINE
    }

    fn ring(self, sender: usize) -> usize {
        let ring_bytes = (self.window * self.stride).next_multiple_of(LINE);
        3 * self.members * LINE + sender * ring_bytes
    }

    fn message(self, sender: usize, number: u64) -> usize {
        let at = usize::try_from(number % self.window as u64).unwrap_or(0);
        self.ring(sender) + at * self.stride
    }

    fn region_bytes(self) -> usize {
        self.ring(self.senders)
    }

    /// Messages in so many bytes, at most half of those under way.
    fn messages(self, bytes: usize) -> u64 {
        let most = (self.window as u64 / 2).max(1);
        ((bytes / self.stride) as u64).clamp(1, most)
    }
}

/// Another member's messages at this one.
struct Incoming {
    sender: usize,
    /// Where they can be read, here or there.
    region: Region,
    read: u64,
}

/// One member.
struct Side {
    endpoint: Arc<dyn Endpoint>,
    case: Case,
    layout: Layout,
    rank: usize,
    sent: u64,
    incoming: Vec<Incoming>,
    /// Messages that are written, or read, in a go.
    go: u64,
    stop: Arc<AtomicBool>,
    /// Own messages that all others have read.
    moved: Arc<AtomicU64>,
}

impl Side {
    fn new(endpoint: Arc<dyn Endpoint>, case: &Case, layout: Layout) -> Result<Self> {
        let rank = endpoint.rank();
        let others = (0..layout.senders).filter(|&sender| sender != rank);
        let incoming = others.map(|sender| Incoming {
            sender,
            region: endpoint
                .region_of(sender)
                .unwrap_or_else(|| endpoint.region())
                .clone(),
            read: 0,
        });
        let travels = (0..layout.members).all(|node| endpoint.region_of(node).is_none());
        Ok(Self {
            incoming: incoming.collect(),
            go: layout.messages(if travels { TRAVEL_BYTES } else { GO_BYTES }),
            case: case.clone(),
            layout,
            rank,
            sent: 0,
            stop: Arc::default(),
            moved: Arc::default(),
            endpoint,
        })
    }

    fn run(&mut self) -> Result<()> {
        let mut idle = 0;
        while !self.stop.load(Ordering::Relaxed) {
            self.endpoint.poll();
            let mut has_moved = self.write()?;
            for at in 0..self.incoming.len() {
                has_moved |= self.read(at)?;
            }
            idle = if has_moved { 0 } else { idle + 1 };
            match idle {
                0 => {}
                1..SPINS => spin_loop(),
                _ => thread::yield_now(),
            }
        }
        Ok(())
    }

    /// Writes messages for which there is room, and tells the others.
    fn write(&mut self) -> Result<bool> {
        if self.rank >= self.layout.senders {
            return Ok(false);
        }
        let moved = self.read_by_all()?;
        self.moved.store(moved, Ordering::Relaxed);
        let room = self.layout.window as u64 - (self.sent - moved);
        let wrap = self.layout.window as u64 - self.sent % self.layout.window as u64;
        let count = self.go.min(room).min(wrap);
        if count == 0 {
            return Ok(false);
        }
        let begin = self.layout.message(self.rank, self.sent);
        for number in self.sent..self.sent + count {
            let mut place = self.place(self.endpoint.region(), self.rank, number)?;
            // SAFETY: within the own region, which is mapped while `self` lives, and
            // nobody reads or writes it: all others have read what was there.
            let bytes = unsafe { place.as_mut() };
            payload::write(bytes, self.rank, number, self.case.stores);
        }
        if self.case.own_read {
            for number in self.sent..self.sent + count {
                self.check(self.endpoint.region(), self.rank, number)?;
            }
        }
        self.sent += count;
        let word = self.layout.sent(self.rank);
        self.own_word(word)?.store(self.sent, Ordering::Release);
        let len = usize::try_from(count)? * self.layout.stride;
        let ring = Write {
            local: begin,
            remote: begin,
            len,
        };
        let writes = [
            ring,
            Write {
                local: word,
                remote: word,
                len: 8,
            },
        ];
        for peer in (0..self.layout.members).filter(|&peer| peer != self.rank) {
            let is_seen = self.endpoint.region_of(peer).is_some();
            self.endpoint.post(peer, &writes[usize::from(is_seen)..])?;
        }
        Ok(true)
    }

    /// Reads what has come of a sender, and tells it.
    fn read(&mut self, at: usize) -> Result<bool> {
        let (layout, incoming) = (self.layout, &self.incoming[at]);
        let (sender, read) = (incoming.sender, incoming.read);
        let sent = self.own_word(layout.sent(sender))?.load(Ordering::Acquire);
        let count = self.go.min(sent - read);
        for number in read..read + count {
            self.check(&incoming.region, sender, number)?;
        }
        if count == 0 {
            return Ok(false);
        }
        self.incoming[at].read += count;
        let word = layout.read_of(sender);
        self.own_word(word)?.store(read + count, Ordering::Release);
        let remote = layout.read_by(self.rank);
        self.endpoint.post(
            sender,
            &[Write {
                local: word,
                remote,
                len: 8,
            }],
        )?;
        Ok(true)
    }

    /// How many own messages all others have read.
    fn read_by_all(&self) -> Result<u64> {
        let mut least = self.sent;
        for reader in (0..self.layout.members).filter(|&reader| reader != self.rank) {
            let read = self
                .own_word(self.layout.read_by(reader))?
                .load(Ordering::Acquire);
            least = least.min(read);
        }
        Ok(least)
    }

    fn check(&self, region: &Region, sender: usize, number: u64) -> Result<()> {
        let place = self.place(region, sender, number)?;
        // SAFETY: within a region that is mapped while `self` lives; it was seen by an
        // acquire load that the message is there, and its sender writes it again only
        // when it has heard that this member has read it.
        let bytes = unsafe { place.as_ref() };
        ensure!(
            payload::is_whole(bytes, sender, number),
            "message {number} of {sender} is not what was sent"
        );
        Ok(())
    }

    fn place(&self, region: &Region, sender: usize, number: u64) -> Result<NonNull<[u8]>> {
        let (offset, len) = (self.layout.message(sender, number), self.case.bytes);
        Ok(NonNull::slice_from_raw_parts(
            region.range(offset, len)?,
            len,
        ))
    }

    fn own_word(&self, offset: usize) -> Result<&AtomicU64> {
        self.endpoint
            .region()
            .word(offset)
            .context("there is no such word")
    }
}
