// SPDX-License-Identifier: MIT OR Apache-2.0

//! Four processes that exchange data, each with each, one of which is killed
//! again and again at random instants: the others see error completions on the
//! VQPs to it, and nothing else.

mod peer;

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};

use crate::rng::Rng;
use crate::world::{worker, Baseline};
use weft_testkit::pace::patient;
use weft_testkit::report::Report;

pub use peer::{work, PeerArgs};

const PEERS: usize = 4;
/// Starting a process and connecting it takes no longer.
const PATIENCE: Duration = Duration::from_secs(30);
const KILL_WITHIN_US: usize = 20_000;

/// What a run is told.
#[derive(clap::Args)]
pub struct Args {
    /// How often one is killed.
    #[arg(long, default_value_t = 30)]
    kills: usize,
}

/// One of the four, as it is now.
struct Member {
    child: Child,
    stdin: ChildStdin,
    /// How often it has been started.
    life: usize,
    /// Where its memory is, once it has said so.
    place: Option<String>,
}

struct Soak {
    members: Vec<Member>,
    sender: Sender<(usize, usize, String)>,
    lines: Receiver<(usize, usize, String)>,
    /// Error completions that were reported.
    errors: usize,
    rounds: usize,
}

/// The whole run.
pub fn run(report: &mut Report, args: &Args, seed: u64) {
    let Some(baseline) = report.need("the gauges stand still", || Baseline::take(2)) else {
        return;
    };
    let outcome = soak(args.kills, seed);
    report.check("the others saw errors on VQPs to the dead only", || {
        let (errors, rounds) = outcome?;
        println!(
            "# {} kills, {errors} error completions, {rounds} good batches",
            args.kills
        );
        ensure!(errors > 0 && rounds > 0, "nobody was at work");
        Ok(())
    });
    report.check("all of it leaves nothing behind", || baseline.is_back());
}

fn soak(kills: usize, seed: u64) -> Result<(usize, usize)> {
    let (sender, lines) = channel();
    let mut soak = Soak {
        members: Vec::new(),
        sender,
        lines,
        errors: 0,
        rounds: 0,
    };
    let outcome = soak.all(kills, seed);
    for member in &mut soak.members {
        member.child.kill()?;
        member.child.wait()?;
    }
    outcome?;
    Ok((soak.errors, soak.rounds))
}

impl Soak {
    fn all(&mut self, kills: usize, seed: u64) -> Result<()> {
        for index in 0..PEERS {
            let member = self.start(index, 0)?;
            self.members.push(member);
        }
        self.settle()?;
        let mut rng = Rng::new(seed);
        for n in 0..kills {
            let victim = rng.below(PEERS);
            thread::sleep(Duration::from_micros(rng.below(KILL_WITHIN_US) as u64));
            self.kill(victim).with_context(|| format!("kill {n}"))?;
            // Some die again while they start.
            if rng.below(4) != 0 {
                self.settle().with_context(|| format!("after kill {n}"))?;
            }
            if (n + 1) % 100 == 0 {
                println!(
                    "# {} of {kills} kills, {} error completions",
                    n + 1,
                    self.errors
                );
            }
        }
        self.settle()?;
        let before = self.rounds;
        let deadline = Instant::now() + patient(PATIENCE);
        while self.rounds < before + 20 * PEERS {
            self.take(deadline)?;
        }
        Ok(())
    }

    fn start(&self, index: usize, life: usize) -> Result<Member> {
        let mut child = worker(&["peer"])?
            .args(["--index", &index.to_string()])
            .args(["--life", &life.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("no input")?;
        let (stdout, sender) = (
            child.stdout.take().context("no output")?,
            self.sender.clone(),
        );
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send((index, life, line));
            }
            let _ = sender.send((index, life, "end".to_owned()));
        });
        Ok(Member {
            child,
            stdin,
            life,
            place: None,
        })
    }

    fn kill(&mut self, victim: usize) -> Result<()> {
        let member = &mut self.members[victim];
        let ended = member.child.try_wait()?;
        ensure!(
            ended.is_none(),
            "process {victim} ended by itself: {ended:?}"
        );
        member.child.kill()?;
        member.child.wait()?;
        let life = member.life + 1;
        self.members[victim] = self.start(victim, life)?;
        Ok(())
    }

    /// Waits until all have said where their memory is.
    fn settle(&mut self) -> Result<()> {
        let deadline = Instant::now() + patient(PATIENCE);
        while self.members.iter().any(|member| member.place.is_none()) {
            self.take(deadline)?;
        }
        Ok(())
    }

    /// Takes what one of them says.
    fn take(&mut self, deadline: Instant) -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        let (index, life, line) = self
            .lines
            .recv_timeout(left)
            .context("nobody says anything")?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["place", addr, rkey] if self.members[index].life == life => {
                self.introduce(index, format!("{index} {life} {addr} {rkey}"));
            }
            ["rounds", n] => self.rounds += n.parse::<usize>()?,
            ["error", to, to_life, status] => {
                let (to, to_life): (usize, usize) = (to.parse()?, to_life.parse()?);
                ensure!(
                    to_life < self.members[to].life,
                    "{index} saw {status} from {to}, which lives"
                );
                ensure!(
                    matches!(status, "RemAccessErr" | "WrFlushErr"),
                    "{index} saw {status} from {to}, which is dead"
                );
                self.errors += 1;
            }
            ["end"] if self.members[index].life == life => bail!("process {index} ended"),
            ["end"] | ["place", ..] => {}
            _ => bail!("process {index} says: {line}"),
        }
        Ok(())
    }

    /// Tells all of one, and it of all. Whoever is dead does not listen.
    fn introduce(&mut self, index: usize, place: String) {
        for (other, member) in self.members.iter_mut().enumerate() {
            if other != index {
                let _ = writeln!(member.stdin, "{place}");
            }
        }
        let places: Vec<String> = self
            .members
            .iter()
            .filter_map(|m| m.place.clone())
            .collect();
        let member = &mut self.members[index];
        for place in places {
            let _ = writeln!(member.stdin, "{place}");
        }
        member.place = Some(place);
    }
}
