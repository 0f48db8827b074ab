// SPDX-License-Identifier: MIT OR Apache-2.0

//! How groups live: subgroups side by side, rest, leaving, a member's end.

use crate::{members, PATIENCE};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};
use weft::fabric::{shm::Shm, Fabric};
use weft::predicates::{IdlePolicy, Outcome};
use weft::{Error, Event, Group, Options, SendError, Sender, Subgroup};

/// A delivery that sends, and flushes, is answered where it would wait for itself.
#[test]
fn a_delivery_does_not_wait_for_itself() {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    let shared: Arc<OnceLock<Weak<Group>>> = Arc::default();
    let known = Arc::clone(&shared);
    let (told, answers) = mpsc::channel();
    let mut builder = Group::builder(node);
    let own = builder.subgroup(Subgroup::new("own").window(2));
    let group = builder
        .deliver(own, move |_| {
            let Some(group) = known.get().and_then(Weak::upgrade) else {
                return;
            };
            let sender = group.sender(own).expect("it sends");
            let sent = std::iter::repeat_with(|| sender.send_bytes(b"more"));
            let refused = sent.take(3).find_map(Result::err);
            told.send((refused, group.flush(PATIENCE).err())).ok();
        })
        .join()
        .expect("a group");
    let group = Arc::new(group);
    shared.set(Arc::downgrade(&group)).expect("once");
    let sender = group.sender(own).expect("it sends");
    sender.send_bytes(b"first").expect("room");
    let answer = answers
        .recv_timeout(PATIENCE)
        .expect("it waits for nothing");
    assert_eq!(answer, (Some(SendError::Full), Some(Error::InDelivery)));
}

/// A group whose only member answers each question of its own, within the delivery.
fn answer_oneself(options: Options, has_views: bool, is_stepped: bool) -> Vec<Vec<u8>> {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    let known: Arc<OnceLock<Sender>> = Arc::default();
    let sender = Arc::clone(&known);
    let (told, delivered) = mpsc::channel();
    let mut builder = Group::builder(node);
    let own = builder.subgroup(Subgroup::new("own").options(options));
    let builder = builder.deliver(own, move |batch| {
        for message in batch {
            if let Some(sender) = sender.get().filter(|_| message.bytes == b"question") {
                sender.send_bytes(b"answer").expect("room");
            }
            told.send(message.bytes.to_vec()).ok();
        }
    });
    let builder = match has_views {
        true => builder.with_views(),
        false => builder,
    };
    let group = match is_stepped {
        true => builder.join_stepped(),
        false => builder.join(),
    };
    let group = group.expect("a group");
    let sender = known.get_or_init(|| group.sender(own).expect("it sends"));
    sender.send_bytes(b"question").expect("room");
    // First the question is delivered, then the answer.
    (0..2).for_each(|_| group.flush(PATIENCE).expect("it is delivered"));
    delivered.try_iter().collect()
}

/// The baseline's lock is held while a delivery is under way.
#[test]
fn a_delivery_may_send_whatever_is_switched_on() {
    for (name, options) in Options::LADDER {
        for (has_views, is_stepped) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let (told, answered) = mpsc::channel();
            // Not joined: it would hang if the delivery did.
            thread::spawn(move || {
                told.send(answer_oneself(options, has_views, is_stepped))
                    .ok()
            });
            let answer = answered.recv_timeout(PATIENCE).expect(name);
            assert_eq!(answer, [&b"question"[..], b"answer"], "{name}");
        }
    }
}

/// Without a polling thread all happens in steps, on the thread that steps; whoever would
/// wait for a step is told.
#[test]
fn a_stepped_group_does_everything_in_steps() {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    let here = thread::current().id();
    let (told, deliveries) = mpsc::channel();
    let mut builder = Group::builder(node);
    let own = builder.subgroup(Subgroup::new("own").window(2));
    let group = builder
        .deliver(own, move |batch| {
            let in_batch = batch.count();
            told.send((in_batch, thread::current().id())).ok();
        })
        .join_stepped()
        .expect("a group");
    let sender = group.sender(own).expect("it sends");
    let sent = std::iter::repeat_with(|| sender.send_bytes(b"tick")).take(3);
    assert_eq!(
        sent.collect::<Vec<_>>(),
        [Ok(()), Ok(()), Err(SendError::Full)]
    );
    assert_eq!(deliveries.try_recv(), Err(mpsc::TryRecvError::Empty));
    assert!(group.step());
    assert_eq!(deliveries.try_recv(), Ok((2, here)));
    sender.send_bytes(b"tock").expect("room");
    group.flush(PATIENCE).expect("flush steps");
    assert_eq!(deliveries.try_recv(), Ok((1, here)));
    let began = Instant::now();
    assert!(!group.step_within(Duration::from_millis(20)));
    assert!(began.elapsed() >= Duration::from_millis(20));
    group.leave(PATIENCE).expect("all is delivered");
}

