// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes of perftest: one tool on a node.

use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{bail, ensure, Context as _, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::nodes::{Node, CLIENT};

/// Where a tool's server listens by TCP for its client.
const PORT: u16 = 18_700;
/// How long a server may take to listen, and a run to end.
const START_PATIENCE: Duration = Duration::from_secs(30);
const RUN_PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks whether a server listens.
const NAP: Duration = Duration::from_millis(2);

/// A tool that runs. Dropping it ends it.
pub struct Tool {
    child: Child,
    name: String,
}

impl Tool {
    /// Starts a server on a node, and waits until it listens.
    pub fn serve(node: Node, words: &[String]) -> Result<Self> {
        let mut tool = Self::spawn(node, words, &[])?;
        let deadline = Instant::now() + START_PATIENCE;
        while !listens(tool.child.id()) {
            if tool.child.try_wait()?.is_some() {
                tool.end()?;
                bail!("perftest's server ended before it had a client");
            }
            ensure!(
                Instant::now() < deadline,
                "perftest's server does not listen"
            );
            thread::sleep(NAP);
        }
        Ok(tool)
    }

    /// Starts a client on a node, of the server on another.
    pub fn run(node: Node, words: &[String], server: Node) -> Result<Self> {
        Self::spawn(node, words, &[server.ip().to_string()])
    }

    fn spawn(node: Node, words: &[String], server: &[String]) -> Result<Self> {
        let (device, port) = (node.device(), PORT.to_string());
        let namespace = format!("n{}", node.0);
        let mut line: Vec<&str> = match node == CLIENT {
            true => vec![],
            false => vec!["ip", "netns", "exec", &namespace],
        };
        line.extend(words.iter().map(String::as_str));
        line.extend(["-d", &device, "-p", &port]);
        line.extend(server.iter().map(String::as_str));
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).stdin(Stdio::null());
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Ok(Self {
            child: child.with_context(|| format!("cannot start {}", line.join(" ")))?,
            name: line.join(" "),
        })
    }

    /// Waits until it has ended well, and answers with what it said.
    pub fn end(mut self) -> Result<String> {
        let said = self.hear()?;
        let status = self.child.wait()?;
        let mut complaints = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut complaints)?;
        }
        ensure!(
            status.success(),
            "{} failed ({status}):\n{said}{complaints}",
            self.name
        );
        Ok(said)
    }

    /// Reads its output to the end. It complains less than a pipe holds.
    fn hear(&mut self) -> Result<String> {
        let mut stdout = self
            .child
            .stdout
            .take()
            .context("the tool's output is taken")?;
        let deadline = Instant::now() + RUN_PATIENCE;
        let mut said = Vec::new();
        let mut room = [0; 4096];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(
                !left.is_zero(),
                "{} does not end:\n{}",
                self.name,
                text(&said)
            );
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, timeout)? == 0 {
                continue;
            }
            match stdout.read(&mut room)? {
                0 => return Ok(text(&said)),
                count => said.extend_from_slice(&room[..count]),
            }
        }
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        // Both fail if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program says that ends by itself, whatever its status.
pub fn output_of(line: &[&str]) -> Result<String> {
    let output = Command::new(line[0]).args(&line[1..]).output();
    let output = output.with_context(|| format!("cannot run {}", line[0]))?;
    Ok(text(&output.stdout))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether a socket listens on the port in the process's network namespace.
fn listens(pid: u32) -> bool {
    let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")));
    tables
        .into_iter()
        .flatten()
        .any(|table| has_listener(&table, PORT))
}

/// Whether a table of the kernel's (proc_net_tcp(5)) has a listener on a port.
fn has_listener(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().is_some_and(|local| local.ends_with(&suffix));
        local && fields.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_by_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
             0: 00000000:490C 00000000:0000 0A 00000000:00000000\n   \
             1: 0100007F:1F90 00000000:0000 01 00000000:00000000\n";
        assert!(has_listener(table, 18_700));
        assert!(!has_listener(table, 8080));
        assert!(!has_listener(table, 18_701));
        assert!(!has_listener("", 18_700));
    }

    #[test]
    fn a_tool_that_fails_is_an_error_that_shows_what_it_said() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::null());
            let child = command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let name = "sh".to_owned();
            Tool {
                child: child.unwrap(),
                name,
            }
        };
        assert_eq!(shell("echo fine").end().unwrap(), "fine\n");
        let error = shell("echo half; echo broken >&2; exit 3")
            .end()
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("half") && error.contains("broken"),
            "{error}"
        );
    }
}
