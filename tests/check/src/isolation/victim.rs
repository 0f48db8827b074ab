// SPDX-License-Identifier: MIT OR Apache-2.0

//! The victim: a process that has memory with each kind of rights, exchanges
//! data of its own, and looks at all of it all the while.

mod body;
mod mailbox;
mod peers;

use std::io::{stdin, stdout, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{channel, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use anyhow::{ensure, Context, Result};
use serde::{Deserialize, Serialize};
use weft_core::uapi::{
    ACCESS_ALL, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE,
};

use super::users::{become_user, stay_on_first_cpu, SOMEBODY};
use crate::world::{keep_counters, worker};
use body::Body;
use weft_testkit::pace::patient;

pub use mailbox::BUFFER;

/// Bytes of each part; as many lie before it and behind it, to which peers have no key.
pub const LEN: usize = 16 << 10;
/// The first bytes of what peers may change; they are nobody's.
pub const DOORMAT: usize = 8;
/// A victim that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(45);
/// Between rounds, for others to have the processor too.
const PAUSE: Duration = Duration::from_millis(2);

/// A part of the victim's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// For the victim alone.
    Secret,
    /// For peers' READs.
    Readable,
    /// For peers' WRITEs.
    Writable,
    /// For peers' atomic operations.
    Counters,
    /// Was for everything, and is deregistered.
    Stale,
    /// For everything, on node 1.
    Elsewhere,
    /// Shown to peers' READs by a window of a region that is for the victim alone, and that has
    /// what lies around it too.
    Windowed,
}

/// The parts in their order, with their nodes and rights.
pub const PARTS: [(Part, u32, u32); 7] = [
    (Part::Secret, 0, ACCESS_LOCAL_WRITE),
    (Part::Readable, 0, ACCESS_REMOTE_READ),
    (Part::Writable, 0, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE),
    (Part::Counters, 0, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_ATOMIC),
    (Part::Stale, 0, ACCESS_ALL),
    (Part::Elsewhere, 1, ACCESS_ALL),
    (Part::Windowed, 0, ACCESS_REMOTE_READ),
];

/// Where a part is, and by which keys it is named.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Place {
    pub addr: u64,
    pub lkey: u32,
    pub rkey: u32,
}

/// What the victim tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Told {
    /// Its process.
    pub pid: u32,
    /// Handles of its VQPs.
    pub vqps: Vec<u32>,
    /// Where their rings are mapped from, and their bytes.
    pub rings: Vec<(u64, u32)>,
    /// Handles of rings, and of peers that it has opened.
    pub ring_handles: Vec<u32>,
    pub peers: Vec<u32>,
    /// That it receives at; for the second it has no buffers.
    pub ports: [u32; 2],
    /// Its number for one of its senders.
    pub src: u32,
    /// In the order of [`PARTS`].
    pub places: Vec<Place>,
}

impl Told {
    /// Where a part is.
    pub fn place(&self, part: Part) -> Place {
        self.places[part as usize]
    }
}

/// What it answers when it is asked.
#[derive(Serialize, Deserialize)]
struct Answer {
    rounds: usize,
    noticed: Vec<String>,
}

/// What it is given.
#[derive(clap::Args)]
pub struct VictimArgs {
    #[arg(long)]
    seed: u64,
}

/// Is the victim, until its input ends.
pub fn work(args: &VictimArgs) -> Result<()> {
    stay_on_first_cpu()?;
    keep_counters()?;
    become_user(SOMEBODY)?;
    let (sender, orders) = channel();
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let mut body = Body::new(args.seed)?;
    say(&body.told())?;
    let mut rounds = 0;
    loop {
        body.round();
        rounds += 1;
        match orders.try_recv() {
            Ok(_) => {
                // One that has begun after the question.
                body.round();
                rounds += 1;
                let noticed = body.take_noticed();
                say(&Answer { rounds, noticed })?;
            }
            Err(TryRecvError::Empty) => thread::sleep(PAUSE),
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

fn say(what: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(what)?);
    Ok(stdout().flush()?)
}

/// The victim, as others see it.
pub struct Victim {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    told: Told,
    rounds: usize,
}

impl Victim {
    /// Starts it and hears what it tells.
    pub fn start(seed: u64) -> Result<Self> {
        let mut child = worker(&["victim"])?
            .args(["--seed", &seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("no output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let first = lines
            .recv_timeout(patient(PATIENCE))
            .context("the victim did not come up")?;
        let told = serde_json::from_str(&first)?;
        Ok(Self {
            child,
            stdin,
            lines,
            told,
            rounds: 0,
        })
    }

    /// What it has told.
    pub fn told(&self) -> &Told {
        &self.told
    }

    /// How often it has looked.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// What it has noticed since it was last asked, and in a round from now on.
    pub fn report(&mut self) -> Result<Vec<String>> {
        // An answer that came too late belongs to an earlier question.
        while self.lines.try_recv().is_ok() {}
        let stdin = self.stdin.as_mut().context("it has ended")?;
        writeln!(stdin, "report")?;
        let line = self
            .lines
            .recv_timeout(patient(PATIENCE))
            .context("the victim is stuck")?;
        let answer: Answer = serde_json::from_str(&line)?;
        self.rounds = answer.rounds;
        Ok(answer.noticed)
    }

    /// Ends it.
    pub fn end(&mut self) -> Result<()> {
        self.stdin = None;
        let status = self.child.wait()?;
        ensure!(status.success(), "the victim: {status}");
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