/// Two members that step, each on its own thread, one asleep until the other sends.
#[test]
fn stepped_members_wake_one_another() {
    const TICKS: u64 = 100;
    let seen = members(2, |node| {
        let rank = node.rank();
        let delivered = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&delivered);
        let mut builder = Group::builder(node);
        let ticks = builder.subgroup(Subgroup::new("ticks").senders([0]).window(2));
        let group = builder
            .deliver(ticks, move |batch| {
                count.fetch_add(batch.count() as u64, Ordering::Relaxed);
            })
            .join_stepped()
            .expect("a group");
        let end = Instant::now() + PATIENCE;
        let mut sent = 0;
        while delivered.load(Ordering::Relaxed) < TICKS && Instant::now() < end {
            if rank == 0 && sent < TICKS {
                let sender = group.sender(ticks).expect("it sends");
                sent += u64::from(sender.send_value(&sent).is_ok());
            }
            group.step_within(Duration::from_secs(1));
        }
        // The other one needs what this one says last.
        group.flush(PATIENCE).expect("all is delivered");
        delivered.load(Ordering::Relaxed)
    });
    assert_eq!(seen, [TICKS, TICKS]);
}

/// What is added to a group with a polling thread stays with that thread.
#[test]
fn a_step_of_a_group_that_has_a_polling_thread_does_nothing() {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    let mut builder = Group::builder(node);
    let own = builder.subgroup(Subgroup::new("own"));
    let group = builder.deliver(own, |_| {}).join().expect("a group");
    let here = thread::current().id();
    let (told, evaluated) = mpsc::channel();
    let tell = move || {
        told.send(thread::current().id()).ok();
        Outcome::Done
    };
    group.add_predicate(tell).expect("room");
    assert!(!group.step());
    assert!(!group.step_within(PATIENCE));
    let there = evaluated.recv_timeout(PATIENCE).expect("it is evaluated");
    assert_ne!(there, here);
}

/// A delivery that panics ends a stepped group as it ends a polling thread.
#[test]
fn a_delivery_that_panics_in_a_step_ends_the_member() {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    let mut builder = Group::builder(node);
    let own = builder.subgroup(Subgroup::new("own"));
    let group = builder
        .deliver(own, |_| panic!("as it should"))
        .join_stepped()
        .expect("a group");
    let sender = group.sender(own).expect("it sends");
    sender.send_bytes(b"last").expect("room");
    let step = std::panic::AssertUnwindSafe(|| group.step());
    assert!(std::panic::catch_unwind(step).is_err());
    assert!(!group.step());
    // There is nothing to wait for.
    let begin = Instant::now();
    assert!(!group.step_within(PATIENCE));
    assert!(begin.elapsed() < PATIENCE / 4);
    assert_eq!(sender.send_bytes(b"more"), Err(SendError::Closed));
}

