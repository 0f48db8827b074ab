// SPDX-License-Identifier: MIT OR Apache-2.0

//! The promises of a fabric as one test suite.
//!
//! [`run`] takes whatever makes the nodes of a new fabric and panics with the
//! promise that was broken. The nodes are driven by threads of this process,
//! which is no less than what separate processes would show: they share
//! nothing but the fabric.

mod mortal;
mod seats;

pub use mortal::{Countdown, Mortal};
pub use seats::{run_seats, Seats};

use super::{
    Connected, Endpoint, Fabric, FabricError, NodeSet, Write, COPIED_BYTES, WORD_ATOMIC_BYTES,
};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

const REGION_BYTES: usize = 1 << 16;
const ROUNDS: u64 = 20_000;
/// Where the control words are; the payload comes behind.
const PAYLOAD: usize = 4096;
const PAYLOAD_BYTES: usize = 8192;
const WORD: usize = 8;

/// A node of the fabric.
struct Node {
    endpoint: Arc<dyn Endpoint>,
    /// How long what must come may take.
    patience: Duration,
}

impl Deref for Node {
    type Target = dyn Endpoint;

    fn deref(&self) -> &Self::Target {
        &*self.endpoint
    }
}

/// Runs the whole suite over new fabrics of the given numbers of nodes. What must come
/// and has not after `patience` counts as lost: half a minute, and more on a slow machine.
///
/// # Panics
///
/// If a promise is broken.
pub fn run<F, M>(patience: Duration, make: M)
where
    F: Fabric + Send + 'static,
    M: Fn(usize) -> Vec<F>,
{
    let connect = |nodes| connect(make(nodes), patience);
    hellos_reach_everybody(connect_all(make(4), patience));
    regions_start_as_zeros(&connect(2));
    writes_become_visible_in_order(&connect(2));
    words_are_never_torn(&connect(2));
    small_writes_publish_large_ones(&connect(2));
    what_can_be_seen_is_published_too(&connect(2));
    reads_see_own_writes(&connect(2));
    short_sources_are_free_at_once(&connect(2));
    a_fence_leaves_the_source_free(&connect(2));
    bad_ranges_are_refused(&connect(2));
    a_ring_ends_the_sleep(&connect(2));
    a_ring_is_never_lost(&connect(2));
    a_node_wakes_itself(&connect(1));
    posts_are_counted(&connect(2));
    a_death_is_noticed(connect(3));
}

/// Connects all nodes, each with its rank as hello.
fn connect_all<F: Fabric + Send + 'static>(nodes: Vec<F>, patience: Duration) -> Vec<Connected> {
    let joining: Vec<_> = nodes
        .into_iter()
        .map(|node| {
            std::thread::spawn(move || {
                let hello = vec![0xA0; node.rank() + 1];
                // SAFETY: each test says which ranges are words and who writes the others, and
                // none makes references to them.
                unsafe { node.connect(REGION_BYTES, &hello, patience) }
            })
        })
        .collect();
    joining
        .into_iter()
        .map(|thread| {
            let answer = thread.join().expect("connecting does not panic");
            answer.expect("the nodes meet")
        })
        .collect()
}

fn connect<F: Fabric + Send + 'static>(nodes: Vec<F>, patience: Duration) -> Vec<Node> {
    let connected = connect_all(nodes, patience).into_iter();
    let node = |Connected { endpoint, .. }| Node { endpoint, patience };
    connected.map(node).collect()
}

fn hellos_reach_everybody(connected: Vec<Connected>) {
    for (rank, node) in connected.iter().enumerate() {
        assert_eq!(node.endpoint.rank(), rank);
        assert_eq!(node.hellos.len(), node.endpoint.nodes());
        for (from, hello) in node.hellos.iter().enumerate() {
            assert_eq!(hello, &vec![0xA0; from + 1], "the hello of node {from}");
        }
    }
}

fn store(node: &Node, offset: usize, value: u64) {
    let word = node.region().word(offset).expect("a word of the region");
    word.store(value, Ordering::Release);
}

fn load(node: &Node, offset: usize) -> u64 {
    let word = node.region().word(offset).expect("a word of the region");
    word.load(Ordering::Acquire)
}

fn same(offset: usize, len: usize) -> Write {
    Write {
        local: offset,
        remote: offset,
        len,
    }
}

fn post(node: &Node, peer: usize, writes: &[Write]) {
    node.post(peer, writes).expect("the peer lives");
}

/// Waits, with the fabric polled, for what must come.
fn until(node: &Node, what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + node.patience;
    while !done() {
        node.poll();
        std::thread::yield_now();
        assert!(
            Instant::now() < end,
            "{what}: not within {:?}",
            node.patience
        );
    }
}

fn regions_start_as_zeros(nodes: &[Node]) {
    for node in nodes {
        assert_eq!(node.region().len(), REGION_BYTES);
        assert!((0..REGION_BYTES / WORD).all(|at| load(node, at * WORD) == 0));
    }
}

