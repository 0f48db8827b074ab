// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member's process: the root, in the lowest seat, sends as many messages as it reads on its
//! input; the others say what they receive. It leaves when its input ends.

use std::io::BufRead as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _, Result};
use weft::rdmc::{GroupConfig, Memory, Message, Node, SendReason, ViewEvent, ViewGroup};
use weft::{Group, Subgroup, View};
use weft_testkit::place::{Kind, Meeting, Seats};
use weft_testkit::rng::Rng;

use super::{FOUNDERS, SEATS};
use crate::process::patience;

const MEMORY: usize = 4 << 20;
const BLOCK: usize = 64 << 10;
const BYTES: usize = 9 * BLOCK + 777;

#[derive(clap::Args)]
pub struct MemberArgs {
    #[arg(long)]
    kind: Kind,
    /// Where the group meets.
    #[arg(long)]
    group: Meeting,
    /// Where the RDMC nodes meet.
    #[arg(long)]
    bulk: Meeting,
    /// On which RDMA node it runs.
    #[arg(long)]
    pub node: usize,
    /// None of a newcomer.
    #[arg(long)]
    rank: Option<usize>,
}

/// A member's state, for all its threads.
struct Shared {
    memory: Memory,
    /// Messages that it is to have sent.
    target: AtomicU64,
    group: OnceLock<ViewGroup>,
}

impl Shared {
    fn group(&self) -> &ViewGroup {
        self.group.get().expect("it was made before")
    }

    /// Sends what is still to be sent, as far as there is memory. Others may do so, too.
    fn send(&self) {
        loop {
            let number = self.group().next();
            if number > self.target.load(Ordering::Acquire) {
                return;
            }
            let Ok(mut buffer) = self.memory.allocate(BYTES) else {
                return;
            };
            buffer.copy_from_slice(&content(number));
            let sent = self.group().send(number, buffer, BYTES);
            match sent.map_err(|refused| refused.reason) {
                Ok(()) | Err(SendReason::NotNext(_)) => {}
                Err(SendReason::NotRoot | SendReason::Ended(_)) => return,
                Err(reason) => panic!("{reason}"),
            }
        }
    }

    fn hear(&self, event: ViewEvent) {
        match event {
            ViewEvent::Received(message) => {
                let Message { number, .. } = message;
                assert!(message.bytes() == content(number), "{number} is not whole");
                println!("GOT {number}");
            }
            ViewEvent::Ended { view, .. } => println!("ENDED {view}"),
            // Its memory is free when this returns.
            ViewEvent::Sent(_) | ViewEvent::Returned(_) => {}
            other => panic!("{other:?}"),
        }
        self.send();
    }

    fn install(&self, view: &View) {
        self.group().install(view).expect("a group");
        println!("VIEW {} {:?}", view.number, view.members);
        self.send();
    }
}

/// Bytes that no other message has.
fn content(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    (0..BYTES).map(|_| rng.below(256) as u8).collect()
}

fn settings(view: &View) -> Option<GroupConfig> {
    let number = u32::try_from(view.number).ok()?;
    let config = GroupConfig::in_view(number, view, view.members.iter());
    Some(config.block_bytes(BLOCK))
}

/// Is a member.
pub fn run(args: &MemberArgs) -> Result<()> {
    let [at_group, at_bulk] = [args.group, args.bulk].map(|at| Seats::new(args.kind, at));
    let seat = match args.rank {
        Some(rank) => at_bulk.founder(rank, FOUNDERS, SEATS)?,
        None => at_bulk.newcomer(args.node, SEATS, patience())?,
    };
    let node = Node::builder(seat).memory(MEMORY).timeout(patience());
    let node = node.join().context("no node")?;
    let shared = Arc::new(Shared {
        memory: node.memory(),
        target: AtomicU64::new(0),
        group: OnceLock::new(),
    });
    let [told, installed] = [(); 2].map(|()| Arc::downgrade(&shared));
    let memory = node.memory();
    let bulk = node.view_group(
        settings,
        move |incoming| memory.allocate(incoming.size).ok(),
        move |event| {
            if let Some(shared) = told.upgrade() {
                shared.hear(event);
            }
        },
    );
    ensure!(shared.group.set(bulk).is_ok(), "a second group");
    let seat = match node.newcomer() {
        None => at_group.founder(node.rank(), FOUNDERS, SEATS)?,
        Some(newcomer) => at_group.newcomer_as(newcomer, SEATS, patience())?,
    };
    let mut builder = Group::builder(seat);
    let bulk = builder.subgroup(Subgroup::new("bulk"));
    let group = builder
        .deliver(bulk, |_| {})
        .on_view(move |view| {
            if let Some(shared) = installed.upgrade() {
                shared.install(view);
            }
        })
        .timeout(patience());
    let group = group.join().context("it does not get in")?;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        shared.target.store(line.parse()?, Ordering::Release);
        shared.send();
    }
    group.leave(patience())?;
    drop(shared);
    all_comes_back(&node)?;
    println!("LEFT");
    Ok(())
}

/// No group is left: all memory is free, also what those had to do with who were killed.
fn all_comes_back(node: &Node) -> Result<()> {
    let end = Instant::now() + patience();
    while node.available() < MEMORY {
        ensure!(Instant::now() < end, "{} bytes are free", node.available());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
