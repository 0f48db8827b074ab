// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups with views, of processes that are killed or put out, and join, under load. At each view
//! every member says what was delivered before: all have to say the same.

mod joins;
mod kills;
mod member;
mod oldest;
mod posts;
mod stops;
mod suspicion;

pub use member::{run as be_member, MemberArgs};

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
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
    /// Groups of four of which one is killed at a post in a change of view: each so many posts;
    /// 0: none.
    #[arg(long, value_name = "N", default_value_t = 0)]
    posts: usize,
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
    if args.posts > 0 {
        let name = format!("{kind}: a death at any post of a change of view leaves all the same");
        report.check_within(&name, LONGEST, || posts::run(kind, args.posts));
    }
}

/// A member's word about a view: its number, and a text that is the same for all. The text about
/// the subgroup of the oldest, when a view has ended, begins with [`OLDEST`].
type Said = (u64, String);

const OLDEST: &str = "OLDEST ";

/// A member's process. A thread collects what it says of views.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    said: Arc<Mutex<Vec<Said>>>,
    /// Single words that it has said.
    words: Receiver<String>,
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
        let (told, words) = channel();
        let reader = std::thread::spawn(move || {
            let mut end = None;
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(view) = read_view(&line) {
                    heard.lock().expect("no panic").push(view);
                } else if line == "LEFT" || line.starts_with("OUT ") {
                    end = Some(line);
                } else {
                    told.send(line).ok();
                }
            }
            end
        });
        Ok(Self {
            input: child.stdin.take(),
            child,
            said,
            words,
            reader: Some(reader),
            node,
        })
    }

    /// Its words about views.
    fn said(&self) -> Vec<Said> {
        let mut said = self.all_said();
        said.retain(|said| !said.1.starts_with(OLDEST));
        said
    }

    /// And of the subgroup.
    fn all_said(&self) -> Vec<Said> {
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

    /// Tells it something.
    fn tell(&mut self, what: &str) -> Result<()> {
        let input = self.input.as_mut().context("it was let go")?;
        Ok(writeln!(input, "{what}")?)
    }

    /// Tells it something, and waits for the word that it says to that.
    fn asks(&mut self, what: &str) -> Result<String> {
        self.tell(what)?;
        Ok(self.words.recv_timeout(patience())?)
    }

    /// Waits for a word.
    fn hears(&mut self, word: &str) -> Result<()> {
        let said = self.words.recv_timeout(patience())?;
        ensure!(said == word, "it said {said:?} instead of {word:?}");
        Ok(())
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// It leaves as soon as it reads that.
    fn let_go(&mut self) {
        drop(self.input.take());
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
        self.child.kill()?;
        self.child.wait()?;
        self.join_reader()?;
        let mut said = self.all_said();
        // The last line may not be whole.
        said.pop();
        Ok(said)
    }

    /// Lets it leave, and answers with all that it has said.
    fn leave(mut self) -> Result<Vec<Said>> {
        self.let_go();
        self.ends(&["LEFT"])?;
        Ok(self.all_said())
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
    let (of, said) = match line.strip_prefix(OLDEST) {
        Some(said) => (OLDEST, said),
        None => ("", line.strip_prefix("VIEW ")?),
    };
    let (number, view) = said.split_once(' ')?;
    Some((number.parse().ok()?, format!("{of}{view}")))
}

/// How many members a view has.
fn members_of(said: Option<&Said>) -> usize {
    let view = said.map_or("", |said| &said.1);
    let members = view.split_once('}').map_or("", |view| view.0);
    members
        .split(", ")
        .filter(|member| !member.is_empty())
        .count()
}

/// Everybody has to have said the same of each view.
fn check_same(said: Vec<Said>) -> Result<()> {
    let mut views: BTreeMap<(u64, bool), String> = BTreeMap::new();
    for (number, view) in said {
        let of = (number, view.starts_with(OLDEST));
        let known = views.entry(of).or_insert_with(|| view.clone());
        ensure!(*known == view, "of view {number}: {known} and {view}");
    }
    Ok(())
}
