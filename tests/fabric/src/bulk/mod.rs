// SPDX-License-Identifier: MIT OR Apache-2.0

//! Large messages of one root through the views of a group: receivers are killed in the midst of
//! them, and others come into their seats. Each receives a row of messages, each once.

mod member;

pub use member::{run as be_member, MemberArgs};

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context as _, Result};
use weft_testkit::place::{Kind, Meeting};
use weft_testkit::report::Report;
use weft_testkit::rng::Rng;

use crate::process::patience;
use crate::seed_of_run;

const LONGEST: Duration = Duration::from_secs(3600);
const FOUNDERS: usize = 4;
/// One is empty: over RDMA nobody comes to a fabric without such.
const SEATS: usize = FOUNDERS + 1;
/// Sent while somebody is killed.
const MESSAGES: u64 = 12;

#[derive(clap::Args)]
pub struct Args {
    /// Over which fabric.
    kind: Kind,
    /// So many are killed, and as many come.
    #[arg(long, value_name = "N", default_value_t = 10)]
    changes: usize,
    /// Repeats a run's random choices.
    #[arg(long)]
    seed: Option<u64>,
}

/// Does it.
pub fn run(report: &mut Report, args: &Args) {
    let Args { kind, changes, .. } = *args;
    let mut rng = Rng::new(seed_of_run(args.seed));
    let name = format!("{kind}: large messages go on from view to view, each received once");
    report.check_within(&name, LONGEST, || {
        let mut group = Group::found(kind)?;
        (0..changes).try_for_each(|_| group.change(&mut rng))?;
        group.end()
    });
}

/// The root, and those who receive.
struct Group {
    kind: Kind,
    meetings: [Meeting; 2],
    root: Process,
    receivers: Vec<Process>,
    sent: u64,
}

impl Group {
    fn found(kind: Kind) -> Result<Self> {
        let meetings = [(); 2].map(|()| Meeting::call());
        let founder = |rank: usize| Process::start(kind, meetings, kind.node_of(rank), Some(rank));
        let receivers = (1..FOUNDERS).map(founder).collect::<Result<_>>()?;
        let group = Self {
            kind,
            meetings,
            root: founder(0)?,
            receivers,
            sent: 0,
        };
        group.same_view()?;
        Ok(group)
    }

    /// Kills somebody while messages are under way; then another one comes.
    fn change(&mut self, rng: &mut Rng) -> Result<()> {
        self.send(MESSAGES)?;
        std::thread::sleep(Duration::from_micros(rng.below(30_000) as u64));
        let victim = self.receivers.swap_remove(rng.below(self.receivers.len()));
        let node = victim.node;
        victim.kill()?.check()?;
        self.all_have()?;
        let newcomer = Process::start(self.kind, self.meetings, node, None)?;
        self.receivers.push(newcomer);
        self.same_view()?;
        self.send(1)?;
        self.all_have()
    }

    fn send(&mut self, messages: u64) -> Result<()> {
        self.sent += messages;
        writeln!(
            self.root.input.as_ref().context("it was let go")?,
            "{}",
            self.sent
        )?;
        Ok(())
    }

    fn all_have(&self) -> Result<()> {
        let last = format!("GOT {}", self.sent);
        self.receivers
            .iter()
            .try_for_each(|receiver| receiver.says(&last))
    }

    /// Waits until all are in the same view: what is sent then goes to all of them.
    fn same_view(&self) -> Result<()> {
        let members = || self.receivers.iter().chain([&self.root]);
        members().try_for_each(|member| member.says("VIEW"))?;
        let end = Instant::now() + patience();
        loop {
            let views: BTreeSet<_> = members().map(Process::view).collect();
            if views.len() == 1 {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{views:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(mut self) -> Result<()> {
        self.receivers.push(self.root);
        for member in &mut self.receivers {
            drop(member.input.take());
        }
        for member in &mut self.receivers {
            member.says("LEFT")?;
            ensure!(member.child.wait()?.success(), "it does not end well");
            member.check()?;
        }
        Ok(())
    }
}

/// A member's process. A thread collects what it says.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    said: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    /// The number of its RDMA node.
    node: usize,
}

impl Process {
    fn start(
        kind: Kind,
        [group, bulk]: [Meeting; 2],
        node: usize,
        founder: Option<usize>,
    ) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("bulk-member")
            .args([format!("--kind={kind}"), format!("--node={node}")])
            .args([format!("--group={group}"), format!("--bulk={bulk}")])
            .args(founder.map(|rank| format!("--rank={rank}")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a member")?;
        let output = BufReader::new(child.stdout.take().context("it has no output")?);
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                heard.lock().expect("no panic").push(line);
            }
        });
        Ok(Self {
            input: child.stdin.take(),
            child,
            said,
            reader: Some(reader),
            node,
        })
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().expect("no panic").clone()
    }

    /// Waits for a line that begins so, with a whole word.
    fn says(&self, what: &str) -> Result<()> {
        let is_it = |line: &String| {
            let rest = line.strip_prefix(what);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let end = Instant::now() + patience();
        while !self.said().iter().any(is_it) {
            let has_ended = self.reader.as_ref().is_none_or(JoinHandle::is_finished);
            if Instant::now() > end || has_ended && !self.said().iter().any(is_it) {
                bail!("no {what}: {:?}", self.said());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The view that it has installed last.
    fn view(&self) -> Option<String> {
        self.said()
            .into_iter()
            .rfind(|line| line.starts_with("VIEW"))
    }

    fn kill(mut self) -> Result<Self> {
        self.child.kill()?;
        self.child.wait()?;
        if let Some(reader) = self.reader.take() {
            reader.join().ok().context("the reader panicked")?;
        }
        Ok(self)
    }

    /// Whether it has received a row of messages, and was told of each view's end once. That
    /// messages are whole it has seen itself.
    fn check(&self) -> Result<()> {
        let said = self.said();
        let numbers = |word: &str| {
            let lines = said.iter().filter_map(|line| line.strip_prefix(word));
            lines.map(str::parse::<u64>).collect::<Result<Vec<_>, _>>()
        };
        let got = numbers("GOT ")?;
        let is_row = got.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        let mut ended = numbers("ENDED ")?;
        let count = ended.len();
        ended.sort_unstable();
        ended.dedup();
        ensure!(is_row && ended.len() == count, "{said:?}");
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
