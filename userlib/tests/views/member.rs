// SPDX-License-Identifier: MIT OR Apache-2.0

//! A member's process. It sends all the time, until its input ends; then it leaves. At each
//! view it prints a hash of all that was delivered in the group before.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weft::fabric::shm::{Shm, ShmSeats};
use weft::fabric::Fabric;
use weft::{Group, Subgroup};

pub const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "test";
const MAX_STATE_BYTES: usize = 1 << 16;

/// What a member keeps of its messages.
#[derive(Default)]
struct Journal {
    hash: u64,
    /// The next number of each sender, which are numbered as they were started.
    next: BTreeMap<u64, u64>,
}

impl Journal {
    fn add(&mut self, person: u64, number: u64, sequence: u64) {
        let next = self.next.entry(person).or_default();
        assert_eq!(number, *next, "of {person}");
        *next += 1;
        for word in [person, number, sequence] {
            let hash = (self.hash ^ word).wrapping_add(0xcbf2_9ce4_8422_2325);
            self.hash = hash.wrapping_mul(0x0100_0000_01b3).rotate_left(9);
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let next = self.next.iter().flat_map(|(&person, &next)| [person, next]);
        let words = [self.hash].into_iter().chain(next);
        words.flat_map(u64::to_le_bytes).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
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

/// Is what the role says: a number for its messages, then who it is, in which group.
pub fn run(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let number = |at: usize| words[at].parse::<usize>().expect("a number");
    let (person, name) = (number(0) as u64, words[2]);
    match words[1] {
        "fixed" => take_part(
            person,
            Shm::new(name, number(3), number(4)).expect("a node"),
        ),
        "founder" => {
            let node = ShmSeats::founder(name, number(3), number(4), number(5));
            take_part(person, node.expect("a node"));
        }
        "newcomer" => {
            let node = ShmSeats::newcomer(name, number(3), PATIENCE);
            take_part(person, node.expect("a seat"));
        }
        other => panic!("{other}"),
    }
}

fn take_part(person: u64, node: impl Fabric) {
    let journal = Arc::new(Mutex::new(Journal::default()));
    let [delivered, taken, restored, shown] = [(); 4].map(|()| Arc::clone(&journal));
    let group = Group::builder(node)
        .subgroup(Subgroup::new(NAME).window(16).max_message(16))
        .timeout(PATIENCE)
        .deliver(NAME, move |batch| {
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
            println!("\nVIEW {} {:?} {hash:x}", view.number, view.members);
        })
        .join()
        .expect("a group");
    let sender = group.sender(NAME).expect("it sends");
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        ended.send(()).ok();
    });
    for number in 0_u64.. {
        if end.try_recv().is_ok() {
            break;
        }
        sender.send_value(&[person, number]).expect("it is sent");
    }
    group.leave(PATIENCE).expect("all is delivered");
    println!("\nLEFT");
}
