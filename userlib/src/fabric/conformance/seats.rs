// SPDX-License-Identifier: MIT OR Apache-2.0

//! The promises of a fabric whose nodes may come later.

use super::{load, post, same, sleep_until, store, until, Node, REGION_BYTES, WORD};
use crate::fabric::{Connected, Fabric, FabricError, Meeting, NodeSet, Write};
use std::time::Duration;

const SEATS: usize = 3;
const FOUNDERS: usize = 2;
const HELLO: &[u8] = b"the same for all";
/// Nodes that have the last seat, one after the other.
const HOLDERS: u64 = 4;
const ROUNDS: u64 = 300;

/// Where a node stores what it sends to the others, and where it is found there.
const fn word_of(rank: usize) -> usize {
    (1 + rank) * WORD
}

/// Makes the nodes of a fabric with seats.
pub trait Seats: Sync {
    /// A node.
    type Node: Fabric + Send + 'static;
    /// A founder, of so many: called on the thread that connects it.
    fn founder(
        &self,
        rank: usize,
        founders: usize,
        seats: usize,
    ) -> Result<Self::Node, FabricError>;
    /// One that comes to them, for the lowest seat that is empty: called on the thread that
    /// connects it.
    fn newcomer(&self, seats: usize, patience: Duration) -> Result<Self::Node, FabricError>;
}

/// Runs the suite over new fabrics with seats, as [`super::run`] does.
///
/// # Panics
///
/// If a promise is broken.
pub fn run_seats(patience: Duration, seats: &impl Seats) {
    let founders = found(seats, patience);
    nobody_is_in_an_empty_seat(&founders);
    for number in 0..HOLDERS {
        let newcomer = arrive(seats, &founders, patience);
        both_ways(&founders[0], &newcomer, number);
        both_ways(&newcomer, &founders[1], number);
        both_ways(&founders[0], &founders[1], number);
        goes(newcomer, &founders);
    }
    a_founders_seat_is_taken_too(seats, founders, patience);
}

fn connect<F: Fabric>(node: F, patience: Duration) -> Connected {
    // SAFETY: words alone are looked at.
    unsafe { node.connect(REGION_BYTES, HELLO, patience) }.expect("the nodes meet")
}

fn found(seats: &impl Seats, patience: Duration) -> Vec<Node> {
    let founder = |rank| {
        let node = seats.founder(rank, FOUNDERS, SEATS).expect("a founder");
        connect(node, patience)
    };
    std::thread::scope(|scope| {
        let joining: Vec<_> = (0..FOUNDERS)
            .map(|rank| scope.spawn(move || founder(rank)))
            .collect();
        let joining = joining.into_iter();
        let connected = joining.map(|thread| thread.join().expect("no panic"));
        let node = |connected: Connected| {
            let founders = Meeting::Founders((0..FOUNDERS).collect());
            assert_eq!(connected.meeting, founders);
            let endpoint = connected.endpoint;
            assert_eq!(endpoint.nodes(), SEATS);
            Node { endpoint, patience }
        };
        connected.map(node).collect()
    })
}

fn nobody_is_in_an_empty_seat(founders: &[Node]) {
    for node in founders {
        assert!(node.down().is_empty() && node.callers().is_empty());
        let nobody = FabricError::NoSuchPeer {
            peer: FOUNDERS,
            nodes: SEATS,
        };
        assert_eq!(node.post(FOUNDERS, &[same(0, WORD)]), Err(nobody));
        let refusal = FabricError::NoCaller(FOUNDERS);
        assert_eq!(node.admit(FOUNDERS), Err(refusal));
    }
}

/// Somebody comes, and all the others admit it. Nothing of who had the seat before is left
/// under way, and what that one has left in the others' regions is for them to erase.
fn arrive(seats: &impl Seats, others: &[Node], patience: Duration) -> Node {
    let connected = std::thread::scope(|scope| {
        let coming = scope.spawn(|| {
            let node = seats.newcomer(SEATS, patience).expect("a seat");
            connect(node, patience)
        });
        coming.join().expect("no panic")
    });
    let Meeting::Newcomer { incarnation, met } = connected.meeting else {
        panic!("{:?}", connected.meeting);
    };
    let there: NodeSet = others.iter().map(|node| node.rank()).collect();
    assert!(!met.is_empty() && met.minus(there).is_empty(), "{met:?}");
    let newcomer = Node {
        endpoint: connected.endpoint,
        patience,
    };
    let seat = newcomer.rank();
    for node in others {
        until(node, "a call", || node.callers().contains(seat));
        assert_eq!(node.admit(seat), Ok(incarnation));
        assert_eq!(node.admit(seat), Err(FabricError::NoCaller(seat)));
        assert!(!node.down().contains(seat) && node.callers().is_empty());
        store(node, word_of(seat), 0);
    }
    newcomer.settle();
    newcomer
}

/// Two nodes wake each other in turn, with numbers that no earlier one has used.
fn both_ways(one: &Node, other: &Node, number: u64) {
    let first = number * ROUNDS + 1;
    let play = |node: &Node, peer: &Node, begins: bool| {
        let ball = same(word_of(node.rank()), WORD);
        let theirs = word_of(peer.rank());
        let catch = |round: u64| {
            sleep_until(node, || load(node, theirs) >= round);
            assert_eq!(load(node, theirs), round, "of {}", peer.rank());
        };
        for round in first..first + ROUNDS {
            if !begins {
                catch(round);
            }
            store(node, ball.local, round);
            post(node, peer.rank(), &[ball]);
            node.ring(peer.rank());
            if begins {
                catch(round);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(one, other, true));
        play(other, one, false);
    });
    let read = Write {
        local: 0,
        remote: word_of(other.rank()),
        len: WORD,
    };
    let answer = one.read(other.rank(), read.local, read.remote, read.len);
    assert_eq!((answer, load(one, 0)), (Ok(()), first + ROUNDS - 1));
}

/// A node goes: the others notice, and it is cut off before anybody has its seat again.
fn goes(node: Node, others: &[Node]) {
    let seat = node.rank();
    drop(node);
    for node in others {
        until(node, "the end", || node.down().contains(seat));
        until(node, "the cut", || node.severed().contains(seat));
    }
}

/// Who has founded the fabric can go as others can.
fn a_founders_seat_is_taken_too(seats: &impl Seats, mut nodes: Vec<Node>, patience: Duration) {
    let newcomer = arrive(seats, &nodes, patience);
    both_ways(&nodes[1], &newcomer, HOLDERS);
    nodes.push(newcomer);
    let first = nodes.remove(0);
    goes(first, &nodes);
    let last = arrive(seats, &nodes, patience);
    assert_eq!(last.rank(), 0);
    both_ways(&last, &nodes[0], HOLDERS + 1);
    both_ways(&nodes[1], &last, HOLDERS + 1);
}
