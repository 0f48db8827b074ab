// SPDX-License-Identifier: GPL-2.0 OR MIT

mod places;
mod shares;
mod traces;

use super::*;
use crate::gid::Gid;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

const LOOK_NS: u64 = 100_000_000;
const MS: u64 = 1_000_000;
/// The user of whatever is said to be nobody else's.
const USER: u32 = 1000;

fn gid(number: u32) -> Gid {
    Gid::from_ipv4((0x0a00_0000 + number).to_be_bytes())
}

/// A node: queue pairs come up and close a look after they were asked for, and requests
/// take as long as the test says.
struct Node {
    pool: Box<Pool>,
    mode: Mode,
    budget: usize,
    now_ns: u64,
    links: HashMap<Gid, LinkState>,
    asked: Vec<Gid>,
    /// Those that were asked for a queue pair, and are again if it is lost.
    wanted: HashSet<Gid>,
    closing: Vec<Gid>,
    uses: HashMap<Gid, Transport>,
    /// Those whose messages go by RC.
    messages_by_rc: Vec<Gid>,
    moves: Vec<(u64, Gid, Transport)>,
    /// How often each was probed.
    probed: HashMap<Gid, u32>,
    opened: usize,
    /// Peers that never answer.
    silent: Vec<Gid>,
    /// Whether queue pairs that come up can carry packets.
    carries_packets: bool,
}

impl Node {
    fn new(mode: Mode, budget: usize) -> Self {
        Self {
            pool: Box::new(Pool::EMPTY),
            mode,
            budget,
            now_ns: 1_000_000_000,
            links: HashMap::new(),
            asked: Vec::new(),
            wanted: HashSet::new(),
            closing: Vec::new(),
            uses: HashMap::new(),
            messages_by_rc: Vec::new(),
            moves: Vec::new(),
            probed: HashMap::new(),
            opened: 0,
            silent: Vec::new(),
            carries_packets: true,
        }
    }

    fn up(&self) -> LinkState {
        LinkState::Up {
            ours: true,
            carries_packets: self.carries_packets,
        }
    }

    fn uses(&self, gid: &Gid) -> Transport {
        self.uses.get(gid).copied().unwrap_or(Transport::Dc)
    }

    fn link(links: &HashMap<Gid, LinkState>, gid: &Gid) -> LinkState {
        links.get(gid).copied().unwrap_or(LinkState::None)
    }

    /// `ops` small requests to a peer since the last look, each of which takes so long by
    /// what carries it.
    fn traffic(&mut self, gid: &Gid, ops: u64, dc_ns: u64, rc_ns: u64) {
        self.traffic_of(USER, gid, ops, dc_ns, rc_ns);
    }

    /// The same of a user's.
    fn traffic_of(&mut self, user: u32, gid: &Gid, ops: u64, dc_ns: u64, rc_ns: u64) {
        let by = self.uses(gid);
        let seen = seen(user, self.now_ns, by, ops, [dc_ns, rc_ns]);
        if by == Transport::Rc || self.messages_by_rc.contains(gid) {
            seen.probed(dc_ns);
        }
        self.pool.see(gid, &seen.take(), self.now_ns);
    }

    /// The same of messages.
    fn messages(&mut self, gid: &Gid, ops: u64, dc_ns: u64, rc_ns: u64) {
        let by = match self.messages_by_rc.contains(gid) {
            true => Transport::Rc,
            false => Transport::Dc,
        };
        let seen = seen(USER, self.now_ns, by, ops, [dc_ns, rc_ns]);
        self.pool.see_messages(gid, &seen.take(), self.now_ns);
    }

    fn look(&mut self) {
        self.now_ns += LOOK_NS;
        for gid in core::mem::take(&mut self.closing) {
            self.links.remove(&gid);
        }
        for gid in core::mem::take(&mut self.asked) {
            if !self.silent.contains(&gid) {
                self.links.insert(gid, self.up());
            }
        }
        let (links, now_ns) = (self.links.clone(), self.now_ns);
        let mut actions = Vec::new();
        let act = |gid: &Gid, action| actions.push((*gid, action));
        self.pool.decide(
            self.mode,
            self.budget,
            |gid| Self::link(&links, gid),
            now_ns,
            act,
        );
        for (gid, action) in actions {
            match action {
                Action::Open => {
                    assert_eq!(Self::link(&links, &gid), LinkState::None);
                    self.asked.push(gid);
                    self.wanted.insert(gid);
                    self.opened += 1;
                }
                Action::Close => {
                    self.asked.retain(|asked| *asked != gid);
                    self.wanted.remove(&gid);
                    let uses = self.uses(&gid);
                    let messages_use_it = self.messages_by_rc.contains(&gid);
                    if let Some(link) = self.links.get_mut(&gid) {
                        assert_eq!(uses, Transport::Dc, "closed while in use");
                        assert!(!messages_use_it, "closed while messages use it");
                        *link = LinkState::Closing;
                        self.closing.push(gid);
                    }
                }
                Action::Use(by) => {
                    self.uses.insert(gid, by);
                    self.moves.push((now_ns, gid, by));
                }
                Action::UseForMessages(by) => {
                    self.messages_by_rc.retain(|other| *other != gid);
                    if by == Transport::Rc {
                        self.messages_by_rc.push(gid);
                    }
                }
                Action::Probe => {
                    assert!(self.uses(&gid) == Transport::Rc || self.messages_by_rc.contains(&gid));
                    *self.probed.entry(gid).or_default() += 1;
                }
            }
        }
    }

