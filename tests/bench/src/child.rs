// SPDX-License-Identifier: MIT OR Apache-2.0

//! Child processes on other nodes. A child says one line of JSON on its standard
//! output when it is ready, and serves until its standard input closes, so that
//! it never outlives the benchmark.

use std::io::{BufRead, Read, Write};
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use serde::{de::DeserializeOwned, Serialize};

/// How long a child that was let go may take to end, before it is killed.
const PARTING: Duration = Duration::from_secs(120);
/// Bytes that are read at a time of what a child says.
const CHUNK_BYTES: usize = 64 << 10;

/// A running child. Dropping it ends it.
pub struct Helper {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Lines,
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
        Self::of(Command::new(program).args(args))
    }

    fn of(command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the peer")?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the peer has no output")?;
        Ok(Self {
            child,
            stdin,
            said: Lines::of(stdout),
        })
    }

    /// Waits for what it says next.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        self.hear_by(None)
    }

    /// The same, for at most so long.
    pub fn hear_within<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T> {
        self.hear_by(Some(Instant::now() + patience))
    }

    fn hear_by<T: DeserializeOwned>(&mut self, deadline: Option<Instant>) -> Result<T> {
        if let Some(line) = self.said.next(deadline)? {
            return serde_json::from_slice(&line)
                .with_context(|| format!("the peer says {}", String::from_utf8_lossy(&line)));
        }
        drop(self.stdin.take());
        let status = self.child.wait()?;
        bail!("the peer ended too soon ({status}); it says why above")
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

    /// Waits until it has ended; kills it if it takes too long.
    fn end(&mut self) -> Result<()> {
        let deadline = Instant::now() + PARTING;
        let ended = loop {
            match self.said.next(Some(deadline)) {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if ended.is_err() {
            self.child.kill()?;
        }
        self.child.wait()?;
        ended.with_context(|| format!("it was killed after {PARTING:?}"))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.let_go();
        if let Err(error) = self.end() {
            eprintln!("weft-bench: the peer was lost: {error:#}");
        }
    }
}

/// The lines that a child says on its standard output.
struct Lines {
    from: ChildStdout,
    /// Bytes that were read and are of no line that was taken.
    rest: Vec<u8>,
}

impl Lines {
    fn of(from: ChildStdout) -> Self {
        Self {
            from,
            rest: Vec::new(),
        }
    }

    /// Waits for the next line. None if the child has closed its output, as it does when it
    /// ends; an error if neither happens before the deadline.
    fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Vec<u8>>> {
        let mut room = vec![0; CHUNK_BYTES];
        loop {
            if let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                return Ok(Some(self.rest.drain(..=end).collect()));
            }
            ensure!(
                self.is_ready(deadline)?,
                "the peer has said nothing in time"
            );
            match self.from.read(&mut room)? {
                0 => return Ok(None),
                count => self.rest.extend(&room[..count]),
            }
        }
    }

    /// Waits until there is something to read, or the end.
    fn is_ready(&self, deadline: Option<Instant>) -> Result<bool> {
        let mut fds = [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)];
        loop {
            let timeout = match deadline {
                Some(deadline) => {
                    PollTimeout::try_from(deadline.saturating_duration_since(Instant::now()))?
                }
                None => PollTimeout::NONE,
            };
            match poll(&mut fds, timeout) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A child of a shell's that says what a script says.
    fn child(script: &str) -> Helper {
        let mut command = Command::new("sh");
        Helper::of(command.args(["-c", script])).unwrap()
    }

    #[test]
    fn a_peer_that_says_nothing_is_waited_for_no_longer_than_was_said() {
        let mut silent = child("read -r line; echo '\"late\"'");
        let error = silent.hear_within::<String>(Duration::from_millis(20));
        assert!(format!("{:#}", error.unwrap_err()).contains("said nothing"));
        silent.go_on().unwrap();
        assert_eq!(silent.hear::<String>().unwrap(), "late");
    }

    #[test]
    fn lines_are_taken_one_by_one_and_then_the_end_is_told() {
        let mut child = child("printf '1\n2\n3'; exit 4");
        let patience = Duration::from_secs(60);
        assert_eq!(child.hear_within::<u8>(patience).unwrap(), 1);
        assert_eq!(child.hear::<u8>().unwrap(), 2);
        let error = child.hear_within::<u8>(patience).unwrap_err();
        assert!(format!("{error:#}").contains("exit status: 4"), "{error:#}");
    }
}
