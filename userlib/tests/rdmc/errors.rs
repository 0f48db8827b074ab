// SPDX-License-Identifier: MIT OR Apache-2.0

//! What cannot be is a typed error, at once or when the time is over.

use crate::{nodes, Member, PATIENCE};
use std::sync::Arc;
use std::time::Duration;
use weft::fabric::{shm::Shm, NodeSet};
use weft::rdmc::schedule::{Algorithm, Between};
use weft::rdmc::{Choice, Error, GroupConfig, Node, SendReason, MAX_BLOCK_BYTES, MAX_GROUPS};

fn alone() -> Node {
    let fabric = Shm::threads(1).expect("a fabric").remove(0);
    Node::builder(fabric)
        .memory(1 << 20)
        .join()
        .expect("a node")
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let node = alone();
    let racks = Algorithm::Hybrid {
        between: Between::Chain,
        rack_members: 0,
    };
    let bad = [
        GroupConfig::new(1, []),
        GroupConfig::new(1, [1]),
        GroupConfig::new(1, [0, 0]),
        GroupConfig::new(1, [0, 1]),
        GroupConfig::new(1, [0]).block_bytes(0),
        GroupConfig::new(1, [0]).block_bytes(MAX_BLOCK_BYTES + 1),
        GroupConfig::new(1, [0]).algorithm(Choice::Always(racks)),
        GroupConfig::new(u32::MAX, [0]),
    ];
    for config in bad {
        let refused = Member::create(&node, &config).map(|_| ());
        assert!(matches!(refused, Err(Error::BadGroup { .. })), "{config:?}");
    }
    for (groups, memory) in [(0, 4096), (MAX_GROUPS + 1, 4096), (1, 0), (1, usize::MAX)] {
        let fabric = Shm::threads(1).expect("a fabric").remove(0);
        let refused = Node::builder(fabric).groups(groups).memory(memory).join();
        assert!(matches!(refused, Err(Error::BadNode { .. })));
    }
}

#[test]
fn messages_that_cannot_be_come_back() {
    let (node, other) = (alone(), alone());
    let config = GroupConfig::new(3, [0]).block_bytes(1);
    let member = Member::create(&node, &config).expect("a group");
    let refusal = |buffer, size| {
        let refused = member.group.send(buffer, size).expect_err("it cannot be");
        refused.reason
    };
    let buffer = || node.allocate(100).expect("memory");
    assert_eq!(refusal(buffer(), 0), SendReason::Empty);
    assert_eq!(refusal(buffer(), 101), SendReason::TooLong);
    let foreign = other.allocate(100).expect("memory");
    assert_eq!(refusal(foreign, 100), SendReason::ForeignBuffer);
    let too_much = node.allocate(2 << 20).map(|_| ());
    assert!(matches!(too_much, Err(Error::NoMemory { .. })));
    member.send(&node, b"alone");
    member
        .group
        .flush(PATIENCE)
        .expect("there is nobody to wait for");
}

#[test]
fn members_that_disagree_all_learn_it() {
    let outcomes = nodes(3, 1 << 20, |node| {
        let blocks = if node.rank() == 1 { 100 } else { 200 };
        let config = GroupConfig::new(1, 0..3).block_bytes(blocks);
        let refused = Member::create(&node, &config).map(|_| ());
        // Stays until all have looked.
        let agreed = Member::create(&node, &GroupConfig::new(2, 0..3));
        agreed
            .expect("the same settings")
            .group
            .flush(PATIENCE)
            .ok();
        refused
    });
    for outcome in outcomes {
        assert!(
            matches!(
                outcome,
                Err(Error::Mismatch { group: 1, .. } | Error::Ended { group: 1, .. })
            ),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_member_that_does_not_come_is_named() {
    nodes(2, 1 << 20, |node| {
        if node.rank() == 0 {
            let config = GroupConfig::new(1, 0..2);
            let late = node.create_group(&config, Duration::from_millis(20), |_| None, |_| {});
            let missing = NodeSet::from_iter([1]);
            assert_eq!(late.map(|_| ()), Err(Error::Timeout { group: 1, missing }));
        }
        Member::create(&node, &GroupConfig::new(2, 0..2)).expect("another one is possible");
    });
}

#[test]
fn a_callback_cannot_wait() {
    let node = Arc::new(alone());
    let (tell, told) = std::sync::mpsc::channel();
    let within = Arc::clone(&node);
    let event = move |_| {
        let config = GroupConfig::new(2, [0]);
        let refused = within.create_group(&config, PATIENCE, |_| None, |_| {});
        drop(tell.send(refused.map(|_| ())));
    };
    let group = node.create_group(&GroupConfig::new(1, [0]), PATIENCE, |_| None, event);
    let group = group.expect("a group");
    let buffer = node.allocate(1).expect("memory");
    group.send(buffer, 1).expect("it is taken");
    let refused = told.recv_timeout(PATIENCE).expect("it is called");
    assert_eq!(refused, Err(Error::InCallback));
}
