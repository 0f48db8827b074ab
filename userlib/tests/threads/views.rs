// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups with views: members leave or go one after the other, and the others go on.

use crate::{members, PATIENCE};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};
use weft::fabric::shm::Shm;
use weft::fabric::Fabric;
use weft::multicast::{Builder, ConfigError};
use weft::{Ending, Error, Event, Group, SendError, Sender, Subgroup, SubgroupHandle, View};

const NODES: usize = 4;
/// Messages that each sends before it leaves, and one more for each rank.
const MESSAGES: u64 = 2000;

fn subgroup() -> Subgroup {
    Subgroup::new("test").window(8).max_message(8)
}

/// What a member saw: senders and numbers of messages, and views between them.
type Log = Vec<Result<(usize, u64), View>>;

fn logged(node: Shm) -> (Builder<Shm>, SubgroupHandle, Arc<Mutex<Log>>) {
    let log = Arc::new(Mutex::new(Log::new()));
    let (delivered, installed) = (Arc::clone(&log), Arc::clone(&log));
    let mut builder = Group::builder(node);
    let handle = builder.subgroup(subgroup());
    let builder = builder
        .timeout(PATIENCE)
        .deliver(handle, move |batch| {
            let numbers = batch.map(|message| {
                let number: &u64 = message.value().expect("a number");
                Ok((message.sender, *number))
            });
            delivered.lock().expect("no panic").extend(numbers);
        })
        .on_view(move |view| installed.lock().expect("no panic").push(Err(view.clone())));
    (builder, handle, log)
}

/// A member, and what it hears of events.
fn joined(node: Shm) -> (Group, Sender, Arc<Mutex<Log>>, Receiver<Event>) {
    let (told, events) = channel();
    let (builder, handle, log) = logged(node);
    let builder = builder.on_event(move |event| {
        told.send(event).ok();
    });
    let group = builder.join().expect("a group");
    let sender = group.sender(handle).expect("it sends");
    (group, sender, log, events)
}

fn taken(log: &Mutex<Log>) -> Log {
    log.lock().expect("no panic").clone()
}

#[test]
fn a_founder_is_told_of_its_first_view_on_the_thread_that_polls() {
    let here = std::thread::current().id();
    let founder = || {
        let (told, views) = channel();
        let node = Shm::threads(1).expect("a fabric").remove(0);
        let (builder, ..) = logged(node);
        let builder = builder.on_view(move |view| {
            told.send((view.number, std::thread::current().id())).ok();
        });
        (builder, views)
    };
    let (builder, views) = founder();
    let _group = builder.join().expect("a group");
    let (number, there) = views.try_recv().expect("it was told");
    assert_eq!(number, 1);
    assert_ne!(there, here);
    // Where nothing polls but its steps it has the view, and is told in a step.
    let (builder, views) = founder();
    let group = builder.join_stepped().expect("a group");
    assert_eq!(group.view().map(|view| view.number), Some(1));
    assert!(views.try_recv().is_err());
    group.step();
    assert_eq!(views.try_recv(), Ok((1, here)));
}

#[test]
fn members_leave_one_after_the_other_and_what_they_sent_is_delivered_by_all() {
    let logs = members(NODES, |node| {
        let rank = node.rank();
        let (builder, handle, log) = logged(node);
        let group = builder.join().expect("a group");
        let sender = group.sender(handle).expect("it sends");
        for number in 0..MESSAGES * (rank as u64 + 1) {
            sender.send_value(&number).expect("it is sent");
        }
        group.leave(PATIENCE).expect("all is delivered");
        taken(&log)
    });
    // The last one to leave has seen all. Mostly it is the one that sends most, but a thread
    // may have to wait for a processor.
    let of_last = logs.iter().enumerate().max_by_key(|(_, log)| log.len());
    let (last, all) = of_last.expect("logs");
    for (rank, log) in logs.iter().enumerate() {
        let sent = MESSAGES * (rank as u64 + 1);
        let mine: Vec<u64> = all
            .iter()
            .filter_map(|seen| seen.as_ref().ok())
            .filter(|(sender, _)| *sender == rank)
            .map(|(_, number)| *number)
            .collect();
        assert_eq!(mine, (0..sent).collect::<Vec<_>>(), "{rank}");
        assert_eq!(log[..], all[..log.len()], "{rank}");
    }
    let views: Vec<View> = all.iter().filter_map(|seen| seen.clone().err()).collect();
    let view = views.last().expect("a view");
    assert!(
        view.members.contains(last) && view.failed.is_empty(),
        "{views:?}"
    );
}