    /// A peer that is used evenly for some time.
    fn run(&mut self, gid: &Gid, ms: u64, ops: u64, dc_ns: u64, rc_ns: u64) {
        for _ in 0..ms * MS / LOOK_NS {
            self.traffic(gid, ops, dc_ns, rc_ns);
            self.look();
        }
    }
}

/// A meter that has seen so much traffic by DC or RC, which take so long.
fn seen(user: u32, now_ns: u64, by: Transport, ops: u64, took_ns: [u64; 2]) -> Meter {
    let meter = Meter::new();
    let mut tally = Tally::NEW;
    (0..ops).for_each(|_| tally.count(8));
    tally.hand_on(now_ns, &meter);
    let [dc_ns, rc_ns] = took_ns;
    let took_ns = match by {
        Transport::Dc => dc_ns,
        Transport::Rc => rc_ns,
    };
    for _ in 0..ops.min(25) {
        meter.sample(by, 8, took_ns, Some(user));
    }
    meter
}

/// A peer to which requests and messages go evenly for some time.
fn run_both(node: &mut Node, gid: &Gid, ms: u64, requests: [u64; 2], messages: [u64; 2]) {
    for _ in 0..ms * MS / LOOK_NS {
        node.traffic(gid, 1000, requests[0], requests[1]);
        node.messages(gid, 1000, messages[0], messages[1]);
        node.look();
    }
}

#[test]
fn more_peers_than_are_probed_at_a_look_are_probed_in_turn() {
    let mut node = Node::new(Mode::Auto, 64);
    let peers: Vec<Gid> = (1..=3 * PROBES as u32).map(gid).collect();
    for _ in 0..3000 {
        peers
            .iter()
            .for_each(|peer| node.traffic(peer, 3000, 400_000, 100_000));
        node.look();
    }
    let by_rc = peers.iter().filter(|peer| node.uses(peer) == Transport::Rc);
    assert_eq!(by_rc.count(), peers.len());
    node.probed.clear();
    for round in 1..=10 {
        for _ in 0..3 {
            peers
                .iter()
                .for_each(|peer| node.traffic(peer, 3000, 400_000, 100_000));
            node.look();
        }
        assert!(peers.iter().all(|peer| node.probed[peer] == round));
    }
}

#[test]
fn messages_to_a_pinned_peer_go_the_faster_way() {
    for (dc_ns, rc_ns, goes_by_rc) in [(60_000, 900_000, false), (60_000, 20_000, true)] {
        let (mut node, peer) = (Node::new(Mode::Pinned, 4), gid(1));
        assert!(node.pool.pin(&peer, true, node.now_ns));
        run_both(&mut node, &peer, 5_000, [40_000, 100_000], [dc_ns, rc_ns]);
        assert_eq!(
            node.uses(&peer),
            Transport::Rc,
            "requests are where the pin wants them"
        );
        assert_eq!(node.messages_by_rc.contains(&peer), goes_by_rc);
    }
}

#[test]
fn they_change_when_the_other_way_becomes_the_faster_one() {
    let (mut node, peer) = (Node::new(Mode::Pinned, 4), gid(1));
    assert!(node.pool.pin(&peer, true, node.now_ns));
    for (ms, udp_ns, goes_by_rc) in [
        (5_000, 0, false),
        (3_000, 5_000_000, true),
        (5_000, 0, false),
    ] {
        let (requests, messages) = ([40_000 + udp_ns, 100_000], [60_000 + udp_ns, 900_000]);
        run_both(&mut node, &peer, ms, requests, messages);
        assert_eq!(node.messages_by_rc.contains(&peer), goes_by_rc);
    }
}

