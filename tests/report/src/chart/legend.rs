// SPDX-License-Identifier: MIT OR Apache-2.0

//! Names of series, below a chart, where they cover nothing.

use plotters::prelude::{Circle, Cross, PathElement, Rectangle, Text, TriangleMarker};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::style::{edge, text, Look, Marker};
use super::{Area, Painted};

/// Pixels: of a row of names, of what stands before a name, behind it, and of a letter.
const ROW: i32 = 20;
const SAMPLE: i32 = 34;
const GAP: i32 = 22;
const LETTER: f64 = 6.6;
const MARGIN: i32 = 14;
const TEXT: u32 = 14;

/// A name and what it is for.
pub struct Entry<'a> {
    pub name: &'a str,
    pub look: Look,
    /// A filled box, not a line.
    pub is_area: bool,
}

/// Writes names at an area's bottom, and answers with what is left of it.
pub fn below<'a>(
    area: &Area<'a>,
    entries: &[Entry<'_>],
) -> Result<Area<'a>, Box<dyn std::error::Error>> {
    let (width, height) = area.dim_in_pixel();
    let (width, height) = (i32::try_from(width)?, i32::try_from(height)?);
    let places = places(entries, width);
    let rows = places.last().map_or(0, |place| place.1 + 1);
    let (plot, strip) = area.split_vertically(height - rows * ROW - MARGIN / 2);
    for (entry, (x, row)) in entries.iter().zip(places) {
        paint(&strip, entry, (x, row * ROW + ROW / 2))?;
    }
    Ok(plot)
}

/// Where names begin, and in which row.
fn places(entries: &[Entry<'_>], width: i32) -> Vec<(i32, i32)> {
    let (mut x, mut row) = (MARGIN, 0);
    let mut places = Vec::new();
    for entry in entries {
        let letters = entry.name.chars().count() as f64;
        let length = SAMPLE + (letters * LETTER) as i32;
        if x + length > width - MARGIN && x > MARGIN {
            (x, row) = (MARGIN, row + 1);
        }
        places.push((x, row));
        x += length + GAP;
    }
    places
}

fn paint(strip: &Area<'_>, entry: &Entry<'_>, (x, y): (i32, i32)) -> Painted {
    let (left, right) = ((x, y), (x + SAMPLE - 8, y));
    let look = entry.look;
    if entry.is_area {
        let corners = [(left.0, y - 6), (right.0, y + 6)];
        strip.draw(&Rectangle::new(corners, look.fill()))?;
        strip.draw(&Rectangle::new(corners, edge()))?;
    } else {
        let dash = look.dashes.unwrap_or((right.0 - left.0, 0));
        let mut at = left.0;
        while at < right.0 {
            let end = (at + dash.0).min(right.0);
            strip.draw(&PathElement::new([(at, y), (end, y)], look.stroke()))?;
            at += dash.0 + dash.1;
        }
        mark(strip, ((left.0 + right.0) / 2, y), look)?;
    }
    let style = text(TEXT).pos(Pos::new(HPos::Left, VPos::Center));
    strip.draw(&Text::new(entry.name.to_owned(), (x + SAMPLE, y), style))?;
    Ok(())
}

/// Paints a point of a line, where its middle is said in pixels.
pub fn mark(area: &Area<'_>, at: (i32, i32), look: Look) -> Painted {
    let (fill, stroke) = (look.fill(), look.stroke());
    match look.marker {
        Marker::Disc => area.draw(&Circle::new(at, 4, fill))?,
        Marker::Ring => area.draw(&Circle::new(at, 4, stroke))?,
        Marker::Triangle => area.draw(&TriangleMarker::new(at, 6, fill))?,
        Marker::Cross => area.draw(&Cross::new(at, 4, stroke))?,
        Marker::Square => {
            let corners = [(at.0 - 4, at.1 - 4), (at.0 + 4, at.1 + 4)];
            area.draw(&Rectangle::new(corners, fill))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_go_into_the_next_row() {
        let entry = |name| Entry {
            name,
            look: Look::of(0),
            is_area: false,
        };
        let long = "a name of some thirty letters";
        let places = places(&[entry(long), entry("b"), entry(long), entry("c")], 400);
        let rows: Vec<_> = places.iter().map(|place| place.1).collect();
        assert_eq!(rows, [0, 0, 1, 1]);
        assert_eq!((places[0].0, places[2].0), (MARGIN, MARGIN));
        assert!(places[1].0 > places[0].0 + SAMPLE);
    }
}