/// Two counters, the second always written after the first: whoever reads
/// them the other way round never sees the second ahead.
fn writes_become_visible_in_order(nodes: &[Node]) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                store(&nodes[0], 0, round);
                store(&nodes[0], 1024, round);
                post(&nodes[0], 1, &[same(0, WORD), same(1024, WORD)]);
            }
        });
        until(&nodes[1], "the last round", || {
            let second = load(&nodes[1], 1024);
            let first = load(&nodes[1], 0);
            assert!(first >= second, "write {second} overtook write {first}");
            second == ROUNDS
        });
    });
}

/// What a source becomes when it was posted is never seen.
fn short_sources_are_free_at_once(nodes: &[Node]) {
    const ROUNDS: u64 = 2000;
    let words = (0..COPIED_BYTES).step_by(WORD);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let all = |value| words.clone().for_each(|at| store(&nodes[0], at, value));
            for round in 1..=ROUNDS {
                all(round);
                post(&nodes[0], 1, &[same(0, COPIED_BYTES)]);
                all(u64::MAX);
            }
        });
        until(&nodes[1], "the last round", || {
            let seen = words.clone().map(|at| load(&nodes[1], at));
            assert!(seen.clone().all(|word| word <= ROUNDS), "a later word");
            seen.min() == Some(ROUNDS)
        });
    });
}

/// Words whose halves are equal stay so.
fn words_are_never_torn(nodes: &[Node]) {
    let words = WORD_ATOMIC_BYTES / WORD;
    let offset = 64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                for at in 0..words {
                    store(&nodes[0], offset + at * WORD, (round << 32) | round);
                }
                post(&nodes[0], 1, &[same(offset, WORD_ATOMIC_BYTES)]);
            }
        });
        until(&nodes[1], "the last round", || {
            (0..words).fold(true, |all, at| {
                let word = load(&nodes[1], offset + at * WORD);
                assert_eq!(word >> 32, word & 0xFFFF_FFFF, "a word was torn");
                all && word & 0xFFFF_FFFF == ROUNDS
            })
        });
    });
}

/// A payload, then a counter behind it; the reader answers with the counter,
/// and only then the payload changes.
fn small_writes_publish_large_ones(nodes: &[Node]) {
    let rounds = ROUNDS / 20;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                for at in 0..PAYLOAD_BYTES / WORD {
                    store(&nodes[0], PAYLOAD + at * WORD, round);
                }
                store(&nodes[0], 0, round);
                post(&nodes[0], 1, &[same(PAYLOAD, PAYLOAD_BYTES), same(0, WORD)]);
                until(&nodes[0], "the answer", || load(&nodes[0], 8) == round);
            }
        });
        for round in 1..=rounds {
            until(&nodes[1], "the counter", || load(&nodes[1], 0) == round);
            for at in 0..PAYLOAD_BYTES / WORD {
                let word = load(&nodes[1], PAYLOAD + at * WORD);
                assert_eq!(word, round, "payload word {at} came after its counter");
            }
            store(&nodes[1], 8, round);
            post(&nodes[1], 0, &[same(8, WORD)]);
        }
    });
}

/// A payload that is not posted, then a counter that is: where a node can look into
/// its peer's region, the payload is there.
fn what_can_be_seen_is_published_too(nodes: &[Node]) {
    let seen = nodes[1].sight_of(0);
    let both = seen.is_some() == nodes[0].sight_of(1).is_some();
    assert!(both, "all nodes see the others' regions, or none");
    assert!(nodes[0].sight_of(0).is_none(), "a node is not its peer");
    let Some(seen) = seen else { return };
    let word = |at| seen.word(at).expect("in the region");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS / 20 {
                for at in 0..PAYLOAD_BYTES / WORD {
                    let place = nodes[0].region().word(PAYLOAD + at * WORD);
                    place
                        .expect("in the region")
                        .store(round, Ordering::Relaxed);
                }
                store(&nodes[0], 0, round);
                post(&nodes[0], 1, &[same(0, WORD)]);
                until(&nodes[0], "the answer", || load(&nodes[0], 8) == round);
            }
        });
        for round in 1..=ROUNDS / 20 {
            until(&nodes[1], "the counter", || load(&nodes[1], 0) == round);
            for at in 0..PAYLOAD_BYTES / WORD {
                let word = word(PAYLOAD + at * WORD).load(Ordering::Relaxed);
                assert_eq!(word, round, "payload word {at} came after its counter");
            }
            store(&nodes[1], 8, round);
            post(&nodes[1], 0, &[same(8, WORD)]);
        }
    });
}

fn reads_see_own_writes(nodes: &[Node]) {
    for round in 1..100 {
        store(&nodes[0], 0, round);
        post(&nodes[0], 1, &[same(0, WORD)]);
        nodes[0].read(1, 512, 0, WORD).expect("the peer lives");
        assert_eq!(load(&nodes[0], 512), round, "a read overtook a write");
    }
}

fn a_fence_leaves_the_source_free(nodes: &[Node]) {
    for round in 1..100 {
        store(&nodes[0], 0, round);
        post(&nodes[0], 1, &[same(0, WORD)]);
        nodes[0].fence(1).expect("the peer lives");
        store(&nodes[0], 0, u64::MAX);
        assert_eq!(
            load(&nodes[1], 0),
            round,
            "what was posted before the fence"
        );
    }
}