#[test]
fn trials_of_slow_messages_are_short_and_rare() {
    let (mut node, peer) = (Node::new(Mode::Pinned, 4), gid(1));
    assert!(node.pool.pin(&peer, true, node.now_ns));
    let (mut looks, mut by_rc) = (0, 0);
    while looks < 36_000 {
        run_both(&mut node, &peer, 100, [40_000, 100_000], [60_000, 900_000]);
        looks += 1;
        by_rc += u64::from(node.messages_by_rc.contains(&peer));
    }
    // An hour.
    assert!(by_rc * LOOK_NS <= 8 * 3 * TRIAL_NS, "{by_rc} looks");
}

#[test]
fn a_peer_that_is_busy_with_messages_alone_gets_a_queue_pair_if_that_pays() {
    for (rc_ns, pays) in [(20_000, true), (900_000, false)] {
        let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
        for _ in 0..150 {
            node.messages(&peer, 1000, 60_000, rc_ns);
            node.look();
        }
        assert_eq!(node.messages_by_rc.contains(&peer), pays);
        assert_eq!(node.links.is_empty(), !pays);
        assert_eq!(node.uses(&peer), Transport::Dc);
        (0..150).for_each(|_| node.look());
        assert!(node.links.is_empty() && node.messages_by_rc.is_empty());
    }
}

#[test]
fn with_rc_for_all_and_by_order_messages_go_by_rc_whatever_that_costs() {
    let (mut node, peer) = (Node::new(Mode::All, 4), gid(1));
    node.pool.force(&peer, Some(Transport::Rc), node.now_ns);
    for _ in 0..2 {
        run_both(
            &mut node,
            &peer,
            2_000,
            [40_000, 100_000],
            [60_000, 900_000],
        );
        assert!(node.messages_by_rc.contains(&peer));
        node.pool.force(&peer, None, node.now_ns);
    }
    node.pool.force(&peer, Some(Transport::Dc), node.now_ns);
    run_both(
        &mut node,
        &peer,
        1_000,
        [40_000, 100_000],
        [60_000, 900_000],
    );
    assert!(node.messages_by_rc.is_empty());
}

#[test]
fn messages_take_no_queue_pair_that_has_broken() {
    let (mut node, peer) = (Node::new(Mode::Pinned, 4), gid(1));
    assert!(node.pool.pin(&peer, true, node.now_ns));
    run_both(&mut node, &peer, 5_000, [40_000, 100_000], [60_000, 20_000]);
    assert!(node.messages_by_rc.contains(&peer));
    node.links.clear();
    node.silent.push(peer);
    node.look();
    assert!(node.messages_by_rc.is_empty());
}

#[test]
fn a_queue_pair_that_is_lost_while_nothing_uses_it_is_asked_for_no_more() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    node.run(&peer, 5_000, 3000, 400_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Rc);
    while node.uses(&peer) == Transport::Rc {
        node.look();
    }
    assert!(node.links.contains_key(&peer) && node.wanted.contains(&peer));
    node.links.clear();
    node.silent.push(peer);
    (0..100).for_each(|_| node.look());
    assert!(node.wanted.is_empty());
}

#[test]
fn one_that_is_asked_for_is_not_given_up_before_it_can_be_there() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    node.silent.push(peer);
    while node.wanted.is_empty() {
        node.run(&peer, 100, 3000, 400_000, 100_000);
    }
    node.run(&peer, 3_000, 3000, 400_000, 100_000);
    assert!(node.wanted.contains(&peer));
}

#[test]
fn messages_leave_a_queue_pair_that_carries_them_no_longer_and_requests_stay() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    let rc_is_faster = [60_000, 20_000];
    run_both(&mut node, &peer, 5_000, rc_is_faster, rc_is_faster);
    assert!(node.messages_by_rc.contains(&peer));
    node.carries_packets = false;
    node.links.insert(peer, node.up());
    node.look();
    assert!(node.messages_by_rc.is_empty());
    run_both(&mut node, &peer, 600_000, rc_is_faster, rc_is_faster);
    assert!(node.messages_by_rc.is_empty());
    assert_eq!((node.uses(&peer), node.opened), (Transport::Rc, 1));
}

#[test]
fn for_messages_alone_queue_pairs_that_cannot_carry_them_are_asked_for_rarely() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    node.carries_packets = false;
    // An hour.
    for _ in 0..36_000 {
        node.messages(&peer, 1000, 60_000, 20_000);
        node.look();
        assert!(node.messages_by_rc.is_empty());
    }
    assert!((1..=8).contains(&node.opened), "{}", node.opened);
}

