// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups of threads over shared memory, with their polling threads: every
//! member delivers the same sequence, however the machine schedules them.
//!
//! `WEFT_SOAK=N` sends N times as many messages; `WEFT_SEED` repeats a run.

use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};
use weft::fabric::{shm::Shm, Fabric};
use weft::predicates::IdlePolicy;
use weft::{Batch, Error, Event, Group, Options, SendError, Subgroup};

const PATIENCE: Duration = Duration::from_secs(60);

/// A random sequence (xorshift64*), so that a run can be repeated.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn of_run(salt: u64) -> Self {
        let seed = std::env::var("WEFT_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) * 7919 + salt);
        println!("WEFT_SEED={seed}");
        Self(seed | 1)
    }

    fn fork(&mut self, salt: u64) -> Self {
        Self((self.next() ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 32) % limit
    }
}

/// What a member has delivered: all in one number, and how many of whom.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sum {
    hash: u64,
    of: Vec<u64>,
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
struct Plan {
    subgroup: Subgroup,
    nodes: usize,
    /// Messages of each node; senders that are not listed send none.
    messages: Vec<u64>,
    /// One in so many messages comes after a delay.
    delays: u64,
    longest: u64,
    /// Take deliveries from the group instead of an upcall.
    pull: bool,
}

fn run(plan: &Plan, random: &mut Random) -> Vec<Sum> {
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
    let mut builder = Group::builder(node)
        .subgroup(plan.subgroup.clone())
        .timeout(PATIENCE);
    let mut pulling = None;
    if !plan.pull {
        builder = builder.deliver(plan.subgroup.name(), move |batch| {
            upcall(batch);
        });
        let group = builder.join().expect("a group");
        return finish(group, rank, plan, &mut random, &finished);
    }
    let group = builder.join().expect("a group");
    let mut deliveries = group.deliveries("test").expect("nobody has them");
    if plan.messages.iter().sum::<u64>() > 0 {
        pulling = Some(std::thread::spawn(move || {
            while deliveries.batch(Some(PATIENCE), &mut upcall) == Some(false) {}
        }));
    }
    let sum = finish(group, rank, plan, &mut random, &finished);
    if let Some(thread) = pulling {
        thread.join().expect("no panic");
    }
    sum
}

