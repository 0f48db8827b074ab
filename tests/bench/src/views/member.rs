// SPDX-License-Identifier: MIT OR Apache-2.0

//! One member of a group with views, in a process of its own: a founder, or a newcomer that
//! joins when it is told to. It sends until its input ends, then leaves; and says of each view
//! when it has delivered in it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, Result};
use clap::Args;
use nix::time::{clock_gettime, ClockId};
use weft::fabric::Fabric;
use weft::{Ending, Group, SendError, Sender, Subgroup};
use weft_testkit::place::{Kind, Meeting, Seat, Seats};

use super::{Ready, Resumed, Word};
use crate::child::{say_ready, wait_for_end, wait_for_word};

const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "load";

#[derive(Args)]
pub struct ViewsMemberArgs {
    #[arg(long)]
    fabric: Kind,
    #[arg(long)]
    meeting: Meeting,
    /// On which RDMA node a newcomer runs.
    #[arg(long)]
    node: usize,
    /// None of a newcomer.
    #[arg(long)]
    rank: Option<usize>,
    #[arg(long)]
    members: usize,
    #[arg(long)]
    size: usize,
    #[arg(long)]
    window: usize,
    #[arg(long)]
    state: usize,
    /// How long a member may hang.
    #[arg(long)]
    term_ms: Option<u64>,
}

/// Time by a clock that all processes of the host share.
pub fn now_ns() -> Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(u64::try_from(now.as_nanos())?)
}

/// When this member has delivered, and in which view.
///
/// At the end of a view comes one batch of it, when it is known what counts of it: before that
/// batch and behind it nothing is delivered, and its messages have waited for the change. So what
/// is told of the view before is from the batch before its last, and the pause is the longer one
/// of the two.
struct Watch {
    /// The view in which it has delivered last.
    view: u64,
    /// When it did.
    last_ns: u64,
    /// How long before that it had delivered nothing, in that view.
    gap_ns: u64,
    /// How long a message of its own took, of the last batch or before, and of the one before
    /// that or before.
    message_ns: Option<u64>,
    earlier_ns: Option<u64>,
}

impl Watch {
    /// It begins to wait for its first view.
    fn begin(now_ns: u64) -> Self {
        Self {
            view: 0,
            last_ns: now_ns,
            gap_ns: 0,
            message_ns: None,
            earlier_ns: None,
        }
    }

    /// A batch is delivered in a view; `sent_ns` is when the last one of the own messages in it
    /// was sent. Answers with what there is to say if the view is new.
    fn note(&mut self, now_ns: u64, view: u64, sent_ns: Option<u64>) -> Option<Resumed> {
        let gap_ns = now_ns.saturating_sub(self.last_ns);
        let resumed = (self.view != view).then(|| Resumed {
            view,
            at_ns: now_ns,
            pause_ns: gap_ns.max(self.gap_ns),
            message_ns: self.earlier_ns,
        });
        // Words about one change do not count for the next.
        self.gap_ns = if resumed.is_some() { 0 } else { gap_ns };
        self.view = view;
        self.last_ns = now_ns;
        self.earlier_ns = self.message_ns;
        let took_ns = sent_ns.map(|sent_ns| now_ns.saturating_sub(sent_ns));
        self.message_ns = took_ns.or(self.message_ns);
        resumed
    }
}