#[test]
fn no_order_sends_messages_where_they_cannot_go() {
    let (mut node, peer) = (Node::new(Mode::All, 4), gid(1));
    node.carries_packets = false;
    for by in [Some(Transport::Rc), Some(Transport::Dc), None] {
        node.pool.force(&peer, by, node.now_ns);
        run_both(&mut node, &peer, 2_000, [40_000; 2], [60_000; 2]);
        assert!(node.messages_by_rc.is_empty());
        assert_eq!(node.uses(&peer) == Transport::Dc, by == Some(Transport::Dc));
    }
}

#[test]
fn a_busy_peer_moves_to_rc_if_that_is_faster_and_back_if_it_no_longer_is() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    node.run(&peer, 2000, 1000, 400_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Rc);
    assert_eq!(node.moves.len(), 1);
    // DC's packets are no longer delayed.
    node.run(&peer, 5000, 1000, 50_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Dc);
    assert_eq!(node.moves.len(), 2);
    node.run(&peer, 10_000, 1000, 50_000, 100_000);
    assert!(node.links.is_empty(), "an unused queue pair is closed");
}

#[test]
fn it_moves_back_whenever_dc_becomes_the_faster_one() {
    // Also while the pool still sees how long DC takes, and just after DC was tried again
    // because RC has become slower too.
    for slow_ms in (1_000..3_000).step_by(100) {
        for rc_later_ns in [100_000, 250_000] {
            let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
            while node.uses(&peer) == Transport::Dc {
                node.run(&peer, 100, 1000, 400_000, 100_000);
            }
            node.run(&peer, 1_000, 1000, 400_000, 100_000);
            node.run(&peer, slow_ms, 1000, 400_000, rc_later_ns);
            node.run(&peer, 5_000, 1000, 50_000, rc_later_ns);
            assert_eq!(node.uses(&peer), Transport::Dc, "slow for {slow_ms} ms");
        }
    }
}

#[test]
fn where_dc_is_faster_a_trial_is_short_and_rare() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    node.run(&peer, 3_600_000, 1000, 40_000, 100_000);
    // There and back, after 1, 2, 4, 8 and then each 16 minutes.
    assert!(node.moves.len() <= 2 * 8, "{} moves", node.moves.len());
    let mut on_rc_ns = 0;
    for pair in node.moves.chunks(2) {
        let [(from, _, Transport::Rc), (to, _, Transport::Dc)] = pair else {
            panic!("{pair:?}");
        };
        on_rc_ns += to - from;
    }
    assert!(on_rc_ns <= 8 * 3 * TRIAL_NS, "{on_rc_ns} ns");
}

#[test]
fn a_peer_whose_dc_gets_worse_is_tried_on_rc_soon() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    node.run(&peer, 20_000, 1000, 40_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Dc);
    let before_ns = node.now_ns;
    node.run(&peer, 2_000, 1000, 400_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Rc);
    let (moved_ns, ..) = node.moves.last().unwrap();
    assert!(moved_ns - before_ns <= 2_000 * MS);
}

#[test]
fn what_dc_cost_before_it_got_worse_is_not_what_rc_has_to_beat() {
    for worse_ns in [1_000_000, 1_200_000, 2_000_000] {
        let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
        node.run(&peer, 20_000, 1000, 150_000, 1_000_000);
        assert_eq!(node.uses(&peer), Transport::Dc);
        node.run(&peer, 2_000, 1000, worse_ns, 1_000_000);
        assert_eq!(node.uses(&peer), Transport::Rc, "{worse_ns}");
    }
}

#[test]
fn the_first_requests_do_not_speak_for_a_transport() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    // One look with few, which found everything cold.
    node.run(&peer, 100, 16, 3_000_000, 800_000);
    node.run(&peer, 2_000, 1000, 150_000, 800_000);
    assert_eq!((node.uses(&peer), node.moves.len()), (Transport::Dc, 2));
}

#[test]
fn a_peer_that_gets_little_done_because_dc_is_slow_is_busy_too() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    node.run(&peer, 2_000, 20, 4_000_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Rc);
}

#[test]
fn transports_that_are_alike_do_not_flap() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    let mut noise = 7u64;
    for _ in 0..36_000 {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let off = noise >> 33;
        node.traffic(
            &peer,
            500 + off % 1000,
            80_000 + off % 40_000,
            80_000 + off % 39_000,
        );
        node.look();
    }
    // An hour: less than one a minute.
    assert!(node.moves.len() <= 60, "{} moves", node.moves.len());
}