fn finish(
    group: Group,
    rank: usize,
    plan: &Plan,
    random: &mut Random,
    finished: &mpsc::Receiver<Sum>,
) -> Sum {
    if plan.messages[rank] > 0 {
        let sender = group.sender("test").expect("it sends");
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

fn plan(nodes: usize, messages: u64) -> Plan {
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
fn assert_all_alike(plan: &Plan, sums: &[Sum]) {
    for sum in sums {
        assert_eq!(sum.of, plan.messages);
        assert_eq!(sum.hash, sums[0].hash, "members disagree");
    }
}

#[test]
fn members_of_any_number_deliver_one_sequence() {
    for (nodes, messages) in [
        (1, 20_000),
        (2, 1_000_000),
        (3, 90_000),
        (5, 50_000),
        (8, 40_000),
    ] {
        let plan = plan(nodes, messages);
        let sums = run(&plan, &mut Random::of_run(nodes as u64));
        assert_all_alike(&plan, &sums);
    }
}

#[test]
fn sixteen_members_on_any_number_of_cores() {
    let plan = plan(16, 16_000);
    assert_all_alike(&plan, &run(&plan, &mut Random::of_run(16)));
}

#[test]
fn senders_of_different_rates_and_silent_ones_stall_nobody() {
    let mut random = Random::of_run(77);
    for _ in 0..4 {
        let mut plan = plan(4, 20_000);
        plan.delays = 1 + random.below(200);
        for messages in &mut plan.messages {
            *messages = random.below(*messages);
        }
        let silent = random.below(4) as usize;
        plan.messages[silent] = 0;
        assert_all_alike(&plan, &run(&plan, &mut random));
    }
}

#[test]
fn some_members_only_listen() {
    let mut plan = plan(4, 40_000);
    plan.subgroup = plan.subgroup.senders([2, 0]);
    plan.messages[1] = 0;
    plan.messages[3] = 0;
    assert_all_alike(&plan, &run(&plan, &mut Random::of_run(3)));
}

#[test]
fn every_step_of_the_ladder_delivers_one_sequence() {
    for (name, options) in Options::LADDER {
        println!("{name}");
        let mut plan = plan(3, 15_000);
        plan.subgroup = plan.subgroup.options(options);
        assert_all_alike(&plan, &run(&plan, &mut Random::of_run(4)));
    }
}

#[test]
fn deliveries_can_be_asked_for() {
    let mut plan = plan(3, 60_000);
    plan.pull = true;
    assert_all_alike(&plan, &run(&plan, &mut Random::of_run(5)));
}

#[test]
fn unordered_members_deliver_all_in_each_senders_order() {
    for pull in [false, true] {
        let mut plan = plan(3, 60_000);
        plan.subgroup = plan.subgroup.unordered();
        plan.pull = pull;
        for sum in run(&plan, &mut Random::of_run(6)) {
            assert_eq!(sum.of, plan.messages);
        }
    }
}

#[test]
fn many_threads_of_a_member_send_at_once() {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    let group = Group::builder(node)
        .subgroup(Subgroup::new("test").window(8).max_message(64))
        .join()
        .expect("a group");
    let deliveries = group.deliveries("test").expect("nobody has them");
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let sender = group.sender("test").expect("it sends");
            scope.spawn(move || {
                for number in 0..5000_u16 {
                    let bytes = [&[thread], &number.to_le_bytes()[..]].concat();
                    let sent = match number % 3 {
                        0 => sender.send(|slot| slot.put(&bytes)),
                        _ => sender.send_bytes(&bytes),
                    };
                    sent.expect("it is sent");
                }
            });
        }
        let mut next = [0_u16; 4];
        for message in deliveries.take(20_000) {
            let number = u16::from_le_bytes([message.bytes[1], message.bytes[2]]);
            let next = &mut next[usize::from(message.bytes[0])];
            assert_eq!(number, *next, "a thread's own order");
            *next += 1;
        }
    });
}

/// Members with the same settings, each handed to a thread of its own.
fn members<R: Send + 'static>(
    nodes: usize,
    run: impl Fn(Shm) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let run = Arc::new(run);
    let joining: Vec<_> = Shm::threads(nodes)
        .expect("a fabric")
        .into_iter()
        .map(|node| {
            let run = Arc::clone(&run);
            std::thread::spawn(move || run(node))
        })
        .collect();
    joining
        .into_iter()
        .map(|thread| thread.join().expect("no panic"))
        .collect()
}

#[test]
fn subgroups_of_different_members_share_one_polling_thread() {
    let subgroups = [
        ("all", vec![0, 1, 2], vec![0, 1, 2]),
        ("pair", vec![0, 2], vec![2]),
        ("other", vec![2, 1], vec![1, 2]),
    ];
    let delivered = members(3, move |node| {
        let rank = node.rank();
        let mut builder = Group::builder(node).timeout(PATIENCE);
        for (name, members, senders) in &subgroups {
            let subgroup = Subgroup::new(name)
                .members(members.iter().copied())
                .senders(senders.iter().copied());
            builder = builder.subgroup(subgroup);
        }
        let group = builder.join().expect("a group");
        let mut delivered = Vec::new();
        for (name, members, senders) in &subgroups {
            if senders.contains(&rank) {
                let sender = group.sender(name).expect("it sends");
                for number in 0..200_u64 {
                    sender.send_value(&number).expect("it is sent");
                    // Nobody takes anything yet, so the windows bound this.
                    if sender.room() < 2 {
                        break;
                    }
                }
            }
            if !members.contains(&rank) {
                assert!(matches!(
                    group.deliveries(name),
                    Err(Error::NoSuchSubgroup(_))
                ));
            }
        }
        for (name, members, senders) in &subgroups {
            if members.contains(&rank) {
                let deliveries = group.deliveries(name).expect("nobody has them");
                let count = senders.len() * 99;
                let order: Vec<usize> = deliveries
                    .take(count)
                    .map(|message| message.sender)
                    .collect();
                delivered.push((*name, order));
            }
        }
        group.leave(PATIENCE).expect("all is delivered");
        delivered
    });
    for one in delivered.iter().flatten() {
        for other in delivered.iter().flatten() {
            assert!(one.0 != other.0 || one.1 == other.1, "{one:?} {other:?}");
        }
    }
}

