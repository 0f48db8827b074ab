// SPDX-License-Identifier: MIT OR Apache-2.0

//! Deliveries that a thread of the application asks for.
//!
//! The polling thread says how far messages are stable; this end goes through
//! them in place, and what it has gone through is acknowledged. So a slow
//! application holds its senders up (their windows fill) and nobody else.

use super::deliverer::{Batch, CorruptSender, Deliverer};
use super::shared::Shared;
use crate::deadline::end_of;
use crate::smc::Limit;
use std::fmt;
use std::iter;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

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
/// each; [`Self::batch`] hands them out in place. Tasks have [`Self::next_async`] and
/// [`Self::batch_async`]. After the group was left,
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

    /// As [`Self::batch`], for a task, of any executor; it can be dropped while it waits, and
    /// nothing is lost. None if nothing will come any more.
    pub async fn batch_async<R>(
        &mut self,
        mut deliver: impl FnMut(&mut Batch<'_>) -> R,
    ) -> Option<R> {
        self.run_async(Limit::NONE, &mut deliver).await
    }

    /// The next message, copied, for a task. None if nothing will come any more.
    ///
    /// ```no_run
    /// # async fn example(group: weft::Group, chat: weft::SubgroupHandle) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut deliveries = group.deliveries(chat)?;
    /// while let Some(message) = deliveries.next_async().await {
    ///     println!("{}: {:?}", message.sender, message.bytes);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next_async(&mut self) -> Option<Received> {
        while let Some(next) = self.run_async(ONE, &mut copy).await {
            // A batch is empty if its sender's ring turned out to be corrupt.
            if next.is_some() {
                return next;
            }
        }
        None
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
        let end = timeout.map(end_of);
        loop {
            let stable = match self.look(most, deliver) {
                Found::Batch(answer) => return Some(answer),
                Found::End => return None,
                Found::Nothing { stable } => stable,
            };
            let shared = &self.shared;
            if !shared
                .arrival
                .wait_until(end, || shared.has_arrival(stable))
            {
                return None;
            }
        }
    }

    async fn run_async<R>(
        &mut self,
        most: Limit,
        deliver: &mut impl FnMut(&mut Batch<'_>) -> R,
    ) -> Option<R> {
        loop {
            let stable = match self.look(most, deliver) {
                Found::Batch(answer) => return Some(answer),
                Found::End => return None,
                Found::Nothing { stable } => stable,
            };
            let shared = &self.shared;
            shared.arrival.wait(|| shared.has_arrival(stable)).await;
        }
    }

    /// Hands out what can be delivered now.
    fn look<R>(&mut self, most: Limit, deliver: &mut dyn FnMut(&mut Batch<'_>) -> R) -> Found<R> {
        // Read before the rest, so that the last messages are delivered.
        let over = self.is_over();
        let stable = self.shared.stable.load(Ordering::Acquire);
        let mut answer = None;
        let mut upcall = |batch: &mut Batch<'_>| answer = Some(deliver(batch));
        if !self.shared.stay.start_reading() {
            return Found::End;
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
        match answer {
            Some(answer) => Found::Batch(answer),
            None if over => Found::End,
            None => Found::Nothing { stable },
        }
    }
}

/// The result of a look for messages.
enum Found<R> {
    /// Some, and what their receiver has answered.
    Batch(R),
    /// None, and none will come.
    End,
    /// None behind the first so many.
    Nothing { stable: u64 },
}

const ONE: Limit = Limit {
    messages: 1,
    ..Limit::NONE
};

fn copy(batch: &mut Batch<'_>) -> Option<Received> {
    batch.next().map(|message| Received {
        sender: message.sender,
        sequence: message.sequence,
        bytes: message.bytes.to_vec(),
    })
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.shared.stay.end();
    }
}

impl Iterator for Deliveries {
    type Item = Received;

    fn next(&mut self) -> Option<Received> {
        // A batch is empty if its sender's ring turned out to be corrupt.
        iter::from_fn(|| self.run(None, ONE, &mut copy))
            .flatten()
            .next()
    }
}
