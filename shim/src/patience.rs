// SPDX-License-Identifier: MIT OR Apache-2.0

//! The time of a call that submits requests in several pieces and waits for completions.
//!
//! Only the last piece may wait for the completions. A piece before it that finds no room waits
//! in naps. Requests that are not signalled make room without a completion, and once the module
//! has taken the piece it waits for completions: a longer wait could last until the time is
//! over, with nothing under way.

use std::time::{Duration, Instant};
use weft_core::uapi::MAX_WAIT_NS;

/// How long a piece that finds no room waits at a time. The next piece is late by no more.
const NAP: Duration = Duration::from_millis(1);

/// A time as the module takes it.
#[inline]
pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(MAX_WAIT_NS, |ns| ns.min(MAX_WAIT_NS))
}

/// The time that a call has left.
#[derive(Debug)]
pub(crate) struct Patience {
    timeout: Duration,
    /// `None`: the clock does not run yet.
    start: Option<Instant>,
    is_over: bool,
}

impl Patience {
    #[inline]
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            start: None,
            is_over: false,
        }
    }

    /// Several calls may wait: the time counts from now on.
    pub(crate) fn begin(&mut self) {
        self.start.get_or_insert_with(Instant::now);
    }

    /// The time that is left. None is left after the last nap.
    #[inline]
    pub(crate) fn left(&self) -> Duration {
        if self.is_over {
            return Duration::ZERO;
        }
        let over = self.start.map_or(Duration::ZERO, |start| start.elapsed());
        self.timeout.saturating_sub(over)
    }

    /// Whether there was the last nap.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Has a call nap, for as long as it is told. If the call ends early, there are completions
    /// enough, or a signal came: that was the last nap, as is the one at the end of the time.
    pub(crate) fn nap<T>(&mut self, call: impl FnOnce(Duration) -> T) -> T {
        self.begin();
        let (nap, start) = (self.left().min(NAP), Instant::now());
        let answer = call(nap);
        self.is_over = start.elapsed() < nap || self.left().is_zero();
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;

    #[test]
    fn a_time_that_is_longer_than_the_module_waits_is_cut() {
        assert_eq!(ns(NAP), 1_000_000);
        assert_eq!(ns(2 * Duration::from_nanos(MAX_WAIT_NS)), MAX_WAIT_NS);
        assert_eq!(ns(Duration::MAX), MAX_WAIT_NS);
    }

    #[test]
    fn the_last_nap_is_the_one_at_the_end_of_the_time() {
        let mut patience = Patience::new(2 * NAP);
        patience.nap(sleep);
        patience.nap(sleep);
        assert!(patience.is_over());
        assert_eq!(patience.left(), Duration::ZERO);
        let mut none = Patience::new(Duration::ZERO);
        none.nap(|nap| assert!(nap.is_zero()));
        assert!(none.is_over());
    }

    #[test]
    fn a_nap_that_ends_early_is_the_last_one() {
        let mut patience = Patience::new(Duration::MAX);
        patience.nap(sleep);
        assert!(!patience.is_over());
        assert!(!patience.left().is_zero());
        patience.nap(|nap| assert_eq!(nap, NAP));
        assert!(patience.is_over());
        assert_eq!(patience.left(), Duration::ZERO);
    }
}
