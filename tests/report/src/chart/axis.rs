// SPDX-License-Identifier: MIT OR Apache-2.0

//! Axes: which numbers have ticks, and how they are written.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// Ticks of an axis, more or less.
const TICKS: f64 = 6.0;
/// Logarithmic axes with more decades have no ticks between powers of ten.
const FEW_DECADES: f64 = 2.5;
/// A logarithmic axis ends this factor beyond its numbers, a linear one this share
/// above the largest.
const LOG_MARGIN: f64 = 1.25;
const LINEAR_MARGIN: f64 = 0.08;

/// What numbers are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing.
    Plain,
    /// Microseconds, written as seconds or milliseconds where they are many.
    Us,
    /// Bytes, in powers of 1,024.
    Bytes,
    /// How many times another number.
    Times,
    /// Of a hundred.
    Percent,
    /// 10^9 bytes a second.
    GbPerS,
}

impl Unit {
    /// A number with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Plain => grouped(value),
            Self::Us if value.abs() >= 1e6 => format!("{} s", short(value / 1e6)),
            Self::Us if value.abs() >= 1e3 => format!("{} ms", short(value / 1e3)),
            Self::Us => format!("{} µs", short(value)),
            Self::Bytes if value >= 1_048_576.0 => format!("{} MiB", short(value / 1_048_576.0)),
            Self::Bytes if value >= 1024.0 => format!("{} KiB", short(value / 1024.0)),
            Self::Bytes => format!("{} B", short(value)),
            Self::Times => format!("{} ×", short(value)),
            Self::Percent => format!("{} %", short(value)),
            Self::GbPerS => format!("{} GB/s", short(value)),
        }
    }
}

/// A number with three digits that count, and no more zeros than it needs.
fn short(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 100.0 || size == 0.0 {
        0
    } else {
        // At most 12 zeros behind the point.
        (2 - size.log10().floor().max(-12.0) as i32).max(0)
    };
    let text = format!("{value:.*}", decimals.unsigned_abs() as usize);
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

/// Large numbers in thousands and millions.
fn grouped(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{} M", short(value / 1e6)),
        size if size >= 1e4 => format!("{} k", short(value / 1e3)),
        _ => short(value),
    }
}

/// An axis, before it is known what is on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it says beside it.
    pub label: String,
    /// Of its numbers.
    pub unit: Unit,
    scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// From zero.
    Linear,
    Logarithmic,
    /// Each number that occurs has the same distance from the next one.
    Places,
}

impl Axis {
    /// One from zero, in equal steps.
    pub fn linear(label: impl Into<String>, unit: Unit) -> Self {
        Self::new(label, unit, Scale::Linear)
    }

    /// One in powers of ten. What is not positive has no place on it.
    pub fn log(label: impl Into<String>, unit: Unit) -> Self {
        Self::new(label, unit, Scale::Logarithmic)
    }

    /// One with a tick for each number that occurs, and for no other.
    pub fn places(label: impl Into<String>, unit: Unit) -> Self {
        Self::new(label, unit, Scale::Places)
    }

    fn new(label: impl Into<String>, unit: Unit, scale: Scale) -> Self {
        let label = label.into();
        Self { label, unit, scale }
    }

    /// Whether a number has a place on it.
    pub fn takes(&self, value: f64) -> bool {
        value.is_finite() && (self.scale != Scale::Logarithmic || value > 0.0)
    }

