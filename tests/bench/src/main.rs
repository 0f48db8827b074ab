// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench`: Weft next to what a program does without it.
//!
//! Everything that is compared is measured in one run, on the same two nodes,
//! interleaved in small blocks, because on a shared machine figures move
//! several-fold from one minute to the next and only ratios within one run mean
//! anything. Numbers go to a table for people, with perftest's columns, and as
//! JSON lines to `--json`.

mod child;
mod cli;
mod connect;
mod counters;
mod datapath;
mod environment;
mod factors;
mod fanout;
mod lent;
mod memory;
mod mesh;
mod messages;
mod meta;
mod mr;
mod multicast;
mod newcomer;
mod nodes;
mod pace;
mod peer;
mod pool;
mod rdmc;
mod rdmc_sim;
mod readers;
mod report;
mod round_robin;
mod stamps;
mod stats;
mod tail;
mod trace;
mod turns;
mod two_sided;
mod verbs;
mod views;
mod wait;
mod weft;
mod worker;

use std::process::ExitCode;

use clap::Parser;
use nix::sys::resource::{getrlimit, setrlimit, Resource};

use cli::{Cli, Command};

fn main() -> ExitCode {
    // The first statement of all, because a new worker's clock starts here.
    let outcome = match newcomer::arrive() {
        Some(outcome) => outcome,
        None => allow_descriptors().and_then(|()| run(Cli::parse().command)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weft-bench: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// As many descriptors as a process may have: tens of clients have devices, completion channels
/// and connections by TCP of their own in one process.
fn allow_descriptors() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Connect(args) => connect::run(&args),
        Command::Worker(args) => worker::run(&args),
        Command::Mesh(args) => mesh::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Datapath(args) => datapath::run(&args),
        Command::TwoSided(args) => two_sided::run(&args),
        Command::Tail(args) => tail::run(&args),
        Command::Mr(args) => mr::run(&args),
        Command::Factors(args) => factors::run(&args),
        Command::Fanout(args) => fanout::run(&args),
        Command::Pool(args) => pool::run(&args),
        Command::Meta(args) => meta::run(&args),
        Command::Multicast(args) => multicast::run(&args),
        Command::Views(args) => views::run(&args),
        Command::Rdmc(args) => rdmc::run(&args),
        Command::RdmcSim(args) => rdmc_sim::run(&args),
        Command::Peer(args) => peer::serve(&args),
        Command::Station(args) => messages::serve(&args),
        Command::Bouncer(args) => datapath::bounce(&args),
        Command::Member(args) => multicast::be_member(&args),
        Command::Holder(args) => memory::hold(&args),
        Command::MeshWorker(args) => mesh::work(&args),
        Command::RdmcMember(args) => rdmc::be_member(&args),
        Command::ViewsMember(args) => views::be_member(&args),
    }
}
