// SPDX-License-Identifier: MIT OR Apache-2.0

//! Predicates alone, and the thread that sleeps and wakes.

use super::{IdlePolicy, Outcome, Poller, Predicates, MAX_PREDICATES};
use crate::fabric::{shm::Shm, Endpoint, Fabric};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn alone() -> Arc<dyn Endpoint> {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    // SAFETY: nothing is posted.
    let met = unsafe { node.connect(64, &[], PATIENCE) };
    met.expect("alone").endpoint
}

#[test]
fn a_one_shot_predicate_fires_once() {
    let count = Arc::new(AtomicU64::new(0));
    let (looked, worked) = (Arc::clone(&count), Arc::clone(&count));
    let mut predicates = Predicates::default();
    let looks = move || looked.fetch_add(1, Ordering::Relaxed) == 2;
    let works = move || {
        worked.fetch_add(100, Ordering::Relaxed);
    };
    predicates.once(looks, works).expect("room");
    let fired: Vec<bool> = (0..6).map(|_| predicates.evaluate()).collect();
    assert_eq!(fired, [false, false, true, false, false, false]);
    assert_eq!(count.load(Ordering::Relaxed), 103);
}

#[test]
fn there_is_a_limit() {
    let mut predicates = Predicates::default();
    for _ in 0..MAX_PREDICATES {
        predicates.add(|| Outcome::Idle).expect("room");
    }
    predicates.add(|| Outcome::Idle).expect_err("no more room");
}

#[test]
fn the_limit_counts_those_that_are_evaluated() {
    let mut predicates = Predicates::default();
    for _ in 1..MAX_PREDICATES {
        predicates.add(|| Outcome::Idle).expect("room");
    }
    let poller = Poller::stepped(alone(), predicates);
    for last in [Outcome::Done, Outcome::Idle] {
        poller.add(move || last).expect("room");
        let refused = poller.add(|| Outcome::Idle);
        refused.expect_err("one waits to be taken");
        poller.step();
    }
    let refused = poller.add(|| Outcome::Idle);
    refused.expect_err("all are evaluated");
}

#[test]
fn a_sleeping_thread_wakes_for_the_doorbell_only() {
    let endpoint = alone();
    let rounds = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&rounds);
    let mut predicates = Predicates::default();
    let count = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Outcome::Idle
    };
    predicates.add(count).expect("room");
    let policy = IdlePolicy {
        spins: 2,
        quiesce_after: Duration::from_micros(10),
        ..IdlePolicy::default()
    };
    let poller = Poller::start(Arc::clone(&endpoint), predicates, policy).expect("a thread");
    let wait = |sleeps| {
        let end = Instant::now() + PATIENCE;
        while poller.sleeps() < sleeps {
            assert!(Instant::now() < end, "it does not go to sleep");
            std::thread::sleep(Duration::from_millis(1));
        }
        // It has announced the sleep; the last look comes right behind.
        std::thread::sleep(Duration::from_millis(20));
    };
    wait(1);
    let asleep = rounds.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(
        rounds.load(Ordering::Relaxed),
        asleep,
        "it evaluates asleep"
    );
    endpoint.ring(0);
    wait(2);
    assert!(rounds.load(Ordering::Relaxed) > asleep);
}

#[test]
fn predicates_can_be_added_to_a_sleeping_thread() {
    let poller = Poller::start(alone(), Predicates::default(), IdlePolicy::default());
    let poller = poller.expect("a thread");
    std::thread::sleep(Duration::from_millis(10));
    let (sender, receiver) = mpsc::channel();
    let tell = move || {
        // The test may have ended.
        let _ = sender.send(());
        Outcome::Done
    };
    poller.add(tell).expect("room");
    receiver.recv_timeout(PATIENCE).expect("it is evaluated");
}
