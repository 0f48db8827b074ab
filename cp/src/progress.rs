// SPDX-License-Identifier: MIT OR Apache-2.0

//! How far the transfer is, for whoever watches.

use std::io::{self, IsTerminal, Write as _};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

/// A bar on a terminal; elsewhere nothing but a last line.
pub struct Progress {
    bar: ProgressBar,
    is_quiet: bool,
}

impl Progress {
    pub fn new(is_quiet: bool) -> Self {
        let bar = match !is_quiet && io::stderr().is_terminal() {
            true => ProgressBar::no_length(),
            false => ProgressBar::hidden(),
        };
        Self { bar, is_quiet }
    }

    /// There are so many bytes, and they begin to move.
    pub fn begin(&self, bytes: u64) {
        let template = "{bar:30} {bytes}/{total_bytes}  {binary_bytes_per_sec}  {eta} left";
        // What is in the source is a template: the default would do as well.
        self.bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        self.bar.set_length(bytes);
        self.bar.reset();
    }

    /// So many more have moved.
    pub fn add(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    /// All is done.
    pub fn finish(&self, what: impl FnOnce(HumanBytes) -> String, bytes: u64) {
        self.bar.finish_and_clear();
        if !self.is_quiet {
            // All is well whether the line can be written or not.
            let _ = writeln!(io::stderr(), "weft-cp: {}", what(HumanBytes(bytes)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // So that an error's line does not follow half a bar.
        self.bar.finish_and_clear();
    }
}
