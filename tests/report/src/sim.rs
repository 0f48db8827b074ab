// SPDX-License-Identifier: MIT OR Apache-2.0

//! Panels of RDMC's simulation, as its rows describe them: title, horizontal axis and
//! what is drawn over it.

use crate::chart::{Axis, Chart, Line, Lines, Plot, Unit};
use crate::rows::{Best, Rows, Selection};

/// The panel with this name; none without its rows.
pub fn panel(rows: &Rows, figure: &str) -> Option<Chart> {
    let rows = rows.of("rdmc-sim").is("figure", figure);
    let first = rows.rows().first()?;
    let (title, label) = (first.text("title")?, first.text("x_label")?);
    let measure = Measure::named(first.text("measure")?)?;
    let lines = rows.texts("series").into_iter();
    let lines = lines.map(|series| Line::new(series, measure.points(&rows, series)));
    Some(Chart {
        name: format!("rdmc-sim-{figure}"),
        title: format!("{title}, simulated"),
        plot: Plot::Lines(Lines {
            x: Axis::places(label, Unit::Plain),
            y: measure.axis(),
            lines: lines.collect(),
        }),
    })
}

/// All panels that there are rows of.
pub fn panels(rows: &Rows) -> Vec<Chart> {
    let figures = rows.of("rdmc-sim").texts("figure").into_iter();
    figures.filter_map(|figure| panel(rows, figure)).collect()
}

/// What is drawn.
#[derive(Clone, Copy)]
enum Measure {
    /// Until the last member has the last message.
    Time,
    /// The same over many powers of ten.
    LogTime,
    /// Bits of all messages over that time.
    Bandwidth,
    /// That time over that of the series' first point.
    Slowdown,
}

impl Measure {
    fn named(name: &str) -> Option<Self> {
        match name {
            "ms" => Some(Self::Time),
            "log_ms" => Some(Self::LogTime),
            "gbps" => Some(Self::Bandwidth),
            "slowdown" => Some(Self::Slowdown),
            _ => None,
        }
    }

    fn axis(self) -> Axis {
        match self {
            Self::Time => Axis::linear("until all have it", Unit::Us),
            Self::LogTime => Axis::log("until all have it", Unit::Us),
            Self::Bandwidth => Axis::linear("bits of all messages over time, Gb/s", Unit::Plain),
            Self::Slowdown => Axis::linear("time over that of the first point", Unit::Times),
        }
    }

    fn points(self, rows: &Selection<'_>, series: &str) -> Vec<(f64, f64)> {
        let rows = rows.clone().is("series", series);
        let of = |field, scale: f64| {
            let points = rows.points("x", field, Best::Least).into_iter();
            points.map(|(x, y)| (x, y * scale)).collect::<Vec<_>>()
        };
        match self {
            Self::Time | Self::LogTime => of("seconds", 1e6),
            Self::Bandwidth => of("gb_per_s", 8.0),
            Self::Slowdown => {
                let seconds = of("seconds", 1.0);
                let first = seconds.first().map_or(1.0, |point| point.1);
                let over = |(x, y): (f64, f64)| (x, y / first.max(f64::MIN_POSITIVE));
                seconds.into_iter().map(over).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(measure: &str) -> Vec<(f64, f64)> {
        let line = |x: f64, seconds: f64| {
            format!(
                r#"{{"bench":"rdmc-sim","figure":"slow","series":"chain","title":"T","x":{x},"x_label":"m","measure":"{measure}","seconds":{seconds},"gb_per_s":2}}"#
            )
        };
        let rows = [line(2.0, 0.5), line(4.0, 1.5)].join("\n");
        let chart = panel(&Rows::parse(&rows).unwrap(), "slow").unwrap();
        assert_eq!(
            (&*chart.name, &*chart.title),
            ("rdmc-sim-slow", "T, simulated")
        );
        let Plot::Lines(lines) = chart.plot else {
            unreachable!()
        };
        lines.lines.into_iter().next().unwrap().points
    }

    #[test]
    fn a_panel_is_drawn_as_its_rows_say() {
        assert_eq!(points("ms"), [(2.0, 5e5), (4.0, 1.5e6)]);
        assert_eq!(points("gbps"), [(2.0, 16.0), (4.0, 16.0)]);
        assert_eq!(points("slowdown"), [(2.0, 1.0), (4.0, 3.0)]);
        assert!(panel(&Rows::default(), "slow").is_none());
    }
}
