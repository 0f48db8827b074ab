// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-report`: draws what the benchmarks measured beside what the papers say. It
//! measures nothing: `scripts/report` runs the benchmarks and then this.

mod chart;
mod environment;
mod figure;
mod headline;
mod own;
mod page;
mod paper;
mod readme;
mod rows;
mod sim;
mod systems;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{ensure, Context as _, Result};
use clap::{Parser, Subcommand};

use chart::Chart;
use figure::{Figure, Recipe};
use rows::Rows;

/// Draws the results of Weft's benchmarks.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes one HTML page with everything in it.
    Page {
        /// The page.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Results, one JSON object a line.
        #[arg(required = true, value_name = "FILE")]
        results: Vec<PathBuf>,
    },
    /// Writes each chart that the results make into a folder, as SVG.
    Svg {
        /// The folder. It is made if need be.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Results, one JSON object a line.
        #[arg(required = true, value_name = "FILE")]
        results: Vec<PathBuf>,
    },
    /// Prints the benchmarks that README's picture and table need, as scripts/bench is told.
    Needs,
    /// Puts picture and table into README.md, and their results beside them.
    Readme {
        /// The repository.
        #[arg(long, value_name = "DIR")]
        root: PathBuf,
        /// Results, one JSON object a line.
        #[arg(required = true, value_name = "FILE")]
        results: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weft-report: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Page { out, results } => {
            let page = page::html(&read(&results)?)?;
            write(&out, &page)
        }
        Command::Svg { out, results } => svg(&out, &read(&results)?),
        Command::Needs => {
            for (bench, options) in headline::RUNS {
                println!("{bench} {options}");
            }
            Ok(())
        }
        Command::Readme { root, results } => readme::write(&root, &read(&results)?),
    }
}

fn read(results: &[PathBuf]) -> Result<Rows> {
    let rows = Rows::read(results)?;
    ensure!(!rows.is_empty(), "there are no results in these files");
    environment::check(&rows)?;
    Ok(rows)
}

/// Each chart by its name, however many figures it is in.
fn svg(folder: &Path, rows: &Rows) -> Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut names = Vec::new();
    for chart in charts(rows) {
        if !names.contains(&chart.name) {
            let path = folder.join(&chart.name).with_extension("svg");
            write(&path, &chart::svg(std::slice::from_ref(&chart))?)?;
            println!("{}", path.display());
            names.push(chart.name);
        }
    }
    ensure!(!names.is_empty(), "these results make no chart");
    Ok(())
}

fn charts(rows: &Rows) -> impl Iterator<Item = Chart> + '_ {
    recipes().flat_map(|recipe| Figure::make(recipe, rows).charts)
}

/// All figures of the page, in its order.
fn recipes() -> impl Iterator<Item = Recipe> {
    let papers = paper::all().into_iter().flat_map(|paper| paper.figures);
    papers.chain(own::figures())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use clap::CommandFactory;

    /// The benchmarks that `weft-bench --help` names, from its commands in the source.
    fn benchmarks() -> BTreeSet<String> {
        let source = include_str!("../../bench/src/cli.rs");
        let (_, commands) = source.split_once("pub enum Command {").unwrap();
        let (commands, _) = commands.split_once("\n}").unwrap();
        let mut names = BTreeSet::new();
        let mut is_hidden = false;
        for line in commands.lines().map(str::trim) {
            if line.contains("hide = true") {
                is_hidden = true;
            } else if let Some((name, _)) = line.split_once("Args),") {
                let (name, _) = name.split_once('(').unwrap();
                if !is_hidden {
                    names.insert(in_words(name));
                }
                is_hidden = false;
            }
        }
        names
    }

    /// A command as it is called.
    fn in_words(name: &str) -> String {
        let mut words = String::new();
        for letter in name.chars() {
            if letter.is_uppercase() && !words.is_empty() {
                words.push('-');
            }
            words.push(letter.to_ascii_lowercase());
        }
        words
    }

    #[test]
    fn each_benchmark_is_in_a_figure_of_the_page() {
        let benches = recipes().flat_map(|recipe| recipe.benches);
        let shown: BTreeSet<_> = benches.map(|&bench| bench.to_owned()).collect();
        assert_eq!(benchmarks(), shown);
        assert!(shown.contains("rdmc-sim") && !shown.contains("rdmc-member"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
