// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is particular to shared memory: the meeting, and its failures.

use super::{Shm, ShmSeats};
use crate::fabric::{conformance, Connected, Fabric, FabricError, Meeting, NodeSet};
use std::os::unix::net::UnixListener;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn connect(node: Shm, region_bytes: usize, hello: &[u8]) -> Result<Connected, FabricError> {
    // SAFETY: what these tests do with regions is to look at words.
    unsafe { node.connect(region_bytes, hello, PATIENCE) }
}

fn meet(nodes: Vec<Shm>) -> Vec<Result<Connected, FabricError>> {
    std::thread::scope(|scope| {
        let joining: Vec<_> = nodes
            .into_iter()
            .map(|node| scope.spawn(|| connect(node, 4096, b"hello")))
            .collect();
        joining
            .into_iter()
            .map(|thread| thread.join().expect("a node that does not panic"))
            .collect()
    })
}

#[test]
fn shared_memory_keeps_the_promises_of_a_fabric() {
    conformance::run(PATIENCE, |nodes| Shm::threads(nodes).expect("a fabric"));
}

/// Seats in shared memory under a name.
struct Named(String);

impl conformance::Seats for Named {
    type Node = ShmSeats;

    fn founder(&self, rank: usize, founders: usize, seats: usize) -> Result<ShmSeats, FabricError> {
        ShmSeats::founder(&self.0, rank, founders, seats)
    }

    fn newcomer(&self, seats: usize, patience: Duration) -> Result<ShmSeats, FabricError> {
        ShmSeats::newcomer(&self.0, seats, patience)
    }
}

#[test]
fn shared_memory_with_seats_keeps_the_promises_of_a_fabric() {
    conformance::run(PATIENCE, |nodes| {
        ShmSeats::threads(nodes, nodes).expect("a fabric").1
    });
    conformance::run_seats(PATIENCE, &Named(super::fresh_name()));
}

/// Tries until it is there.
fn wait_for<R>(mut find: impl FnMut() -> Option<R>) -> R {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(std::time::Instant::now() < end, "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn a_newcomer_has_the_seat_of_one_that_has_gone_and_nothing_of_it() {
    let write = |len| crate::fabric::Write {
        local: 0,
        remote: 0,
        len,
    };
    let word = |node: &Connected| {
        let word = node.endpoint.region().word(0).expect("a word");
        word.load(std::sync::atomic::Ordering::Acquire)
    };
    let store = |node: &Connected, value| {
        let word = node.endpoint.region().word(0).expect("a word");
        word.store(value, std::sync::atomic::Ordering::Release);
    };
    let (name, nodes) = ShmSeats::threads(2, 2).expect("a fabric");
    // SAFETY: what these tests do with regions is to look at words.
    let connect = |node: ShmSeats| unsafe { node.connect(4096, b"hello", PATIENCE) };
    let mut met = std::thread::scope(|scope| {
        let joining: Vec<_> = nodes
            .into_iter()
            .map(|node| scope.spawn(move || connect(node).expect("they meet")))
            .collect();
        let met = joining
            .into_iter()
            .map(|node| node.join().expect("no panic"));
        met.collect::<Vec<_>>()
    });
    // Given a node that has written to the other, and has gone,
    let gone = met.remove(1);
    let stays = met.remove(0);
    store(&gone, 1);
    gone.endpoint.post(0, &[write(8)]).expect("it is there");
    assert_eq!(stays.endpoint.admit(1), Err(FabricError::NoCaller(1)));
    drop(gone);
    // when a newcomer has its seat and calls,
    let node = ShmSeats::newcomer(&name, 2, PATIENCE).expect("a seat");
    assert_eq!(node.rank(), 1);
    let newcomer = connect(node).expect("it meets the other");
    let Meeting::Newcomer { incarnation, met } = newcomer.meeting else {
        panic!("{:?}", newcomer.meeting);
    };
    assert_eq!(met, NodeSet::from_iter([0]));
    let callers = || Some(stays.endpoint.callers()).filter(|callers| callers.contains(1));
    wait_for(callers);
    // then nothing goes to it before it is admitted,
    store(&stays, 2);
    let refused = stays.endpoint.post(1, &[write(8)]);
    assert_eq!(refused, Err(FabricError::PeerDown(1)));
    assert_eq!(word(&newcomer), 0);
    // and all behind that.
    assert_eq!(stays.endpoint.admit(1), Ok(incarnation));
    assert!(stays.endpoint.down().is_empty());
    stays.endpoint.post(1, &[write(8)]).expect("it is there");
    assert_eq!(word(&newcomer), 2);
    // Its own end is noticed as that of any other.
    drop(newcomer);
    wait_for(|| stays.endpoint.down().contains(1).then_some(()));
}

#[test]
fn a_node_that_does_not_come_is_named() {
    let node = Shm::threads(3).expect("a fabric").remove(1);
    // SAFETY: nothing is done with it.
    let answer = unsafe { node.connect(4096, &[], Duration::from_millis(20)) };
    assert_eq!(
        answer.expect_err("two are missing"),
        FabricError::Timeout {
            missing: NodeSet::from_iter([0, 2])
        }
    );
}

#[test]
fn one_that_calls_and_says_nothing_does_not_keep_the_others_from_meeting() {
    let name = super::fresh_name();
    let node = |rank| Shm::new(&name, rank, 2).expect("a node");
    let (first, second) = (node(0), node(1));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| connect(first, 4096, b"hello"));
        let _silent = wait_for(|| super::rendezvous::dial(&name, 0));
        let second = scope.spawn(|| connect(second, 4096, b"hello"));
        for node in [first, second] {
            node.join().expect("no panic").expect("they meet");
        }
    });
}

#[test]
fn a_rank_is_taken_once() {
    let name = format!("taken-{}", std::process::id());
    let address = super::rendezvous::address(&name, 0).expect("an address");
    let _somebody = UnixListener::bind_addr(&address).expect("a listener");
    let node = Shm::new(&name, 0, 2).expect("a node");
    let refusal = connect(node, 64, &[]).expect_err("it is taken");
    assert_eq!(refusal, FabricError::RankTaken { name, rank: 0 });
}

#[test]
fn nodes_that_count_differently_learn_it() {
    let name = format!("count-{}", std::process::id());
    let two = Shm::new(&name, 0, 2).expect("a node");
    let three = Shm::new(&name, 1, 3).expect("a node");
    for answer in meet(vec![two, three]) {
        let refusal = answer.expect_err("they differ");
        assert!(matches!(refusal, FabricError::NodesDiffer { .. }));
    }
}

#[test]
fn what_no_fabric_can_be_is_refused() {
    assert!(matches!(
        Shm::new("x", 2, 2),
        Err(FabricError::BadRank { .. })
    ));
    assert!(matches!(
        Shm::new("x", 0, 65),
        Err(FabricError::BadRank { .. })
    ));
    assert!(matches!(Shm::new("", 0, 1), Err(FabricError::BadName(_))));
    assert!(matches!(Shm::threads(0), Err(FabricError::BadRank { .. })));
    let alone = || Shm::threads(1).expect("a fabric").remove(0);
    assert!(matches!(
        connect(alone(), 0, &[]),
        Err(FabricError::BadRegion(0))
    ));
    assert!(matches!(
        connect(alone(), 64, &[0; crate::fabric::MAX_HELLO_BYTES + 1]),
        Err(FabricError::BadHello(_))
    ));
}
