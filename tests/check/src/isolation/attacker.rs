// SPDX-License-Identifier: MIT OR Apache-2.0

//! An attacker: a process that makes one attempt after the other, as it is told.

use std::any::Any;
use std::fmt;
use std::io::{stdin, stdout, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use weft_core::uapi::{self, WcStatus};
use weft_shim::{Device, Error, LocalSlice, MemoryRegion, Remote, SendWr};

use super::member::Member;
use super::table::{self, Attempt, Verb};
use super::users::{become_user, enter_namespace_of, stay_on_first_cpu};
use super::victim::{Part, Told};
use crate::raw::{request, Session};
use crate::rng::Rng;
use crate::world::{connect, full_access, gid, worker};

/// Bytes of the attacker's own region.
pub const OWN: usize = 64 << 10;
/// What is in it before each attempt: what comes in shows.
const BLANK: u8 = 0x5a;

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a completion.
    Status(WcStatus),
    /// With an error of a call.
    Errno(Errno),
    /// In another way.
    Said(&'static str),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status:?}"),
            Self::Errno(errno) => write!(f, "{errno:?}"),
            Self::Said(text) => f.write_str(text),
        }
    }
}

/// A call that should be refused.
pub fn refusal<T>(call: Result<T, Errno>) -> Outcome {
    call.map_or_else(Outcome::Errno, |_| Outcome::Said("it worked"))
}

/// The outcome of all, if it is the same.
pub fn unanimous(outcomes: impl IntoIterator<Item = Result<Outcome>>) -> Result<Outcome> {
    let mut all = outcomes.into_iter();
    let first = all.next().context("nothing was tried")??;
    for (n, outcome) in all.enumerate() {
        let outcome = outcome?;
        ensure!(outcome == first, "{first}, but number {} {outcome}", n + 1);
    }
    Ok(first)
}

/// What an attacker has.
pub struct Stage {
    pub told: Told,
    pub node: u32,
    pub seed: u64,
    pub member: Member,
    pub device: Device,
    /// The attacker's own memory, for all kinds of access.
    pub own: MemoryRegion,
    /// A second session's memory.
    second: MemoryRegion,
    /// A session without the shim's manners.
    pub raw: Session,
    /// What has to stay until the victim has looked.
    held: Vec<Box<dyn Any>>,
}

impl Stage {
    fn new(args: &AttackerArgs, told: Told, member: Member) -> Result<Self> {
        let (device, second) = (Device::open_on(args.node)?, Device::open_on(args.node)?);
        Ok(Self {
            told,
            node: args.node,
            seed: args.seed,
            member,
            own: MemoryRegion::allocate(&device, OWN, full_access())?,
            second: MemoryRegion::allocate(&second, OWN, full_access())?,
            device,
            raw: Session::open(args.node)?,
            held: Vec::new(),
        })
    }

    /// The node as peers' calls take it.
    pub fn home(&self) -> u8 {
        self.node as u8
    }

    /// Keeps something until the victim has looked.
    pub fn hold(&mut self, what: impl Any) {
        self.held.push(Box::new(what));
    }

    /// Random numbers, always the same ones.
    pub fn rng(&self) -> Rng {
        Rng::new(self.seed ^ u64::from(self.node))
    }

    fn attempt(&mut self, attempt: Attempt) -> Result<Outcome> {
        match attempt {
            Attempt::Peer(verb, part, offset, len) => {
                let place = self.told.place(part);
                let addr = place.addr.wrapping_add_signed(offset);
                self.peer(
                    verb,
                    Remote {
                        addr,
                        rkey: place.rkey,
                    },
                    len,
                )
            }
            Attempt::Astray(verb, part, addr, len) => {
                let rkey = self.told.place(part).rkey;
                self.peer(verb, Remote { addr, rkey }, len)
            }
            Attempt::Local(verb, part) => self.local(verb, part),
            Attempt::Other(call) | Attempt::In(_, call) => call(self),
        }
    }

    /// A request to the victim's node, on a VQP of its own.
    pub fn peer(&self, verb: Verb, remote: Remote, len: usize) -> Result<Outcome> {
        self.own.copy_in(0, &vec![BLANK; OWN])?;
        let outcome = self.run(0, verb.request(self.own.slice(0..len)?, remote))?;
        let came = !self.is_blank(len)?;
        let brings =
            outcome == Outcome::Status(WcStatus::Success) && verb != Verb::Write && len > 0;
        ensure!(came == brings, "{outcome}, and bytes came: {came}");
        Ok(outcome)
    }

    /// The same from memory of another session of the same process.
    pub fn of_second_session(&mut self) -> Result<Outcome> {
        let own = self.own.remote();
        let slice = self.second.slice(0..8)?;
        unanimous(Verb::ALL.map(|verb| self.run(self.home(), verb.request(slice, own))))
    }

