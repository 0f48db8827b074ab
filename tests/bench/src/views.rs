// SPDX-License-Identifier: MIT OR Apache-2.0

//! `weft-bench views`: groups with views under load, over each fabric. In each round one
//! member is killed and another one leaves, and a newcomer joins another group; the others
//! say when they deliver again, and how long they had delivered nothing.
//!
//! Members are processes, all of them send as fast as they can. Times are by the clock that
//! the host's processes share: from the signal, or from the word to leave, to the first
//! delivery in the new view at the last member that gets there; of a join, from the moment at
//! which the newcomer, which runs already, begins to look for a seat, to its first delivery,
//! behind the state that it is given. In other groups, in which members that hang are suspected
//! after some time, one is stopped: others take it for down so much later, and should not have
//! taken it, or anybody else, for down before. Beside them is how long a message takes in the same
//! groups, from before it is sent to its delivery at its sender.
//!
//! A member that is put out, or cannot go on, says so. Where members that hang are suspected,
//! those that are put out are counted; anything else ends the benchmark.

mod hang;
mod member;

use std::fmt;
use std::time::Duration;

use anyhow::{bail, ensure, Context as _, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use weft_testkit::place::{Kind, Meeting};

use crate::child::Helper;
use crate::cli::Common;
use crate::report::{number, progress, rounded, JsonLines, Sheet};
use crate::stats::Times;

pub use member::{run as be_member, ViewsMemberArgs};

/// Time for messages to flow in before something happens to the group.
const CALM: Duration = Duration::from_millis(20);
/// How long a member may say nothing: longer than members wait for one another.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Args)]
pub struct ViewsArgs {
    #[command(flatten)]
    common: Common,
    /// Over which fabrics: over VQPs and verbs on the nodes that `scripts/vm run` makes.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [Kind::Shm], value_enum)]
    fabrics: Vec<Kind>,
    /// Members that found a group. Two of them go.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(4..=32))]
    members: u8,
    /// Groups of each kind.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Bytes of a message.
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    size: usize,
    /// Messages that a sender may have under way.
    #[arg(long, value_name = "N", default_value_t = 100)]
    window: usize,
    /// Times after which a member that hangs is suspected, in milliseconds, in a tenth as many groups
    /// for each.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [100, 500])]
    suspect_after: Vec<u64>,
    /// Bytes of the state that a newcomer is given.
    #[arg(long, value_name = "BYTES", default_value_t = 4096)]
    state: usize,
}

/// What a member says of a view, when it has delivered a message in it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Resumed {
    view: u64,
    /// When it did that, in nanoseconds.
    at_ns: u64,
    /// How long it had delivered nothing, before that or before the end of the view before.
    pause_ns: u64,
    /// How long a message of its own took in the view before, without the change of views.
    message_ns: Option<u64>,
}

/// A member's word.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    /// It has delivered in a new view.
    Resumed(Resumed),
    /// The others go on without it, or it cannot know whether they do.
    PutOut(String),
    /// It cannot send, for another reason.
    Failed(String),
}

/// A member was put out, as it says.
#[derive(Debug)]
struct PutOut(String);

impl fmt::Display for PutOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a member was put out: {}", self.0)
    }
}

impl std::error::Error for PutOut {}

/// A newcomer's process runs, and waits for the word to join.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Ready;

/// Why a view changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Kill,
    Leave,
    Join,
    Hang,
}

impl Change {
    /// Members that a group has before it changes, of those that founded it: one is killed before
    /// another leaves.
    fn members(self, founders: u8) -> usize {
        let gone = match self {
            Self::Leave => 1,
            Self::Kill | Self::Join | Self::Hang => 0,
        };
        usize::from(founders - gone)
    }
}

/// The fabric of a group, and how it takes members that hang.
#[derive(Clone, Copy, Debug)]
struct Ground {
    fabric: Kind,
    /// How long a member may hang, if one that does is suspected.
    term_ms: Option<u64>,
}

#[derive(Serialize)]
struct Row {
    bench: &'static str,
    fabric: String,
    change: Change,
    /// Of the group before the change.
    members: usize,
    bytes: usize,
    window: usize,
    /// Of the state that a newcomer is given.
    state_bytes: usize,
    changes: u64,
    /// How long a member may hang.
    term_ms: Option<u64>,
    /// Members that were put out though they ran.
    wrong: Option<u64>,
    /// To the first delivery in the new view; of a join, at the newcomer.
    resumed_us_p50: Option<f64>,
    resumed_us_p99: Option<f64>,
    resumed_us_max: Option<f64>,
    /// The same of a join, and of a member that was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    join_us_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failover_us_p50: Option<f64>,
    /// The longest time in which a member, not the newcomer, delivered nothing.
    pause_us_p50: Option<f64>,
    pause_us_p99: Option<f64>,
    pause_us_max: Option<f64>,
    /// A message in the same groups, in the view before the change.
    message_us_p50: Option<f64>,
}

