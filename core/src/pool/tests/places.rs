// SPDX-License-Identifier: GPL-2.0 OR MIT

//! How users share the places of a pool, if more peers are used than it has.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{gid, Node};
use crate::gid::Gid;
use crate::pool::{Mode, Pool, Transport, PEERS};

const BUDGET: usize = 64;
const DC_NS: u64 = 400_000;
const RC_NS: u64 = 100_000;

/// Requests of a user to so many peers of its own, from one on, as many to each.
fn requests(node: &mut Node, user: u32, peers: std::ops::Range<u32>, ops: u64) {
    for peer in peers {
        node.traffic_of(user, &peer_of(user, peer), ops, DC_NS, RC_NS);
    }
}

fn peer_of(user: u32, number: u32) -> Gid {
    gid(user * 100_000 + number)
}

/// How many places each user has.
fn placed(pool: &Pool) -> HashMap<u32, usize> {
    let users = (0..PEERS).map_while(|at| pool.view(at)?.user);
    users.fold(HashMap::new(), |mut placed, user| {
        *placed.entry(user).or_default() += 1;
        placed
    })
}

#[test]
fn more_peers_of_one_user_than_there_are_places_leave_those_of_another_theirs() {
    let mut node = Node::new(Mode::Auto, BUDGET);
    for _ in 0..100 {
        requests(&mut node, 1, 0..1000, 3000);
        requests(&mut node, 2, 0..3, 150);
        node.look();
    }
    assert_eq!(placed(&node.pool), HashMap::from([(1, PEERS - 3), (2, 3)]));
    let by_rc = (0..3).filter(|peer| node.uses(&peer_of(2, *peer)) == Transport::Rc);
    assert_eq!(by_rc.count(), 3);
}

#[test]
fn peers_that_are_touched_and_left_take_no_places_from_those_of_another() {
    let mut node = Node::new(Mode::Auto, BUDGET);
    for look in 0..200 {
        // So many that most of its places are idle at any time.
        requests(&mut node, 1, look * 200..(look + 1) * 200, 1);
        if look >= 100 {
            requests(&mut node, 2, 0..40, 10);
        }
        node.look();
        if look > 100 {
            assert_eq!(placed(&node.pool)[&2], 40);
        }
    }
}

#[test]
fn an_administrator_has_a_place_though_newcomers_have_taken_all() {
    let mut node = Node::new(Mode::Auto, BUDGET);
    for _ in 0..3 {
        requests(&mut node, 1, 0..1000, 3000);
        node.look();
        requests(&mut node, 1, 0..1000, 3000);
        let now_ns = node.now_ns;
        let peer = peer_of(3, u32::try_from(now_ns / 1_000_000).unwrap());
        assert!(node.pool.pin(&peer, true, now_ns));
    }
}

#[test]
fn a_user_whose_peers_all_have_queue_pairs_takes_no_places_from_one_who_has_fewer() {
    let mut node = Node::new(Mode::Auto, BUDGET);
    let (rich, poor) = (40, 4);
    for _ in 0..50 {
        requests(&mut node, 1, 0..rich, 3000);
        node.look();
    }
    assert_eq!(node.links.len(), 40);
    // Others, who have four each at most, take the rest.
    let fill = |node: &mut Node| {
        for user in 2..60 {
            requests(node, user, 0..poor, 10);
        }
    };
    for _ in 0..3 {
        requests(&mut node, 1, 0..rich, 3000);
        fill(&mut node);
        node.look();
    }
    let before = placed(&node.pool);
    assert_eq!((before[&1], before.values().sum::<usize>()), (40, PEERS));
    for _ in 0..50 {
        requests(&mut node, 1, 0..rich + 100, 3000);
        assert_eq!(placed(&node.pool), before);
        fill(&mut node);
        node.look();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A user whose peers have not all places has as many as anybody else, but for one.
    #[test]
    fn users_share_places_evenly(
        users in prop::collection::vec((1u32..400, 20u64..4000), 2..7),
    ) {
        let mut node = Node::new(Mode::Auto, BUDGET);
        let users: HashMap<u32, (u32, u64)> = (1..).zip(users).collect();
        for _ in 0..40 {
            for (&user, &(peers, ops)) in &users {
                requests(&mut node, user, 0..peers, ops);
            }
            node.look();
        }
        let placed = placed(&node.pool);
        let used: usize = users.values().map(|(peers, _)| *peers as usize).sum();
        prop_assert_eq!(placed.values().sum::<usize>(), used.min(PEERS));
        let most = *placed.values().max().unwrap();
        for (user, (peers, _)) in &users {
            let has = placed[user];
            prop_assert!(has == *peers as usize || has + 1 >= most, "{:?} of {:?}", placed, users);
        }
    }
}
