// SPDX-License-Identifier: MIT OR Apache-2.0

//! Members that are stepped by hand, in any order that a test, or chance,
//! chooses: no polling threads, no clock, so that posts can be counted.

use super::config::{self, Kind, Subgroup};
use super::deliverer::Deliverer;
use super::layout::Layout;
use super::member::{Delivery, Member};
use super::metrics::Metrics;
use super::opening::Opening;
use super::sender::Sender;
use super::shared::{Shared, Status};
use super::{Group, Options, SendError};
use crate::fabric::{shm::Shm, Endpoint, Fabric};
use crate::predicates::Outcome;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Log = Arc<Mutex<Vec<(usize, u64, Vec<u8>)>>>;

struct Node {
    endpoint: Arc<dyn Endpoint>,
    shared: Arc<Shared>,
    member: Member,
    sender: Option<Sender>,
    log: Log,
    sent: u64,
}

impl Node {
    /// Sends its next message, if there is room.
    fn try_send(&mut self) -> bool {
        let Some(sender) = &self.sender else {
            return false;
        };
        let number = self.sent;
        let sent = sender.try_send(|slot| slot.put(&number.to_le_bytes()));
        match sent {
            Ok(()) => self.sent += 1,
            Err(error) => assert_eq!(error, SendError::Full),
        }
        sent.is_ok()
    }

    fn step(&mut self) -> bool {
        self.member.step() == Outcome::Fired
    }

    fn metrics(&self) -> Metrics {
        self.shared.counts.snapshot()
    }

    fn delivered(&self) -> Vec<(usize, u64, Vec<u8>)> {
        self.log.lock().expect("no panic").clone()
    }
}

fn nodes(count: usize, subgroup: &Subgroup) -> Vec<Node> {
    let specs = config::check(vec![subgroup.clone()], count).expect("a subgroup");
    let layout = Layout::new(&specs, count, Kind::Fixed, true).expect("a layout");
    let joining: Vec<_> = Shm::threads(count)
        .expect("a fabric")
        .into_iter()
        .map(|node| {
            let bytes = layout.region_bytes[node.rank()];
            std::thread::spawn(move || {
                // SAFETY: all nodes have the layout of one subgroup.
                unsafe { node.connect(bytes, &[], Duration::from_secs(20)) }
            })
        })
        .collect();
    joining
        .into_iter()
        .map(|thread| {
            let met = thread.join().expect("no panic").expect("they meet");
            node(met.endpoint, &specs[0], &layout)
        })
        .collect()
}

fn node(endpoint: Arc<dyn Endpoint>, spec: &config::Spec, layout: &Layout) -> Node {
    let places = &layout.subgroups[0];
    let status = Arc::new(Status::default());
    let shared = Arc::new(Shared::new(spec.clone(), Arc::clone(&endpoint), status));
    let opening = Opening::of(spec, places);
    let deliverer = Deliverer::new(Arc::clone(&shared), places, &opening).expect("a deliverer");
    let log = Log::default();
    let kept = Arc::clone(&log);
    let upcall = Box::new(move |batch: &mut super::Batch<'_>| {
        let messages =
            batch.map(|message| (message.sender, message.sequence, message.bytes.to_vec()));
        kept.lock().expect("no panic").extend(messages);
    });
    let delivery = Delivery::Upcall(Box::new(deliverer), upcall);
    let rank = endpoint.rank();
    let index = spec.senders.iter().position(|&node| node == rank);
    let ring = index.and_then(|index| places.ring(rank, index));
    Node {
        member: Member::new(Arc::clone(&shared), places, &opening, delivery).expect("a member"),
        sender: ring.map(|base| Sender::new(Arc::clone(&shared), base)),
        endpoint,
        shared,
        log,
        sent: 0,
    }
}

/// Steps all in turn until none has anything to do.
fn settle(nodes: &mut [Node]) {
    for _ in 0..100_000 {
        let fired = nodes.iter_mut().map(Node::step);
        if !fired.fold(false, |any, fired| any | fired) {
            return;
        }
    }
    panic!("they do not come to rest");
}

fn posts(nodes: &[Node]) -> u64 {
    nodes.iter().map(|node| node.endpoint.posted()).sum()
}

fn assert_all_delivered(nodes: &[Node]) {
    let sent: u64 = nodes.iter().map(|node| node.sent).sum();
    let first = nodes[0].delivered();
    assert_eq!(first.len() as u64, sent, "not everything was delivered");
    for node in nodes {
        assert_eq!(node.delivered(), first, "another order");
    }
    for (sender, node) in nodes.iter().enumerate() {
        let own = first.iter().filter(|message| message.0 == sender);
        let numbers: Vec<Vec<u8>> = own.map(|message| message.2.clone()).collect();
        let expected: Vec<Vec<u8>> = (0..node.sent)
            .map(|number| number.to_le_bytes().to_vec())
            .collect();
        assert_eq!(numbers, expected, "sender {sender}'s own order");
    }
}

