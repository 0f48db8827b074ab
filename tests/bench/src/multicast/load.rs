// SPDX-License-Identifier: MIT OR Apache-2.0

//! The application of a member: what it sends, and what it does with what is
//! delivered.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft::{Batch, Group, SendError, Sender};

use super::case::{Case, Pause, Touch};
use super::payload::{self, Stores};
use crate::stats::Times;

/// One message in so many is timed: reading the clock takes as long as sending
/// a short one.
const SAMPLED: u64 = 16;
/// Times of sending that are remembered. More than the longest window has
/// sampled messages under way.
const STAMPS: u64 = 1 << 14;
/// Bytes that a member which steps sends between two steps: so many that a step's own
/// cost does not show.
const STEP_BYTES: usize = 128 << 10;
/// Steps in which there was nothing to do, after which the processor is yielded.
const SPINS: u32 = 64;

/// When a member's own messages were built.
pub struct Clock {
    epoch: Instant,
    stamps: Vec<AtomicU64>,
}

impl Clock {
    /// A clock at zero.
    pub fn new() -> Self {
        Self {
            epoch: Instant::now(),
            stamps: (0..STAMPS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Where the time of a message is kept, if it is sampled.
    fn stamp(&self, number: u64) -> Option<&AtomicU64> {
        let at = usize::try_from(number / SAMPLED % STAMPS).unwrap_or(0);
        (number % SAMPLED == 0).then(|| &self.stamps[at])
    }
}

/// The delivery of a member: times its own messages, reads each in full, and copies
/// it first if the case wants that.
pub struct Receiver {
    pub rank: usize,
    pub case: Case,
    pub clock: Arc<Clock>,
    pub latencies: Arc<Mutex<Times>>,
    /// Messages that were not what their sender has written.
    pub damaged: Arc<AtomicU64>,
}

impl Receiver {
    /// What delivers.
    pub fn upcall(self) -> impl FnMut(&mut Batch<'_>) + Send + 'static {
        let mut copy = vec![0; self.case.bytes];
        // How many messages of each sender were delivered here.
        let mut numbers = vec![0; self.case.members];
        move |batch| {
            let now = self.clock.now_ns();
            for message in batch {
                let number = numbers[message.sender];
                numbers[message.sender] += 1;
                let mut bytes = message.bytes;
                if self.case.memcpy {
                    copy[..bytes.len()].copy_from_slice(bytes);
                    bytes = &copy[..bytes.len()];
                }
                let is_own = message.sender == self.rank;
                if self.case.touch == Touch::Full && (self.case.own_read || !is_own) {
                    let is_good = bytes.len() == self.case.bytes
                        && payload::is_whole(bytes, message.sender, number);
                    if !is_good {
                        self.damaged.fetch_add(1, Ordering::Relaxed);
                    }
                }
                if is_own {
                    self.note(number, now);
                }
            }
        }
    }

    /// An own message was delivered.
    fn note(&self, number: u64, now_ns: u64) {
        if let Some(stamp) = self.clock.stamp(number) {
            let took = now_ns.saturating_sub(stamp.load(Ordering::Relaxed));
            let times = self.latencies.lock();
            let mut times = times.unwrap_or_else(PoisonError::into_inner);
            times.record(Duration::from_nanos(took));
        }
    }
}

/// Sends, if it is a sender, and steps, until it is stopped, or cannot send any more.
pub fn step(
    group: &Group,
    load: Option<&Load>,
    clock: &Clock,
    stop: &AtomicBool,
) -> Result<(), SendError> {
    let (mut number, mut idle) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let sent = load.map_or(Ok(0), |load| load.send_some(clock, number))?;
        number += sent;
        idle = if group.step() || sent > 0 {
            0
        } else {
            idle + 1
        };
        match idle {
            0 => {}
            1..SPINS => spin_loop(),
            _ => thread::yield_now(),
        }
    }
    Ok(())
}

/// A sender.
pub struct Load {
    sender: Sender,
    rank: usize,
    pause: Pause,
    bytes: usize,
    touch: Touch,
    stores: Stores,
    memcpy: bool,
}

impl Load {
    /// The sender of this rank.
    pub fn new(case: &Case, rank: usize, sender: Sender) -> Self {
        let pause = case.delay.map(|delay| delay.of(rank, case.members));
        Self {
            sender,
            rank,
            pause: pause.unwrap_or(Pause::None),
            bytes: case.bytes,
            touch: case.touch,
            stores: case.stores,
            memcpy: case.memcpy,
        }
    }

    /// Sends until it is stopped, or cannot any more.
    pub fn run(&self, clock: &Clock, stop: &AtomicBool) -> Result<(), SendError> {
        if self.pause == Pause::Silent {
            return Ok(());
        }
        let mut number = 0_u64;
        let mut source = vec![0; if self.memcpy { self.bytes } else { 0 }];
        while !stop.load(Ordering::Relaxed) {
            self.send(clock, number, &mut source)?;
            number += 1;
            if let Pause::For(pause) = self.pause {
                let began = Instant::now();
                while began.elapsed() < pause {
                    spin_loop();
                }
            }
        }
        Ok(())
    }

    /// Sends what goes between two steps, as far as there is room, and says how many
    /// messages that was. The next one has this number.
    fn send_some(&self, clock: &Clock, number: u64) -> Result<u64, SendError> {
        let most = (STEP_BYTES / self.bytes.max(1)).max(1) as u64;
        for sent in 0..most {
            match self.send(clock, number + sent, &mut []) {
                Ok(()) => {}
                Err(SendError::Full) => return Ok(sent),
                Err(error) => return Err(error),
            }
        }
        Ok(most)
    }

    /// Sends a message that is built in place, or elsewhere and copied.
    fn send(&self, clock: &Clock, number: u64, source: &mut [u8]) -> Result<(), SendError> {
        if self.memcpy {
            payload::write(source, self.rank, number, Stores::Cached);
        }
        self.sender.send(|slot| {
            if let Some(stamp) = clock.stamp(number) {
                stamp.store(clock.now_ns(), Ordering::Relaxed);
            }
            match (self.memcpy, self.touch) {
                (true, _) => slot.put(source),
                (false, Touch::Full) => {
                    payload::write(&mut slot[..self.bytes], self.rank, number, self.stores);
                    slot.set_len(self.bytes);
                }
                (false, Touch::None) => slot.set_len(self.bytes),
            }
        })
    }
}
