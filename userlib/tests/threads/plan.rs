// SPDX-License-Identifier: MIT OR Apache-2.0

//! Members that send at random, and what each has delivered.

use crate::random::Random;
use crate::PATIENCE;
use std::sync::mpsc;
use std::time::Duration;
use weft::fabric::{shm::Shm, Fabric};
use weft::{Batch, Group, Subgroup, SubgroupHandle};

/// What a member has delivered: all in one number, and how many of whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    pub hash: u64,
    pub of: Vec<u64>,
}

impl Sum {
    fn new(nodes: usize) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            of: vec![0; nodes],
        }
    }

    /// Adds a message, which has to be its sender's next.
    fn add(&mut self, sender: usize, bytes: &[u8]) {
        let number = bytes
            .first_chunk()
            .map_or(0, |word| u64::from_le_bytes(*word));
        assert_eq!(number, self.of[sender], "sender {sender}'s own order");
        assert!(
            bytes[8..].iter().all(|&byte| byte == bytes[0]),
            "a torn message"
        );
        self.of[sender] += 1;
        for word in [sender as u64, number, bytes.len() as u64] {
            self.hash = (self.hash ^ word)
                .wrapping_mul(0x0100_0000_01b3)
                .rotate_left(17);
        }
    }
}

/// How members behave.
#[derive(Clone)]
pub struct Plan {
    pub subgroup: Subgroup,
    pub nodes: usize,
    /// Messages of each node; senders that are not listed send none.
    pub messages: Vec<u64>,
    /// One in so many messages comes after a delay.
    pub delays: u64,
    pub longest: u64,
    /// Take deliveries from the group instead of an upcall.
    pub pull: bool,
}

pub fn run(plan: &Plan, random: &mut Random) -> Vec<Sum> {
    let joining: Vec<_> = Shm::threads(plan.nodes)
        .expect("a fabric")
        .into_iter()
        .map(|node| {
            let (plan, random) = (plan.clone(), random.fork(node.rank() as u64));
            std::thread::spawn(move || member(node, &plan, random))
        })
        .collect();
    joining
        .into_iter()
        .map(|thread| thread.join().expect("no panic"))
        .collect()
}

fn member(node: Shm, plan: &Plan, mut random: Random) -> Sum {
    let rank = node.rank();
    let (done, finished) = mpsc::channel();
    let mut sum = Sum::new(plan.nodes);
    let mut left: u64 = plan.messages.iter().sum();
    let mut upcall = move |batch: &mut Batch<'_>| {
        for message in batch {
            sum.add(message.sender, message.bytes);
            left -= 1;
        }
        if left == 0 {
            done.send(sum.clone()).ok();
        }
        left == 0
    };
    let mut builder = Group::builder(node).timeout(PATIENCE);
    let handle = builder.subgroup(plan.subgroup.clone());
    let mut pulling = None;
    if !plan.pull {
        builder = builder.deliver(handle, move |batch| {
            upcall(batch);
        });
        let group = builder.join().expect("a group");
        return finish((group, handle), rank, plan, &mut random, &finished);
    }
    let group = builder.join().expect("a group");
    let mut deliveries = group.deliveries(handle).expect("nobody has them");
    if plan.messages.iter().sum::<u64>() > 0 {
        pulling = Some(std::thread::spawn(move || {
            while deliveries.batch(Some(PATIENCE), &mut upcall) == Some(false) {}
        }));
    }
    let sum = finish((group, handle), rank, plan, &mut random, &finished);
    if let Some(thread) = pulling {
        thread.join().expect("no panic");
    }
    sum
}

fn finish(
    (group, handle): (Group, SubgroupHandle),
    rank: usize,
    plan: &Plan,
    random: &mut Random,
    finished: &mpsc::Receiver<Sum>,
) -> Sum {
    if plan.messages[rank] > 0 {
        let sender = group.sender(handle).expect("it sends");
        for number in 0..plan.messages[rank] {
            if plan.delays > 0 && random.below(plan.delays) == 0 {
                std::thread::sleep(Duration::from_micros(random.below(300)));
            }
            let len = 8 + random.below(plan.longest - 7) as usize;
            let fill = |slot: &mut weft::Slot<'_>| {
                slot.put(&number.to_le_bytes());
                let first = slot[0];
                slot[8..len].fill(first);
                slot.set_len(len);
            };
            sender.send(fill).expect("it is sent");
        }
    }
    let sum = finished.recv_timeout(PATIENCE).expect("all is delivered");
    group.leave(PATIENCE).expect("what was sent is delivered");
    sum
}

fn soak() -> u64 {
    std::env::var("WEFT_SOAK").map_or(1, |times| times.parse().expect("a number"))
}

pub fn plan(nodes: usize, messages: u64) -> Plan {
    Plan {
        subgroup: Subgroup::new("test").window(64).max_message(256),
        nodes,
        messages: vec![messages * soak() / nodes as u64; nodes],
        delays: 0,
        longest: 256,
        pull: false,
    }
}

#[track_caller]
pub fn assert_all_alike(plan: &Plan, sums: &[Sum]) {
    for sum in sums {
        assert_eq!(sum.of, plan.messages);
        assert_eq!(sum.hash, sums[0].hash, "members disagree");
    }
}
