// SPDX-License-Identifier: MIT OR Apache-2.0

//! Charts as SVG.

use anyhow::{anyhow, Result};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::plan::{Measure, Panel};
use super::result::Row;

const SIZE: (u32, u32) = (880, 520);
const FONT: &str = "sans-serif";
/// Logarithmic axes end this factor beyond the data.
const MARGIN: f64 = 1.1;

/// One line.
struct Series<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
}

/// Draws the panel whose points came to these rows.
pub fn svg(panel: &Panel, rows: &[Row]) -> Result<String> {
    let lines = series(panel, rows);
    let (x_low, x_high) = range(lines.iter().flat_map(|line| &line.points).map(|at| at.0));
    let (y_low, y_high) = range(lines.iter().flat_map(|line| &line.points).map(|at| at.1));
    let y_log = y_low / MARGIN..y_high * MARGIN;
    let x_log = (x_low..x_high).log_scale().base(2.0);
    let logarithmic = matches!(panel.measure, Measure::Milliseconds { logarithmic: true });
    let drawn = match (panel.x.logarithmic, logarithmic) {
        (true, true) => plot(panel, &lines, x_log, y_log.log_scale()),
        (true, false) => plot(panel, &lines, x_log, 0.0..y_high * MARGIN),
        (false, true) => plot(panel, &lines, x_low..x_high, y_log.log_scale()),
        (false, false) => plot(panel, &lines, x_low..x_high, 0.0..y_high * MARGIN),
    };
    drawn.map_err(|error| anyhow!("cannot draw {}: {error}", panel.name))
}

/// The panel's lines, in the order of their first points.
fn series<'a>(panel: &'a Panel, rows: &[Row]) -> Vec<Series<'a>> {
    let mut lines: Vec<Series<'a>> = Vec::new();
    let mut firsts: Vec<f64> = Vec::new();
    for (point, row) in panel.points.iter().zip(rows) {
        let known = lines.iter().position(|line| line.name == point.series);
        let at = known.unwrap_or_else(|| {
            lines.push(Series {
                name: &point.series,
                points: Vec::new(),
            });
            firsts.push(row.seconds());
            lines.len() - 1
        });
        let y = match panel.measure {
            Measure::Milliseconds { .. } => row.seconds() * 1e3,
            Measure::Gbps => row.gbps(),
            Measure::Slowdown => row.seconds() / firsts[at],
        };
        lines[at].points.push((point.x, y));
    }
    lines
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends = (f64::INFINITY, 0.0_f64);
    let (low, high) = values.fold(ends, |(low, high), value| (low.min(value), high.max(value)));
    // An axis needs a length.
    (low, if high > low { high } else { low * 2.0 })
}

fn plot<X, Y>(
    panel: &Panel,
    lines: &[Series<'_>],
    x: X,
    y: Y,
) -> Result<String, Box<dyn std::error::Error>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut svg = String::new();
    paint(panel, lines, &mut svg, x, y)?;
    Ok(svg)
}

fn paint<X, Y>(
    panel: &Panel,
    lines: &[Series<'_>],
    svg: &mut String,
    x: X,
    y: Y,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(&panel.title, (FONT, 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    let short = |value: &f64| format!("{}", (value * 1e3).round() / 1e3);
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .axis_desc_style((FONT, 16))
        .label_style((FONT, 14))
        .x_desc(panel.x.label)
        .y_desc(label(panel.measure))
        .x_label_formatter(&short)
        .y_label_formatter(&short)
        .draw()?;
    for (at, line) in lines.iter().enumerate() {
        let style = Palette99::pick(at).stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style).point_size(3))?
            .label(line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .label_font((FONT, 14))
        .position(free_corner(panel.measure))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

/// Where the legend is in nobody's way: times grow, bandwidth falls.
fn free_corner(measure: Measure) -> SeriesLabelPosition {
    match measure {
        Measure::Gbps => SeriesLabelPosition::UpperRight,
        Measure::Milliseconds { .. } | Measure::Slowdown => SeriesLabelPosition::UpperLeft,
    }
}

fn label(measure: Measure) -> &'static str {
    match measure {
        Measure::Milliseconds { .. } => "until all have it [ms]",
        Measure::Gbps => "bits of all messages over time [Gb/s]",
        Measure::Slowdown => "time, over that of the first point",
    }
}