/// What was measured of one kind of change.
struct Measured {
    ground: Ground,
    wrong: Option<u64>,
    change: Change,
    resumed: Times,
    pauses: Times,
    messages: Times,
}

impl Measured {
    fn new(ground: Ground, change: Change) -> Self {
        Self {
            ground,
            wrong: None,
            change,
            resumed: Times::new(),
            pauses: Times::new(),
            messages: Times::new(),
        }
    }

    /// Waits until all have delivered in a view; answers with when the last one has.
    fn hear(&mut self, members: &mut [Helper], view: u64) -> Result<u64> {
        let (mut last, mut pause) = (0, 0);
        for member in members {
            let resumed = hear(member)?;
            ensure!(resumed.view == view, "a member is in view {}", resumed.view);
            last = last.max(resumed.at_ns);
            pause = pause.max(resumed.pause_ns);
            if let Some(message_ns) = resumed.message_ns {
                self.messages.record(Duration::from_nanos(message_ns));
            }
        }
        self.pauses.record(Duration::from_nanos(pause));
        Ok(last)
    }

    fn resumed(&mut self, took_ns: u64) {
        self.resumed.record(Duration::from_nanos(took_ns));
    }

    fn row(&self, args: &ViewsArgs) -> Row {
        let of = |times: &Times, percent| rounded(times.percentile_us(percent));
        let resumed = of(&self.resumed, 50.0);
        Row {
            bench: "views",
            fabric: self.ground.fabric.to_string(),
            term_ms: self.ground.term_ms,
            wrong: self.wrong,
            change: self.change,
            members: self.change.members(args.members),
            bytes: args.size,
            window: args.window,
            state_bytes: args.state,
            changes: self.resumed.count(),
            resumed_us_p50: resumed,
            resumed_us_p99: of(&self.resumed, 99.0),
            resumed_us_max: rounded(self.resumed.max_us()),
            join_us_p50: resumed.filter(|_| self.change == Change::Join),
            failover_us_p50: resumed.filter(|_| self.change == Change::Kill),
            pause_us_p50: of(&self.pauses, 50.0),
            pause_us_p99: of(&self.pauses, 99.0),
            pause_us_max: rounded(self.pauses.max_us()),
            message_us_p50: of(&self.messages, 50.0),
        }
    }
}

/// Runs the benchmark.
pub fn run(args: &ViewsArgs) -> Result<()> {
    let mut json = JsonLines::create(&args.common)?;
    let mut all = Vec::new();
    for &fabric in &args.fabrics {
        all.extend(measure(args, fabric)?);
    }
    let columns = [
        "fabric",
        "change",
        "members",
        "bytes",
        "#changes",
        "resumed p50[us]",
        "p99[us]",
        "max[us]",
        "pause p50[us]",
        "p99[us]",
        "max[us]",
        "message p50[us]",
        "suspects after[ms]",
        "#wrong",
    ];
    let mut sheet = Sheet::new(&columns, 2);
    for measured in all {
        let row = measured.row(args);
        json.write(&row)?;
        sheet.row(vec![
            row.fabric.clone(),
            format!("{:?}", row.change).to_lowercase(),
            row.members.to_string(),
            row.bytes.to_string(),
            row.changes.to_string(),
            number(row.resumed_us_p50),
            number(row.resumed_us_p99),
            number(row.resumed_us_max),
            number(row.pause_us_p50),
            number(row.pause_us_p99),
            number(row.pause_us_max),
            number(row.message_us_p50),
            row.term_ms
                .map_or_else(|| "-".to_owned(), |term| term.to_string()),
            row.wrong
                .map_or_else(|| "-".to_owned(), |wrong| wrong.to_string()),
        ]);
    }
    sheet.print();
    Ok(())
}