/// Another group's polling thread makes room, so a delivery may wait for it.
#[test]
fn a_delivery_waits_for_room_in_another_group() {
    let node = || Shm::threads(1).expect("a fabric").remove(0);
    let (told, numbers) = mpsc::channel();
    let mut builder = Group::builder(node());
    let numbers_of = builder.subgroup(Subgroup::new("second").window(1));
    let second = builder
        .deliver(numbers_of, move |batch| {
            for message in batch {
                told.send(*message.value::<u64>().expect("a number")).ok();
            }
        })
        .join()
        .expect("a group");
    let sender = second.sender(numbers_of).expect("it sends");
    let mut builder = Group::builder(node());
    let beginning = builder.subgroup(Subgroup::new("first"));
    let first = builder
        .deliver(beginning, move |_| {
            for number in 0..100_u64 {
                sender.send_value(&number).expect("it waits for room");
            }
        })
        .join()
        .expect("a group");
    let begin = first.sender(beginning).expect("it sends");
    begin.send_bytes(b"begin").expect("room");
    let received = (0..100).map(|_| numbers.recv_timeout(PATIENCE).expect("a number"));
    assert!(received.eq(0..100));
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
        let handles = subgroups.each_ref().map(|(name, members, senders)| {
            let subgroup = Subgroup::new(name)
                .members(members.iter().copied())
                .senders(senders.iter().copied());
            builder.subgroup(subgroup)
        });
        let group = builder.join().expect("a group");
        let mut delivered = Vec::new();
        for (&handle, (_, members, senders)) in handles.iter().zip(&subgroups) {
            if senders.contains(&rank) {
                let sender = group.sender(handle).expect("it sends");
                for number in 0..200_u64 {
                    sender.send_value(&number).expect("it is sent");
                    // Nobody takes anything yet, so the windows bound this.
                    if sender.room() < 2 {
                        break;
                    }
                }
            }
            if !members.contains(&rank) {
                assert!(matches!(group.deliveries(handle), Err(Error::NotMember(_))));
            }
        }
        for (&handle, (name, members, senders)) in handles.iter().zip(&subgroups) {
            if members.contains(&rank) {
                let deliveries = group.deliveries(handle).expect("nobody has them");
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
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(Subgroup::new("test"));
        let group = builder
            .deliver(handle, |_| {})
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        let sender = group.sender(handle).expect("it sends");
        if rank == 0 {
            sender.send_bytes(b"wake").expect("it is sent");
        }
        let end = Instant::now() + PATIENCE;
        // A second in which neither changes, whenever it comes.
        loop {
            let before = (group.posted(), group.sleeps());
            std::thread::sleep(Duration::from_secs(1));
            if before == (group.posted(), group.sleeps()) && before.1 > 0 {
                return (group, handle);
            }
            assert!(Instant::now() < end, "it does not come to rest");
        }
    });
    // Alive all the same.
    for (group, handle) in &quiet {
        let sender = group.sender(*handle).expect("it sends");
        sender.send_bytes(b"again").expect("it is sent");
        group.flush(PATIENCE).expect("all wake");
    }
}

#[test]
fn who_flushes_does_not_wait_for_what_others_send_meanwhile() {
    const MESSAGES: u64 = 20_000;
    members(2, |node| {
        let rank = node.rank();
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(Subgroup::new("test").senders([0]).window(8));
        let group = builder
            .deliver(handle, |_| {})
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        if rank == 0 {
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    let sender = group.sender(handle).expect("it sends");
                    (0..MESSAGES).for_each(|_| sender.send_bytes(b"x").expect("it is sent"));
                });
                while !sending.is_finished() {
                    group.flush(PATIENCE).expect("the other one delivers");
                }
            });
        }
        group.leave(PATIENCE).expect("all is delivered");
    });
}

#[test]
fn leaving_is_quiet() {
    let events = members(3, |node| {
        let rank = node.rank();
        let (told, events) = mpsc::channel();
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(Subgroup::new("test").window(4));
        let group = builder
            .deliver(handle, |_| {})
            .on_event(move |event| {
                told.send(event).ok();
            })
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        let sender = group.sender(handle).expect("it sends");
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
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(Subgroup::new("test").senders([1]).window(2));
        let group = builder
            .deliver(handle, move |_| assert!(rank != 0, "on purpose"))
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        if rank == 1 {
            let sender = group.sender(handle).expect("it sends");
            for _ in 0..20 {
                sender.send_bytes(b"x").expect("it is sent");
            }
            group.flush(PATIENCE).expect("the other one is out");
        } else {
            // Its polling thread has ended, which closes what it sends and gets.
            let over = group.deliveries(handle).map(|_| ());
            assert!(matches!(over, Err(Error::NoDeliveries(_))));
            std::thread::sleep(Duration::from_millis(200));
        }
    });
}

#[test]
fn the_polling_policy_is_a_choice() {
    let policy = IdlePolicy {
        spins: 0,
        quiesce_after: Duration::ZERO,
        contended_after: Duration::ZERO,
        ..IdlePolicy::default()
    };
    let delivered = members(2, move |node| {
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(Subgroup::new("test").window(2));
        let group = builder
            .idle(policy)
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        let deliveries = group.deliveries(handle).expect("nobody has them");
        let sender = group.sender(handle).expect("it sends");
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
