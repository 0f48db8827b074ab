// SPDX-License-Identifier: MIT OR Apache-2.0

//! What no program should say: each gets its documented answer, in time, and
//! nobody else notices.

mod arguments;
mod eventfds;
mod limits;
mod pointers;
mod ports;
mod privileges;
mod requests;
mod ring_memory;
mod rings;
mod waiting;

use std::time::Duration;

use anyhow::{ensure, Result};
use nix::errno::Errno;

use crate::world::{timely, Baseline};
use weft_testkit::report::Report;

pub use privileges::unprivileged;
pub use requests::go_by_rc as requests_go_by_rc;

/// No refusal takes longer.
const BOUND: Duration = Duration::from_secs(10);

/// Checks that a call is refused, and how.
fn refused<T>(
    report: &mut Report,
    name: &str,
    wanted: Errno,
    call: impl FnOnce() -> Result<T, Errno>,
) {
    report.check(&format!("{name}: {wanted:?}"), || expect(wanted, call));
}

fn expect<T>(wanted: Errno, call: impl FnOnce() -> Result<T, Errno>) -> Result<()> {
    match timely(BOUND, call)? {
        Ok(_) => anyhow::bail!("it worked"),
        Err(got) => ensure!(got == wanted, "got {got:?}"),
    }
    Ok(())
}

/// Fails only if it cannot try what it wants to.
type Part = fn(&mut Report) -> Result<()>;

/// Requests to the device.
pub fn run_input(report: &mut Report) {
    let baseline = report.need("the gauges stand still", || Baseline::take(2));
    let parts: [(&str, Part); 11] = [
        ("handshake", arguments::handshake),
        ("handles", arguments::handles),
        ("reserved fields", arguments::reserved),
        ("eventfds", eventfds::run),
        ("pointers", pointers::run),
        ("rings", rings::run),
        ("ring memory", ring_memory::run),
        ("ports", ports::run),
        ("limits", limits::run),
        ("waiting", waiting::run),
        ("privileges", privileges::run),
    ];
    for (name, part) in parts {
        if let Err(error) = part(report) {
            report.check(&format!("{name}: all of it could be tried"), || Err(error));
        }
    }
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || baseline.is_back());
    }
}

/// Work requests, whichever way they go.
pub fn run_requests(report: &mut Report) {
    let baseline = report.need("the gauges stand still", || Baseline::take(2));
    if let Err(error) = requests::run(report) {
        report.check("all work requests could be tried", || Err(error));
    }
    if let Some(baseline) = baseline {
        report.check("all of it leaves nothing behind", || baseline.is_back());
    }
}
