// SPDX-License-Identifier: MIT OR Apache-2.0

//! The doorbell within the process: who sleeps until somebody rings.

use crate::deadline::end_of;
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A place for one sleeper. Ringing while nobody sleeps is next to free.
#[derive(Debug, Default)]
pub(super) struct Bell {
    asleep: AtomicBool,
    rung: Mutex<bool>,
    wake: Condvar,
}

impl Bell {
    /// Ends the sleep, if there is one. Who sleeps announces it and then looks
    /// for work, who rings has made work and then looks for the announcement,
    /// both with a full fence in between: one of the two sees the other.
    pub(super) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.wake.notify_one();
        }
    }

    /// Waits for a ring, unless `ready` has seen something.
    pub(super) fn sleep(&self, timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if !ready() {
            self.wait(timeout.map(end_of));
        }
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn wait(&self, end: Option<Instant>) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*rung {
            rung = match end {
                None => self.wake.wait(rung).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    let woken = self.wake.wait_timeout(rung, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
