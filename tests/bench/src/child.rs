// SPDX-License-Identifier: MIT OR Apache-2.0

//! Child processes on other nodes. A child says one line of JSON on its standard
//! output when it is ready, and serves until its standard input closes, so that
//! it never outlives the benchmark.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{bail, Context as _, Result};
use serde::{de::DeserializeOwned, Serialize};

/// A running child. Dropping it ends it.
pub struct Helper {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts weft-bench with these arguments, and waits until it is ready.
    pub fn start<T: DeserializeOwned>(args: &[String]) -> Result<(Self, T)> {
        let mut helper = Self::spawn(args)?;
        let ready = helper.hear()?;
        Ok((helper, ready))
    }

    /// Starts weft-bench with these arguments.
    pub fn spawn(args: &[String]) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find weft-bench itself")?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the peer")?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the peer has no output")?;
        Ok(Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    /// Waits for what it says next.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        match serde_json::from_str(&line) {
            Ok(said) => Ok(said),
            Err(_) => {
                drop(self.stdin.take());
                let status = self.child.wait()?;
                bail!("the peer ended too soon ({status}); it says why above")
            }
        }
    }

    /// Tells it to go on.
    pub fn go_on(&mut self) -> Result<()> {
        self.tell(&"go")
    }

    /// Tells it something.
    pub fn tell(&mut self, word: &impl Serialize) -> Result<()> {
        let stdin = self.stdin.as_mut().context("the peer was let go")?;
        say(stdin, word)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it.
    pub fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill()?)
    }

    /// Tells it to end, without waiting for that.
    pub fn let_go(&mut self) {
        drop(self.stdin.take());
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("weft-bench: the peer was lost: {error}");
        }
    }
}

/// In the child: waits until its parent tells it to go on.
pub fn wait_for_word() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(())
}

/// In the child: what its parent tells it next; nothing once it is let go.
pub fn next_word<T: DeserializeOwned>() -> Result<Option<T>> {
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}

/// In the child: says that it is ready, or what it has found.
pub fn say_ready(ready: &impl Serialize) -> Result<()> {
    say(&mut std::io::stdout().lock(), ready)
}

/// A line of JSON, at once.
fn say(to: &mut impl Write, word: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    to.write_all(&line)?;
    Ok(to.flush()?)
}

/// In the child: waits until its parent lets it go.
pub fn wait_for_end() -> Result<()> {
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}
