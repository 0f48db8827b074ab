// SPDX-License-Identifier: MIT OR Apache-2.0

//! What nodes that are processes do with one another, each as one of a ring: it
//! writes to the next and looks at what the previous one writes.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{ensure, Result};
use weft::fabric::{Endpoint, Fabric, Write, WORD_ATOMIC_BYTES};

use crate::member::REGION_BYTES;
use crate::process::patience;
use weft_testkit::place::{Kind, Placed};

const ROUNDS: u64 = 3000;
const PAYLOADS: u64 = 200;
const LAPS: u64 = 300;

const WORD: usize = 8;
// What the previous node writes.
const FIRST: usize = 0;
const SECOND: usize = 1024;
const BLOCK: usize = 2048;
const TOKEN: usize = 4096;
const PAYLOAD: usize = 8192;
const PAYLOAD_BYTES: usize = 8192;
/// A word from each node.
const MEETING: usize = 5120;
/// Whether the next node has looked at the payload.
const ANSWER: usize = 6144;
/// Where the same is written from.
const OWN: usize = 1 << 15;

/// A node and where it stands.
pub struct Player {
    /// The node.
    pub node: Arc<dyn Endpoint>,
    /// Rounds of what tears words if anything does.
    rounds: u64,
    meetings: u64,
}

/// Something that all nodes do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Two counters, one after the other, and words whose halves are equal.
    Order,
    /// A payload that a counter publishes.
    Payload,
    /// A token that wakes one sleeper after the other.
    Token,
}

impl Phase {
    /// All of them.
    pub const TOGETHER: [Self; 3] = [Self::Order, Self::Payload, Self::Token];

    /// What a member says when it is through.
    pub fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Payload => "payload",
            Self::Token => "token",
        }
    }

    /// What it shows.
    pub fn promise(self) -> &'static str {
        match self {
            Self::Order => "writes come in order and words whole",
            Self::Payload => "a counter publishes what was written before it",
            Self::Token => "no ring is lost between processes that sleep",
        }
    }

    /// Plays it.
    pub fn play(self, player: &mut Player) -> Result<()> {
        match self {
            Self::Order => player.order()?,
            Self::Payload => player.payload()?,
            Self::Token => player.token()?,
        }
        player.meet()
    }
}

fn write(offset: usize, len: usize) -> Write {
    Write {
        local: OWN + offset,
        remote: offset,
        len,
    }
}

impl Player {
    /// A node at the beginning.
    pub fn new(kind: Kind, node: Arc<dyn Endpoint>) -> Self {
        Self {
            node,
            rounds: kind.fewer(ROUNDS),
            meetings: 0,
        }
    }

    fn load(&self, offset: usize) -> Result<u64> {
        Ok(self.node.region().word(offset)?.load(Ordering::Acquire))
    }

    fn store(&self, offset: usize, value: u64) -> Result<()> {
        let word = self.node.region().word(OWN + offset)?;
        word.store(value, Ordering::Release);
        Ok(())
    }

    fn next(&self) -> usize {
        (self.node.rank() + 1) % self.node.nodes()
    }

    fn previous(&self) -> usize {
        (self.node.rank() + self.node.nodes() - 1) % self.node.nodes()
    }

    fn until(&self, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        let end = Instant::now() + patience();
        while !done()? {
            self.node.poll();
            thread::yield_now();
            ensure!(Instant::now() < end, "{what}: not within {:?}", patience());
        }
        Ok(())
    }

    /// Waits until all who live are here.
    pub fn meet(&mut self) -> Result<()> {
        self.meetings += 1;
        let (own, count) = (self.node.rank(), self.meetings);
        let lives = |rank: usize| rank != own && !self.node.down().contains(rank);
        let place = MEETING + own * WORD;
        self.store(place, count)?;
        for rank in (0..self.node.nodes()).filter(|&rank| lives(rank)) {
            self.node.post(rank, &[write(place, WORD)])?;
        }
        for rank in (0..self.node.nodes()).filter(|&rank| rank != own) {
            self.until("the others", || {
                Ok(!lives(rank) || self.load(MEETING + rank * WORD)? >= count)
            })?;
        }
        Ok(())
    }