#[test]
fn whom_the_application_suspects_is_put_out_and_the_others_go_on() {
    const SUSPECT: usize = NODES - 1;
    let all_have_a_group = Barrier::new(NODES);
    let logs = members(NODES, move |node| {
        let rank = node.rank();
        let (group, sender, log, events) = joined(node);
        all_have_a_group.wait();
        if rank == 0 {
            for member in [rank, NODES] {
                let refused = Err(Error::NotInView { member, view: 1 });
                assert_eq!(group.suspect(member, 1), refused);
            }
            group.suspect(SUSPECT, 1).expect("it is in the view");
        }
        let event = events.recv_timeout(PATIENCE).expect("an event");
        if rank == SUSPECT {
            assert_eq!(event, Event::Stopped(Ending::Excluded));
            return taken(&log);
        }
        assert_eq!(event, Event::Failed(SUSPECT));
        let end = Instant::now() + PATIENCE;
        while group.view().is_some_and(|view| view.number == 1) {
            assert!(Instant::now() < end, "no view without it");
            std::thread::yield_now();
        }
        // Of a view that is over nobody is put out.
        group.suspect(1, 1).expect("it is over");
        sender.send_value(&1_u64).expect("it is sent");
        all_send_a_one(&log, NODES - 1);
        let view = group.view().expect("it has views");
        assert!(view.failed.is_empty() || view.number == 2, "{view:?}");
        group.leave(PATIENCE).expect("all is delivered");
        taken(&log)
    });
    let longest = logs.iter().max_by_key(|log| log.len()).expect("logs");
    for log in &logs {
        assert_eq!(log[..], longest[..log.len()]);
    }
}

/// Waits until so many members have sent it.
fn all_send_a_one(log: &Mutex<Log>, members: usize) {
    let end = Instant::now() + PATIENCE;
    let ones = |log: &Log| log.iter().filter(|seen| matches!(seen, Ok((_, 1)))).count();
    while ones(&taken(log)) < members {
        assert!(Instant::now() < end, "{:?}", taken(log));
        std::thread::yield_now();
    }
}

#[test]
fn one_that_goes_without_a_word_has_failed_and_the_others_go_on() {
    let logs = members(NODES, |node| {
        let rank = node.rank();
        let (group, sender, log, events) = joined(node);
        sender.send_value(&0_u64).expect("it is sent");
        if rank == 0 {
            group.flush(PATIENCE).expect("all deliver it");
            drop(group);
            return taken(&log);
        }
        let event = events.recv_timeout(PATIENCE).expect("an event");
        assert_eq!(event, Event::Failed(0));
        // All of them go on,
        sender.send_value(&1_u64).expect("it is sent");
        group.flush(PATIENCE).expect("all deliver it");
        // until all have sent and delivered it.
        all_send_a_one(&log, NODES - 1);
        let view = group.view().expect("it has views");
        assert!(!view.members.contains(0), "{view:?}");
        group.leave(PATIENCE).expect("all is delivered");
        taken(&log)
    });
    let longest = logs.iter().max_by_key(|log| log.len()).expect("logs");
    for log in &logs {
        assert_eq!(log[..], longest[..log.len()]);
    }
}

#[test]
fn the_last_of_two_is_a_minority_and_says_so() {
    let endings = members(2, |node| {
        let rank = node.rank();
        let (group, sender, log, events) = joined(node);
        sender.send_value(&0_u64).expect("it is sent");
        if rank == 0 {
            // The other one may not learn that this one has delivered it, but it has sent it.
            let end = Instant::now() + PATIENCE;
            while !taken(&log).contains(&Ok((1, 0))) {
                assert!(Instant::now() < end, "{:?}", taken(&log));
                std::thread::yield_now();
            }
            drop(group);
            return None;
        }
        let event = events.recv_timeout(PATIENCE).expect("an event");
        let refused = sender.send_value(&1_u64).expect_err("nobody delivers it");
        Some((event, refused))
    });
    let ending = weft::Ending::Minority;
    let expected = (Event::Stopped(ending), SendError::Stopped { ending });
    assert_eq!(endings, [None, Some(expected)]);
}

