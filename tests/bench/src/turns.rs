// SPDX-License-Identifier: MIT OR Apache-2.0

//! Which of several peers or regions a client uses next.

use std::sync::atomic::{AtomicUsize, Ordering};

use weft_testkit::rng::Rng;

/// How many clients have asked so far: each has a start of its own.
static CLIENTS: AtomicUsize = AtomicUsize::new(0);

/// One client's choices among so many.
pub struct Turns {
    count: usize,
    order: Order,
}

enum Order {
    After(usize),
    Drawn(Rng),
}

impl Turns {
    /// One after the other. Each client begins with another one.
    pub fn in_turn(count: usize) -> Self {
        Self::of(count, Order::After)
    }

    /// Drawn at random. Each client draws a sequence of its own, which is the same in
    /// each run.
    pub fn drawn(count: usize) -> Self {
        Self::of(count, |client| Order::Drawn(Rng::new(client as u64)))
    }

    fn of(count: usize, order: impl FnOnce(usize) -> Order) -> Self {
        let client = CLIENTS.fetch_add(1, Ordering::Relaxed);
        Self {
            count: count.max(1),
            order: order(client),
        }
    }

    /// The index of the next one.
    pub fn turn(&mut self) -> usize {
        match &mut self.order {
            Order::After(last) => {
                *last = last.wrapping_add(1);
                *last % self.count
            }
            Order::Drawn(rng) => rng.below(self.count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_take_their_turn() {
        let mut turns = Turns::in_turn(3);
        let mut seen: Vec<_> = (0..3).map(|_| turns.turn()).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2]);
    }

    #[test]
    fn each_is_drawn_about_as_often() {
        let mut turns = Turns::drawn(5);
        let mut seen = [0_u32; 5];
        (0..1000).for_each(|_| seen[turns.turn()] += 1);
        assert!(
            seen.iter().all(|count| (100..300).contains(count)),
            "{seen:?}"
        );
    }
}
