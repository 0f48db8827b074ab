// SPDX-License-Identifier: MIT OR Apache-2.0

//! All members of a group deliver the same sequence, whatever each of them sends
//! and however it pauses.

use std::thread;
use std::time::Instant;

use anyhow::{anyhow, ensure, Result};
use weft_testkit::place::{Kind, Meeting};

use crate::process::Process;
use crate::rng::Rng;
use crate::stream::{Delivered, Run};
use weft_testkit::report::Report;

/// What is sent, and among how many.
#[derive(clap::Args)]
pub struct Args {
    /// Which fabric.
    kind: Kind,
    /// Numbers of members, each 1 to 16.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [2, 3],
          value_parser = clap::value_parser!(u16).range(1..=16))]
    members: Vec<u16>,
    /// Messages of a run, of all members together.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    messages: u64,
    /// Runs with each number of members. All are drawn anew.
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,
    /// Members are threads of one process.
    #[arg(long)]
    threads: bool,
    /// Polling threads sleep as soon as they find nothing.
    #[arg(long)]
    sleepy: bool,
    /// Repeats a run.
    #[arg(long)]
    seed: Option<u64>,
}

/// One of the processes.
#[derive(clap::Args)]
pub struct MemberArgs {
    #[command(flatten)]
    run: Run,
    /// Which one it is.
    #[arg(long)]
    pub rank: usize,
    #[arg(long)]
    meeting: Meeting,
}

/// Does all runs.
pub fn run(report: &mut Report, args: &Args) {
    let mut seeds = Rng::new(crate::seed_of_run(args.seed));
    let mut total = 0;
    for round in 1..=args.rounds {
        for &members in &args.members {
            let run = Run {
                kind: args.kind,
                members: usize::from(members),
                messages: args.messages,
                seed: seeds.next(),
                sleepy: args.sleepy,
            };
            let who = if args.threads { "threads" } else { "processes" };
            let name = format!(
                "{}: {members} {who} deliver one sequence, round {round}",
                args.kind
            );
            report.check(&name, || {
                let began = Instant::now();
                let delivered = match args.threads {
                    true => with_threads(run)?,
                    false => with_processes(run)?,
                };
                total += judge(run, &delivered)?;
                println!(
                    "# each delivered {} in {:.1?}",
                    delivered[0],
                    began.elapsed()
                );
                Ok(())
            });
        }
    }
    println!("# {}: {total} messages, at each member", args.kind);
}

/// How many messages there were, if all have delivered them alike.
fn judge(run: Run, delivered: &[String]) -> Result<u64> {
    let sent = run.parts().iter().map(|part| part.messages).sum();
    let differ = delivered.iter().position(|other| *other != delivered[0]);
    if let Some(other) = differ {
        return Err(anyhow!(
            "member 0 has {}, member {other} has {} (seed {})",
            delivered[0],
            delivered[other],
            run.seed
        ));
    }
    let count = delivered[0].split(' ').next().unwrap_or_default();
    ensure!(
        count == format!("{sent}"),
        "{sent} were sent, {count} delivered"
    );
    Ok(sent)
}

fn with_threads(run: Run) -> Result<Vec<String>> {
    let meeting = Meeting::call();
    let play = move |rank| move || run.play(rank, meeting);
    let playing: Vec<_> = (0..run.members)
        .map(|rank| thread::spawn(play(rank)))
        .collect();
    let ends = playing.into_iter().map(|thread| {
        let end = thread.join().map_err(|_| anyhow!("a member panicked"))?;
        end.map(|delivered: Delivered| delivered.to_string())
    });
    ends.collect()
}

fn with_processes(run: Run) -> Result<Vec<String>> {
    let meeting = Meeting::call();
    let start = |rank: usize| {
        let args = [
            "sender".to_owned(),
            format!("--kind={}", run.kind),
            format!("--members={}", run.members),
            format!("--messages={}", run.messages),
            format!("--seed={}", run.seed),
            format!("--rank={rank}"),
            format!("--meeting={meeting}"),
        ];
        let sleepy = run.sleepy.then(|| "--sleepy".to_owned());
        let args: Vec<_> = args.into_iter().chain(sleepy).collect();
        Process::start(rank, &args)
    };
    let mut processes = (0..run.members).map(start).collect::<Result<Vec<_>>>()?;
    let ends = processes.iter_mut().map(|process| {
        let delivered = process.hear()?;
        process.ends_well()?;
        Ok(delivered)
    });
    ends.collect()
}

/// Is one of the processes.
pub fn play(args: &MemberArgs) -> Result<()> {
    let delivered = args.run.play(args.rank, args.meeting)?;
    println!("{delivered}");
    println!("done");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_delivers_something_else_is_found() {
        let run = Run {
            kind: Kind::Shm,
            members: 2,
            messages: 10,
            seed: 1,
            sleepy: false,
        };
        let sent: u64 = run.parts().iter().map(|part| part.messages).sum();
        let said = |count: u64, hash: u64| format!("{count} messages, hash {hash}");
        assert_eq!(judge(run, &[said(sent, 1), said(sent, 1)]).unwrap(), sent);
        assert!(judge(run, &[said(sent, 1), said(sent, 2)]).is_err());
        assert!(judge(run, &[said(sent - 1, 1), said(sent - 1, 1)]).is_err());
    }

    #[test]
    fn threads_over_shared_memory_deliver_one_sequence() {
        for (members, sleepy) in [(1, true), (4, false), (4, true)] {
            let run = Run {
                kind: Kind::Shm,
                members,
                messages: 4000,
                seed: 7,
                sleepy,
            };
            judge(run, &with_threads(run).unwrap()).unwrap();
        }
    }
}
