// SPDX-License-Identifier: MIT OR Apache-2.0

//! Deliveries that a thread of the application asks for.
//!
//! The polling thread says how far messages are stable; this end goes through
//! them in place, and what it has gone through is acknowledged. So a slow
//! application holds its senders up (their windows fill) and nobody else.

use super::deliverer::{Batch, CorruptSender, Deliverer};
use super::shared::Shared;
use crate::smc::Limit;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A message that was copied out of its slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The node that sent it.
    pub sender: usize,
    /// Its place in the order, as in [`super::Message::sequence`].
    pub sequence: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The messages of one subgroup, for one thread. As an iterator it copies
/// each; [`Self::batch`] hands them out in place. After the group was left,
/// what had been stable can still be taken, and senders have room for it until
/// it was, or this was dropped.
pub struct Deliveries {
    deliverer: Deliverer,
    shared: Arc<Shared>,
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliveries")
            .field("subgroup", &self.shared.spec.name)
            .finish_non_exhaustive()
    }
}

impl Deliveries {
    pub(super) fn new(shared: Arc<Shared>, deliverer: Deliverer) -> Self {
        Self { deliverer, shared }
    }

    /// Waits for messages and hands out all that can be delivered, in place.
    /// Answers with what the closure does; none if nothing came in time, or
    /// nothing will come any more ([`Self::is_over`]).
    pub fn batch<R>(
        &mut self,
        timeout: Option<Duration>,
        mut deliver: impl FnMut(&mut Batch<'_>) -> R,
    ) -> Option<R> {
        self.run(timeout, Limit::NONE, &mut deliver)
    }

    /// Whether nothing will come any more: the group was left, or a member has
    /// failed. What had been stable before was delivered.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    fn run<R>(
        &mut self,
        timeout: Option<Duration>,
        most: Limit,
        deliver: &mut dyn FnMut(&mut Batch<'_>) -> R,
    ) -> Option<R> {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            // Read before the rest, so that the last messages are delivered.
            let over = self.is_over();
            let stable = self.shared.stable.load(Ordering::Acquire);
            let mut answer = None;
            let mut upcall = |batch: &mut Batch<'_>| answer = Some(deliver(batch));
            if !self.shared.stay.start_reading() {
                return None;
            }
            let run = self.deliverer.run(stable, most, &mut upcall);
            let delivered = self.deliverer.progress();
            self.shared.stay.stop_reading(&self.shared, delivered, over);
            match run {
                Ok(true) => self.shared.ring(),
                Ok(false) => {}
                Err(CorruptSender(node)) => {
                    self.shared.status.add_failed(node);
                    self.shared.ring();
                }
            }
            if answer.is_some() || over {
                return answer;
            }
            let shared = &self.shared;
            let came = shared.arrival.wait_until(end, || {
                shared.stable.load(Ordering::Acquire) != stable || shared.is_over()
            });
            if !came {
                return None;
            }
        }
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.shared.stay.end();
    }
}

impl Iterator for Deliveries {
    type Item = Received;

    fn next(&mut self) -> Option<Received> {
        let mut copy = |batch: &mut Batch<'_>| {
            batch.next().map(|message| Received {
                sender: message.sender,
                sequence: message.sequence,
                bytes: message.bytes.to_vec(),
            })
        };
        let one = Limit {
            messages: 1,
            ..Limit::NONE
        };
        self.run(None, one, &mut copy).flatten()
    }
}
