// SPDX-License-Identifier: MIT OR Apache-2.0

//! Colours, dashes, points and letters.

use plotters::prelude::{Color as _, RGBColor, ShapeStyle, BLACK};
use plotters::style::{FontFamily, IntoFont as _, TextStyle};

/// Okabe and Ito's palette without its yellow, which is too light for a line on white
/// paper, in an order in which neighbours differ in brightness too.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
];

/// Dashes of a line: how long each is and how long the gap behind it, in pixels. The
/// first line has none.
const DASHES: [Option<(i32, i32)>; 5] = [
    None,
    Some((8, 4)),
    Some((2, 3)),
    Some((14, 4)),
    Some((5, 7)),
];

/// How wide a line is, in pixels.
const WIDTH: u32 = 2;

/// The shape of a line's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    Disc,
    Square,
    Triangle,
    Ring,
    Cross,
}

const MARKERS: [Marker; 5] = [
    Marker::Disc,
    Marker::Square,
    Marker::Triangle,
    Marker::Ring,
    Marker::Cross,
];

/// How the series with a number looks. Numbers of dashes, shapes and colours have no
/// common divisor with one another's, so that combinations repeat late.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    pub colour: RGBColor,
    pub dashes: Option<(i32, i32)>,
    pub marker: Marker,
}

impl Look {
    /// That of a number.
    pub fn of(series: usize) -> Self {
        Self {
            colour: PALETTE[series % PALETTE.len()],
            dashes: DASHES[series % DASHES.len()],
            marker: MARKERS[series % MARKERS.len()],
        }
    }

    /// Of a line.
    pub fn stroke(self) -> ShapeStyle {
        self.colour.stroke_width(WIDTH)
    }

    /// Of an area.
    pub fn fill(self) -> ShapeStyle {
        self.colour.filled()
    }
}

/// The edge of an area.
pub fn edge() -> ShapeStyle {
    BLACK.stroke_width(1)
}

/// Letters of so many pixels.
pub fn text(size: u32) -> TextStyle<'static> {
    let font = (FontFamily::SansSerif, size).into_font();
    TextStyle::from(font).color(&BLACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_told_apart_without_colours() {
        let seen: Vec<_> = (0..DASHES.len())
            .map(Look::of)
            .map(|look| (look.dashes, look.marker))
            .collect();
        for (at, look) in seen.iter().enumerate() {
            assert!(!seen[..at].contains(look), "series {at}");
        }
    }

    #[test]
    fn neighbouring_colours_differ_in_brightness_on_a_grey_printer() {
        let grey = |colour: RGBColor| {
            0.299 * f64::from(colour.0) + 0.587 * f64::from(colour.1) + 0.114 * f64::from(colour.2)
        };
        for pair in PALETTE.windows(2) {
            assert!((grey(pair[0]) - grey(pair[1])).abs() > 10.0, "{pair:?}");
        }
    }
}
