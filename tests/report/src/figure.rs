// SPDX-License-Identifier: MIT OR Apache-2.0

//! A figure of the report: charts of our results, a paper's numbers beside ours, and
//! what this machine can and cannot show of it.

use crate::chart::{Chart, Unit};
use crate::rows::Rows;

/// How a figure is made. All of its functions answer with less where rows lack.
#[derive(Clone, Copy)]
pub struct Recipe {
    /// Its name in the page's addresses.
    pub id: &'static str,
    /// What it is over.
    pub title: &'static str,
    /// What this machine can and cannot show, in one sentence.
    pub limits: &'static str,
    /// The benchmarks whose rows it is made of, for `scripts/bench`; none if there is
    /// no benchmark of this.
    pub benches: &'static [&'static str],
    /// Its charts.
    pub charts: fn(&Rows) -> Vec<Chart>,
    /// A paper's numbers and ours.
    pub compare: fn(&Rows) -> Vec<Compared>,
}

/// A paper's number, and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// What they are of.
    pub what: String,
    /// The paper's, in its own words and units; empty where it has none.
    pub paper: String,
    /// Ours, if the rows have it.
    pub here: Option<String>,
}

impl Compared {
    /// A number of the paper's beside a number of ours.
    pub fn new(
        what: impl Into<String>,
        paper: impl Into<String>,
        here: Option<f64>,
        unit: Unit,
    ) -> Self {
        Self::text(what, paper, here.map(|here| unit.show(here)))
    }

    /// The same with what ours is already in words.
    pub fn text(what: impl Into<String>, paper: impl Into<String>, here: Option<String>) -> Self {
        Self {
            what: what.into(),
            paper: paper.into(),
            here,
        }
    }
}

/// A figure that was made.
pub struct Figure {
    pub recipe: Recipe,
    /// Charts that have data.
    pub charts: Vec<Chart>,
    pub compared: Vec<Compared>,
}

impl Figure {
    /// Makes it from what there is.
    pub fn make(recipe: Recipe, rows: &Rows) -> Self {
        let mut charts = (recipe.charts)(rows);
        charts.retain(Chart::has_data);
        Self {
            recipe,
            charts,
            compared: (recipe.compare)(rows),
        }
    }

    /// Whether anything of ours is in it.
    pub fn has_results(&self) -> bool {
        !self.charts.is_empty() || self.compared.iter().any(|compared| compared.here.is_some())
    }

    /// Why there is nothing of ours in it, if that is so.
    pub fn why_empty(&self) -> Option<String> {
        if self.has_results() {
            return None;
        }
        let commands: Vec<_> = self
            .recipe
            .benches
            .iter()
            .map(|bench| format!("scripts/bench {bench}"))
            .collect();
        Some(match &commands[..] {
            [] => "There is no benchmark of this.".to_owned(),
            some => format!(
                "The results that this page is made from have no such rows: {} measures them.",
                some.join(", ")
            ),
        })
    }
}

/// A ratio of two numbers, if both are there.
pub fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    let (above, below) = above.zip(below)?;
    (below > 0.0).then(|| above / below)
}

/// For figures without charts.
pub fn no_charts(_: &Rows) -> Vec<Chart> {
    Vec::new()
}

/// For figures without a paper's numbers.
pub fn no_numbers(_: &Rows) -> Vec<Compared> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: Recipe = Recipe {
        id: "test",
        title: "A test",
        limits: "Nothing.",
        benches: &["tail", "mesh"],
        charts: no_charts,
        compare: |rows| {
            let ours = rows.of("tail").least("lat_us_p50");
            vec![Compared::new("READ", "2 µs", ours, Unit::Us)]
        },
    };

    #[test]
    fn a_figure_without_rows_says_how_to_get_them() {
        let empty = Figure::make(RECIPE, &Rows::default());
        let why = empty.why_empty().unwrap();
        assert!(
            why.contains("scripts/bench tail, scripts/bench mesh"),
            "{why}"
        );
        let rows = Rows::parse(r#"{"bench":"tail","lat_us_p50":30}"#).unwrap();
        let full = Figure::make(RECIPE, &rows);
        assert_eq!(full.why_empty(), None);
        assert_eq!(full.compared[0].here.as_deref(), Some("30 µs"));
    }

    #[test]
    fn a_ratio_needs_both() {
        assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
        assert_eq!(ratio(Some(3.0), Some(0.0)), None);
        assert_eq!(ratio(None, Some(2.0)), None);
    }
}
