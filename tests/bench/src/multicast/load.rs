// SPDX-License-Identifier: MIT OR Apache-2.0

//! The application of a member: what it sends, and what it does with what is
//! delivered.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weft::{Batch, Sender};

use super::case::{Case, Pause};
use crate::stats::Times;

/// One message in so many is timed: reading the clock takes as long as sending
/// a short one.
const SAMPLED: u64 = 16;
/// Times of sending that are remembered. More than the longest window has
/// sampled messages under way.
const STAMPS: u64 = 1 << 14;

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

    /// The delivery of a member: times its own messages, and copies all if the
    /// case wants it.
    pub fn deliveries(
        self: &Arc<Self>,
        rank: usize,
        case: Case,
        latencies: Arc<Mutex<Times>>,
    ) -> impl FnMut(&mut Batch<'_>) + Send + 'static {
        let clock = Arc::clone(self);
        let mut copy = vec![0; case.bytes];
        let mut own = 0;
        move |batch| {
            let now = clock.now_ns();
            for message in batch {
                if case.memcpy {
                    copy[..message.bytes.len()].copy_from_slice(message.bytes);
                    black_box(&mut copy);
                }
                if message.sender != rank {
                    continue;
                }
                if let Some(stamp) = clock.stamp(own) {
                    let took = now.saturating_sub(stamp.load(Ordering::Relaxed));
                    let mut times = latencies.lock().unwrap_or_else(PoisonError::into_inner);
                    times.record(Duration::from_nanos(took));
                }
                own += 1;
            }
        }
    }
}

/// A sender.
pub struct Load {
    sender: Sender,
    pause: Pause,
    bytes: usize,
    /// What is copied into each slot, if anything is.
    source: Option<Vec<u8>>,
}

impl Load {
    /// The sender of this rank.
    pub fn new(case: &Case, rank: usize, sender: Sender) -> Self {
        let pause = case.delay.map(|delay| delay.of(rank, case.members));
        Self {
            sender,
            pause: pause.unwrap_or(Pause::None),
            bytes: case.bytes,
            source: case.memcpy.then(|| vec![7; case.bytes]),
        }
    }

    /// Sends until it is stopped or the group is gone.
    pub fn run(&self, clock: &Clock, stop: &AtomicBool) {
        if self.pause == Pause::Silent {
            return;
        }
        let mut number = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            if self.send(clock, number).is_err() {
                return;
            }
            number += 1;
            if let Pause::For(pause) = self.pause {
                let began = Instant::now();
                while began.elapsed() < pause {
                    spin_loop();
                }
            }
        }
    }

    /// Sends a message that is built in place. Unless it is copied, only its
    /// number is written, as far as there is room.
    fn send(&self, clock: &Clock, number: u64) -> Result<(), weft::SendError> {
        self.sender.send(|slot| {
            if let Some(stamp) = clock.stamp(number) {
                stamp.store(clock.now_ns(), Ordering::Relaxed);
            }
            match &self.source {
                Some(source) => slot.put(source),
                None => {
                    let number = number.to_le_bytes();
                    let written = number.len().min(self.bytes);
                    slot[..written].copy_from_slice(&number[..written]);
                    slot.set_len(self.bytes);
                }
            }
        })
    }
}
