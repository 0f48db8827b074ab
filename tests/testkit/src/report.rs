// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a check found, in lines that `scripts/test` counts.

use std::process::ExitCode;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::pace::patient;
use anyhow::Result;

/// No check takes longer, on the slowest machine with a stock kernel; one that does
/// hangs.
const LIMIT: Duration = Duration::from_secs(100);

/// Counts failures.
#[derive(Default)]
pub struct Report {
    failures: usize,
}

impl Report {
    /// Runs one check and prints its line. One that hangs ends the program,
    /// because a thread that is stuck in a system call cannot be taken back.
    pub fn check(&mut self, name: &str, body: impl FnOnce() -> Result<()>) {
        self.check_within(name, LIMIT, body);
    }

    /// The same for one that is made of many, and may take longer.
    pub fn check_within(&mut self, name: &str, limit: Duration, body: impl FnOnce() -> Result<()>) {
        let limit = patient(limit);
        let (done, watched) = channel::<()>();
        let title = name.to_owned();
        let watch = thread::spawn(move || {
            if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                println!("not ok {title}: still busy after {limit:?}");
                std::process::exit(1);
            }
        });
        let outcome = body();
        drop(done);
        let _ = watch.join();
        match outcome {
            Ok(()) => println!("ok {name}"),
            Err(error) => {
                self.failures += 1;
                println!("not ok {name}: {error:#}");
            }
        }
    }

    /// Prepares what later checks need; without it they cannot run.
    pub fn need<T>(&mut self, name: &str, body: impl FnOnce() -> Result<T>) -> Option<T> {
        let mut made = None;
        self.check(name, || {
            made = Some(body()?);
            Ok(())
        });
        made
    }

    /// Takes over what a child process has counted.
    pub fn add_failure(&mut self) {
        self.failures += 1;
    }

    /// How the program ends.
    pub fn exit_code(&self) -> ExitCode {
        if self.failures == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
