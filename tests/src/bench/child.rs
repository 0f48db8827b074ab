// SPDX-License-Identifier: MIT OR Apache-2.0

//! Child processes on other nodes. A child says one line of JSON on its standard
//! output when it is ready, and serves until its standard input closes, so that
//! it never outlives the benchmark.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{bail, Context as _, Result};
use serde::{de::DeserializeOwned, Serialize};

/// A running child. Dropping it ends it.
pub struct Helper {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Helper {
    /// Starts weft-bench with these arguments, and waits until it is ready.
    pub fn start<T: DeserializeOwned>(args: &[String]) -> Result<(Self, T)> {
        let program = std::env::current_exe().context("cannot find weft-bench itself")?;
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the peer")?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the peer has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let Ok(ready) = serde_json::from_str(&line) else {
            let status = child.wait()?;
            bail!("the peer did not come up ({status}); it says why above");
        };
        Ok((Self { child, stdin }, ready))
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

/// In the child: says that it is ready.
pub fn say_ready(ready: &impl Serialize) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    serde_json::to_writer(&mut stdout, ready)?;
    stdout.write_all(b"\n")?;
    Ok(stdout.flush()?)
}

/// In the child: waits until its parent lets it go.
pub fn wait_for_end() -> Result<()> {
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}
