// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a process leaves to another: by fork, by a descriptor that it passes on,
//! by exec.
//!
//! An open file is a session, and whoever holds the descriptor holds the session.
//! Memory is another matter: a region is the memory of the process that has
//! registered it, whatever a fork makes of the address.

mod copies;
mod descriptors;
mod peer;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{ensure, Context, Result};

use crate::world::{worker, Baseline};
use weft_testkit::report::Report;

/// A partner that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(30);

type Scenario = (&'static str, fn() -> Result<()>);

/// Each runs in a process of its own, with one thread, which may fork.
const SCENARIOS: [Scenario; 11] = [
    (
        "fork, then: the parent's memory stays what peers read and write",
        copies::writable_before,
    ),
    (
        "fork, then: the same if it is registered for reading only",
        copies::readable_before,
    ),
    (
        "registration after a fork: the copy of the one who registers",
        copies::writable_after,
    ),
    (
        "registration for reading after a fork: the same",
        copies::readable_after,
    ),
    (
        "memory that was never written, registered for reading: later writes are seen",
        copies::untouched,
    ),
    (
        "a child with the descriptor moves the parent's bytes, without it none",
        descriptors::inherited,
    ),
    (
        "what a child registers in its parent's session outlives the child",
        descriptors::bequest,
    ),
    (
        "a session whose maker has died is accounted for, and freed at the last close",
        descriptors::orphan,
    ),
    (
        "a session is passed on to another user",
        descriptors::passed_on,
    ),
    (
        "a session on its way lives, and ends with the socket",
        descriptors::in_flight,
    ),
    ("exec closes the descriptor", descriptors::exec),
];

/// What it is given.
#[derive(clap::Args)]
pub struct HeirsArgs {
    #[arg(long)]
    scenario: usize,
}

/// Is one of them.
pub fn work(args: &HeirsArgs) -> Result<()> {
    let (_, scenario) = SCENARIOS.get(args.scenario).context("no such scenario")?;
    scenario()
}

/// All of them.
pub fn run(report: &mut Report, baseline: &Baseline) {
    for (index, (name, _)) in SCENARIOS.iter().enumerate() {
        report.check(name, || {
            let output = worker(&["heirs"])?
                .args(["--scenario", &index.to_string()])
                .output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{}", said.trim());
            baseline.is_back().context("it leaves something behind")
        });
    }
}

/// Two ends of a line on which parent and child take turns.
struct Turns(UnixStream);

impl Turns {
    fn pair() -> Result<(Self, Self)> {
        let (a, b) = UnixStream::pair()?;
        for end in [&a, &b] {
            end.set_read_timeout(Some(PATIENCE))?;
        }
        Ok((Self(a), Self(b)))
    }

    /// It is the other's turn.
    fn pass(&self) -> Result<()> {
        Ok((&self.0).write_all(&[1])?)
    }

    /// Waits for our turn.
    fn take(&self) -> Result<()> {
        let taken = (&self.0).read_exact(&mut [0]);
        taken.context("the other one has gone")
    }
}