fn subgroup(window: usize) -> Subgroup {
    Subgroup::new("test").window(window).max_message(16)
}

#[derive(Clone, Debug)]
enum Act {
    Send(usize),
    Step(usize),
}

fn acts(nodes: usize) -> impl Strategy<Value = Vec<Act>> {
    // How eager each sender is, some never: any mix of rates.
    let eagerness = prop::collection::vec(prop_oneof![Just(0_u32), 1_u32..20], nodes);
    eagerness.prop_flat_map(move |eagerness| {
        let weighted: Vec<(u32, BoxedStrategy<Act>)> = eagerness
            .into_iter()
            .enumerate()
            .flat_map(|(node, weight)| {
                let step = (5, Just(Act::Step(node)).boxed());
                let send = (weight, Just(Act::Send(node)).boxed());
                [step, send].into_iter().filter(|act| act.0 > 0)
            })
            .collect();
        prop::collection::vec(prop::strategy::Union::new_weighted(weighted), 0..600)
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// No stall, at any mix of rates and in any interleaving (§III.B,
    /// correctness), and quiescence behind it.
    #[test]
    fn everything_sent_is_delivered_everywhere_in_one_order(
        (count, acts) in (1_usize..6).prop_flat_map(|count| (Just(count), acts(count))),
        window in 1_usize..8,
        early in any::<bool>(),
        batching in any::<bool>(),
    ) {
        let options = Options {
            early_lock_release: early,
            delivery_batching: batching,
            receive_batching: batching,
            send_batching: batching,
            nulls: true,
        };
        let mut nodes = nodes(count, &subgroup(window).options(options));
        for act in acts {
            match act {
                Act::Send(node) => { nodes[node].try_send(); }
                Act::Step(node) => { nodes[node].step(); }
            }
        }
        settle(&mut nodes);
        assert_all_delivered(&nodes);
        let before = posts(&nodes);
        prop_assert!(nodes.iter_mut().all(|node| !node.step()));
        prop_assert_eq!(posts(&nodes), before);
    }
}

/// Sends a number of messages from each of `active`, as fast as windows allow.
fn stream(nodes: &mut [Node], active: &[usize], messages: u64) {
    while active.iter().any(|&node| nodes[node].sent < messages) {
        for &node in active {
            while nodes[node].sent < messages && nodes[node].try_send() {}
        }
        for node in nodes.iter_mut() {
            node.step();
        }
    }
    settle(nodes);
    assert_all_delivered(nodes);
}

#[test]
fn a_single_active_sender_posts_as_if_it_were_the_only_one() {
    let mut posted = Vec::new();
    for senders in 1..=4 {
        let mut nodes = nodes(4, &subgroup(10).senders(0..senders));
        for burst in 1..=100 {
            stream(&mut nodes, &[0], 10 * burst);
        }
        let messages: u64 = nodes.iter().map(|node| node.metrics().message_posts).sum();
        posted.push((messages, posts(&nodes)));
    }
    for with_silent in &posted[1..] {
        assert_eq!(with_silent.0, posted[0].0, "nulls travel as messages");
        // The silent ones tell one another how far they are, which is state
        // that a receiver would push too, a step later.
        let (all, alone) = (with_silent.1, posted[0].1);
        assert!(all * 2 <= alone * 3, "{all} posts instead of {alone}");
    }
}

#[test]
fn no_nulls_are_sent_while_everybody_sends() {
    let run = |nulls| {
        let options = Options {
            nulls,
            ..Options::FULL
        };
        let mut nodes = nodes(3, &subgroup(10).options(options));
        for _ in 0..1000 {
            for node in &mut nodes {
                assert!(node.try_send(), "the window was delivered");
            }
            settle(&mut nodes);
        }
        assert_all_delivered(&nodes);
        let nulls: u64 = nodes.iter().map(|node| node.metrics().nulls).sum();
        (nulls, posts(&nodes))
    };
    let (with, without) = (run(true), run(false));
    assert_eq!(with.0, 0);
    assert!(
        with.1 * 100 <= without.1 * 105,
        "{} posts, {}",
        with.1,
        without.1
    );
}

#[test]
fn a_silent_group_posts_nothing() {
    let mut nodes = nodes(3, &subgroup(4));
    settle(&mut nodes);
    assert_eq!(posts(&nodes), 0);
    stream(&mut nodes, &[1], 1);
    let before = posts(&nodes);
    for node in &mut nodes {
        assert!((0..1000).all(|_| !node.step()));
    }
    assert_eq!(posts(&nodes), before);
}

#[test]
fn without_nulls_a_silent_sender_stalls_the_others() {
    let options = Options {
        nulls: false,
        ..Options::FULL
    };
    let mut nodes = nodes(2, &subgroup(4).options(options));
    assert!(nodes[1].try_send());
    settle(&mut nodes);
    assert_eq!(nodes[0].delivered(), []);
    assert!(nodes[0].try_send());
    settle(&mut nodes);
    assert_all_delivered(&nodes);
}

#[test]
fn a_null_goes_past_a_slot_that_the_application_holds() {
    let mut nodes = nodes(2, &subgroup(2));
    let sender = nodes[0].sender.clone().expect("it sends");
    sender
        .send(|slot| {
            // Held, while the other one fills its window twice.
            for _ in 0..2 {
                while nodes[1].try_send() {}
                settle(&mut nodes);
            }
            assert_eq!(nodes[0].delivered().len(), 4);
            slot.put(&0_u64.to_le_bytes());
        })
        .expect("it is sent");
    nodes[0].sent = 1;
    settle(&mut nodes);
    assert_all_delivered(&nodes);
}

#[test]
fn a_message_that_is_too_long_is_not_sent() {
    let mut nodes = nodes(1, &subgroup(1));
    let sender = nodes[0].sender.clone().expect("it sends");
    for build in [
        |slot: &mut super::Slot<'_>| slot.put(&[1; 17]),
        |slot: &mut super::Slot<'_>| slot.set_len(17),
    ] {
        let too_long = SendError::TooLong { len: 17, room: 16 };
        assert_eq!(sender.try_send(build), Err(too_long));
        settle(&mut nodes);
    }
    // Its slot, the only one, is free again.
    sender.try_send(|slot| slot.put(&[2; 16])).expect("room");
    settle(&mut nodes);
    let bytes: Vec<_> = nodes[0]
        .delivered()
        .into_iter()
        .map(|message| message.2)
        .collect();
    assert_eq!(bytes, [vec![2; 16]]);
}

#[test]
fn the_full_ladder_posts_a_fraction_of_the_baseline() {
    let run = |options| {
        let mut nodes = nodes(2, &subgroup(100).options(options));
        stream(&mut nodes, &[0, 1], 2000);
        posts(&nodes)
    };
    let (baseline, full) = (run(Options::BASELINE), run(Options::FULL));
    assert!(baseline >= 9 * full, "{baseline} posts, {full}");
}

#[test]
fn unordered_members_deliver_at_once_and_free_the_window() {
    let mut nodes = nodes(3, &subgroup(2).senders([0, 1]).unordered());
    for round in 1..=10 {
        while nodes[1].try_send() {}
        nodes[1].step();
        nodes[2].step();
        // Nobody waited for node 0.
        assert_eq!(nodes[2].delivered().len(), 2 * round);
        settle(&mut nodes);
    }
    assert_eq!(nodes[0].delivered().len(), 20);
    assert!(nodes.iter().all(|node| node.metrics().nulls == 0));
}

#[test]
fn a_closure_that_panics_sends_nothing_and_blocks_nobody() {
    let mut nodes = nodes(2, &subgroup(2));
    let sender = nodes[0].sender.clone().expect("it sends");
    for _ in 0..5 {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            sender.try_send(|_| panic!("on purpose")).expect("room");
        }));
        assert!(panicked.is_err());
        settle(&mut nodes);
    }
    stream(&mut nodes, &[0, 1], 5);
}

#[test]
fn a_founder_whose_delivery_panics_has_joined() {
    let node = Shm::threads(1).expect("a fabric").remove(0);
    let mut builder = Group::builder(node).with_views();
    let handle = builder.subgroup(subgroup(1));
    let group = builder.deliver(handle, |_| panic!("on purpose"));
    let group = group.join_stepped().expect("a group");
    while group.step() {}
    let sender = group.sender(handle).expect("it sends");
    sender.try_send(|_| ()).expect("room");
    let step = std::panic::AssertUnwindSafe(|| while group.step() {});
    assert!(std::panic::catch_unwind(step).is_err());
    // Nothing of the group goes on behind a panic.
    group.step();
    assert!(group.is_out());
    assert_eq!(group.wait_until_in(Instant::now()), Ok(()));
}
