// SPDX-License-Identifier: MIT OR Apache-2.0

//! Samples and their percentiles.
//!
//! Times are recorded in nanoseconds, because taking a connection out of a cache
//! takes less than a microsecond, and reported in microseconds.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Digits that a percentile is exact to.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Longer times are recorded as this, an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The percentages at which a distribution is reported to be drawn: closer together
/// towards the slow end.
pub const CDF_PERCENTS: [f64; 20] = [
    0.0, 1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 93.0, 95.0, 97.0,
    98.0, 99.0, 99.5, 99.9,
];

/// A distribution of times.
#[derive(Clone)]
pub struct Times(Histogram<u64>);

impl Times {
    /// No samples yet.
    pub fn new() -> Self {
        let empty = Histogram::new_with_bounds(1, LONGEST_NS, SIGNIFICANT_DIGITS);
        Self(empty.expect("the bounds are in order and the digits between 1 and 5"))
    }

    /// Adds a sample.
    pub fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(ns);
    }

    /// Adds all samples of another distribution.
    pub fn merge(&mut self, other: &Self) {
        self.0
            .add(&other.0)
            .expect("all distributions have the same bounds");
    }

    /// Samples.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that this share of samples, in percent, does not exceed, in
    /// microseconds. `None` without samples.
    pub fn percentile_us(&self, percent: f64) -> Option<f64> {
        (self.count() > 0).then(|| us(self.0.value_at_percentile(percent)))
    }

    /// Shortest time in microseconds.
    pub fn min_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| us(self.0.min()))
    }

    /// Longest time in microseconds.
    pub fn max_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| us(self.0.max()))
    }

    /// The percentiles at [`CDF_PERCENTS`], in microseconds. None without samples.
    pub fn cdf_us(&self) -> Vec<f64> {
        let at = |&percent: &f64| self.percentile_us(percent);
        CDF_PERCENTS.iter().filter_map(at).collect()
    }

    /// Mean in microseconds.
    pub fn mean_us(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.0.mean() / 1e3)
    }
}

/// A distribution as one process tells it another: how often which time, in
/// nanoseconds, was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded(Vec<(u64, u64)>);

impl Recorded {
    /// Samples.
    pub fn count(&self) -> usize {
        let counts = self.0.iter().map(|&(_, count)| count);
        usize::try_from(counts.sum::<u64>()).unwrap_or(usize::MAX)
    }

    /// Adds all samples of another distribution.
    pub fn add(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }
}

impl From<&Times> for Recorded {
    fn from(times: &Times) -> Self {
        let values = times.0.iter_recorded();
        Self(
            values
                .map(|value| (value.value_iterated_to(), value.count_at_value()))
                .collect(),
        )
    }
}

impl From<&Recorded> for Times {
    fn from(recorded: &Recorded) -> Self {
        let mut times = Self::new();
        for &(ns, count) in &recorded.0 {
            times.0.saturating_record_n(ns, count);
        }
        times
    }
}

/// The middle one of some values, or the mean of the two in the middle. `None`
/// without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(lower + (upper - lower) / 2.0)
}

fn us(ns: u64) -> f64 {
    // Exact below 2^53 ns, which is 104 days.
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_microseconds_and_keep_nanoseconds() {
        let mut times = Times::new();
        for ns in 1..=1000 {
            times.record(Duration::from_nanos(ns));
        }
        let close = |got: Option<f64>, want: f64| (got.unwrap() - want).abs() / want < 0.002;
        assert!(close(times.percentile_us(50.0), 0.5));
        assert!(close(times.percentile_us(99.9), 0.999));
        assert!(close(times.min_us(), 0.001));
        assert!(close(times.mean_us(), 0.5005));
    }

    #[test]
    fn a_distribution_is_drawn_by_its_percentiles() {
        let mut times = Times::new();
        assert!(times.cdf_us().is_empty());
        for us in 1..=1000 {
            times.record(Duration::from_micros(us));
        }
        let cdf = times.cdf_us();
        assert_eq!(cdf.len(), CDF_PERCENTS.len());
        assert!(cdf.is_sorted());
        for (percent, us) in CDF_PERCENTS.iter().zip(cdf).skip(1) {
            assert!((us / 10.0 - percent).abs() < 0.2, "{percent} %: {us} us");
        }
    }

    #[test]
    fn merged_distributions_hold_both() {
        let (mut a, mut b) = (Times::new(), Times::new());
        a.record(Duration::from_micros(1));
        b.record(Duration::from_secs(2));
        a.merge(&b);
        assert_eq!(a.count(), 2);
        assert!(a.max_us().unwrap() > 1.99e6);
    }

    #[test]
    fn a_distribution_that_was_told_is_the_same() {
        let mut times = Times::new();
        for ns in [5, 5, 1_000, 77_777] {
            times.record(Duration::from_nanos(ns));
        }
        let mut told = Recorded::from(&times);
        let heard = Times::from(&told);
        assert_eq!(heard.count(), 4);
        assert_eq!(heard.percentile_us(50.0), times.percentile_us(50.0));
        assert_eq!(heard.max_us(), times.max_us());
        told.add(&Recorded::from(&times));
        assert_eq!(Times::from(&told).count(), 8);
    }

    #[test]
    fn the_median_is_the_middle_value_or_the_mean_of_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn nothing_measured_has_no_percentile() {
        assert_eq!(Times::new().percentile_us(50.0), None);
    }
}