    /// The axis for these numbers.
    pub fn fitted(&self, values: impl Iterator<Item = f64>) -> Fitted {
        let mut values: Vec<_> = values.filter(|&value| self.takes(value)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (low, high) = match (values.first(), values.last()) {
            (Some(&low), Some(&high)) => (low, high),
            _ => (1.0, 1.0),
        };
        let (range, ticks) = match self.scale {
            Scale::Linear => {
                let range = low.min(0.0)..above(high);
                let ticks = linear_ticks(&range);
                (range, ticks)
            }
            Scale::Logarithmic => {
                let range = low / LOG_MARGIN..high * LOG_MARGIN;
                let ticks = log_ticks(&range);
                (range, ticks)
            }
            Scale::Places => (low..high, values),
        };
        Fitted {
            range,
            ticks,
            scale: self.scale,
        }
    }
}

fn above(high: f64) -> f64 {
    if high > 0.0 {
        high * (1.0 + LINEAR_MARGIN)
    } else {
        1.0
    }
}

fn linear_ticks(range: &Range<f64>) -> Vec<f64> {
    let rough = (range.end - range.start) / TICKS;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step
        .into_iter()
        .find(|&step| step >= rough)
        .unwrap_or(rough);
    let first = (range.start / step).ceil() as i64;
    let last = (range.end / step).floor() as i64;
    (first..=last).map(|at| at as f64 * step).collect()
}

fn log_ticks(range: &Range<f64>) -> Vec<f64> {
    let (low, high) = (range.start.log10(), range.end.log10());
    let factors: &[f64] = if high - low < FEW_DECADES {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let (first, last) = (low.floor() as i32, high.ceil() as i32);
    let all = (first..=last).flat_map(|power| {
        let base = 10_f64.powi(power);
        factors.iter().map(move |factor| base * factor)
    });
    all.filter(|tick| range.contains(tick)).collect()
}

/// An axis that knows what is on it.
#[derive(Clone, Debug)]
pub struct Fitted {
    range: Range<f64>,
    ticks: Vec<f64>,
    scale: Scale,
}

impl Fitted {
    /// One of so many things, each with its tick in the middle of its part.
    pub fn categories(count: usize) -> Self {
        let ticks = (0..count).map(|at| at as f64 + 0.5).collect();
        Self {
            range: 0.0..count.max(1) as f64,
            ticks,
            scale: Scale::Linear,
        }
    }

    /// From its least number to its largest.
    pub fn length(&self) -> f64 {
        self.range.end - self.range.start
    }

    /// Where a number is, from 0 at its begin to 1 at its end.
    fn share(&self, value: f64) -> f64 {
        let between = |low: f64, at: f64, high: f64| {
            if high > low {
                (at - low) / (high - low)
            } else {
                0.5
            }
        };
        let Range { start, end } = self.range;
        match self.scale {
            Scale::Linear => between(start, value, end),
            Scale::Logarithmic => between(start.log10(), value.log10(), end.log10()),
            Scale::Places => {
                let at = self.ticks.partition_point(|&tick| tick < value);
                (at as f64 + 0.5) / self.ticks.len().max(1) as f64
            }
        }
    }

    /// Ticks on it.
    pub fn tick_count(&self) -> usize {
        self.ticks.len()
    }

    /// Its least number, which bars stand on.
    pub fn floor(&self) -> f64 {
        self.range.start
    }
}

impl Ranged for Fitted {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let length = f64::from(limit.1 - limit.0);
        // Pixels: far less than what an i32 holds.
        limit.0 + (length * self.share(*value).clamp(-1.0, 2.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // A light line beside each one that has a label is of no use.
        match hint.weight().allow_light_points() && hint.bold_points() == 0 {
            true => Vec::new(),
            false => self.ticks.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Fitted {
    fn format(value: &f64) -> String {
        short(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_three_digits_and_a_unit() {
        for (unit, value, text) in [
            (Unit::Us, 0.456, "0.456 µs"),
            (Unit::Us, 42.04, "42 µs"),
            (Unit::Us, 1_540.0, "1.54 ms"),
            (Unit::Us, 2_700_000.0, "2.7 s"),
            (Unit::Bytes, 8.0, "8 B"),
            (Unit::Bytes, 65_536.0, "64 KiB"),
            (Unit::Bytes, 1_048_576.0, "1 MiB"),
            (Unit::Plain, 22_000_000.0, "22 M"),
            (Unit::Plain, 120.0, "120"),
            (Unit::Times, 0.0, "0 ×"),
            (Unit::Percent, 99.9, "99.9 %"),
        ] {
            assert_eq!(unit.show(value), text);
        }
    }

    #[test]
    fn linear_ticks_are_round_and_begin_at_zero() {
        let axis = Axis::linear("", Unit::Plain).fitted([3.0, 97.0].into_iter());
        assert_eq!(axis.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(axis.floor(), 0.0);
        assert!(axis.map(&97.0, (0, 1000)) < 1000);
        assert_eq!(axis.map(&0.0, (500, 0)), 500);
    }

    #[test]
    fn logarithmic_ticks_are_decades_or_a_few_between() {
        let wide = Axis::log("", Unit::Us).fitted([1.0, 40_000.0].into_iter());
        assert_eq!(wide.ticks, [1.0, 10.0, 100.0, 1e3, 1e4]);
        let narrow = Axis::log("", Unit::Us).fitted([30.0, 90.0].into_iter());
        assert_eq!(narrow.ticks, [50.0, 100.0]);
        let (ten, hundred) = (wide.share(10.0), wide.share(100.0));
        assert!((hundred - ten - (ten - wide.share(1.0))).abs() < 1e-9);
    }

    #[test]
    fn places_are_apart_alike_whatever_their_numbers() {
        let axis = Axis::places("", Unit::Bytes).fitted([65_536.0, 8.0, 4096.0, 8.0].into_iter());
        let at = axis.ticks.iter().map(|tick| axis.map(tick, (0, 600)));
        assert_eq!(at.collect::<Vec<_>>(), [100, 300, 500]);
    }

    #[test]
    fn what_has_no_logarithm_has_no_place() {
        let axis = Axis::log("", Unit::Us);
        assert!(!axis.takes(0.0) && axis.takes(1e-9) && !axis.takes(f64::NAN));
        assert!(Axis::linear("", Unit::Us).takes(0.0));
        // Nothing at all is still an axis.
        assert!(axis.fitted([].into_iter()).tick_count() > 0);
    }
}
