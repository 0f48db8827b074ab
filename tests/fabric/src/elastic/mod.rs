// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups with views, of processes that are killed, and join, under load. At each view every
//! member says what was delivered before: all have to say the same.

mod joins;
mod kills;
mod member;
mod stops;

pub use member::{run as be_member, MemberArgs};

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure, Context as _, Result};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use weft_testkit::place::{Kind, Meeting};
use weft_testkit::report::Report;
use weft_testkit::rng::Rng;

use crate::process::patience;
use crate::seed_of_run;

/// All of it, however many rounds are asked for.
const LONGEST: Duration = Duration::from_secs(3600);

#[derive(clap::Args)]
pub struct Args {
    /// Over which fabric.
    kind: Kind,
    /// At least so many kills and as many joins, at random.
    #[arg(long, value_name = "N", default_value_t = 10)]
    changes: usize,
    /// Groups without newcomers, in which some are killed one after the other.
    #[arg(long, value_name = "N", default_value_t = 5)]
    shrinking: usize,
    /// Members that are stopped, and go on when the others have.
    #[arg(long, value_name = "N", default_value_t = 2)]
    stops: usize,
    /// Repeats a run's random choices.
    #[arg(long)]
    seed: Option<u64>,
}

/// Does it.
pub fn run(report: &mut Report, args: &Args) {
    let Args { kind, .. } = *args;
    let mut rng = Rng::new(seed_of_run(args.seed));
    let name = format!("{kind}: survivors of kills go on with the same sequence");
    report.check_within(&name, LONGEST, || kills::run(kind, args.shrinking));
    let name = format!("{kind}: those who join while others are killed have the same behind them");
    report.check_within(&name, LONGEST, || joins::run(kind, args.changes, &mut rng));
    let name = format!("{kind}: others go on without one that is stopped, which finds itself out");
    report.check_within(&name, LONGEST, || stops::run(kind, args.stops));
}

/// What a member has said of a view: its number, and a text that is the same for all.
type Said = (u64, String);

/// A member's process. A thread collects what it says of views.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    said: Arc<Mutex<Vec<Said>>>,
    /// Answers with how it has ended.
    reader: Option<JoinHandle<Option<String>>>,
    /// Which RDMA node it is on.
    node: usize,
}

impl Process {
    fn start(kind: Kind, meeting: Meeting, node: usize, role: &[String]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("elastic-member")
            .args([format!("--kind={kind}"), format!("--meeting={meeting}")])
            .arg(format!("--node={node}"))
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a member")?;
        let output = child.stdout.take().context("it has no output")?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            let mut end = None;
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(view) = read_view(&line) {
                    heard.lock().expect("no panic").push(view);
                } else if line == "LEFT" || line.starts_with("OUT ") {
                    end = Some(line);
                }
            }
            end
        });
        Ok(Self {
            input: child.stdin.take(),
            child,
            said,
            reader: Some(reader),
            node,
        })
    }

    fn said(&self) -> Vec<Said> {
        self.said.lock().expect("no panic").clone()
    }

    /// Waits for what it says of a view.
    fn view(&mut self, number: u64) -> Result<String> {
        let end = Instant::now() + patience();
        loop {
            if let Some((_, view)) = self.said().into_iter().find(|said| said.0 == number) {
                return Ok(view);
            }
            self.check_alive()?;
            ensure!(Instant::now() < end, "no view {number}: {:?}", self.said());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("a member ended with {status}; it says why above"),
        }
    }

    fn join_reader(&mut self) -> Result<Option<String>> {
        let reader = self.reader.take().context("it was joined")?;
        reader.join().map_err(|_| anyhow!("the reader panicked"))
    }

    /// Kills it, and answers with all that it has said.
    fn kill(mut self) -> Result<Vec<Said>> {
        self.check_alive()?;
        self.child.kill()?;
        self.child.wait()?;
        self.join_reader()?;
        let mut said = self.said();
        // The last line may not be whole.
        said.pop();
        Ok(said)
    }

    /// Lets it leave, and answers with all that it has said.
    fn leave(mut self) -> Result<Vec<Said>> {
        drop(self.input.take());
        self.ends(&["LEFT"])?;
        Ok(self.said())
    }

    /// Waits until it has ended, in one of these ways.
    fn ends(&mut self, hows: &[&str]) -> Result<()> {
        let status = self.child.wait()?;
        let end = self.join_reader()?;
        let is_it = end.as_ref().is_some_and(|end| hows.contains(&end.as_str()));
        ensure!(
            status.success() && is_it,
            "wanted: {hows:?}; {status}, {end:?}"
        );
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.id().try_into()?), signal)?;
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

fn read_view(line: &str) -> Option<Said> {
    let (number, view) = line.strip_prefix("VIEW ")?.split_once(' ')?;
    Some((number.parse().ok()?, view.to_owned()))
}