#[test]
fn an_idle_group_sleeps_and_posts_nothing_for_a_second() {
    let quiet = members(3, |node| {
        let rank = node.rank();
        let group = Group::builder(node)
            .subgroup(Subgroup::new("test"))
            .deliver("test", |_| {})
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        let sender = group.sender("test").expect("it sends");
        if rank == 0 {
            sender.send_bytes(b"wake").expect("it is sent");
        }
        let end = Instant::now() + PATIENCE;
        // A second in which neither changes, whenever it comes.
        loop {
            let before = (group.posted(), group.sleeps());
            std::thread::sleep(Duration::from_secs(1));
            if before == (group.posted(), group.sleeps()) && before.1 > 0 {
                return (rank, group);
            }
            assert!(Instant::now() < end, "it does not come to rest");
        }
    });
    // Alive all the same.
    for (_, group) in &quiet {
        let sender = group.sender("test").expect("it sends");
        sender.send_bytes(b"again").expect("it is sent");
        group.flush(PATIENCE).expect("all wake");
    }
}

#[test]
fn leaving_is_quiet() {
    let events = members(3, |node| {
        let rank = node.rank();
        let (told, events) = mpsc::channel();
        let group = Group::builder(node)
            .subgroup(Subgroup::new("test").window(4))
            .deliver("test", |_| {})
            .on_event(move |event| {
                told.send(event).ok();
            })
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        let sender = group.sender("test").expect("it sends");
        sender.send_bytes(b"before").expect("it is sent");
        if rank == 1 {
            group.leave(PATIENCE).expect("all is delivered");
            return Vec::new();
        }
        let event = events.recv_timeout(PATIENCE).expect("it leaves");
        // The others go on: many windows, with one sender gone.
        for _ in 0..100 {
            sender.send_bytes(b"after").expect("it is sent");
        }
        group.flush(PATIENCE).expect("the others deliver");
        let more: Vec<Event> = events.try_iter().collect();
        assert!(!more.contains(&Event::Failed(1)));
        vec![event]
    });
    let from_others = events.iter().flatten();
    assert!(from_others.clone().count() == 2);
    assert!(from_others.clone().any(|event| *event == Event::Left(1)));
}

#[test]
fn a_delivery_that_panics_ends_the_member_and_hangs_nobody() {
    members(2, |node| {
        let rank = node.rank();
        let group = Group::builder(node)
            .subgroup(Subgroup::new("test").senders([1]).window(2))
            .deliver("test", move |_| assert!(rank != 0, "on purpose"))
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        if rank == 1 {
            let sender = group.sender("test").expect("it sends");
            for _ in 0..20 {
                sender.send_bytes(b"x").expect("it is sent");
            }
            group.flush(PATIENCE).expect("the other one is out");
        } else {
            // Its polling thread has ended, which closes what it sends and gets.
            let over = group.deliveries("test").map(|_| ());
            assert!(matches!(over, Err(Error::NoDeliveries(_))));
            std::thread::sleep(Duration::from_millis(200));
        }
    });
}

