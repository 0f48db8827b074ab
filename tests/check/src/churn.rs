// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two processes of 64 threads that write without a pause: in the one each thread has rings
//! of its own, in the other all completions go to one ring. One of them is killed again and
//! again at random instants. No request of either is lost, done twice or out of order, and
//! nothing stays.

mod own;
mod shared;
mod worker;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};

use crate::rng::Rng;
use crate::world::{worker as start_worker, Baseline};
use weft_testkit::pace::patient;
use weft_testkit::report::Report;

pub use worker::{work, WorkerArgs};

/// Which rings the threads of a process have.
const MODES: [&str; 2] = ["own", "shared"];
/// A process that says nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(60);
/// It is killed within this time, from the last kill on.
const KILL_WITHIN_MS: usize = 3000;
/// Lines that say how far it is.
const SHOWN: u64 = 10;

/// What a run is told.
#[derive(clap::Args)]
pub struct Args {
    /// Requests that have ended and were looked at, of both processes together.
    #[arg(long, default_value_t = 200_000)]
    requests: u64,
}

/// The whole run.
pub fn run(report: &mut Report, args: &Args, seed: u64) {
    let Some(baseline) = report.need("the gauges stand still", || Baseline::take(2)) else {
        return;
    };
    let name = "no request is lost or done twice, by threads with rings of their own and with one";
    // As long as the run takes: what hangs is silent.
    let forever = Duration::from_secs(7200);
    report.check_within(name, forever, || churn(args.requests, seed));
    report.check("all of it leaves nothing behind", || baseline.is_back());
}

/// A process, as it is now.
struct Member {
    child: Child,
    /// How often it has been started.
    life: usize,
    spoke: Instant,
}

/// What a process has said: who, in which life, and the line.
type Line = (usize, usize, String);

struct Churn {
    members: Vec<Member>,
    sender: Sender<Line>,
    lines: Receiver<Line>,
    /// Requests that each kind of process has had.
    done: [u64; 2],
    kills: usize,
}

fn churn(requests: u64, seed: u64) -> Result<()> {
    let (sender, lines) = channel();
    let mut this = Churn {
        members: Vec::new(),
        sender,
        lines,
        done: [0; 2],
        kills: 0,
    };
    let outcome = this.all(requests, seed);
    for member in &mut this.members {
        member.child.kill()?;
        member.child.wait()?;
    }
    let [own, shared] = this.done;
    println!(
        "# {} kills; {own} requests with own rings, {shared} with one",
        this.kills
    );
    outcome?;
    ensure!(this.kills >= 5, "only {} kills", this.kills);
    ensure!(
        own > requests / 20 && shared > requests / 20,
        "one kind did nothing"
    );
    Ok(())
}

impl Churn {
    fn all(&mut self, requests: u64, seed: u64) -> Result<()> {
        let mut rng = Rng::new(seed);
        for index in 0..MODES.len() {
            let member = self.start(index, 0, &mut rng)?;
            self.members.push(member);
        }
        let mut shown = 0;
        let mut next_kill = Self::next_kill(&mut rng);
        while self.done.iter().sum::<u64>() < requests || self.kills < 5 {
            self.listen(next_kill)?;
            if Instant::now() >= next_kill {
                let victim = rng.below(MODES.len());
                self.kill(victim, &mut rng)
                    .with_context(|| format!("kill {}", self.kills))?;
                next_kill = Self::next_kill(&mut rng);
            }
            let part = self.done.iter().sum::<u64>() * SHOWN / requests.max(1);
            if part > shown {
                shown = part;
                println!(
                    "# {:?} of {requests} requests, {} kills",
                    self.done, self.kills
                );
            }
        }
        Ok(())
    }

    fn next_kill(rng: &mut Rng) -> Instant {
        let after = Duration::from_millis(rng.below(KILL_WITHIN_MS) as u64);
        Instant::now() + patient(after)
    }

    fn start(&self, index: usize, life: usize, rng: &mut Rng) -> Result<Member> {
        let mut child = start_worker(&["churn"])?
            .args(["--rings", MODES[index]])
            .args(["--seed", &rng.next().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("no output")?;
        let sender = self.sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send((index, life, line));
            }
            let _ = sender.send((index, life, "end".to_owned()));
        });
        Ok(Member {
            child,
            life,
            spoke: Instant::now(),
        })
    }

    fn kill(&mut self, victim: usize, rng: &mut Rng) -> Result<()> {
        let member = &mut self.members[victim];
        let ended = member.child.try_wait()?;
        ensure!(
            ended.is_none(),
            "process {victim} ended by itself: {ended:?}"
        );
        member.child.kill()?;
        member.child.wait()?;
        self.kills += 1;
        let life = member.life + 1;
        self.members[victim] = self.start(victim, life, rng)?;
        Ok(())
    }

    /// Takes what they say, until then at the longest.
    fn listen(&mut self, until: Instant) -> Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok((index, life, line)) => self.take(index, life, &line)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("nobody is there"),
        }
        let silent = self
            .members
            .iter()
            .find(|member| member.spoke.elapsed() > patient(SILENCE));
        ensure!(silent.is_none(), "a process says nothing for {SILENCE:?}");
        Ok(())
    }

    fn take(&mut self, index: usize, life: usize, line: &str) -> Result<()> {
        let member = &mut self.members[index];
        let is_now = member.life == life;
        match line.split_once(' ') {
            Some(("done", count)) => {
                self.done[index] += count.parse::<u64>()?;
                if is_now {
                    member.spoke = Instant::now();
                }
            }
            None if line == "end" && !is_now => {}
            _ => bail!("the process with {} rings says: {line}", MODES[index]),
        }
        Ok(())
    }
}
