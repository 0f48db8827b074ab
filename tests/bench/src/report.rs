// SPDX-License-Identifier: MIT OR Apache-2.0

//! Results: JSON lines for programs, a table for people, a progress bar while
//! somebody watches.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{presets, CellAlignment, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::cli::Common;
use crate::environment::Environment;
use crate::stats::CDF_PERCENTS;

/// Where JSON lines go, if anywhere. Each has the fields of a row, and those of
/// the [`Environment`].
pub struct JsonLines {
    file: Option<BufWriter<File>>,
    environment: Environment,
}

#[derive(Serialize)]
struct Line<'a, T> {
    #[serde(flatten)]
    row: &'a T,
    #[serde(flatten)]
    environment: &'a Environment,
}

impl JsonLines {
    /// Opens the file of results anew; without one, lines go nowhere.
    pub fn create(common: &Common) -> Result<Self> {
        let create = |path: &Path| {
            let file = File::create(path);
            file.with_context(|| format!("cannot write results to {}", path.display()))
        };
        Ok(Self {
            file: common
                .json
                .as_deref()
                .map(create)
                .transpose()?
                .map(BufWriter::new),
            environment: Environment::here(common.quick),
        })
    }

    /// Names a program that is compared with in all lines from now on.
    pub fn name_version(&mut self, program: &'static str, version: String) {
        self.environment.name_version(program, version);
    }

    /// What the module was loaded with, in all lines from now on: a benchmark may load it
    /// anew.
    pub fn name_module_args(&mut self, arguments: &str) {
        self.environment.name_module_args(arguments);
    }

    /// Writes a line.
    pub fn write(&mut self, row: &impl Serialize) -> Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let environment = &self.environment;
        serde_json::to_writer(&mut *file, &Line { row, environment })?;
        file.write_all(b"\n")?;
        file.flush().context("cannot write results")
    }
}

/// A table in perftest's manner: a heading and right-aligned numbers.
pub struct Sheet {
    table: Table,
    names: usize,
}

impl Sheet {
    /// A sheet with these columns, of which the first `names` hold words.
    pub fn new(columns: &[&str], names: usize) -> Self {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(columns);
        Self { table, names }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.table.add_row(cells);
    }

    /// Prints it.
    pub fn print(mut self) {
        for column in self.table.column_iter_mut().skip(self.names) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        println!("{}", self.table.trim_fmt());
    }
}

/// A number as perftest prints it, or a dash where there is none.
pub fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// A number rounded to a nanosecond's precision, for JSON.
pub fn rounded(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 1e3).round() / 1e3)
}

/// A distribution for JSON: pairs of a percentage and the time, in microseconds, that
/// so many samples do not exceed.
pub fn cdf(percentiles_us: &[f64]) -> Vec<(f64, f64)> {
    let nanoseconds = |us: &f64| (us * 1e3).round() / 1e3;
    let percents = CDF_PERCENTS.into_iter();
    percents
        .zip(percentiles_us.iter().map(nanoseconds))
        .collect()
}

/// A bar on standard error that counts `steps`; nothing if that is no terminal.
pub fn progress(what: String, steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {elapsed}")
        .expect("the template is well formed");
    // Draws nothing unless standard error is a terminal.
    ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr())
        .with_style(style)
        .with_message(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_rows_fields_and_the_environments() {
        #[derive(Serialize)]
        struct Row {
            bytes: u32,
        }
        let mut environment = Environment::here(true);
        environment.name_version("perftest", "6.24".to_owned());
        let (row, environment) = (&Row { bytes: 8 }, &environment);
        let json = serde_json::to_value(Line { row, environment }).unwrap();
        assert_eq!(json["bytes"], 8);
        assert_eq!(json["perftest"], "6.24");
        assert!(json["kernel"].is_string());
    }

    #[test]
    fn numbers_read_as_perftest_prints_them() {
        assert_eq!(number(Some(1.234)), "1.23");
        assert_eq!(number(None), "-");
        assert_eq!(rounded(Some(0.123_456)), Some(0.123));
    }
}
