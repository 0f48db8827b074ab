// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The places of a completion ring, which any number of virtual queue pairs share.
//!
//! A request takes a place before it is posted, and has it until the user has taken its
//! completion, or, if it is unsignalled and succeeds, until it is done; a receive buffer
//! takes one from the message's arrival on. So the ring cannot overflow, whatever the user
//! makes of the index that it writes.

/// The places, and the ring's index.
///
/// # Invariants
///
/// - `reserved + unreaped <= entries`.
/// - `unreaped` completions are in the ring, ending before `tail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completions {
    entries: u32,
    reserved: u32,
    unreaped: u32,
    tail: u32,
}

impl Completions {
    /// A ring for so many completions.
    #[must_use]
    pub const fn new(entries: u32) -> Self {
        Self {
            entries,
            reserved: 0,
            unreaped: 0,
            tail: 0,
        }
    }

    #[inline]
    const fn free(&self) -> u32 {
        self.entries - self.reserved - self.unreaped
    }

    /// Takes up to `wanted` places; answers how many it got.
    #[inline]
    #[must_use]
    pub fn reserve(&mut self, wanted: u32) -> u32 {
        let taken = wanted.min(self.free());
        // INVARIANT: no more than were free.
        self.reserved += taken;
        taken
    }

    /// Whether [`Completions::reserve`] would give any.
    #[inline]
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.free() != 0
    }

    /// Whether something is under way that has a place.
    #[inline]
    #[must_use]
    pub const fn expects_some(&self) -> bool {
        self.reserved != 0
    }

    /// Gives reserved places back: what they were for has ended without a completion, or
    /// did not begin.
    #[inline]
    pub fn release(&mut self, places: u32) {
        self.reserved = self.reserved.saturating_sub(places);
    }

    /// A completion takes a reserved place. Answers its index in the ring; `None` if no
    /// place was reserved.
    #[inline]
    #[must_use]
    pub fn complete(&mut self) -> Option<u32> {
        if self.reserved == 0 {
            return None;
        }
        let index = self.tail;
        self.tail = index.wrapping_add(1);
        // INVARIANT: the completion takes the place.
        self.reserved -= 1;
        self.unreaped += 1;
        Some(index)
    }

    /// The user says that it has taken the completions before `cq_head`. What
    /// cannot be is ignored.
    #[inline]
    pub fn reaped_to(&mut self, cq_head: u32) {
        let left = self.tail.wrapping_sub(cq_head);
        // INVARIANT: it never grows.
        if left <= self.unreaped {
            self.unreaped = left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against a model that keeps the completions themselves, with a user who
        /// writes nonsense at times.
        #[test]
        fn places_are_never_lost_or_doubled(
            entries in 1u32..40,
            start in any::<u32>(),
            steps in prop::collection::vec((0u8..5, any::<u32>()), 0..300),
        ) {
            let mut places = Completions { tail: start, ..Completions::new(entries) };
            let (mut reserved, mut ring, mut next) = (0, VecDeque::new(), start);
            for (step, n) in steps {
                let full = reserved + ring.len() as u32;
                match step {
                    0 => {
                        let wanted = n % 30;
                        let taken = places.reserve(wanted);
                        prop_assert_eq!(taken, wanted.min(entries - full));
                        prop_assert_eq!(places.has_room(), entries - full > taken);
                        reserved += taken;
                    }
                    1 => {
                        let index = places.complete();
                        prop_assert_eq!(index, (reserved > 0).then_some(next));
                        if reserved > 0 {
                            reserved -= 1;
                            ring.push_back(next);
                            next = next.wrapping_add(1);
                        }
                    }
                    2 => {
                        let count = n as usize % (ring.len() + 1);
                        ring.drain(..count);
                        places.reaped_to(ring.front().copied().unwrap_or(next));
                    }
                    3 => {
                        let back = n % (reserved + 1);
                        places.release(back);
                        reserved -= back;
                    }
                    _ => {
                        // Nonsense: heads that were never there.
                        let behind = ring.front().copied().unwrap_or(next);
                        places.reaped_to(behind.wrapping_sub(1 + n % 1000));
                        places.reaped_to(next.wrapping_add(1 + n % 1000));
                    }
                }
                prop_assert_eq!(places.expects_some(), reserved != 0);
                prop_assert_eq!(places.unreaped as usize, ring.len());
                prop_assert_eq!((places.reserved, places.tail), (reserved, next));
                prop_assert!(reserved + ring.len() as u32 <= entries);
            }
        }
    }
}
