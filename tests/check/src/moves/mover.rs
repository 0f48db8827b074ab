// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes the way to a peer again and again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use weft_shim::{Device, Transport};
use weft_testkit::pace::patient;

use crate::rng::Rng;
use crate::world::{counter, gid};

/// VQPs move more often than that.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Mover {
    rng: Rng,
}

impl Mover {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed ^ 0x6d6f_7665),
        }
    }

    /// At random moments, in random directions, until VQPs have moved so often in all.
    pub fn run(&mut self, until: i64, stop: &AtomicBool) -> Result<()> {
        let device = Device::open_on(0)?;
        let (mut seen, mut since) = (counter("moves")?, Instant::now());
        while !stop.load(Ordering::Relaxed) {
            let next = match self.rng.below(2) {
                0 => Transport::Dc,
                _ => Transport::Rc,
            };
            device.pool_use(gid(1), Some(next))?;
            thread::sleep(Duration::from_micros(2000 + self.rng.below(30_000) as u64));
            let moves = counter("moves")?;
            if moves >= until {
                return Ok(());
            }
            if moves != seen {
                (seen, since) = (moves, Instant::now());
            }
            ensure!(
                since.elapsed() < patient(PATIENCE),
                "no VQP moves any more, {} moves before the end",
                until - moves
            );
        }
        Ok(())
    }
}
