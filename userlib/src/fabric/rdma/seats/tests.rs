// SPDX-License-Identifier: MIT OR Apache-2.0

//! Newcomers that find nobody, or not what they look for, or call somebody over a transport that
//! carries nothing. What follows needs RDMA: see the conformance suite.

use super::super::held::Held;
use super::super::inner::tests::{memory, Silence, REGION_BYTES};
use super::*;
use crate::fabric::thread::Thread;
use crate::fabric::NodeSet;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};

const KIND: u8 = 9;
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(10);
const HELLO: &[u8] = b"the same for all";

fn refusal(addrs: &[SocketAddr]) -> FabricError {
    Role::newcomer(addrs, KIND, SHORT).expect_err("nobody gives it a seat")
}

#[test]
fn where_nobody_is_a_newcomer_says_so_in_time() {
    let missing = NodeSet::from_iter([0, 1, 2]);
    assert_eq!(refusal(&Held::new(3)), FabricError::Timeout { missing });
}

#[test]
fn lists_that_no_fabric_has_are_refused_at_once() {
    assert!(matches!(refusal(&[]), FabricError::BadRank { .. }));
    let addrs = Held::new(1);
    let twice = [addrs[0], addrs[0]];
    assert_eq!(refusal(&twice), FabricError::SameAddress(addrs[0]));
}

#[test]
fn noise_is_no_answer() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let nobody = Held::new(1);
    let addrs = [listener.local_addr().expect("its address"), nobody[0]];
    let stranger = std::thread::spawn(move || {
        let (mut line, _) = listener.accept().expect("a question");
        line.write_all(&[0x55; 4096]).expect("it is taken");
    });
    assert!(matches!(refusal(&addrs), FabricError::Timeout { .. }));
    stranger.join().expect("no panic");
}

#[test]
fn incarnations_are_times_that_fit_beside_a_rank() {
    let (first, second) = (now(), now());
    assert!((1..=MAX_INCARNATION).contains(&first) && first <= second);
}

/// Links by nothing.
struct Mute;

impl Linker for Mute {
    type Transport = Silence;
    type Offer = ();

    fn offer(&self) -> Result<(), FabricError> {
        Ok(())
    }

    fn card(&self, (): &()) -> Vec<u8> {
        vec![1]
    }

    fn link(&self, _peer: usize, (): (), _card: &[u8]) -> Result<(), FabricError> {
        Ok(())
    }
}

/// The member of a seat.
fn member(rank: usize, addrs: &[SocketAddr]) -> (Arc<Inner<Silence>>, Thread) {
    let node = Node {
        place: Place::new(rank, addrs).expect("a seat"),
        kind: KIND,
        region_bytes: REGION_BYTES,
        hello: HELLO.to_vec(),
        incarnation: 0,
    };
    let listener = node.place.listen().expect("the port is free");
    let inner = Inner::new(rank, addrs.len(), memory(), Silence::default()).expect("a node");
    let inner = Arc::new(inner);
    inner.settle();
    let reception = Reception::new(node, Mute, listener, Arc::clone(&inner));
    (inner, reception.start().expect("a thread"))
}

#[test]
fn those_that_are_stopped_keep_no_newcomer_out() {
    let addrs = Held::new(4);
    // Given two lower seats whose holders are stopped, and a member,
    let stopped = |seat: usize| TcpListener::bind(addrs[seat]).expect("the port is free");
    let stopped = [stopped(0), stopped(1)];
    let (member, _reception) = member(2, &addrs);
    // when a newcomer looks for a seat, and calls those who are there,
    let end = Instant::now() + LONG;
    let newcomer = Role::newcomer(&addrs, KIND, LONG).expect("a seat");
    assert_eq!(newcomer.place().rank, 3);
    let opened = Opened {
        memory: memory(),
        linker: Mute,
        transport: Silence::default(),
    };
    let newcomer = newcomer.connect(KIND, HELLO, opened, end);
    let newcomer = newcomer.expect("the member answers");
    assert_eq!(newcomer.meeting.met(), NodeSet::from_iter([2]));
    // then the member hears that it can post,
    while !member.callers().contains(3) {
        assert!(Instant::now() < end, "it is kept out");
        std::thread::sleep(Duration::from_millis(1));
    }
    // and one line waits for each that is stopped, besides that of its question.
    std::thread::sleep(Duration::from_millis(100));
    for listener in stopped {
        listener.set_nonblocking(true).expect("a listener");
        let lines = std::iter::from_fn(|| listener.accept().ok()).count();
        assert!((1..=2).contains(&lines), "{lines}");
    }
}
