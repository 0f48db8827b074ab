// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The places of a virtual queue pair's queues.
//!
//! A request takes a place until the user has taken its completion, or, if it is
//! unsignalled and succeeds, until it is done; a receive buffer takes one from the
//! message's arrival on. The completion ring has as many places as there can be
//! requests and receive buffers, so that it cannot overflow, whatever the user
//! makes of the indices that it writes.

use crate::uapi::WcStatus;

/// The places, and the indices of the completion and the receive ring.
///
/// # Invariants
///
/// - `in_flight + claimed + unreaped <= sends + recvs`, and `in_flight <= sends`.
/// - `unreaped` completions are in the ring, ending before `cq_tail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    sends: u32,
    recvs: u32,
    in_flight: u32,
    claimed: u32,
    unreaped: u32,
    cq_tail: u32,
    rq_head: u32,
}

impl Queues {
    /// Queues for so many requests and receive buffers.
    #[must_use]
    pub const fn new(sends: u32, recvs: u32) -> Self {
        Self {
            sends,
            recvs,
            in_flight: 0,
            claimed: 0,
            unreaped: 0,
            cq_tail: 0,
            rq_head: 0,
        }
    }

    #[inline]
    const fn free(&self) -> u32 {
        self.sends + self.recvs - self.in_flight - self.claimed - self.unreaped
    }

    /// Takes up to `wanted` places for requests; answers how many it got.
    #[inline]
    pub fn admit(&mut self, wanted: u32) -> u32 {
        let taken = wanted.min(self.sends - self.in_flight).min(self.free());
        // INVARIANT: no more than were free.
        self.in_flight += taken;
        taken
    }

    /// Whether [`Queues::admit`] would give any.
    #[inline]
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.in_flight < self.sends && self.free() != 0
    }

    /// Gives places back whose requests were not posted after all.
    #[inline]
    pub fn withdraw(&mut self, places: u32) {
        self.in_flight = self.in_flight.saturating_sub(places);
    }

    /// A request has ended. Answers the index in the completion ring at which it
    /// shows, if it does: if it was signalled, or failed.
    #[inline]
    #[must_use]
    pub fn complete(&mut self, signaled: bool, status: WcStatus) -> Option<u32> {
        if self.in_flight == 0 {
            return None;
        }
        // INVARIANT: the place becomes free, or a completion takes it.
        self.in_flight -= 1;
        (signaled || status != WcStatus::Success).then(|| self.push())
    }

    /// Takes the next receive buffer, if the user, who has posted up to `rq_tail`,
    /// has one there and a completion for it will fit. Answers its index in the
    /// receive ring.
    #[inline]
    #[must_use]
    pub fn claim(&mut self, rq_tail: u32) -> Option<u32> {
        let posted = rq_tail.wrapping_sub(self.rq_head);
        // More than the ring has is nonsense, and counts as nothing.
        if posted == 0 || posted > self.recvs || self.free() == 0 {
            return None;
        }
        let index = self.rq_head;
        self.rq_head = index.wrapping_add(1);
        // INVARIANT: a place was free.
        self.claimed += 1;
        Some(index)
    }

    /// A claimed receive buffer is done. Answers the index in the completion ring
    /// at which it shows.
    #[must_use]
    pub fn received(&mut self) -> Option<u32> {
        if self.claimed == 0 {
            return None;
        }
        // INVARIANT: a completion takes the place.
        self.claimed -= 1;
        Some(self.push())
    }

    #[inline]
    fn push(&mut self) -> u32 {
        let index = self.cq_tail;
        self.cq_tail = index.wrapping_add(1);
        self.unreaped += 1;
        index
    }

    /// The user says that it has taken the completions before `cq_head`. What
    /// cannot be is ignored.
    #[inline]
    pub fn reaped_to(&mut self, cq_head: u32) {
        let left = self.cq_tail.wrapping_sub(cq_head);
        // INVARIANT: it never grows.
        if left <= self.unreaped {
            self.unreaped = left;
        }
    }

    /// Where the next completion goes.
    #[must_use]
    pub const fn cq_tail(&self) -> u32 {
        self.cq_tail
    }

    /// The next receive buffer to take.
    #[must_use]
    pub const fn rq_head(&self) -> u32 {
        self.rq_head
    }

    /// Requests that have not ended.
    #[inline]
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// What the model keeps: things, not counts.
    #[derive(Default)]
    struct Model {
        in_flight: u32,
        claimed: VecDeque<u32>,
        ring: VecDeque<u32>,
        next: u32,
        posted: u32,
        taken: u32,
    }

    proptest! {
        /// Against a model that keeps the completions themselves, with a user who
        /// writes nonsense at times.
        #[test]
        fn places_are_never_lost_or_doubled(
            sends in 1u32..20,
            recvs in 0u32..20,
            steps in prop::collection::vec((0u8..7, any::<u32>(), any::<bool>(), any::<bool>()), 0..300),
        ) {
            let mut queues = Queues::new(sends, recvs);
            let mut model = Model::default();
            for (step, n, signaled, fails) in steps {
                let full = model.in_flight + (model.claimed.len() + model.ring.len()) as u32;
                match step {
                    0 => {
                        let wanted = n % 30;
                        let taken = queues.admit(wanted);
                        let room = (sends + recvs - full).min(sends - model.in_flight);
                        prop_assert_eq!(taken, wanted.min(room));
                        prop_assert_eq!(queues.has_room(), room > taken);
                        model.in_flight += taken;
                    }
                    1 if model.in_flight > 0 => {
                        let status = if fails { WcStatus::RemAccessErr } else { WcStatus::Success };
                        let shown = queues.complete(signaled, status);
                        prop_assert_eq!(shown, (signaled || fails).then_some(model.next));
                        model.in_flight -= 1;
                        if signaled || fails {
                            model.ring.push_back(model.next);
                            model.next += 1;
                        }
                    }
                    2 => {
                        let count = n as usize % (model.ring.len() + 1);
                        model.ring.drain(..count);
                        queues.reaped_to(model.ring.front().copied().unwrap_or(model.next));
                    }
                    3 => {
                        let back = n % (model.in_flight + 1);
                        queues.withdraw(back);
                        model.in_flight -= back;
                    }
                    4 => {
                        model.posted += n % (recvs - (model.posted - model.taken) + 1);
                        let index = queues.claim(model.posted);
                        let can = model.posted != model.taken && full < sends + recvs;
                        prop_assert_eq!(index, can.then_some(model.taken));
                        if can {
                            model.claimed.push_back(model.taken);
                            model.taken += 1;
                        }
                    }
                    5 if !model.claimed.is_empty() => {
                        model.claimed.pop_front();
                        prop_assert_eq!(queues.received(), Some(model.next));
                        model.ring.push_back(model.next);
                        model.next += 1;
                    }
                    _ => {
                        // Nonsense: heads that were never there, tails far ahead.
                        let behind = model.ring.front().copied().unwrap_or(model.next);
                        queues.reaped_to(behind.wrapping_sub(1 + n % 1000));
                        queues.reaped_to(model.next + 1 + n % 1000);
                        let absurd = model.taken.wrapping_add(recvs + 1 + n % 1000);
                        prop_assert_eq!(queues.claim(absurd), None);
                    }
                }
                prop_assert_eq!(queues.unreaped as usize, model.ring.len());
                prop_assert_eq!(queues.in_flight(), model.in_flight);
                prop_assert_eq!((queues.cq_tail(), queues.rq_head()), (model.next, model.taken));
                let full = model.in_flight as usize + model.claimed.len() + model.ring.len();
                prop_assert!(full as u32 <= sends + recvs);
            }
        }
    }
}