    /// A WRITE to a region on the attacker's own node.
    pub fn write_home(&self, remote: Remote, len: usize) -> Result<Outcome> {
        self.own.copy_in(0, &vec![BLANK; OWN])?;
        self.run(self.home(), SendWr::write(self.own.slice(0..len)?, remote))
    }

    fn run(&self, to: u8, wr: SendWr<'_>) -> Result<Outcome> {
        match connect(&self.device, to, 16)?.run(wr) {
            Ok(_) => Ok(Outcome::Status(WcStatus::Success)),
            Err(Error::Completion(error)) => {
                Ok(Outcome::Status(error.status.context("an unknown status")?))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A request to the attacker's own memory with the victim's as its local one.
    fn local(&self, verb: Verb, part: Part) -> Result<Outcome> {
        self.own.copy_in(0, &vec![BLANK; OWN])?;
        let (theirs, own) = (self.told.place(part), self.own.remote());
        let near = uapi::Sge {
            addr: theirs.addr + 64,
            len: 8,
            lkey: theirs.lkey,
        };
        let wr = request(verb.opcode(), near, own.addr, own.rkey);
        let status = self.raw.outcome(gid(self.home()), wr)?;
        ensure!(
            self.is_blank(OWN)?,
            "{status:?}, and its own memory has changed"
        );
        Ok(Outcome::Status(status))
    }

    fn is_blank(&self, len: usize) -> Result<bool> {
        let mut bytes = vec![0; len];
        self.own.copy_out(0, &mut bytes)?;
        Ok(bytes.iter().all(|byte| *byte == BLANK))
    }
}

impl Verb {
    /// A request. What changes a word changes it for sure.
    pub fn request(self, local: LocalSlice<'_>, remote: Remote) -> SendWr<'_> {
        match self {
            Self::Read => SendWr::read(local, remote),
            Self::Write => SendWr::write(local, remote),
            Self::Cas => SendWr::compare_swap(local, remote, 0, 1),
            Self::Faa => SendWr::fetch_add(local, remote, 1),
        }
    }

    fn opcode(self) -> u8 {
        match self {
            Self::Read => uapi::OP_READ,
            Self::Write => uapi::OP_WRITE,
            Self::Cas => uapi::OP_CAS,
            Self::Faa => uapi::OP_FAA,
        }
    }
}

/// What an attacker is given.
#[derive(clap::Args)]
pub struct AttackerArgs {
    #[arg(long)]
    node: u32,
    #[arg(long)]
    uid: u32,
    #[arg(long)]
    seed: u64,
}

/// Is an attacker: reads what it is told, then numbers of attempts, each of
/// which it answers with how the attempt ended. An empty line lets go.
pub fn work(args: &AttackerArgs) -> Result<()> {
    stay_on_first_cpu()?;
    enter_namespace_of(args.node)?;
    let member = Member::new()?;
    become_user(args.uid)?;
    let mut lines = stdin().lock().lines();
    let told = lines.next().context("it was told nothing")??;
    let mut stage = Stage::new(args, serde_json::from_str(&told)?, member)?;
    for line in lines {
        let line = line?;
        if line.is_empty() {
            stage.held.clear();
        } else {
            let row = table::row(line.parse()?).context("no such attempt")?;
            let answer = match stage.attempt(row.attempt) {
                Ok(outcome) => outcome.to_string(),
                Err(error) => format!("{error:#}").replace('\n', " "),
            };
            println!("{answer}");
            stdout().flush()?;
        }
    }
    Ok(())
}

/// Who attacks.
pub struct Who {
    pub name: &'static str,
    pub uid: u32,
    pub node: u32,
}

/// An attacker, as others see it.
pub struct Attacker {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Attacker {
    /// Starts it and tells it all.
    pub fn start(who: &Who, seed: u64, told: &Told) -> Result<Self> {
        let mut child = worker(&["attacker"])?
            .args(["--node", &who.node.to_string()])
            .args(["--uid", &who.uid.to_string()])
            .args(["--seed", &seed.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut this = Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().context("no output")?),
            child,
        };
        this.tell(&serde_json::to_string(told)?)?;
        Ok(this)
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("it has ended")?;
        Ok(writeln!(stdin, "{line}")?)
    }

    /// Has it make an attempt; answers with how that ended.
    pub fn attempt(&mut self, index: usize) -> Result<String> {
        self.tell(&index.to_string())?;
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            bail!("the attacker ended: {}", self.child.wait()?);
        }
        Ok(line.trim_end().to_owned())
    }

    /// Has it let go of what the attempt has made.
    pub fn release(&mut self) -> Result<()> {
        self.tell("")
    }

    /// Ends it.
    pub fn end(mut self) -> Result<()> {
        self.stdin = None;
        let status = self.child.wait()?;
        ensure!(status.success(), "the attacker: {status}");
        Ok(())
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
