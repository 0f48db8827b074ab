// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bars, on top of one another where they are parts of a sum, or side by side.

use plotters::chart::ChartBuilder;
use plotters::prelude::{Rectangle, Text, BLACK, WHITE};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{RGBColor, TextStyle};

use super::axis::{Axis, Fitted};
use super::legend::{self, Entry};
use super::lines::{mesh, Context};
use super::style::{edge, text, Look};
use super::{Area, Painted};

/// Share of a category's width that its bars take.
const WIDTH: f64 = 0.7;
/// A part that is less than this share of the axis has no room for its number.
const ROOM: f64 = 0.055;
/// Pixels of the numbers at bars.
const NUMBERS: u32 = 13;

/// The bars of one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// What they are of.
    pub name: String,
    /// A number for each part; none where it has none.
    pub parts: Vec<Option<f64>>,
}

/// Bars of several things.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    pub y: Axis,
    /// Names of the parts.
    pub parts: Vec<String>,
    pub stacks: Vec<Stack>,
    /// Whether parts are on top of one another.
    pub is_sum: bool,
}

impl Bars {
    /// Whether any has a number.
    pub fn has_data(&self) -> bool {
        let mut all = self.stacks.iter().flat_map(|stack| &stack.parts);
        all.any(Option::is_some)
    }

    /// What stands highest in a category.
    fn tops(&self) -> impl Iterator<Item = f64> + '_ {
        self.stacks.iter().flat_map(|stack| {
            let numbers = stack.parts.iter().flatten().copied();
            match self.is_sum {
                true => vec![numbers.sum()],
                false => numbers.collect(),
            }
        })
    }

    pub(super) fn paint(&self, area: &Area<'_>) -> Painted {
        let entries: Vec<_> = (self.parts.iter().enumerate())
            .map(|(at, name)| Entry {
                name,
                look: Look::of(at),
                is_area: true,
            })
            .collect();
        let plot = legend::below(area, if entries.len() > 1 { &entries } else { &[] })?;
        let x = Fitted::categories(self.stacks.len());
        let y = self.y.fitted(self.tops());
        let mut chart = ChartBuilder::on(&plot)
            .margin(10)
            .margin_top(24)
            .x_label_area_size(34)
            .y_label_area_size(78)
            .build_cartesian_2d(x.clone(), y.clone())?;
        // The middle of the category with a number is half behind it.
        let name = |at: &f64| {
            let stack = self.stacks.get(at.floor().max(0.0) as usize);
            stack.map_or_else(String::new, |stack| stack.name.clone())
        };
        mesh(&mut chart, "", &name, x.tick_count(), (&self.y, &y))?;
        for (at, stack) in self.stacks.iter().enumerate() {
            match self.is_sum {
                true => self.pile(&mut chart, at as f64, stack, &y)?,
                false => self.row(&mut chart, at as f64, stack, &y)?,
            }
        }
        Ok(())
    }

    /// Parts on top of one another, and their sum above.
    fn pile(&self, chart: &mut Context<'_>, at: f64, stack: &Stack, y: &Fitted) -> Painted {
        let (left, right) = (at + (1.0 - WIDTH) / 2.0, at + (1.0 + WIDTH) / 2.0);
        let mut top = 0.0;
        for (part, value) in stack.parts.iter().enumerate() {
            let Some(value) = value else { continue };
            let look = Look::of(part);
            let corners = [(left, top), (right, top + value)];
            bar(chart, corners, look)?;
            if value / y.length() > ROOM {
                let colour = if is_dark(look.colour) { &WHITE } else { &BLACK };
                let style = text(NUMBERS).color(colour);
                let middle = (at + 0.5, top + value / 2.0);
                number(chart, self.y.unit.show(*value), middle, style, VPos::Center)?;
            }
            top += value;
        }
        let sum = self.y.unit.show(top);
        number(chart, sum, (at + 0.5, top), text(NUMBERS), VPos::Bottom)
    }

    /// Parts side by side, each with its number above.
    fn row(&self, chart: &mut Context<'_>, at: f64, stack: &Stack, y: &Fitted) -> Painted {
        let width = WIDTH / self.parts.len().max(1) as f64;
        for (part, value) in stack.parts.iter().enumerate() {
            let Some(value) = value.filter(|&value| self.y.takes(value)) else {
                continue;
            };
            let left = at + (1.0 - WIDTH) / 2.0 + part as f64 * width;
            bar(
                chart,
                [(left, y.floor()), (left + width, value)],
                Look::of(part),
            )?;
            let above = (left + width / 2.0, value);
            let shown = self.y.unit.show(value);
            number(chart, shown, above, text(NUMBERS), VPos::Bottom)?;
        }
        Ok(())
    }
}

fn bar(chart: &mut Context<'_>, corners: [(f64, f64); 2], look: Look) -> Painted {
    let styles = [look.fill(), edge()];
    chart.draw_series(styles.map(|style| Rectangle::new(corners, style)))?;
    Ok(())
}

fn number(
    chart: &mut Context<'_>,
    shown: String,
    at: (f64, f64),
    style: TextStyle<'static>,
    position: VPos,
) -> Painted {
    let style = style.pos(Pos::new(HPos::Center, position));
    chart.draw_series([Text::new(shown, at, style)])?;
    Ok(())
}

fn is_dark(colour: RGBColor) -> bool {
    u32::from(colour.0) + u32::from(colour.1) + u32::from(colour.2) < 330
}

#[cfg(test)]
mod tests {
    use super::super::{svg, Chart, Plot, Unit};
    use super::*;

    fn bars(is_sum: bool) -> Bars {
        let stack = |name: &str, parts: &[Option<f64>]| Stack {
            name: name.to_owned(),
            parts: parts.to_vec(),
        };
        Bars {
            y: Axis::linear("time", Unit::Us),
            parts: vec!["open".to_owned(), "connect".to_owned()],
            stacks: vec![
                stack("verbs", &[Some(30.0), Some(12.0)]),
                stack("weft", &[None, Some(5.0)]),
            ],
            is_sum,
        }
    }

    fn drawn(is_sum: bool) -> String {
        let chart = Chart {
            name: "test".to_owned(),
            title: String::new(),
            plot: Plot::Bars(bars(is_sum)),
        };
        svg(&[chart]).unwrap()
    }

    #[test]
    fn a_pile_says_its_sum() {
        assert_eq!(bars(true).tops().collect::<Vec<_>>(), [42.0, 5.0]);
        let svg = drawn(true);
        for words in ["42 µs", "30 µs", "5 µs", "verbs", "weft", "open", "connect"] {
            assert!(svg.contains(words), "{words}");
        }
    }

    #[test]
    fn a_row_has_a_bar_and_a_number_for_each_part() {
        assert_eq!(bars(false).tops().collect::<Vec<_>>(), [30.0, 12.0, 5.0]);
        let svg = drawn(false);
        assert!(svg.contains("12 µs") && !svg.contains("42 µs"));
        assert!(bars(false).has_data());
    }
}