#[test]
fn settings_that_cannot_be_are_refused() {
    use weft::multicast::ConfigError;
    let join = |subgroups: Vec<Subgroup>| {
        let node = Shm::threads(2).expect("a fabric").remove(0);
        let mut builder = Group::builder(node).timeout(Duration::from_millis(1));
        for subgroup in subgroups {
            builder = builder.subgroup(subgroup);
        }
        match builder.join() {
            Err(Error::Config(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let new = || Subgroup::new("a");
    assert_eq!(join(vec![]), ConfigError::NoSubgroups);
    assert!(matches!(
        join(vec![new().senders([])]),
        ConfigError::NoSenders(_)
    ));
    assert!(matches!(
        join(vec![new().members([])]),
        ConfigError::NoMembers(_)
    ));
    assert!(matches!(
        join(vec![new().members([0, 2])]),
        ConfigError::UnknownMember { member: 2, .. }
    ));
    assert!(matches!(
        join(vec![new().members([0, 0])]),
        ConfigError::Twice { member: 0, .. }
    ));
    assert!(matches!(
        join(vec![new().members([0]).senders([1])]),
        ConfigError::SenderNotMember { sender: 1, .. }
    ));
    assert!(matches!(
        join(vec![new().window(0)]),
        ConfigError::BadShape { .. }
    ));
    assert!(matches!(
        join(vec![new().max_message(1 << 40)]),
        ConfigError::BadShape { .. }
    ));
    assert!(matches!(
        join(vec![new(), new()]),
        ConfigError::NameTaken(_)
    ));
    assert!(matches!(
        join(vec![Subgroup::new("")]),
        ConfigError::BadName(_)
    ));
    let many = (0..257).map(|at| Subgroup::new(&at.to_string())).collect();
    assert!(matches!(join(many), ConfigError::TooManySubgroups(257)));
}

#[test]
fn members_that_disagree_all_learn_it() {
    let answers = members(3, |node| {
        let window = if node.rank() == 1 { 9 } else { 8 };
        let group = Group::builder(node)
            .subgroup(Subgroup::new("test").window(window))
            .timeout(PATIENCE)
            .join();
        group.map(drop)
    });
    for answer in answers {
        assert!(matches!(answer, Err(Error::Mismatch { .. })), "{answer:?}");
    }
}

#[test]
fn what_a_member_cannot_do_is_an_error() {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    let group = Group::builder(node)
        .subgroup(Subgroup::new("test").window(1).max_message(4))
        .join()
        .expect("a group");
    assert!(matches!(
        group.sender("none"),
        Err(Error::NoSuchSubgroup(_))
    ));
    let sender = group.sender("test").expect("it sends");
    assert_eq!(
        sender.send_bytes(b"longer"),
        Err(SendError::TooLong { len: 6, room: 4 })
    );
    // Nobody takes deliveries, so that the window stays full.
    sender.send_bytes(b"one").expect("room");
    assert_eq!(sender.try_send(|_| ()), Err(SendError::Full));
    let deliveries = group.deliveries("test").expect("nobody has them");
    assert!(matches!(
        group.deliveries("test"),
        Err(Error::NoDeliveries(_))
    ));
    let unflushed = group.flush(Duration::from_millis(1));
    assert!(matches!(unflushed, Err(Error::Unflushed { .. })));
    drop(group);
    assert_eq!(sender.send_bytes(b"two"), Err(SendError::Closed));
    assert_eq!(deliveries.count(), 1, "what was stable is delivered");
}

#[test]
fn the_polling_policy_is_a_choice() {
    let policy = IdlePolicy {
        spins: 0,
        quiesce_after: Duration::ZERO,
        contended_after: Duration::ZERO,
    };
    let delivered = members(2, move |node| {
        let group = Group::builder(node)
            .subgroup(Subgroup::new("test").window(2))
            .idle(policy)
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        let deliveries = group.deliveries("test").expect("nobody has them");
        let sender = group.sender("test").expect("it sends");
        let sending = std::thread::spawn(move || {
            for number in 0..2000_u64 {
                sender.send_value(&number).expect("it is sent");
            }
        });
        let messages: Vec<_> = deliveries.take(4000).collect();
        sending.join().expect("no panic");
        group.leave(PATIENCE).expect("all is delivered");
        messages
    });
    assert_eq!(delivered[0], delivered[1]);
}
