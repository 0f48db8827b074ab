// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-fabric`: whether a fabric over RDMA keeps the promises of a fabric, on
//! the nodes that `scripts/vm run` makes. It says `ok NAME` or `not ok NAME: why`.

mod member;
mod phases;
#[path = "../check/report.rs"]
mod report;
mod story;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::ExitCode;

use anyhow::{anyhow, Result};
use clap::{Parser, Subcommand};
use weft::fabric::conformance;

use report::Report;
use weft_tests::place::{Kind, Placed};

/// Checks a fabric.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The conformance suite of the library, with nodes that are threads.
    Suite {
        /// Which fabric.
        kind: Kind,
    },
    /// Nodes that are processes, of which one is killed.
    Processes {
        /// Which fabric.
        kind: Kind,
    },
    /// How long posts, fences and wake-ups take, for the record.
    Speed {
        /// Which fabric.
        kind: Kind,
    },
    /// One of the processes.
    #[command(hide = true)]
    Member(member::Args),
}

fn main() -> ExitCode {
    let mut report = Report::default();
    match Args::parse().what {
        // It has limits of its own.
        What::Suite { kind } => match suite(kind) {
            Ok(()) => println!("ok {kind} keeps the promises of a fabric"),
            Err(error) => {
                report.add_failure();
                println!("not ok {kind} keeps the promises of a fabric: {error:#}");
            }
        },
        What::Processes { kind } => story::run(&mut report, kind),
        What::Speed { kind } => {
            report.check(&format!("{kind} can be measured"), || phases::speed(kind));
        }
        What::Member(args) => {
            if let Err(error) = member::run(&args) {
                eprintln!("weft-fabric: node {}: {error:#}", args.rank);
                return ExitCode::FAILURE;
            }
        }
    }
    report.exit_code()
}

fn suite(kind: Kind) -> Result<()> {
    let all = AssertUnwindSafe(|| conformance::run(|nodes| Placed::all(kind, nodes)));
    catch_unwind(all).map_err(|panic| {
        let said = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        anyhow!(said.unwrap_or_default())
    })
}
