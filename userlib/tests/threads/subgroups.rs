// SPDX-License-Identifier: MIT OR Apache-2.0

//! Subgroups whose members follow from the view, with polling threads.

use crate::{members, PATIENCE};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use weft::fabric::shm::Shm;
use weft::fabric::{Fabric, NodeSet};
use weft::multicast::{Builder, ConfigError, SubgroupView};
use weft::{Ending, Error, Event, Group, Membership, SendError, Subgroup, SubgroupHandle, View};

const NODES: usize = 4;
const MESSAGES: u64 = 500;

/// The views and deliveries of a member, in a subgroup.
#[derive(Debug, Default)]
struct Log {
    /// By sequence number, who has sent what.
    delivered: BTreeMap<u64, (usize, u64)>,
    views: Vec<SubgroupView>,
    failed: NodeSet,
}

/// A group with a subgroup of the two lowest members.
fn logged(node: Shm) -> (Builder<Shm>, SubgroupHandle, Arc<Mutex<Log>>) {
    let log = Arc::new(Mutex::new(Log::default()));
    let [delivered, installed, failed] = [(); 3].map(|()| Arc::clone(&log));
    let mut builder = Group::builder(node).timeout(PATIENCE);
    let two = builder.subgroup(Subgroup::new("two").window(8).max_message(8));
    let builder = builder
        .members_by_view(two, |view| {
            Membership::all_send(view.members.iter().take(2).collect())
        })
        .deliver(two, move |batch| {
            let mut log = delivered.lock().expect("no panic");
            for message in batch {
                let number: &u64 = message.value().expect("a number");
                let before = log
                    .delivered
                    .insert(message.sequence, (message.sender, *number));
                assert_eq!(before, None, "a number is given once");
            }
        })
        .on_view(move |view| {
            let subgroup = view.subgroup(two).expect("its own handle");
            installed.lock().expect("no panic").views.push(subgroup);
        })
        .on_event(move |event| {
            if let Event::Failed(node) = event {
                let mut log = failed.lock().expect("no panic");
                log.failed = log.failed.with(node);
            }
        });
    (builder, two, log)
}

fn wait_until(log: &Mutex<Log>, holds: impl Fn(&Log) -> bool) {
    wait_for(|| holds(&log.lock().expect("no panic")));
}

fn wait_for(holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "it takes too long");
        std::thread::yield_now();
    }
}

#[test]
fn members_enter_a_subgroup_at_the_number_that_the_view_says_and_others_are_told() {
    let is_told = Arc::new(AtomicBool::new(false));
    let logs = members(NODES, move |node| {
        let rank = node.rank();
        let (builder, two, log) = logged(node);
        let group = builder.join().expect("a group");
        let sender = group.sender(two).expect("it may send in some view");
        // Member 2 enters when member 0 has gone, and member 3 never does.
        if rank == 2 {
            wait_until(&log, |log| log.failed.contains(0));
        }
        if rank != 3 {
            for number in 0..MESSAGES {
                sender.send_value(&number).expect("it is a sender");
            }
        }
        if rank == 3 {
            wait_until(&log, |log| log.failed.contains(0));
            assert_eq!(sender.send_value(&0_u64), Err(SendError::NotSender));
            is_told.store(true, Ordering::Relaxed);
        } else {
            group.flush(PATIENCE).expect("both deliver");
        }
        if rank == 1 {
            // Member 0 goes when it has sent all.
            let of_2 = |log: &Log| log.delivered.values().filter(|of| of.0 == 2).count();
            wait_until(&log, |log| of_2(log) as u64 == MESSAGES);
        }
        if rank == 0 {
            drop(group);
        } else {
            // When another one leaves, member 3 enters.
            wait_for(|| is_told.load(Ordering::Relaxed));
            group.leave(PATIENCE).expect("nothing is left");
        }
        let mut log = log.lock().expect("no panic");
        std::mem::take(&mut *log)
    });
    let entered = logs[2].views.iter().find(|view| view.members.contains(2));
    let entered = *entered.expect("a view in which it is a member");
    assert_eq!(entered.before, NodeSet::EMPTY.with(1));
    assert!(logs[3].delivered.is_empty(), "{:?}", logs[3]);
    let first = logs[2].delivered.keys().next().copied().expect("a message");
    assert!(first >= entered.sequence, "{first} in {entered:?}");
    for (number, message) in &logs[2].delivered {
        assert_eq!(logs[1].delivered.get(number), Some(message), "{number}");
    }
    for sender in 0..3 {
        let of = logs[1].delivered.values().filter(|of| of.0 == sender);
        let numbers: Vec<u64> = of.map(|of| of.1).collect();
        assert_eq!(numbers, (0..MESSAGES).collect::<Vec<_>>(), "{sender}");
    }
}

#[test]
fn nodes_whose_functions_differ_do_not_wait_for_one_another() {
    let have_seen = Arc::new(AtomicUsize::new(0));
    let answers = members(3, move |node| {
        let rank = node.rank();
        let mut builder = Group::builder(node).timeout(PATIENCE);
        let odd = builder.subgroup(Subgroup::new("odd"));
        let builder = builder
            .deliver(odd, |_| {})
            .members_by_view(odd, move |view| {
                let count = if rank == 2 { 1 } else { 2 };
                Membership::all_send(view.members.iter().take(count).collect())
            });
        let group = match builder.join() {
            // It may be out before it was told that it is in.
            Err(Error::NotAdmitted { ending }) if rank == 2 => return ending,
            joined => joined.expect("a group"),
        };
        let ending = || group.ending(odd).expect("the subgroup");
        if rank == 2 {
            wait_for(|| ending().is_some());
            return ending();
        }
        // Members 0 and 1 take member 2 for failed.
        let two = [0, 1].into_iter().collect();
        wait_for(|| group.view().is_some_and(|view| view.members == two));
        let ending = ending();
        have_seen.fetch_add(1, Ordering::Relaxed);
        wait_for(|| have_seen.load(Ordering::Relaxed) == 2);
        ending
    });
    assert_eq!(answers[..2], [None, None]);
    // It finds itself suspected, or suspects both others first.
    let is_out = matches!(answers[2], Some(Ending::Excluded | Ending::Minority));
    assert!(is_out, "{:?}", answers[2]);
}

#[test]
fn a_function_for_another_groups_subgroup_is_refused() {
    let node = || Shm::threads(1).expect("a fabric").remove(0);
    let foreign = Group::builder(node()).subgroup(Subgroup::new("other"));
    let mut builder = Group::builder(node());
    let own = builder.subgroup(Subgroup::new("own"));
    let all = |view: &View| Membership::all_send(view.members);
    let refused = builder
        .deliver(own, |_| {})
        .members_by_view(foreign, all)
        .join();
    assert_eq!(
        refused.map(drop),
        Err(Error::Config(ConfigError::ForeignHandle))
    );
}