    fn order(&self) -> Result<()> {
        thread::scope(|scope| {
            let writer = scope.spawn(|| -> Result<()> {
                for round in 1..=self.rounds {
                    self.store(FIRST, round)?;
                    self.store(SECOND, round)?;
                    for at in (0..WORD_ATOMIC_BYTES).step_by(WORD) {
                        self.store(BLOCK + at, (round << 32) | round)?;
                    }
                    let (first, second) = (write(FIRST, WORD), write(SECOND, WORD));
                    let block = write(BLOCK, WORD_ATOMIC_BYTES);
                    self.node.post(self.next(), &[first, second, block])?;
                }
                Ok(())
            });
            self.until("the last round", || {
                let last = self.load(BLOCK + WORD_ATOMIC_BYTES - WORD)?;
                let second = self.load(SECOND)?;
                let first = self.load(FIRST)?;
                ensure!(first >= second, "write {second} overtook write {first}");
                for at in (0..WORD_ATOMIC_BYTES).step_by(WORD) {
                    let word = self.load(BLOCK + at)?;
                    ensure!(
                        word >> 32 == word & 0xFFFF_FFFF,
                        "a word was torn: {word:x}"
                    );
                }
                Ok(second == self.rounds && last & 0xFFFF_FFFF == self.rounds)
            })?;
            writer.join().map_err(|_| anyhow::anyhow!("it panicked"))?
        })
    }

    fn payload(&self) -> Result<()> {
        let words = || (PAYLOAD..PAYLOAD + PAYLOAD_BYTES).step_by(WORD);
        for round in 1..=PAYLOADS {
            for at in words() {
                self.store(at, round)?;
            }
            self.store(TOKEN, round)?;
            let both = [write(PAYLOAD, PAYLOAD_BYTES), write(TOKEN, WORD)];
            self.node.post(self.next(), &both)?;
            self.until("the counter", || Ok(self.load(TOKEN)? >= round))?;
            for at in words() {
                let word = self.load(at)?;
                ensure!(
                    word == round,
                    "payload {word} at {at} under counter {round}"
                );
            }
            self.store(ANSWER, round)?;
            self.node.post(self.previous(), &[write(ANSWER, WORD)])?;
            self.until("the answer", || Ok(self.load(ANSWER)? >= round))?;
        }
        Ok(())
    }

    fn token(&mut self) -> Result<()> {
        // The counter of the phase before is in the same place.
        self.store(TOKEN, 0)?;
        self.node.region().word(TOKEN)?.store(0, Ordering::Release);
        self.meet()?;
        let first = self.node.rank() == 0;
        for lap in 1..=LAPS {
            if !first {
                self.sleep_until(lap)?;
            }
            self.store(TOKEN, lap)?;
            self.node.post(self.next(), &[write(TOKEN, WORD)])?;
            self.node.ring(self.next());
            if first {
                self.sleep_until(lap)?;
            }
        }
        Ok(())
    }

    fn sleep_until(&self, lap: u64) -> Result<()> {
        let end = Instant::now() + patience();
        let here = || self.load(TOKEN).is_ok_and(|token| token >= lap);
        while !here() {
            self.node.sleep(Some(patience()), &mut || here());
            ensure!(Instant::now() < end, "nobody rang in lap {lap}");
        }
        Ok(())
    }
}

/// Prints what things take between two nodes.
pub fn speed(kind: Kind) -> Result<()> {
    let meeting: Vec<_> = Placed::all(kind, 2)
        .into_iter()
        .map(|node| {
            thread::spawn(move || {
                // SAFETY: one node posts to the other, and nobody has references.
                unsafe { node.connect(REGION_BYTES, &[], patience()) }
            })
        })
        .collect();
    let mut nodes = Vec::new();
    for thread in meeting {
        let connected = thread
            .join()
            .map_err(|_| anyhow::anyhow!("it panicked"))??;
        nodes.push(connected.endpoint);
    }
    for len in [8, 256, 8192] {
        let began = Instant::now();
        let rounds = kind.fewer(ROUNDS);
        for _ in 0..rounds {
            nodes[0].post(1, &[write(0, len)])?;
        }
        nodes[0].fence(1)?;
        let each = began.elapsed() / rounds as u32;
        println!("# {kind}: a post of {len} bytes takes {each:?}");
    }
    let began = Instant::now();
    for _ in 0..LAPS {
        nodes[0].fence(1)?;
    }
    println!(
        "# {kind}: a fence takes {:?}",
        began.elapsed() / LAPS as u32
    );
    let players: Vec<_> = nodes
        .into_iter()
        .map(|node| Player::new(kind, node))
        .collect();
    let began = Instant::now();
    thread::scope(|scope| {
        let playing: Vec<_> = players
            .into_iter()
            .map(|mut player| scope.spawn(move || player.token()))
            .collect();
        for thread in playing {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("it panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let each = began.elapsed() / (2 * LAPS as u32);
    println!("# {kind}: to wake a sleeper takes {each:?}");
    Ok(())
}
