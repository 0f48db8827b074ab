// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member's process. It sends all the time, until its input ends; then it leaves. At each
//! view it prints a hash of all that was delivered in the group before.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use weft::fabric::conformance::{Countdown, Mortal};
use weft::fabric::Fabric;
use weft::{Error, Group, SendError, Subgroup};
use weft_testkit::place::{Kind, Meeting, Placed, Seats};

use super::oldest::{self, Oldest};
use super::suspicion::Suspicion;
use crate::process::patience;

const NAME: &str = "elastic";
pub(super) const MAX_STATE_BYTES: usize = 1 << 16;

#[derive(clap::Args)]
pub struct MemberArgs {
    #[arg(long)]
    kind: Kind,
    #[arg(long)]
    meeting: Meeting,
    /// On which RDMA node a newcomer runs.
    #[arg(long)]
    node: usize,
    /// A number for its messages.
    #[arg(long)]
    pub person: usize,
    /// None of a newcomer.
    #[arg(long)]
    rank: Option<usize>,
    #[arg(long, default_value_t = 0)]
    founders: usize,
    #[arg(long)]
    seats: usize,
    /// How long a member may hang.
    #[arg(long)]
    term_ms: Option<u64>,
}

/// What a member keeps of its messages.
#[derive(Default)]
pub(super) struct Journal {
    pub(super) hash: u64,
    /// The next number of each sender, which are numbered as they were started.
    next: BTreeMap<u64, u64>,
}

impl Journal {
    pub(super) fn add(&mut self, person: u64, number: u64, sequence: u64) {
        let next = self.next.entry(person).or_default();
        assert_eq!(number, *next, "of {person}");
        *next += 1;
        for word in [person, number, sequence] {
            let hash = (self.hash ^ word).wrapping_add(0xcbf2_9ce4_8422_2325);
            self.hash = hash.wrapping_mul(0x0100_0000_01b3).rotate_left(9);
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let next = self.next.iter().flat_map(|(&person, &next)| [person, next]);
        let words = [self.hash].into_iter().chain(next);
        words.flat_map(u64::to_le_bytes).collect()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = bytes.chunks_exact(8).map(|word| {
            let word = word.first_chunk().expect("eight bytes");
            u64::from_le_bytes(*word)
        });
        let hash = words.next().expect("a hash");
        let words: Vec<u64> = words.collect();
        let next = words.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        Self {
            hash,
            next: next.collect(),
        }
    }
}

/// Is a member.
pub fn run(args: &MemberArgs) -> Result<()> {
    // A test that waits for a member that hangs is to fail, not to hang.
    std::thread::spawn(|| {
        std::thread::sleep(10 * patience());
        eprintln!("weft-fabric: a member hangs");
        std::process::exit(3);
    });
    let person = args.person as u64;
    let term = args.term_ms.map(Duration::from_millis);
    let seats = Seats::new(args.kind, args.meeting);
    match args.rank {
        Some(rank) if args.founders == args.seats => {
            let node = Placed::new(args.kind, rank, args.seats, args.meeting);
            take_part(person, node, term)
        }
        Some(rank) => {
            let node = seats.founder(rank, args.founders, args.seats)?;
            take_part(person, node, term)
        }
        None => {
            let node = seats.newcomer(args.node, args.seats, patience())?;
            take_part(person, node, term)
        }
    }
}

/// What it is told on its standard input.
#[derive(Default)]
struct Orders {
    is_paused: AtomicBool,
    is_to_suspect: AtomicBool,
    has_ended: AtomicBool,
    posts: Countdown,
}

impl Orders {
    fn hear(&self) {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match line.split_once(' ') {
                None if line == "pause" => self.is_paused.store(true, Ordering::Relaxed),
                None if line == "resume" => self.is_paused.store(false, Ordering::Relaxed),
                None if line == "suspect" => self.is_to_suspect.store(true, Ordering::Relaxed),
                Some(("die", posts)) => {
                    let posts = posts.parse().expect("a number");
                    let left = self.posts.swap(posts, Ordering::Relaxed);
                    // To be spared, it must not have counted down: then another thread is
                    // about to kill it.
                    if posts > 0 || left > 0 {
                        println!("MORTAL");
                    }
                }
                _ => panic!("what is {line:?}?"),
            }
        }
        self.has_ended.store(true, Ordering::Relaxed);
        self.is_paused.store(false, Ordering::Relaxed);
    }
}

fn take_part(person: u64, node: impl Fabric, term: Option<Duration>) -> Result<()> {
    let journal = Arc::new(Mutex::new(Journal::default()));
    let [delivered, taken, restored, shown] = [(); 4].map(|()| Arc::clone(&journal));
    let posts = Countdown::default();
    let seat = node.rank();
    let node = Mortal::new(node, Arc::clone(&posts));
    let mut builder = Group::builder(node);
    let messages = builder.subgroup(Subgroup::new(NAME).window(16).max_message(16));
    let (mut oldest, builder) = oldest::add(builder);
    let of_oldest = oldest.subgroup();
    let mut builder = builder
        .timeout(patience())
        .deliver(messages, move |batch| {
            let mut journal = delivered.lock().expect("no panic");
            for message in batch {
                let &[person, number] = message.value::<[u64; 2]>().expect("two numbers");
                journal.add(person, number, message.sequence);
            }
        })
        .state(
            MAX_STATE_BYTES,
            move || taken.lock().expect("no panic").to_bytes(),
            move |bytes| *restored.lock().expect("no panic") = Journal::from_bytes(bytes),
        )
        .on_view(move |view| {
            let hash = shown.lock().expect("no panic").hash;
            let oldest = oldest.see(view, seat);
            let members = view.members;
            println!("VIEW {} {members:?} {hash:x} {oldest:?}", view.number);
        });
    if let Some(term) = term {
        builder = builder.suspect_after(term);
    }
    let group = match builder.join() {
        // A newcomer may be put out as soon as it is in.
        Err(Error::NotAdmitted {
            ending: Some(ending),
        }) => {
            println!("OUT {ending:?}");
            return Ok(());
        }
        group => group.context("it does not get in")?,
    };
    let sender = group.sender(messages)?;
    let mut oldest = Oldest::sender(of_oldest, &group)?;
    let orders = Arc::new(Orders {
        posts,
        ..Orders::default()
    });
    let heard = Arc::clone(&orders);
    std::thread::spawn(move || heard.hear());
    let mut suspicion = None;
    for number in 0_u64.. {
        if orders.is_paused.load(Ordering::Relaxed) {
            // Nothing is under way then.
            group.flush(patience())?;
            println!("PAUSED");
            while orders.is_paused.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(200));
                if let Some(ending) = group.ending(messages)? {
                    println!("OUT {ending:?}");
                    return Ok(());
                }
            }
        }
        if orders.has_ended.load(Ordering::Relaxed) {
            break;
        }
        if orders.is_to_suspect.swap(false, Ordering::Relaxed) {
            suspicion = Suspicion::of_highest(&group)?;
        }
        if let Some(of) = suspicion.take() {
            suspicion = of.insist(&group)?.then_some(of);
        }
        oldest.send(person)?;
        match sender.send_value(&[person, number]) {
            Ok(()) => {}
            Err(SendError::Stopped { ending }) => {
                println!("OUT {ending:?}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    group.leave(patience())?;
    println!("LEFT");
    Ok(())
}
