// SPDX-License-Identifier: MIT OR Apache-2.0

//! The choice of a program's checks, by a part of their names.

use std::cell::Cell;

use anyhow::{ensure, Result};
use weft_testkit::report::Report;

/// The checks whose names contain something; an empty text is part of every name.
pub struct Choice<'a> {
    part: &'a str,
    has_matched: Cell<bool>,
}

impl<'a> Choice<'a> {
    /// Those whose names contain `part`.
    pub fn new(part: &'a str) -> Self {
        Self {
            part,
            has_matched: Cell::new(false),
        }
    }

    /// Whether all are wanted.
    pub fn is_all(&self) -> bool {
        self.part.is_empty()
    }

    /// Whether a check is wanted.
    pub fn wants(&self, name: &str) -> bool {
        let wanted = name.contains(self.part);
        self.has_matched.set(self.has_matched.get() || wanted);
        wanted
    }

    /// Reports whether any check was chosen, unless all are.
    pub fn report(&self, report: &mut Report) {
        if !self.is_all() {
            report.check("something was chosen", || self.has_matched());
        }
    }

    fn has_matched(&self) -> Result<()> {
        ensure!(self.has_matched.get(), "no name contains `{}`", self.part);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_that_matches_nothing_is_an_error() {
        let choice = Choice::new("TYPO");
        assert!(!choice.wants("register") && !choice.wants("qconnect"));
        assert!(choice.has_matched().is_err());
    }

    #[test]
    fn one_that_matches_something_is_none() {
        let choice = Choice::new("conn");
        assert!(!choice.wants("register") && choice.wants("qconnect") && !choice.wants("open"));
        assert!(choice.has_matched().is_ok());
    }

    #[test]
    fn an_empty_one_wants_all() {
        let choice = Choice::new("");
        assert!(choice.is_all() && choice.wants("register"));
    }
}
