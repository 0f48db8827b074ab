// SPDX-License-Identifier: MIT OR Apache-2.0

//! One busy VQP, which knows what each of its requests has to find.
//!
//! Its requests are numbered. One of three WRITEs its number to a place of the peer's memory
//! and READs the place again; one of two kinds adds one to a word of the peer's, which has
//! to answer with how often that was done before; or sends its number as a message.
//! Completions have to come in the order of the requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use weft_shim::{Device, MemoryRegion, Message, Payload, RecvWr, SendWr, Vqp, Wc};
use weft_testkit::pace::patient;

use crate::rng::Rng;
use crate::two_sided::Ear;
use crate::world::full_access;

/// Places of the peer's memory, more than requests are under way.
const PLACES: usize = 64;
const PLACE: usize = 512;
/// Behind them the word that is added to.
const WORD: usize = PLACES * PLACE;
/// Bytes of the peer's memory.
pub const BYTES: usize = WORD + 8;
/// Receive buffers of the peer.
pub const BUFFERS: u32 = 64;
/// Requests under way.
const DEPTH: usize = 32;
const PATIENCE: Duration = Duration::from_secs(30);

/// What a flow posts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// READs and WRITEs.
    OneSided,
    /// Messages and atomic operations too.
    All,
}

/// What the end of a request has to show.
enum Expected {
    Nothing,
    /// This word at the beginning and the end of a place of the local memory.
    Place(usize, usize, u64),
    /// This word.
    Word(usize, u64),
}

pub struct Flow<'a> {
    vqp: Vqp,
    ear: &'a mut Ear,
    local: MemoryRegion,
    kind: Kind,
    rng: Rng,
    under_way: VecDeque<(u64, Expected)>,
    next: u64,
    ended: u64,
    added: u64,
    sent: u32,
    heard: u32,
}

impl<'a> Flow<'a> {
    pub fn new(device: &Device, ear: &'a mut Ear, kind: Kind, seed: u64) -> Result<Self> {
        let mut this = Self {
            vqp: ear.sender(device, DEPTH as u32)?,
            local: MemoryRegion::allocate(device, 3 * PLACES * PLACE, full_access())?,
            ear,
            kind,
            rng: Rng::new(seed),
            under_way: VecDeque::new(),
            next: 0,
            ended: 0,
            added: 0,
            sent: 0,
            heard: 0,
        };
        for _ in 0..BUFFERS {
            this.post_buffer()?;
        }
        Ok(this)
    }

    fn post_buffer(&mut self) -> Result<()> {
        let taken = self.ear.listener.post_recv(&[RecvWr::empty()]);
        ensure!(taken == 1, "no room for a buffer");
        Ok(())
    }

    /// Until it is stopped; answers how many requests have ended.
    pub fn run(mut self, stop: &AtomicBool) -> Result<u64> {
        while !stop.load(Ordering::Relaxed) {
            let room = DEPTH - self.under_way.len();
            if room >= 2 {
                self.post_some()?;
            }
            self.take(usize::from(self.under_way.len() + 2 > DEPTH))?;
            self.hear()?;
        }
        while !self.under_way.is_empty() {
            self.take(1)?;
        }
        let start = Instant::now();
        while self.heard < self.sent {
            self.hear()?;
            ensure!(
                start.elapsed() < patient(PATIENCE),
                "{} of {} messages came",
                self.heard,
                self.sent
            );
        }
        Ok(self.ended)
    }

    /// A WRITE and its READ, or one of the others.
    fn post_some(&mut self) -> Result<()> {
        if self.kind == Kind::All && self.rng.below(8) == 0 {
            return match self.rng.below(2) {
                0 => self.add(),
                _ => self.send(),
            };
        }
        let place = (self.next as usize / 2) % PLACES;
        let len = 16 + 8 * self.rng.below((PLACE - 16) / 8);
        let (from, into) = (place * PLACE, (PLACES + place) * PLACE);
        let number = self.next + 1;
        self.local.store_u64(from, number)?;
        self.local.store_u64(from + len - 8, number)?;
        let remote = self.ear.memory.remote().offset((place * PLACE) as u64);
        let wrs = [
            SendWr::write(self.local.slice(from..from + len)?, remote),
            SendWr::read(self.local.slice(into..into + len)?, remote),
        ];
        let wrs = [
            wrs[0].signaled().wr_id(self.next),
            wrs[1].signaled().wr_id(self.next + 1),
        ];
        let taken = self.vqp.post_send(&wrs)?;
        ensure!(taken == 2, "{taken} of 2 were taken");
        self.note(Expected::Nothing);
        self.note(Expected::Place(into, len, number));
        Ok(())
    }

    fn note(&mut self, expected: Expected) {
        self.under_way.push_back((self.next, expected));
        self.next += 1;
    }

    fn add(&mut self) -> Result<()> {
        let into = (2 * PLACES + self.next as usize % PLACES) * PLACE;
        let remote = self.ear.memory.remote().offset(WORD as u64);
        let wr = SendWr::fetch_add(self.local.slice(into..into + 8)?, remote, 1);
        let taken = self.vqp.post_send(&[wr.signaled().wr_id(self.next)])?;
        ensure!(taken == 1, "it was not taken");
        self.note(Expected::Word(into, self.added));
        self.added += 1;
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let wr = SendWr::send_with_imm(Payload::inline(b"")?, self.sent);
        let taken = self.vqp.post_send(&[wr.signaled().wr_id(self.next)])?;
        ensure!(taken == 1, "it was not taken");
        self.note(Expected::Nothing);
        self.sent += 1;
        Ok(())
    }

    /// Takes completions, at least so many.
    fn take(&mut self, least: usize) -> Result<()> {
        let mut wcs = [Wc::default(); DEPTH];
        let progress = self.vqp.enter(&[], &mut wcs, least, patient(PATIENCE))?;
        let count = progress.completed;
        ensure!(count >= least, "nothing has ended within {PATIENCE:?}");
        for wc in &wcs[..count] {
            wc.result()
                .with_context(|| format!("request {}", wc.wr_id()))?;
            let (number, expected) = self.under_way.pop_front().context("one too many")?;
            ensure!(
                wc.wr_id() == number,
                "request {} has ended before {number}",
                wc.wr_id()
            );
            self.check(number, &expected)?;
            self.ended += 1;
        }
        Ok(())
    }

    fn check(&self, number: u64, expected: &Expected) -> Result<()> {
        match *expected {
            Expected::Nothing => {}
            Expected::Place(at, len, wanted) => {
                let (first, last) = (self.local.load_u64(at)?, self.local.load_u64(at + len - 8)?);
                ensure!(
                    (first, last) == (wanted, wanted),
                    "READ {number} has found {first} and {last}, not {wanted}"
                );
            }
            Expected::Word(at, wanted) => {
                let found = self.local.load_u64(at)?;
                ensure!(
                    found == wanted,
                    "{number}: {found} were added, not {wanted}"
                );
            }
        }
        Ok(())
    }

    /// Takes messages, if there are any: in order.
    fn hear(&mut self) -> Result<()> {
        let mut messages = [Message::default(); 16];
        let listener = &mut self.ear.listener;
        let count = listener.pop_msgs(&mut messages, 0, Duration::ZERO)?;
        for message in &messages[..count] {
            message.result()?;
            ensure!(
                message.imm() == Some(self.heard),
                "message {} is {message:?}",
                self.heard
            );
            self.heard += 1;
            self.post_buffer()?;
        }
        Ok(())
    }
}
