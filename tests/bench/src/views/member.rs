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
use weft::fabric::shm::ShmSeats;
use weft::{Group, SendError, Subgroup};

use super::{Ready, Resumed};
use crate::child::{say_ready, wait_for_end, wait_for_word};

const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "load";

#[derive(Args)]
pub struct ViewsMemberArgs {
    #[arg(long)]
    name: String,
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
}

impl Watch {
    /// A batch is delivered.
    fn note(&mut self) -> Result<()> {
        let now = now_ns()?;
        let view = self.view.load(Ordering::Relaxed);
        if self.said != view {
            self.said = view;
            say_ready(&Resumed {
                view,
                at_ns: now,
                pause_ns: now - self.last_ns,
            })?;
        }
        self.last_ns = now;
        Ok(())
    }
}

/// Takes a seat: one more than there are founders can be had.
fn node(args: &ViewsMemberArgs) -> Result<ShmSeats> {
    let seats = args.members + 1;
    Ok(match args.rank {
        Some(rank) => ShmSeats::founder(&args.name, rank, args.members, seats)?,
        None => ShmSeats::newcomer(&args.name, seats, PATIENCE)?,
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
    };
    let subgroup = Subgroup::new(NAME)
        .window(args.window)
        .max_message(args.size);
    let state = vec![7; args.state];
    let group = Group::builder(node(args)?)
        .subgroup(subgroup)
        .timeout(PATIENCE)
        .deliver(NAME, move |_| {
            if let Err(error) = watch.note() {
                eprintln!("weft-bench: a member cannot say how it goes: {error:#}");
            }
        })
        .state(args.state, move || state.clone(), |_| {})
        .on_view(move |next| view.store(next.number, Ordering::Relaxed))
        .join()?;
    let sender = group.sender(NAME)?;
    let message = vec![7; args.size];
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let sending = std::thread::spawn(move || -> Result<(), SendError> {
        while !stopped.load(Ordering::Relaxed) {
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
