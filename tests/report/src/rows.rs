// SPDX-License-Identifier: MIT OR Apache-2.0

//! Results as the benchmarks write them: JSON objects, one a line.
//!
//! A figure asks for rows by their fields and for numbers in them. What a row lacks
//! is no error: benchmarks gain fields, and a figure without its rows is left out.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{ensure, Context as _, Result};
use serde_json::{Map, Value};

/// Most bytes of a file of results, and most rows of all files.
const MAX_FILE_BYTES: u64 = 64 << 20;
const MAX_ROWS: usize = 200_000;

/// One result.
#[derive(Clone, Debug, PartialEq)]
pub struct Row(Map<String, Value>);

impl Row {
    /// A field that is text.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.as_str()
    }

    /// A field that is a number.
    pub fn number(&self, field: &str) -> Option<f64> {
        self.0.get(field)?.as_f64()
    }

    /// A field that is a list of pairs of numbers.
    pub fn pairs(&self, field: &str) -> Vec<(f64, f64)> {
        let pair = |value: &Value| {
            let number = |at: usize| value.get(at).and_then(Value::as_f64);
            number(0).zip(number(1))
        };
        let list = self.0.get(field).and_then(Value::as_array);
        list.map_or_else(Vec::new, |list| list.iter().filter_map(pair).collect())
    }

    /// A field as it would be printed, if the row has it.
    pub fn shown(&self, field: &str) -> Option<String> {
        match self.0.get(field)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

/// All results that a report is made of.
#[derive(Debug, Default)]
pub struct Rows(Vec<Row>);

impl Rows {
    /// Reads files.
    pub fn read(paths: &[impl AsRef<Path>]) -> Result<Self> {
        let mut rows = Self::default();
        for path in paths {
            let path = path.as_ref();
            let name = path.display();
            let size = std::fs::metadata(path).with_context(|| format!("cannot read {name}"))?;
            ensure!(size.len() <= MAX_FILE_BYTES, "{name} is too long");
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read {name}"))?;
            rows.add(&text).with_context(|| format!("in {name}"))?;
        }
        Ok(rows)
    }

    /// The rows of a text.
    #[cfg(test)]
    pub fn parse(text: &str) -> Result<Self> {
        let mut rows = Self::default();
        rows.add(text)?;
        Ok(rows)
    }

    fn add(&mut self, text: &str) -> Result<()> {
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let row: Map<String, Value> = serde_json::from_str(line)
                .with_context(|| format!("line {} is no JSON object", at + 1))?;
            ensure!(
                row.get("bench").is_some_and(Value::is_string),
                "line {} does not name its benchmark",
                at + 1
            );
            ensure!(self.0.len() < MAX_ROWS, "more than {MAX_ROWS} rows");
            self.0.push(Row(row));
        }
        Ok(())
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those for which something holds, without their distributions.
    pub fn kept(&self, holds: impl Fn(&Row) -> bool) -> Self {
        let kept = self.0.iter().filter(|row| holds(row)).cloned();
        let bare = kept.map(|mut row| {
            row.0.remove("lat_us_cdf");
            row
        });
        Self(bare.collect())
    }

    /// As the benchmarks write them.
    pub fn to_lines(&self) -> String {
        let line = |row: &Row| format!("{}\n", Value::Object(row.0.clone()));
        self.0.iter().map(line).collect()
    }

    /// All of them.
    pub fn all(&self) -> Selection<'_> {
        Selection(self.0.iter().collect())
    }

    /// Those of a benchmark.
    pub fn of(&self, bench: &str) -> Selection<'_> {
        self.all().is("bench", bench)
    }
}

/// Some of the rows.
#[derive(Clone, Debug, Default)]
pub struct Selection<'a>(Vec<&'a Row>);

impl<'a> Selection<'a> {
    /// Those whose field is this text.
    pub fn is(mut self, field: &str, text: &str) -> Self {
        self.0.retain(|row| row.text(field) == Some(text));
        self
    }

    /// Those whose field is this number.
    pub fn eq(mut self, field: &str, number: f64) -> Self {
        self.0.retain(|row| row.number(field) == Some(number));
        self
    }

    /// Those without this field, or where it is null.
    pub fn without(mut self, field: &str) -> Self {
        self.0.retain(|row| row.shown(field).is_none());
        self
    }

    /// Those for which something holds.
    pub fn filter(mut self, holds: impl Fn(&Row) -> bool) -> Self {
        self.0.retain(|row| holds(row));
        self
    }

    /// Those with the smallest number in a field, or all if none has a number there.
    pub fn with_least(self, field: &str) -> Self {
        match self.least(field) {
            Some(least) => self.eq(field, least),
            None => self,
        }
    }

    /// The rows.
    pub fn rows(&self) -> &[&'a Row] {
        &self.0
    }

