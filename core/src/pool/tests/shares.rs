// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How users share the queue pairs of a node.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{gid, Node};
use crate::gid::Gid;
use crate::pool::{Heat, LinkState, Mode, Transport};

const BUDGET: usize = 8;

/// A user's busy peers: the first one's number, how many there are, and requests a look.
#[derive(Clone, Copy, Debug)]
struct Load {
    user: u32,
    first: u32,
    peers: u32,
    ops: u64,
}

impl Load {
    fn new(user: u32, peers: u32, ops: u64) -> Self {
        Self {
            user,
            first: user * 1000,
            peers,
            ops,
        }
    }

    fn gids(&self) -> impl Iterator<Item = Gid> {
        (self.first..self.first + self.peers).map(gid)
    }

    /// How many of its peers use RC.
    fn by_rc(&self, node: &Node) -> usize {
        let by_rc = |gid: &Gid| node.uses(gid) == Transport::Rc;
        self.gids().filter(by_rc).count()
    }
}

/// RC takes a quarter of what DC does.
fn run(node: &mut Node, loads: &[Load], looks: usize) {
    for _ in 0..looks {
        for load in loads {
            for gid in load.gids() {
                node.traffic_of(load.user, &gid, load.ops, 400_000, 100_000);
            }
        }
        node.look();
        assert!(node.links.len() + node.asked.len() <= node.budget);
    }
}

#[test]
fn many_busy_peers_of_one_user_leave_room_for_those_of_another() {
    let (many, few) = (Load::new(1, 40, 3000), Load::new(2, 3, 150));
    let mut node = Node::new(Mode::Auto, BUDGET);
    run(&mut node, &[many], 100);
    assert_eq!(many.by_rc(&node), BUDGET);
    run(&mut node, &[many, few], 50);
    assert_eq!((many.by_rc(&node), few.by_rc(&node)), (BUDGET - 3, 3));
    // And that is the end of it.
    let opened = node.opened;
    run(&mut node, &[many, few], 3_000);
    assert_eq!((many.by_rc(&node), few.by_rc(&node)), (BUDGET - 3, 3));
    assert_eq!(node.opened, opened);
}

#[test]
fn what_a_user_no_longer_needs_goes_back_to_the_others() {
    let (many, few) = (Load::new(1, 40, 3000), Load::new(2, 3, 150));
    let mut node = Node::new(Mode::Auto, BUDGET);
    run(&mut node, &[many, few], 100);
    run(&mut node, &[many], 300);
    assert_eq!(many.by_rc(&node), BUDGET);
}

#[test]
fn a_queue_pair_that_is_closing_is_not_closed_twice() {
    let (many, few) = (Load::new(1, BUDGET as u32, 3000), Load::new(2, 1, 150));
    let mut node = Node::new(Mode::Auto, BUDGET);
    run(&mut node, &[many], 100);
    let mut closing = None;
    for _ in 0..50 {
        run(&mut node, &[many, few], 1);
        // It takes its time.
        let held = closing.or_else(|| node.closing.pop());
        node.closing.clear();
        closing = held;
        let up = node.links.values().filter(|link| link.is_up()).count();
        assert!(up >= BUDGET - 1, "one makes room, not {}", BUDGET - up);
    }
    assert!(closing.is_some());
}

#[test]
fn a_peer_tells_who_uses_it_most() {
    let mut node = Node::new(Mode::Auto, BUDGET);
    let peer = gid(1);
    for (user, ops) in [(5, 10), (6, 25), (7, 5)] {
        node.traffic_of(user, &peer, ops, 400_000, 100_000);
    }
    node.look();
    let view = node.pool.view(0).expect("it is known");
    assert_eq!(view.user, Some(6));
    assert_ne!(view.requests.heat, Heat::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A user who has not enough has as many as anybody else, but for one; and what is free
    /// goes to somebody.
    #[test]
    fn users_share_evenly(
        loads in prop::collection::vec((1u32..12, 120u64..4000), 1..6),
        budget in 4usize..12,
    ) {
        let loads: Vec<Load> = (1..)
            .zip(loads)
            .map(|(user, (peers, ops))| Load::new(user, peers, ops))
            .collect();
        let mut node = Node::new(Mode::Auto, budget);
        run(&mut node, &loads, 600);
        let opened = node.opened;
        run(&mut node, &loads, 600);
        prop_assert_eq!(node.opened, opened, "and then nothing changes");
        let held: HashMap<u32, usize> = loads.iter().map(|load| (load.user, load.by_rc(&node))).collect();
        let wanted: usize = loads.iter().map(|load| load.peers as usize).sum();
        prop_assert_eq!(held.values().sum::<usize>(), wanted.min(budget));
        for load in &loads {
            let has = held[&load.user];
            let most = *held.values().max().unwrap();
            prop_assert!(has == load.peers as usize || has + 1 >= most, "{:?}", held);
        }
        let up = |link: &&LinkState| link.is_up();
        prop_assert!(node.links.values().filter(up).count() <= budget);
    }
}
