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
use weft::{Group, Subgroup};
use weft_testkit::place::{Kind, Meeting, Seat, Seats};

use super::{Ready, Resumed};
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

/// When this member has delivered last, and in which view.
struct Watch {
    view: Arc<AtomicU64>,
    said: u64,
    last_ns: u64,
    message_ns: Option<u64>,
}

impl Watch {
    /// A batch is delivered; `sent_ns` is when the last one of the own messages in it was sent.
    fn note(&mut self, sent_ns: Option<u64>) -> Result<()> {
        let now = now_ns()?;
        let view = self.view.load(Ordering::Relaxed);
        if self.said != view {
            self.said = view;
            say_ready(&Resumed {
                view,
                at_ns: now,
                pause_ns: now - self.last_ns,
                message_ns: self.message_ns,
            })?;
        }
        self.last_ns = now;
        self.message_ns = sent_ns.map_or(self.message_ns, |sent_ns| Some(now - sent_ns));
        Ok(())
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
    let mut watch = Watch {
        view: Arc::clone(&view),
        said: 0,
        last_ns: now_ns()?,
        message_ns: None,
    };
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
            if let Err(error) = watch.note(sent_ns) {
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
    let mut message = vec![7; args.size];
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let sending = std::thread::spawn(move || -> Result<()> {
        while !stopped.load(Ordering::Relaxed) {
            if let Some(first) = message.first_chunk_mut() {
                *first = now_ns()?.to_le_bytes();
            }
            sender.send_bytes(&message)?;
        }
        Ok(())
    });
    wait_for_end()?;
    stop.store(true, Ordering::Relaxed);
    let sent = sending.join().map_err(|_| anyhow!("the sender panicked"))?;
    sent?;
    group.leave(PATIENCE)?;
    Ok(())
}