fn bad_ranges_are_refused(nodes: &[Node]) {
    let node = &nodes[0];
    let bad = [
        (REGION_BYTES, 0, 8),
        (0, REGION_BYTES, 8),
        (REGION_BYTES - 4, 0, 8),
        (0, usize::MAX - 3, 8),
        (usize::MAX, 0, usize::MAX),
    ];
    store(node, 0, 7);
    for (local, remote, len) in bad {
        // A good write before the bad one is not done either.
        let posted = node.post(1, &[same(0, WORD), Write { local, remote, len }]);
        assert!(matches!(posted, Err(FabricError::BadRange { .. })));
        let read = node.read(1, local, remote, len);
        assert!(matches!(read, Err(FabricError::BadRange { .. })));
    }
    assert_eq!(load(&nodes[1], 0), 0, "a refused post has written");
    for stranger in [0, 2, usize::MAX] {
        let posted = node.post(stranger, &[same(0, WORD)]);
        assert!(matches!(posted, Err(FabricError::NoSuchPeer { .. })));
        let fenced = node.fence(stranger);
        assert!(matches!(fenced, Err(FabricError::NoSuchPeer { .. })));
    }
}

/// Sleeps until the word is there; panics if the time ends it instead.
fn sleep_until(node: &Node, mut ready: impl FnMut() -> bool) {
    let end = Instant::now() + node.patience;
    while !ready() {
        node.sleep(Some(node.patience), &mut ready);
        assert!(Instant::now() < end, "nobody rang");
    }
}

fn a_ring_ends_the_sleep(nodes: &[Node]) {
    std::thread::scope(|scope| {
        let asleep = scope.spawn(|| sleep_until(&nodes[1], || load(&nodes[1], 0) == 1));
        std::thread::sleep(Duration::from_millis(20));
        store(&nodes[0], 0, 1);
        post(&nodes[0], 1, &[same(0, WORD)]);
        nodes[0].ring(1);
        asleep.join().expect("the sleeper wakes");
    });
}

/// Two nodes that wake each other in turn, and sleep in between: one lost ring
/// and both sleep for ever.
fn a_ring_is_never_lost(nodes: &[Node]) {
    let rounds = ROUNDS / 10;
    std::thread::scope(|scope| {
        for (own, peer) in [(0, 1), (1, 0)] {
            let node = &nodes[own];
            scope.spawn(move || {
                for round in 1..=rounds {
                    if own == 1 {
                        sleep_until(node, || load(node, 0) >= round);
                    }
                    store(node, 8, round);
                    let ball = Write {
                        local: 8,
                        remote: 0,
                        len: WORD,
                    };
                    post(node, peer, &[ball]);
                    node.ring(peer);
                    if own == 0 {
                        sleep_until(node, || load(node, 0) >= round);
                    }
                }
            });
        }
    });
}

fn a_node_wakes_itself(nodes: &[Node]) {
    let rung = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asleep = scope.spawn(|| sleep_until(&nodes[0], || rung.load(Ordering::Acquire)));
        std::thread::sleep(Duration::from_millis(5));
        rung.store(true, Ordering::Release);
        nodes[0].ring(0);
        asleep.join().expect("the sleeper wakes");
    });
}

fn posts_are_counted(nodes: &[Node]) {
    let before = nodes[0].posted();
    post(&nodes[0], 1, &[same(0, WORD), same(8, WORD)]);
    post(&nodes[0], 1, &[same(0, WORD)]);
    assert_eq!(nodes[0].posted() - before, 3);
}

/// A node goes while another one sleeps: that one wakes and knows it, and the
/// third is still there.
fn a_death_is_noticed(mut nodes: Vec<Node>) {
    let dead = nodes.remove(1);
    assert!(nodes.iter().all(|node| node.down().is_empty()));
    std::thread::scope(|scope| {
        let asleep = scope.spawn(|| {
            sleep_until(&nodes[0], || {
                nodes[0].poll();
                nodes[0].down().contains(1)
            });
        });
        std::thread::sleep(Duration::from_millis(5));
        drop(dead);
        asleep.join().expect("the sleeper wakes");
    });
    until(&nodes[1], "the death", || nodes[1].down().contains(1));
    until(&nodes[0], "an answer", || {
        matches!(
            nodes[0].post(1, &[same(0, WORD)]),
            Err(FabricError::PeerDown(1)) | Ok(())
        )
    });
    assert!(!nodes[0].down().contains(2));
    // A fabric that cannot cut the dead off does not say so; the living are none of them.
    let dead = NodeSet::EMPTY.with(1);
    assert!(nodes
        .iter()
        .all(|node| node.severed().minus(dead).is_empty()));
    store(&nodes[0], 0, 9);
    post(&nodes[0], 2, &[same(0, WORD)]);
    until(&nodes[1], "a write between the living", || {
        load(&nodes[1], 0) == 9
    });
}
