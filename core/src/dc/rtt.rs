// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How long an answer takes, and with that how long to wait for one: as TCP
//! estimates it (RFC 6298), in integers. A slow or busy peer is not taken for a
//! lossy network, whose packets have to be sent again.

use super::{RTO_MAX_NS, RTO_MIN_NS};

/// An estimate from the answers so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    /// Smoothed round trip and its variation; 0 before the first answer.
    smoothed_ns: u64,
    variation_ns: u64,
}

impl RoundTrip {
    /// Nothing was answered yet.
    pub(super) const UNKNOWN: Self = Self {
        smoothed_ns: 0,
        variation_ns: 0,
    };

    /// A request that was sent once was answered after so long.
    pub(super) fn learn(&mut self, took_ns: u64) {
        // A sample beyond the longest timeout says no more than that.
        let took_ns = took_ns.min(RTO_MAX_NS);
        if self.smoothed_ns == 0 {
            self.smoothed_ns = took_ns;
            self.variation_ns = took_ns / 2;
            return;
        }
        let off_ns = self.smoothed_ns.abs_diff(took_ns);
        self.variation_ns = (3 * self.variation_ns + off_ns) / 4;
        self.smoothed_ns = (7 * self.smoothed_ns + took_ns) / 8;
    }

    /// How long to wait after so many timeouts.
    pub(super) fn timeout_ns(&self, doublings: u32) -> u64 {
        let first_ns = (self.smoothed_ns + 4 * self.variation_ns).max(RTO_MIN_NS);
        (first_ns << doublings.min(8)).min(RTO_MAX_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fast_peer_gets_the_shortest_timeout_and_it_doubles() {
        let mut trip = RoundTrip::UNKNOWN;
        assert_eq!(trip.timeout_ns(0), RTO_MIN_NS);
        for _ in 0..100 {
            trip.learn(20_000);
        }
        assert_eq!(trip.timeout_ns(0), RTO_MIN_NS);
        assert_eq!(trip.timeout_ns(1), 2 * RTO_MIN_NS);
        assert_eq!(trip.timeout_ns(u32::MAX), RTO_MAX_NS);
    }

    #[test]
    fn a_slow_peer_gets_more_time_than_it_takes() {
        let mut trip = RoundTrip::UNKNOWN;
        for _ in 0..100 {
            trip.learn(30_000_000);
        }
        assert!(trip.timeout_ns(0) >= 30_000_000);
        assert!(trip.timeout_ns(0) < 40_000_000);
    }

    proptest! {
        #[test]
        fn a_timeout_is_always_within_its_bounds(samples in prop::collection::vec(any::<u64>(), 0..50), tries in any::<u32>()) {
            let mut trip = RoundTrip::UNKNOWN;
            samples.into_iter().for_each(|sample| trip.learn(sample));
            prop_assert!((RTO_MIN_NS..=RTO_MAX_NS).contains(&trip.timeout_ns(tries)));
        }
    }
}
