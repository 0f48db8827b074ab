// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lines with a point at each number that was measured.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::cartesian::Cartesian2d;
use plotters::prelude::{Color as _, LineSeries, SVGBackend, BLACK, TRANSPARENT};
use plotters::series::DashedLineSeries;

use super::axis::{Axis, Fitted};
use super::legend::{self, Entry};
use super::style::{text, Look};
use super::{Area, Painted};

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it is of.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

impl Line {
    /// A line through points.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        let name = name.into();
        Self { name, points }
    }
}

/// Lines in one chart. A line's place in the list decides how it looks, so that what
/// lacks in one chart changes no colours in the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

/// What lines and bars are drawn into.
pub(super) type Context<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Fitted, Fitted>>;

impl Lines {
    /// Whether any line has a point.
    pub fn has_data(&self) -> bool {
        self.drawn().next().is_some()
    }

    /// The points of a line that have a place.
    fn points<'s>(&'s self, line: &'s Line) -> impl Iterator<Item = (f64, f64)> + Clone + 's {
        let points = line.points.iter().copied();
        points.filter(|&(x, y)| self.x.takes(x) && self.y.takes(y))
    }

    fn drawn(&self) -> impl Iterator<Item = (Look, &Line)> {
        let all = self.lines.iter().enumerate();
        all.map(|(at, line)| (Look::of(at), line))
            .filter(|(_, line)| self.points(line).next().is_some())
    }

    pub(super) fn paint(&self, area: &Area<'_>) -> Painted {
        let entries: Vec<_> = self
            .drawn()
            .map(|(look, line)| Entry {
                name: &line.name,
                look,
                is_area: false,
            })
            .collect();
        let plot = legend::below(area, &entries)?;
        let all = || self.lines.iter().flat_map(|line| self.points(line));
        let x = self.x.fitted(all().map(|point| point.0));
        let y = self.y.fitted(all().map(|point| point.1));
        let mut chart = ChartBuilder::on(&plot)
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(78)
            .build_cartesian_2d(x.clone(), y.clone())?;
        mesh(
            &mut chart,
            &self.x.label,
            &|at| self.x.unit.show(*at),
            x.tick_count(),
            (&self.y, &y),
        )?;
        for (look, line) in self.drawn() {
            match look.dashes {
                None => chart.draw_series(LineSeries::new(self.points(line), look.stroke()))?,
                Some((dash, gap)) => {
                    let points: Vec<_> = self.points(line).collect();
                    let dashed =
                        DashedLineSeries::new(points.into_iter(), dash, gap, look.stroke());
                    chart.draw_series(dashed)?
                }
            };
            let inside = chart.plotting_area();
            let pixels = inside.strip_coord_spec();
            let (left, top) = pixels.get_base_pixel();
            for point in self.points(line) {
                let (x, y) = inside.map_coordinate(&point);
                legend::mark(&pixels, (x - left, y - top), look)?;
            }
        }
        Ok(())
    }
}

/// Axes, their names, and a pale line at each tick.
pub(super) fn mesh(
    chart: &mut Context<'_>,
    x_label: &str,
    x_show: &dyn Fn(&f64) -> String,
    x_ticks: usize,
    (y, fitted): (&Axis, &Fitted),
) -> Painted {
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.13))
        .axis_desc_style(text(15))
        .label_style(text(14))
        .x_desc(x_label)
        .y_desc(&y.label)
        .x_labels(x_ticks)
        .y_labels(fitted.tick_count())
        .x_label_formatter(&|at| x_show(at))
        .y_label_formatter(&|at| y.unit.show(*at))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{svg, Chart, Plot, Unit};
    use super::*;

    fn lines(lines: Vec<Line>) -> Lines {
        Lines {
            x: Axis::places("size", Unit::Bytes),
            y: Axis::log("time", Unit::Us),
            lines,
        }
    }

    #[test]
    fn a_line_that_lacks_changes_no_others_look() {
        let all = lines(vec![
            Line::new("gone", vec![]),
            Line::new("zero", vec![(8.0, 0.0)]),
            Line::new("there", vec![(8.0, 1.0)]),
        ]);
        let drawn: Vec<_> = all.drawn().collect();
        assert_eq!(drawn.len(), 1);
        assert_eq!(drawn[0].1.name, "there");
        assert_eq!(drawn[0].0.marker, Look::of(2).marker);
    }

    #[test]
    fn every_point_and_every_name_is_drawn() {
        let points = vec![(8.0, 10.0), (64.0, 20.0), (512.0, 40.0)];
        let plot = lines(vec![
            Line::new("whole", points.clone()),
            Line::new("none", vec![]),
        ]);
        let chart = Chart {
            name: "test".to_owned(),
            title: String::new(),
            plot: Plot::Lines(plot),
        };
        let svg = svg(&[chart]).unwrap();
        // One more in the legend.
        assert_eq!(svg.matches("<circle").count(), points.len() + 1);
        assert!(svg.contains("whole") && !svg.contains("none\n"));
        for tick in ["8 B", "64 B", "512 B"] {
            assert!(svg.contains(tick), "{tick}");
        }
    }
}
