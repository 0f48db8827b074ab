// SPDX-License-Identifier: MIT OR Apache-2.0

//! What cannot be is a typed error, at once.

use crate::{members, PATIENCE};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft::fabric::{shm::Shm, Fabric, FabricError, NodeSet};
use weft::multicast::ConfigError;
use weft::{Batch, Error, Group, Options, SendError, Sender, Subgroup, SubgroupHandle};

#[test]
fn settings_that_cannot_be_are_refused() {
    let join = |subgroups: Vec<Subgroup>| {
        let node = Shm::threads(2).expect("a fabric").remove(0);
        let mut builder = Group::builder(node).timeout(Duration::from_millis(1));
        for subgroup in subgroups {
            builder.subgroup(subgroup);
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
    assert!(matches!(
        join(vec![Subgroup::new(&"x".repeat(65))]),
        ConfigError::BadName(_)
    ));
    assert!(matches!(
        join(vec![new().window(1 << 15)]),
        ConfigError::BadShape { .. }
    ));
    let long = |at: u32| Subgroup::new(&at.to_string()).window(1 << 14);
    let longest = (0..64).map(|at| long(at).max_message(60_000)).collect();
    assert!(matches!(join(longest), ConfigError::TooLarge(_)));
    let many = (0..257).map(|at| Subgroup::new(&at.to_string())).collect();
    assert!(matches!(join(many), ConfigError::TooManySubgroups(257)));
}

#[test]
fn states_that_are_too_long_for_a_region_are_refused() {
    let join = |subgroup: usize, group: usize| {
        let node = Shm::threads(2).expect("a fabric").remove(0);
        let mut builder = Group::builder(node).timeout(Duration::from_millis(1));
        let a = builder.subgroup(Subgroup::new("a"));
        let builder = builder.deliver(a, |_| ()).state(group, Vec::new, |_| ());
        match builder.subgroup_state(a, subgroup, Vec::new, |_| ()).join() {
            Err(Error::Config(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let half = 1 << (usize::BITS - 1);
    for bytes in [half, usize::MAX - 64, usize::MAX - 63, usize::MAX] {
        for (subgroup, group) in [(bytes, 0), (0, bytes), (bytes, bytes), (1, bytes)] {
            let error = join(subgroup, group);
            assert!(matches!(error, ConfigError::TooLarge(_)), "{error:?}");
        }
    }
}

/// The handle of the first subgroup of another group.
fn foreign() -> SubgroupHandle {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    Group::builder(node).subgroup(Subgroup::new("a"))
}

#[test]
fn deliveries_of_another_groups_handle_are_refused() {
    let node = Shm::threads(2).expect("a fabric").remove(0);
    let mut builder = Group::builder(node);
    builder.subgroup(Subgroup::new("a"));
    let refusal = builder.deliver(foreign(), |_| {}).join();
    assert_eq!(refusal.map(drop), Err(ConfigError::ForeignHandle.into()));
}

/// Groups of which member 1 has other settings than the others.
fn odd_ones_out() -> Vec<(&'static str, Vec<Subgroup>)> {
    let new = || Subgroup::new("test").window(8);
    let baseline = Options::BASELINE;
    vec![
        ("the name", vec![Subgroup::new("other").window(8)]),
        ("the window", vec![new().window(9)]),
        ("the length", vec![new().max_message(1025)]),
        ("the members", vec![new().members([0, 1]).senders([0])]),
        ("the senders", vec![new().senders([0, 1])]),
        ("the senders' order", vec![new().senders([1, 0, 2])]),
        ("the order", vec![new().unordered()]),
        ("the options", vec![new().options(baseline)]),
        ("one more", vec![new(), Subgroup::new("more")]),
    ]
}

#[test]
fn members_that_disagree_all_learn_it() {
    for (what, odd) in odd_ones_out() {
        let answers = members(3, move |node| {
            let subgroups = match node.rank() {
                1 => odd.clone(),
                _ => vec![Subgroup::new("test").window(8)],
            };
            let mut builder = Group::builder(node).timeout(PATIENCE);
            for subgroup in subgroups {
                builder.subgroup(subgroup);
            }
            builder.join().map(drop)
        });
        for answer in answers {
            assert!(
                matches!(answer, Err(Error::Mismatch { .. })),
                "{what}: {answer:?}"
            );
        }
    }
}

#[test]
fn who_counts_other_members_learns_it() {
    let name = format!("count-{}", std::process::id());
    let join = |rank, nodes| {
        let node = Shm::new(&name, rank, nodes).expect("a node");
        let mut builder = Group::builder(node);
        builder.subgroup(Subgroup::new("test"));
        builder.timeout(PATIENCE).join().map(drop)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| join(1, 3));
        let answers = [join(0, 2), other.join().expect("no panic")];
        for answer in answers {
            assert!(
                matches!(answer, Err(Error::Fabric(FabricError::NodesDiffer { .. }))),
                "{answer:?}"
            );
        }
    });
}

#[test]
fn a_member_that_does_not_come_is_named() {
    let node = Shm::threads(3).expect("a fabric").remove(1);
    let mut builder = Group::builder(node);
    builder.subgroup(Subgroup::new("test"));
    let answer = builder.timeout(Duration::from_millis(20)).join();
    let missing = NodeSet::from_iter([0, 2]);
    assert_eq!(
        answer.map(drop),
        Err(FabricError::Timeout { missing }.into())
    );
}

#[test]
fn what_a_member_cannot_do_is_an_error() {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    let mut builder = Group::builder(node);
    let handle = builder.subgroup(Subgroup::new("test").window(1).max_message(4));
    let group = builder.join().expect("a group");
    assert!(matches!(group.sender(foreign()), Err(Error::ForeignHandle)));
    assert_eq!(group.suspect(0, 1), Err(Error::NoViews));
    let sender = group.sender(handle).expect("it sends");
    assert_eq!(
        sender.send_bytes(b"longer"),
        Err(SendError::TooLong { len: 6, room: 4 })
    );
    // Nobody takes deliveries, so that the window stays full.
    sender.send_bytes(b"one").expect("room");
    assert_eq!(sender.try_send(|_| ()), Err(SendError::Full));
    let deliveries = group.deliveries(handle).expect("nobody has them");
    assert!(matches!(
        group.deliveries(handle),
        Err(Error::NoDeliveries(_))
    ));
    let unflushed = group.flush(Duration::from_millis(1));
    assert!(matches!(unflushed, Err(Error::Unflushed { .. })));
    drop(group);
    assert_eq!(sender.send_bytes(b"two"), Err(SendError::Closed));
    assert_eq!(deliveries.count(), 1, "what was stable is delivered");
}

/// Subgroups of one slot, in either order.
fn single_slots() -> [Subgroup; 2] {
    let subgroup = Subgroup::new("test").window(1).max_message(4);
    [subgroup.clone(), subgroup.unordered()]
}

/// Gives a slot up, and has the group go on until it is stable.
fn give_up_slot(group: &Group, sender: &Sender) {
    let too_long = SendError::TooLong { len: 5, room: 4 };
    assert_eq!(sender.try_send(|slot| slot.set_len(5)), Err(too_long));
    while group.step() {}
}

#[test]
fn a_slot_that_was_given_up_does_not_end_deliveries() {
    for subgroup in single_slots() {
        let node = Shm::threads(1).expect("a fabric").remove(0);
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(subgroup);
        let group = builder.join_stepped().expect("a group");
        let sender = group.sender(handle).expect("it sends");
        let mut deliveries = group.deliveries(handle).expect("nobody has them");
        give_up_slot(&group, &sender);
        let batch = deliveries.batch(Some(Duration::ZERO), |batch| batch.count());
        assert_eq!(batch, None, "a batch without a message");
        assert!(!deliveries.is_over());
        // The slot is free again, and given up again.
        group.step();
        give_up_slot(&group, &sender);
        let receiver = std::thread::spawn(move || deliveries.next());
        let end = Instant::now() + PATIENCE;
        while sender.try_send(|slot| slot.put(b"one")) == Err(SendError::Full) {
            assert!(Instant::now() < end, "nobody goes past the slot");
            group.step();
        }
        while !receiver.is_finished() {
            assert!(Instant::now() < end, "the message does not come");
            group.step();
        }
        let message = receiver.join().expect("no panic");
        assert_eq!(message.map(|message| message.bytes), Some(b"one".to_vec()));
    }
}

#[test]
fn no_closure_is_called_for_a_slot_that_was_given_up() {
    for subgroup in single_slots() {
        let node = Shm::threads(1).expect("a fabric").remove(0);
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(subgroup);
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let count = move |_: &mut Batch<'_>| {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let group = builder.deliver(handle, count).join_stepped();
        let group = group.expect("a group");
        let sender = group.sender(handle).expect("it sends");
        for _ in 0..3 {
            give_up_slot(&group, &sender);
        }
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        sender.try_send(|slot| slot.put(b"one")).expect("room");
        while group.step() {}
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
