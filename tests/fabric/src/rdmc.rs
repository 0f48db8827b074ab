// SPDX-License-Identifier: MIT OR Apache-2.0

//! Large messages through overlapping groups: each member is the root of a group
//! of them all, and all send at a time. What arrives is compared byte by byte.

mod load;
mod member;

use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use weft_testkit::place::{Kind, Meeting};

use crate::process::Process;
use load::Load;
use weft_testkit::report::Report;

/// What is sent, and among how many.
#[derive(clap::Args)]
pub struct Args {
    /// Which fabric.
    kind: Kind,
    /// Members, 2 to 16.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=16))]
    members: u16,
    /// MiB that all members together receive, at least.
    #[arg(long, value_name = "MIB", default_value_t = 64,
          value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    mib: u64,
    /// Longest message, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    longest: u32,
    /// Bytes of a block.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 10,
          value_parser = clap::value_parser!(u32).range(64..=64 << 20))]
    block: u32,
    /// Repeats a run.
    #[arg(long)]
    seed: Option<u64>,
}

/// One of the processes.
#[derive(clap::Args)]
pub struct MemberArgs {
    #[command(flatten)]
    load: Load,
    /// Which one it is.
    #[arg(long)]
    pub rank: usize,
    #[arg(long)]
    meeting: Meeting,
}

/// Runs the members.
pub fn run(report: &mut Report, args: &Args) {
    let seed = crate::seed_of_run(args.seed);
    let load = Load {
        kind: args.kind,
        members: usize::from(args.members),
        bytes: args.mib << 20,
        longest: args.longest << 10,
        block: args.block,
        seed,
    };
    let Load { kind, members, .. } = load;
    let name = format!("{kind}: {members} members send to one another, and all arrives as it was");
    report.check(&name, || {
        let meeting = Meeting::call();
        let start = |rank| Process::start(rank, &load.arguments(rank, meeting));
        let mut all: Vec<_> = (0..members).map(start).collect::<Result<_>>()?;
        let began = Instant::now();
        let mut all_bytes = 0;
        for (rank, process) in all.iter_mut().enumerate() {
            let told = loop {
                match process.hear()? {
                    // A sign of life; members say one now and then.
                    line if line.starts_with('#') => println!("{line}"),
                    line => break line,
                }
            };
            let bytes: u64 = told.parse().context("no number of bytes")?;
            ensure!(bytes == load.arriving_at(rank), "it received {bytes} bytes");
            all_bytes += bytes;
        }
        println!(
            "# {:.1} GiB received in {:.1?}, {:.2} GB/s",
            all_bytes as f64 / f64::from(1 << 30),
            began.elapsed(),
            all_bytes as f64 / 1e9 / began.elapsed().as_secs_f64(),
        );
        all.iter_mut().try_for_each(Process::ends_well)
    });
}

/// Is one of the processes.
pub fn play(args: &MemberArgs) -> Result<()> {
    let bytes = member::play(&args.load, args.rank, args.meeting)?;
    println!("{bytes}");
    println!("done");
    Ok(())
}

/// How long a member is silent at most.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