/// All changes over one fabric.
fn measure(args: &ViewsArgs, fabric: Kind) -> Result<Vec<Measured>> {
    let rounds = if args.common.quick {
        args.rounds.min(3)
    } else {
        args.rounds
    };
    let bar = progress(format!("views over {fabric}"), u64::from(rounds));
    let ground = Ground {
        fabric,
        term_ms: None,
    };
    let mut kills = Measured::new(ground, Change::Kill);
    let mut leaves = Measured::new(ground, Change::Leave);
    let mut joins = Measured::new(ground, Change::Join);
    for number in 0..rounds {
        round(args, number, &mut kills, &mut leaves)?;
        join(args, &mut joins)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut all = vec![kills, leaves, joins];
    for &term_ms in &args.suspect_after {
        let term_ms = Some(term_ms);
        let ground = Ground { fabric, term_ms };
        all.push(hang::measure(args, ground, rounds.div_ceil(10))?);
    }
    Ok(all)
}

/// Starts a member; without a rank, a newcomer, for the seat behind the founders'.
fn start(args: &ViewsArgs, ground: Ground, meeting: Meeting, rank: Option<u8>) -> Result<Helper> {
    let Ground { fabric, term_ms } = ground;
    let node = fabric.node_of(usize::from(rank.unwrap_or(args.members)));
    let mut words = vec![
        "views-member".to_owned(),
        format!("--fabric={fabric}"),
        format!("--meeting={meeting}"),
        format!("--node={node}"),
        format!("--members={}", args.members),
        format!("--size={}", args.size),
        format!("--window={}", args.window),
        format!("--state={}", args.state),
    ];
    words.extend(rank.map(|rank| format!("--rank={rank}")));
    words.extend(term_ms.map(|term| format!("--term-ms={term}")));
    Helper::spawn(&words)
}

/// The members of a group. When it is dropped all are killed at once: nobody is left to wait for.
struct Members(Vec<Helper>);

impl Members {
    /// Takes one out whose turn it is.
    fn remove(&mut self, turn: u32) -> Result<Helper> {
        let at = usize::try_from(turn)? % self.0.len();
        Ok(self.0.remove(at))
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for member in &mut self.0 {
            if let Err(error) = member.kill() {
                eprintln!("weft-bench: a member cannot be killed: {error:#}");
            }
        }
    }
}

/// Waits until a member has delivered in a new view.
fn hear(member: &mut Helper) -> Result<Resumed> {
    match member.hear_within(PATIENCE)? {
        Word::Resumed(resumed) => Ok(resumed),
        Word::PutOut(how) => Err(PutOut(how).into()),
        Word::Failed(how) => bail!("a member cannot send: {how}"),
    }
}

/// Starts a group, in which messages flow.
fn found(args: &ViewsArgs, ground: Ground) -> Result<(Meeting, Members)> {
    let meeting = Meeting::call();
    let members = (0..args.members).map(|rank| start(args, ground, meeting, Some(rank)));
    let mut members = Members(members.collect::<Result<_>>()?);
    for member in &mut members.0 {
        hear(member)?;
    }
    std::thread::sleep(CALM);
    Ok((meeting, members))
}

/// One group, which somebody joins.
fn join(args: &ViewsArgs, joins: &mut Measured) -> Result<()> {
    let (meeting, mut members) = found(args, joins.ground)?;
    let mut newcomer = start(args, joins.ground, meeting, None)?;
    newcomer.hear_within::<Ready>(PATIENCE)?;
    newcomer.go_on()?;
    members.0.push(newcomer);
    let (newcomer, others) = members.0.split_last_mut().context("there are members")?;
    let joined = hear(newcomer)?;
    ensure!(joined.view == 2, "the newcomer is in view {}", joined.view);
    joins.hear(others, 2)?;
    // Of a newcomer this is how long it had waited for its first delivery.
    joins.resumed(joined.pause_ns);
    Ok(())
}

/// One group: a member is killed, then one leaves.
fn round(args: &ViewsArgs, round: u32, kills: &mut Measured, leaves: &mut Measured) -> Result<()> {
    let (_, mut members) = found(args, kills.ground)?;
    // In turn: the first one leads.
    let mut victim = members.remove(round)?;
    let caused = member::now_ns()?;
    victim.kill()?;
    let last = kills.hear(&mut members.0, 2)?;
    kills.resumed(last.saturating_sub(caused));
    std::thread::sleep(CALM);
    let mut leaver = members.remove(round)?;
    let caused = member::now_ns()?;
    leaver.let_go();
    let last = leaves.hear(&mut members.0, 3)?;
    leaves.resumed(last.saturating_sub(caused));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_a_member_leaves_has_lost_one_before() {
        let members = |change: Change| change.members(4);
        let all = [Change::Kill, Change::Leave, Change::Join, Change::Hang];
        assert_eq!(all.map(members), [4, 3, 4, 4]);
    }
}
