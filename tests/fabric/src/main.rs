// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-fabric`: whether a fabric keeps the promises of a fabric, and multicast
//! over it those of multicast. Fabrics over RDMA are tried on the nodes that
//! `scripts/vm run` makes. It says `ok NAME` or `not ok NAME: why`.

mod bulk;
mod elastic;
mod member;
mod messages;
mod phases;
mod process;
mod rdmc;
mod seeds;
mod severed;
mod story;
mod stream;
mod transfers;
mod views;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::ExitCode;

use anyhow::{anyhow, Result};
use clap::{Parser, Subcommand};
use weft::fabric::conformance;

use process::patience;
use weft_testkit::place::{Kind, Meeting, Placed, Seats};
use weft_testkit::report::Report;
use weft_testkit::rng;

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
    /// A node that others have cut off, and that runs.
    Severed {
        /// Which fabric.
        kind: Kind,
    },
    /// How long posts, fences and wake-ups take, for the record.
    Speed {
        /// Which fabric.
        kind: Kind,
    },
    /// Random messages: every member delivers the same sequence.
    Messages(messages::Args),
    /// Large messages through overlapping groups: all arrive as they were sent.
    Rdmc(rdmc::Args),
    /// Processes of a group with views are killed, and others join it.
    Elastic(elastic::Args),
    /// Large messages through the views of a group, whose members are killed, and others come.
    Bulk(bulk::Args),
    /// Groups in a simulation: whatever goes wrong, survivors deliver the same.
    Views(seeds::Args),
    /// RDMC groups in a simulation: whatever goes wrong, memory comes back and is nobody else's.
    Transfers(seeds::Args),
    /// One of the processes of a fabric.
    #[command(hide = true)]
    Member(member::Args),
    /// One of the processes that send messages.
    #[command(hide = true)]
    Sender(messages::MemberArgs),
    /// One of the processes of a group with views.
    #[command(hide = true)]
    ElasticMember(elastic::MemberArgs),
    /// One of the processes that send large messages in a group with views.
    #[command(hide = true)]
    BulkMember(bulk::MemberArgs),
    /// One of the processes that send large messages.
    #[command(hide = true)]
    Copier(rdmc::MemberArgs),
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
        What::Severed { kind } => severed::run(&mut report, kind),
        What::Speed { kind } => {
            report.check(&format!("{kind} can be measured"), || phases::speed(kind));
        }
        What::Messages(args) => messages::run(&mut report, &args),
        What::Rdmc(args) => rdmc::run(&mut report, &args),
        What::Elastic(args) => elastic::run(&mut report, &args),
        What::Bulk(args) => bulk::run(&mut report, &args),
        What::Views(args) => views::run(&mut report, &args),
        What::Transfers(args) => transfers::run(&mut report, &args),
        What::Copier(args) => return as_process(args.rank, rdmc::play(&args)),
        What::Member(args) => return as_process(args.rank, member::run(&args)),
        What::ElasticMember(args) => return as_process(args.person, elastic::be_member(&args)),
        What::BulkMember(args) => return as_process(args.node, bulk::be_member(&args)),
        What::Sender(args) => return as_process(args.rank, messages::play(&args)),
    }
    report.exit_code()
}

/// What decides a run's random choices: what the user gave, or another number each time.
/// It is printed, so that a run can be repeated.
fn seed_of_run(given: Option<u64>) -> u64 {
    let seed = given.unwrap_or(u64::from(std::process::id()));
    println!("# --seed {seed}");
    seed
}

/// How one of the processes ends.
fn as_process(rank: usize, outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weft-fabric: node {rank}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn suite(kind: Kind) -> Result<()> {
    let all = AssertUnwindSafe(|| {
        conformance::run(patience(), |nodes| Placed::all(kind, nodes));
        conformance::run_seats(patience(), &Seats::new(kind, Meeting::call()));
    });
    catch_unwind(all).map_err(|panic| {
        let said = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
        anyhow!(said.unwrap_or_default())
    })
}