    /// The smallest number in a field.
    pub fn least(&self, field: &str) -> Option<f64> {
        self.numbers(field).reduce(f64::min)
    }

    /// The largest number in a field.
    pub fn most(&self, field: &str) -> Option<f64> {
        self.numbers(field).reduce(f64::max)
    }

    fn numbers<'s>(&'s self, field: &'s str) -> impl Iterator<Item = f64> + use<'a, 's> {
        self.0.iter().filter_map(move |row| row.number(field))
    }

    /// The different texts of a field, in the order in which they come.
    pub fn texts(&self, field: &str) -> Vec<&'a str> {
        let mut texts = Vec::new();
        for text in self.0.iter().filter_map(|row| row.text(field)) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    }

    /// The different numbers of a field, from small to large.
    pub fn values(&self, field: &str) -> Vec<f64> {
        let mut values: Vec<_> = self.numbers(field).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    }

    /// Points of a line: `y` over `x`, of several rows with the same `x` the best one.
    pub fn points(&self, x: &str, y: &str, best: Best) -> Vec<(f64, f64)> {
        let mut points: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        for (at, value) in self
            .0
            .iter()
            .filter_map(|row| row.number(x).zip(row.number(y)))
        {
            let point = points.entry(at.to_bits()).or_insert((at, value));
            point.1 = best.of(point.1, value);
        }
        let mut points: Vec<_> = points.into_values().collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    }
}

/// Which of two numbers is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Best {
    /// The smaller one: a time.
    Least,
    /// The larger one: a rate.
    Most,
}

impl Best {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Least => a.min(b),
            Self::Most => a.max(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"bench":"datapath","system":"verbs","wait":"poll","bytes":8,"lat_us_p50":50.0,"ops_per_sec":20.0}
{"bench":"datapath","system":"verbs","wait":"event","bytes":8,"lat_us_p50":40.0,"ops_per_sec":30.0}
{"bench":"datapath","system":"verbs","wait":"poll","bytes":4,"lat_us_p50":null,"cdf":[[50,1.5],[99,3]]}
{"bench":"tail","system":"weft","bytes":8,"lat_us_p50":30.0}
"#;

    #[test]
    fn rows_are_chosen_by_their_fields() {
        let rows = Rows::parse(ROWS).unwrap();
        let verbs = rows.of("datapath").is("system", "verbs");
        assert_eq!(verbs.rows().len(), 3);
        assert_eq!(
            verbs.clone().eq("bytes", 8.0).least("lat_us_p50"),
            Some(40.0)
        );
        assert_eq!(
            verbs.clone().eq("bytes", 8.0).most("ops_per_sec"),
            Some(30.0)
        );
        assert_eq!(verbs.clone().eq("bytes", 4.0).least("lat_us_p50"), None);
        assert_eq!(verbs.clone().without("lat_us_p50").rows().len(), 1);
        let best = verbs.clone().with_least("lat_us_p50");
        assert_eq!(best.texts("wait"), ["event"]);
        assert_eq!(best.with_least("us_p50").rows().len(), 1);
        assert_eq!(verbs.texts("wait"), ["poll", "event"]);
        assert_eq!(verbs.values("bytes"), [4.0, 8.0]);
        assert!(rows.of("mesh").rows().is_empty());
    }

    #[test]
    fn a_line_has_the_best_of_the_rows_at_each_place() {
        let rows = Rows::parse(ROWS).unwrap();
        let points = |best| rows.of("datapath").points("bytes", "lat_us_p50", best);
        assert_eq!(points(Best::Least), [(8.0, 40.0)]);
        assert_eq!(points(Best::Most), [(8.0, 50.0)]);
    }

    #[test]
    fn rows_are_written_as_they_are_read() {
        let rows = Rows::parse(ROWS).unwrap();
        let again = Rows::parse(&rows.to_lines()).unwrap();
        assert_eq!(again.0, rows.0);
        let some = rows.kept(|row| row.text("system") == Some("weft"));
        assert_eq!(
            some.0,
            rows.of("tail")
                .rows()
                .iter()
                .map(|&row| row.clone())
                .collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_distribution_is_pairs() {
        let rows = Rows::parse(ROWS).unwrap();
        let row = rows.of("datapath").eq("bytes", 4.0);
        assert_eq!(row.rows()[0].pairs("cdf"), [(50.0, 1.5), (99.0, 3.0)]);
        assert!(row.rows()[0].pairs("other").is_empty());
    }

    #[test]
    fn what_is_no_result_is_an_error_that_names_the_line() {
        let error = |text| format!("{:#}", Rows::parse(text).unwrap_err());
        assert!(error("{\"bench\":\"tail\"}\nfine").contains("line 2 is no JSON object"));
        assert!(error("{\"system\":\"weft\"}").contains("line 1 does not name"));
        assert!(Rows::parse("\n").unwrap().is_empty());
    }
}