#[test]
fn a_group_with_views_says_what_it_cannot_have() {
    let refusal = |subgroup: Subgroup, delivers: bool| {
        let node = Shm::threads(2).expect("a fabric").remove(0);
        let mut builder = Group::builder(node).with_views();
        let handle = builder.subgroup(subgroup);
        if delivers {
            builder = builder.deliver(handle, |_| {});
        }
        match builder.join() {
            Err(Error::Config(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let name = || "test".to_owned();
    let node = Shm::threads(2).expect("a fabric").remove(0);
    let mut builder = Group::builder(node);
    let handle = builder.subgroup(subgroup());
    let refused = builder
        .deliver(handle, |_| {})
        .suspect_after(Duration::ZERO);
    let error = refused.join().expect_err("nobody is so fast");
    assert_eq!(error, Error::Config(ConfigError::BadTerm(Duration::ZERO)));
    assert_eq!(
        refusal(subgroup(), false),
        ConfigError::NoClosureWithViews(name())
    );
    assert_eq!(
        refusal(subgroup().unordered(), true),
        ConfigError::UnorderedWithViews(name())
    );
    assert_eq!(
        refusal(subgroup().members([0]).senders([0]), true),
        ConfigError::PartialWithViews(name())
    );
}

#[test]
fn a_delivery_that_panics_ends_the_member_and_holds_up_neither_it_nor_the_others() {
    members(3, |node| {
        let rank = node.rank();
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(subgroup());
        let group = builder
            .with_views()
            .deliver(handle, move |_| assert!(rank != 0, "on purpose"))
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        let sender = group.sender(handle).expect("it sends");
        if rank != 0 {
            sender.send_value(&0_u64).expect("it is sent");
            group.leave(PATIENCE).expect("the others have it");
            return;
        }
        let end = Instant::now() + PATIENCE;
        while sender.send_value(&0_u64).is_ok() {
            assert!(Instant::now() < end, "it goes on");
        }
        let begin = Instant::now();
        // Its last message is delivered nowhere.
        let _ = group.leave(PATIENCE);
        assert!(begin.elapsed() < PATIENCE / 4, "{:?}", begin.elapsed());
    });
}

#[test]
fn a_member_that_stops_is_told_of_it_when_the_others_have_gone_on() {
    const LAST: usize = 2;
    let latest = Arc::new(AtomicU64::new(0));
    let barrier = Barrier::new(LAST + 1);
    members(LAST + 1, move |node| {
        let rank = node.rank();
        let (told, events) = channel();
        let (installed, seen) = (Arc::clone(&latest), Arc::clone(&latest));
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(subgroup());
        let builder = builder
            .timeout(PATIENCE)
            .deliver(handle, |_| {})
            .on_view(move |view| {
                installed.fetch_max(view.number, Ordering::Relaxed);
            })
            .on_event(move |event| {
                let begin = Instant::now();
                while seen.load(Ordering::Relaxed) < 2 && begin.elapsed() < PATIENCE / 4 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let latest = seen.load(Ordering::Relaxed);
                told.send((event, latest)).expect("it is awaited");
            });
        if rank != LAST {
            let _group = builder.join().expect("a group");
            barrier.wait();
            let event = events.recv_timeout(PATIENCE).expect("an event");
            assert_eq!(event, (Event::Failed(LAST), 2));
            return;
        }
        let group = builder.join_stepped().expect("a group");
        barrier.wait();
        while group.step() {}
        // The others sleep, and hear of nothing before they are woken.
        std::thread::sleep(Duration::from_millis(100));
        for other in 0..LAST {
            group.suspect(other, 1).expect("it is in the view");
        }
        group.step();
        let event = events.try_recv().expect("it was told in the step");
        assert_eq!(event, (Event::Stopped(Ending::Minority), 2));
    });
}

#[test]
fn a_member_that_leaves_in_a_closure_has_left_and_holds_nobody_up() {
    members(2, |node| {
        let rank = node.rank();
        let own: Arc<Mutex<Option<Group>>> = Arc::default();
        let leaving = Arc::clone(&own);
        let mut builder = Group::builder(node);
        let handle = builder.subgroup(subgroup());
        let group = builder
            .with_views()
            .deliver(handle, move |batch| {
                batch.for_each(drop);
                let group = leaving.lock().expect("no panic").take();
                let left = group.map(|group| group.leave(PATIENCE));
                assert_eq!(left.unwrap_or(Ok(())), Ok(()));
            })
            .timeout(PATIENCE)
            .join()
            .expect("a group");
        let sender = group.sender(handle).expect("it sends");
        if rank == 0 {
            *own.lock().expect("no panic") = Some(group);
            return;
        }
        let begin = Instant::now();
        while !group.left().contains(0) {
            sender.send_value(&0_u64).expect("it is sent");
            assert!(begin.elapsed() < PATIENCE / 4, "it does not leave");
        }
        sender.send_value(&1_u64).expect("it is sent");
        group.flush(PATIENCE / 4).expect("it goes on");
    });
}
