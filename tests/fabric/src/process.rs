// SPDX-License-Identifier: MIT OR Apache-2.0

//! Nodes that are processes: this program again, with what it is to do, which
//! says on its standard output how far it is.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};
use weft_testkit::pace::patient;

/// How long anything may take on the slowest machine.
pub fn patience() -> Duration {
    patient(Duration::from_secs(90))
}

/// A node that is a process. Dropping it kills it.
pub struct Process {
    rank: usize,
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts the node of this rank.
    pub fn start(rank: usize, args: &[String]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
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

    /// Waits for its next line.
    pub fn hear(&mut self) -> Result<String> {
        match self.lines.recv_timeout(patience()) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                bail!("node {} said nothing within {:?}", self.rank, patience())
            }
            Err(RecvTimeoutError::Disconnected) => {
                bail!("node {} ended too soon; it says why above", self.rank)
            }
        }
    }

    /// Waits until it says a word.
    pub fn says(&mut self, word: &str) -> Result<()> {
        let line = self.hear().with_context(|| format!("before {word:?}"))?;
        ensure!(
            line == word,
            "node {} said {line:?} instead of {word:?}",
            self.rank
        );
        Ok(())
    }

    /// Kills it in the midst of what it does.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until it says that it is done, and is gone.
    pub fn ends_well(&mut self) -> Result<()> {
        self.says("done")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "node {} ended with {status}", self.rank);
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
