// SPDX-License-Identifier: MIT OR Apache-2.0

//! Charts: what they show, and how they become SVG.
//!
//! Series differ in colour, in the dashes of their lines and in the shape of their
//! points, so that they can be told apart on paper without colours and by readers who
//! see few. Colours are Okabe and Ito's, which nearly everybody can tell apart.

mod axis;
mod bars;
mod legend;
mod lines;
mod style;

use anyhow::{anyhow, Result};
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea as _, SVGBackend, WHITE};

pub use axis::{Axis, Unit};
pub use bars::{Bars, Stack};
pub use lines::{Line, Lines};

/// Of a chart, in pixels.
const SIZE: (u32, u32) = (760, 430);

/// What a chart is painted on.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Painted = Result<(), Box<dyn std::error::Error>>;

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The name of its file.
    pub name: String,
    /// What is over it.
    pub title: String,
    /// What it shows.
    pub plot: Plot,
}

/// What a chart shows.
#[derive(Clone, Debug)]
pub enum Plot {
    /// Lines over an axis of numbers.
    Lines(Lines),
    /// Bars of parts, one for each of several things.
    Bars(Bars),
}

impl Chart {
    /// Whether it has anything to show.
    pub fn has_data(&self) -> bool {
        match &self.plot {
            Plot::Lines(lines) => lines.has_data(),
            Plot::Bars(bars) => bars.has_data(),
        }
    }

    fn paint(&self, area: &Area<'_>) -> Painted {
        let area = area.titled(&self.title, style::text(19))?;
        match &self.plot {
            Plot::Lines(lines) => lines.paint(&area),
            Plot::Bars(bars) => bars.paint(&area),
        }
    }
}

/// Draws charts side by side into one picture.
pub fn svg(charts: &[Chart]) -> Result<String> {
    let names = || charts.iter().map(|chart| &*chart.name).collect::<Vec<_>>();
    paint(charts).map_err(|error| anyhow!("cannot draw {}: {error}", names().join(" and ")))
}

fn paint(charts: &[Chart]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    let count = charts.len().max(1);
    {
        let size = (SIZE.0 * u32::try_from(count)?, SIZE.1);
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        for (chart, area) in charts.iter().zip(area.split_evenly((1, count))) {
            chart.paint(&area)?;
        }
        area.present()?;
    }
    Ok(fluid(&svg))
}

/// The same picture with a size that gives way to a narrow page.
fn fluid(svg: &str) -> String {
    svg.replacen("<svg ", "<svg style=\"max-width:100%;height:auto\" ", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        Chart {
            name: "test".to_owned(),
            title: "A <title> & more".to_owned(),
            plot: Plot::Lines(Lines {
                x: Axis::places("size", Unit::Bytes),
                y: Axis::linear("time", Unit::Us),
                lines: vec![Line::new("series", points)],
            }),
        }
    }

    #[test]
    fn a_picture_is_svg_with_the_words_of_its_charts() {
        let one = chart(vec![(8.0, 1.0), (4096.0, 2.0)]);
        let svg = svg(&[one.clone(), one]).unwrap();
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        for words in [
            "A &lt;title&gt; &amp; more",
            "size",
            "time",
            "4 KiB",
            "series",
        ] {
            assert!(svg.matches(words).count() >= 2, "{words}");
        }
    }
    #[test]
    fn lines_that_lack_points_are_no_data() {
        assert!(!chart(vec![]).has_data());
        assert!(chart(vec![(1.0, 1.0)]).has_data());
    }
}