#[test]
fn a_peer_that_is_cold_gets_nothing_and_loses_what_it_has() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    node.run(&peer, 10_000, HOT_PER_SECOND / 50, 400_000, 100_000);
    assert_eq!((node.opened, node.moves.len()), (0, 0));
    node.run(&peer, 2_000, 1000, 400_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Rc);
    node.run(&peer, 15_000, 0, 0, 0);
    assert_eq!(node.uses(&peer), Transport::Dc);
    assert!(node.links.is_empty());
    node.run(&peer, RETRY_NS / MS + 1000, 0, 0, 0);
    assert!(node.pool.is_empty());
}

#[test]
fn a_peer_that_does_not_answer_is_not_asked_again_soon() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    node.silent.push(peer);
    node.run(&peer, 60_000, 1000, 400_000, 100_000);
    assert_eq!(node.opened, 1);
    assert_eq!(node.uses(&peer), Transport::Dc);
    assert!(node.asked.is_empty(), "it is asked no more");
}

#[test]
fn a_queue_pair_that_breaks_leaves_its_peer_on_dc() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    node.run(&peer, 2000, 1000, 400_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Rc);
    node.links.clear();
    node.look();
    assert_eq!(node.uses(&peer), Transport::Dc);
}

#[test]
fn a_pinned_peer_has_one_and_uses_it_until_it_is_unpinned() {
    for mode in [Mode::Auto, Mode::Pinned] {
        let (mut node, peer) = (Node::new(mode, 4), gid(1));
        assert!(node.pool.pin(&peer, true, node.now_ns));
        (0..100).for_each(|_| node.look());
        assert_eq!(node.uses(&peer), Transport::Rc);
        assert!(node.pool.pin(&peer, false, node.now_ns));
        assert!(!node.pool.pin(&peer, false, node.now_ns));
        (0..200).for_each(|_| node.look());
        assert_eq!(node.uses(&peer), Transport::Dc);
        assert!(node.links.is_empty());
        assert_eq!(node.opened, 1);
    }
}

#[test]
fn an_administrator_has_the_last_word() {
    let (mut node, peer) = (Node::new(Mode::Auto, 4), gid(1));
    assert!(node.pool.force(&peer, Some(Transport::Rc), node.now_ns));
    node.run(&peer, 1000, 1000, 40_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Rc);
    assert!(node.pool.force(&peer, Some(Transport::Dc), node.now_ns));
    node.run(&peer, 1000, 1000, 400_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Dc);
    assert_eq!(node.links.len(), 1, "the way back stays open");
    assert!(node.pool.force(&peer, None, node.now_ns));
    node.run(&peer, 2000, 1000, 400_000, 100_000);
    assert_eq!(node.uses(&peer), Transport::Rc);
}

#[test]
fn a_stopwatch_takes_one_time_in_a_tick() {
    let watch = Stopwatch::new();
    assert!(watch.is_due(1));
    watch.start(7, 1, 100);
    assert!(!watch.is_due(2), "it is running");
    assert_eq!(watch.stop(6), None);
    assert_eq!(watch.stop(7), Some(100));
    assert_eq!(watch.stop(7), None);
    assert!(!watch.is_due(1));
    assert!(watch.is_due(2));
}

proptest! {
    #[test]
    fn whatever_happens_the_budget_holds_and_pins_are_kept(
        steps in prop::collection::vec((0u32..40, 0u64..3000, 1u64..1_000_000, 1u64..1_000_000), 1..400),
        pins in prop::collection::vec(0u32..40, 0..3),
        budget in 3usize..8,
        mode in prop_oneof![Just(Mode::Auto), Just(Mode::Pinned), Just(Mode::All)],
    ) {
        let mut node = Node::new(mode, budget);
        for pin in &pins {
            node.pool.pin(&gid(*pin), true, node.now_ns);
        }
        for (number, ops, dc_ns, rc_ns) in steps {
            node.traffic(&gid(number), ops, dc_ns, rc_ns);
            node.messages(&gid(number % 7), 3000 - ops, rc_ns, dc_ns);
            node.carries_packets = number % 11 != 0;
            node.look();
            prop_assert!(node.links.len() + node.asked.len() <= budget + pins.len());
            for (gid, by) in &node.uses {
                let link = Node::link(&node.links, gid);
                prop_assert!(*by == Transport::Dc || link != LinkState::None);
            }
            for gid in &node.messages_by_rc {
                prop_assert!(Node::link(&node.links, gid).carries_packets());
            }
        }
        (0..3).for_each(|_| node.look());
        for pin in &pins {
            prop_assert_eq!(node.uses(&gid(*pin)), Transport::Rc);
        }
    }
}
