// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-cp`: the command.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use weft_cp::args::{Args, What};
use weft_cp::signals::Signals;
use weft_cp::{receive, send};

fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            EnvFilter::builder()
                .with_default_directive(LevelFilter::WARN.into())
                .from_env_lossy(),
        )
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // It would say with a panic that a line cannot be written.
        .log_internal_errors(false)
        .with_target(false)
        .init();
    // Ends the process, with 2, if it was called wrongly.
    if let Err(error) = args.check() {
        error.exit();
    }
    match run(args.what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = printable(&format!("{error:#}"));
            // The exit status says it whether the line can be written or not.
            let _ = writeln!(io::stderr(), "weft-cp: error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Without what a terminal would obey: names and reasons may be another host's.
fn printable(text: &str) -> String {
    let shown = |letter: char| match letter {
        '\n' => letter,
        _ if letter.is_control() => char::REPLACEMENT_CHARACTER,
        _ => letter,
    };
    text.chars().map(shown).collect()
}

fn run(what: What) -> Result<()> {
    // Before there is another thread: all inherit it.
    let signals = Signals::catch()?;
    match what {
        What::Send(args) => send::run(&args, &signals),
        What::Receive(args) => receive::run(&args, &signals),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_command_the_terminal() {
        assert_eq!(printable("a\x1b[2J\r\nß"), "a\u{FFFD}[2J\u{FFFD}\nß");
    }
}