/// When a message was sent, which its first bytes say.
fn sent_ns(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

/// Takes a seat: one more than there are founders can be had.
fn node(args: &ViewsMemberArgs) -> Result<Seat> {
    let (fabric, seats) = (Seats::new(args.fabric, args.meeting), args.members + 1);
    Ok(match args.rank {
        Some(rank) => fabric.founder(rank, args.members, seats)?,
        None => fabric.newcomer(args.node, seats, PATIENCE)?,
    })
}

/// Is a member.
pub fn run(args: &ViewsMemberArgs) -> Result<()> {
    if args.rank.is_none() {
        say_ready(&Ready)?;
        wait_for_word()?;
    }
    let view = Arc::new(AtomicU64::new(0));
    let delivered = Arc::clone(&view);
    let mut watch = Watch::begin(now_ns()?);
    let node = node(args)?;
    let own = node.rank();
    let subgroup = Subgroup::new(NAME)
        .window(args.window)
        .max_message(args.size);
    let state = vec![7; args.state];
    let mut builder = Group::builder(node);
    let messages = builder.subgroup(subgroup);
    let mut builder = builder
        .timeout(PATIENCE)
        .deliver(messages, move |batch| {
            let own = batch.filter(|message| message.sender == own);
            let sent_ns = own.last().and_then(|message| sent_ns(message.bytes));
            let view = delivered.load(Ordering::Relaxed);
            let said = now_ns().and_then(|now_ns| match watch.note(now_ns, view, sent_ns) {
                Some(resumed) => say_ready(&Word::Resumed(resumed)),
                None => Ok(()),
            });
            if let Err(error) = said {
                eprintln!("weft-bench: a member cannot say how it goes: {error:#}");
            }
        })
        .state(args.state, move || state.clone(), |_| {})
        .on_view(move |next| view.store(next.number, Ordering::Relaxed));
    if let Some(term_ms) = args.term_ms {
        builder = builder.suspect_after(Duration::from_millis(term_ms));
    }
    let group = builder.join()?;
    let sender = group.sender(messages)?;
    let message = vec![7; args.size];
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let sending = std::thread::spawn(move || -> Result<()> {
        let sent = send(&sender, message, &stopped);
        if let Err(error) = &sent {
            say_ready(&end_of(error))?;
        }
        Ok(sent?)
    });
    wait_for_end()?;
    stop.store(true, Ordering::Relaxed);
    let sent = sending.join().map_err(|_| anyhow!("the sender panicked"))?;
    sent?;
    group.leave(PATIENCE)?;
    Ok(())
}

/// Sends until it is stopped. A message's first bytes say when it was sent.
fn send(sender: &Sender, mut message: Vec<u8>, stop: &AtomicBool) -> Result<(), SendError> {
    while !stop.load(Ordering::Relaxed) {
        if let (Some(first), Ok(now_ns)) = (message.first_chunk_mut(), now_ns()) {
            *first = now_ns.to_le_bytes();
        }
        sender.send_bytes(&message)?;
    }
    Ok(())
}

/// The word of a member that cannot send any more.
fn end_of(error: &SendError) -> Word {
    match error {
        SendError::Stopped {
            ending: Ending::Excluded | Ending::Minority,
        } => Word::PutOut(error.to_string()),
        _ => Word::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_pause_of_a_change_is_the_longer_one_of_before_and_behind_the_views_last_batch() {
        let mut watch = Watch::begin(0);
        assert!(watch.note(MS, 1, None).is_some());
        assert!(watch.note(2 * MS, 1, None).is_none());
        // The view's last batch, then the first one of the next.
        assert!(watch.note(502 * MS, 1, None).is_none());
        let resumed = watch.note(514 * MS, 2, None).unwrap();
        assert_eq!((resumed.view, resumed.pause_ns), (2, 500 * MS));
        watch.note(515 * MS, 2, None);
        let resumed = watch.note(540 * MS, 3, None).unwrap();
        assert_eq!(resumed.pause_ns, 25 * MS);
    }

    #[test]
    fn a_pause_is_said_once() {
        let mut watch = Watch::begin(0);
        assert_eq!(watch.note(900 * MS, 1, None).unwrap().pause_ns, 900 * MS);
        assert_eq!(watch.note(903 * MS, 2, None).unwrap().pause_ns, 3 * MS);
    }

    #[test]
    fn a_message_that_has_waited_for_the_change_is_not_told_as_one_of_the_view_before() {
        let mut watch = Watch::begin(0);
        watch.note(MS, 1, None);
        watch.note(5 * MS, 1, Some(3 * MS));
        watch.note(500 * MS, 1, Some(6 * MS));
        let resumed = watch.note(501 * MS, 2, Some(7 * MS)).unwrap();
        assert_eq!(resumed.message_ns, Some(2 * MS));
    }

    #[test]
    fn a_member_says_whether_it_was_put_out() {
        let ending = Ending::Excluded;
        let said = end_of(&SendError::Stopped { ending });
        assert!(matches!(said, Word::PutOut(_)), "{said:?}");
        assert!(matches!(end_of(&SendError::Closed), Word::Failed(_)));
    }
}
