// SPDX-License-Identifier: MIT OR Apache-2.0

//! The picture and the table that README opens with.
//!
//! They are made from a file of results that is committed beside them, so that a test
//! finds what was changed by hand or left behind: see the end of this file.

use std::fs;
use std::path::Path;

use anyhow::{bail, ensure, Context as _, Result};

use crate::chart;
use crate::environment;
use crate::headline::{self, Headline};
use crate::rows::Rows;

/// Where results begin and end in README.
const BEGIN: &str = "<!-- results: made by scripts/report --readme -->\n";
const END: &str = "<!-- results: end -->\n";

/// The files, from the repository's folder.
pub const README: &str = "README.md";
pub const RESULTS: &str = "docs/results.jsonl";
pub const PICTURE: &str = "docs/results.svg";

/// What results come to.
pub struct Made {
    /// The rows that all of this is made of.
    pub results: String,
    pub picture: String,
    /// Between the marks in README.
    table: String,
}

impl Made {
    /// Makes all of it.
    pub fn of(rows: &Rows) -> Result<Self> {
        let rows = rows.kept(headline::needs);
        let headlines = headline::complete(&rows)?;
        let charts = headline::picture(&rows);
        ensure!(
            !charts.is_empty(),
            "the results have nothing for README's picture"
        );
        Ok(Self {
            results: rows.to_lines(),
            picture: format!("{}\n", chart::svg(&charts)?.trim_end()),
            table: table(&headlines, &environment::sentence(&rows)),
        })
    }

    /// README with these results in place of those that it has.
    pub fn readme(&self, old: &str) -> Result<String> {
        let (Some(begin), Some(end)) = (old.find(BEGIN), old.find(END)) else {
            bail!("{README} has no marks for results");
        };
        ensure!(
            begin < end,
            "{README}'s marks for results are in the wrong order"
        );
        let (before, after) = (&old[..begin], &old[end..]);
        Ok(format!("{before}{BEGIN}{}{after}", self.table))
    }
}

fn table(headlines: &[Headline], comes_from: &str) -> String {
    let mut table = format!(
        "![From nothing to the first WRITE, and READ by size: verbs and Weft]({PICTURE})\n\n\
         | median | without Weft | with it | times as good |\n|---|---|---|---|\n"
    );
    for one in headlines {
        let Headline {
            what,
            without,
            with,
            ratio,
        } = one;
        table += &format!("| {what} | {without} | {with} | {ratio} |\n");
    }
    table += &format!(
        "\nMeasured by `scripts/report`: {comes_from}. Without Weft means user-space verbs, the \
         better of polling and sleeping, unless the line says otherwise.\n"
    );
    table
}

/// Writes all of it into the repository.
pub fn write(root: &Path, rows: &Rows) -> Result<()> {
    ensure!(
        environment::is_of_one_commit(rows),
        "README takes results of one commit only, without changes that are not committed"
    );
    ensure!(
        environment::is_of_one_machine(rows),
        "README takes results of one machine only"
    );
    let made = Made::of(rows)?;
    ensure!(
        environment::is_full(&rows.kept(headline::needs)),
        "README takes results of full runs only: measure again without --quick"
    );
    let readme = made.readme(&read(root, README)?)?;
    fs::create_dir_all(root.join("docs")).context("cannot make docs")?;
    for (name, text) in [
        (RESULTS, &made.results),
        (PICTURE, &made.picture),
        (README, &readme),
    ] {
        let path = root.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn read(root: &Path, name: &str) -> Result<String> {
    let path = root.join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headline::all_rows;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn what_is_committed_is_what_its_results_make() {
        let on_disk = |name| read(root(), name).unwrap();
        let readme = on_disk(README);
        if !root().join(RESULTS).exists() {
            // Nothing was measured yet: then nothing stands there either.
            assert!(
                readme.contains(&format!("{BEGIN}{END}")),
                "{README} has results of nothing"
            );
            assert!(!root().join(PICTURE).exists(), "{PICTURE} is of nothing");
            return;
        }
        let rows = Rows::read(&[root().join(RESULTS)]).unwrap();
        environment::check(&rows).unwrap();
        assert!(environment::is_of_one_commit(&rows));
        assert!(environment::is_of_one_machine(&rows));
        // Rows of an older form do not name their run, nor say whether it was a quick one.
        let is_new = rows.all().without("run").rows().is_empty();
        assert!(environment::is_full(&rows) || !is_new);
        let made = Made::of(&rows).unwrap();
        assert!(
            made.results == on_disk(RESULTS),
            "{RESULTS} has rows that nothing needs"
        );
        assert!(
            made.picture == on_disk(PICTURE),
            "{PICTURE} is not made from {RESULTS}"
        );
        assert!(
            made.readme(&readme).unwrap() == readme,
            "{README} is not made from {RESULTS}"
        );
    }

    #[test]
    fn results_replace_those_between_the_marks() {
        let made = Made::of(&Rows::parse(&all_rows()).unwrap()).unwrap();
        let readme = made
            .readme(&format!("# A\n{BEGIN}old\n{END}rest\n"))
            .unwrap();
        assert!(readme.starts_with("# A\n") && readme.ends_with(&format!("{END}rest\n")));
        assert!(!readme.contains("old") && readme.contains("| 25.7 × |"));
        assert!(readme.contains("commit abc, 2 processors, a virtual machine by emulation"));
        assert_eq!(made.readme(&readme).unwrap(), readme);
        assert!(made.readme("# A\n").is_err());
    }

    /// Why these rows do not go into README.
    fn refusal(rows: &str) -> String {
        let rows = Rows::parse(rows).unwrap();
        let error = write(Path::new("/nonexistent"), &rows).unwrap_err();
        error.to_string()
    }

    #[test]
    fn results_of_uncommitted_programs_do_not_go_into_readme() {
        let error = refusal(&all_rows().replace("abc", "abc-dirty"));
        assert!(error.contains("one commit"), "{error}");
    }

    #[test]
    fn results_of_two_machines_do_not_go_into_readme() {
        let other = r#"{"bench":"tail","commit":"abc","cpus":64,"quick":false}"#;
        let error = refusal(&format!("{}\n{other}", all_rows()));
        assert!(error.contains("one machine"), "{error}");
    }

    #[test]
    fn results_of_quick_runs_do_not_go_into_readme() {
        let error = refusal(&all_rows().replacen("\"quick\":false", "\"quick\":true", 1));
        assert!(error.contains("without --quick"), "{error}");
        let error = refusal(&all_rows().replacen(",\"quick\":false", "", 1));
        assert!(error.contains("without --quick"), "{error}");
        let error = refusal(&all_rows());
        assert!(error.contains("nonexistent/README.md"), "{error}");
    }

    #[test]
    fn a_table_that_lacks_a_line_does_not_go_into_readme() {
        let lines = all_rows();
        let without_mpi = lines.lines().filter(|line| !line.contains("bcast"));
        let error = refusal(&without_mpi.collect::<Vec<_>>().join("\n"));
        assert!(error.contains("beside MPI_Bcast"), "{error}");
    }
}
