// SPDX-License-Identifier: MIT OR Apache-2.0

//! Three nodes that are processes: they exchange what nodes exchange, then one
//! is killed while the others sleep.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};

use crate::phases::Phase;
use crate::report::Report;
use weft_tests::place::{Kind, Meeting};

/// Nodes of the story.
pub const NODES: usize = 3;
/// The node that dies.
pub const VICTIM: usize = 1;

/// How long a phase may take on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// How soon a death has to be known, by the contract "soon".
const SOON: Duration = Duration::from_secs(5);

/// A node that is a process. Dropping it kills it.
struct Member {
    rank: usize,
    child: Child,
    lines: Receiver<String>,
}

/// Runs the story.
pub fn run(report: &mut Report, kind: Kind) {
    let meeting = Meeting::call();
    let name = |what: &str| format!("{kind}: {what}");
    let started = report.need(&name("processes meet"), || {
        let mut all: Vec<_> = (0..NODES)
            .map(|rank| Member::start(kind, rank, meeting))
            .collect::<Result<_>>()?;
        all.iter_mut().try_for_each(|member| member.says("met"))?;
        Ok(all)
    });
    let Some(mut all) = started else { return };
    for phase in Phase::TOGETHER {
        report.check(&name(phase.promise()), || {
            let done = |member: &mut Member| member.says(phase.name());
            all.iter_mut().try_for_each(done)
        });
    }
    report.check(&name("a process that is killed wakes the others"), || {
        all.iter_mut()
            .try_for_each(|member| member.says("sleeping"))?;
        let mut victim = all.remove(VICTIM);
        victim.child.kill()?;
        victim.child.wait()?;
        let killed = Instant::now();
        all.iter_mut()
            .try_for_each(|member| member.says("noticed"))?;
        let took = killed.elapsed();
        ensure!(took < SOON, "it took {took:?}, soon is {SOON:?}");
        println!("# noticed within {took:?}");
        Ok(())
    });
    report.check(&name("the living go on"), || {
        all.iter_mut().try_for_each(Member::ends_well)
    });
}

impl Member {
    fn start(kind: Kind, rank: usize, meeting: Meeting) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["member", "--kind", &kind.to_string()])
            .args([
                "--rank",
                &rank.to_string(),
                "--meeting",
                &meeting.to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a node")?;
        let stdout = child.stdout.take().context("it has no output")?;
        let (said, lines) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.for_each(|line| drop(said.send(line)));
        });
        Ok(Self { rank, child, lines })
    }

    /// Waits until it says a word.
    fn says(&mut self, word: &str) -> Result<()> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) if line == word => Ok(()),
            Ok(line) => bail!("node {} said {line:?} instead of {word:?}", self.rank),
            Err(RecvTimeoutError::Timeout) => {
                bail!("node {}: no {word:?} within {PATIENCE:?}", self.rank)
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!(
                    "node {} ended before {word:?}; it says why above",
                    self.rank
                )
            }
        }
    }

    fn ends_well(&mut self) -> Result<()> {
        self.says("done")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "node {} ended with {status}", self.rank);
        Ok(())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // It may have ended already, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
