// SPDX-License-Identifier: MIT OR Apache-2.0

//! A fabric in memory, without threads and without a clock: its owner decides when what
//! was posted arrives, and which node crashes at which post. It is as unfriendly as the
//! promises of [`crate::fabric`] allow: the words of a write arrive in any order, parts of
//! it at different times, a source is read as late as it may be. All of it follows from a
//! seed, so that a run can be repeated.
//!
//! Nodes of which each sees the others' regions, as over shared memory, have no links: a
//! post is done when it returns.

mod endpoint;
mod link;
mod memory;
#[cfg(test)]
mod model;
mod seats;
mod shrink;
mod watch;

use super::{NodeSet, Region, MAX_NODES};
use link::{Arrival, Link};
use seats::Seat;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use watch::Watcher;

pub use shrink::{shrink, Plan};
pub use watch::Touch;

/// Drives the nodes' links.
#[derive(Clone, Debug)]
pub struct Sim {
    world: Arc<World>,
}

/// A node, before it meets the others.
#[derive(Debug)]
pub struct SimNode {
    world: Arc<World>,
    rank: usize,
    incarnation: u64,
}

#[derive(Debug)]
struct World {
    /// What is posted has arrived when the post returns, as over shared memory.
    at_once: bool,
    /// Nodes see each other's regions.
    sees: bool,
    state: Mutex<State>,
    met: Condvar,
}

#[derive(Debug)]
struct State {
    rng: fastrand::Rng,
    /// The first node that wants to meet the others meets them at once.
    at_once: bool,
    /// Something may arrive while a node is in the middle of its posts.
    restless: bool,
    /// Who takes a peer for down cuts it off.
    severs: bool,
    watcher: Watcher,
    /// Nodes that meet at the beginning. The others are empty seats.
    founders: usize,
    /// Newcomers so far, and the founders.
    incarnations: u64,
    nodes: Vec<Node>,
    /// All that there have been, by incarnation.
    regions: BTreeMap<u64, Region>,
    /// From node `a` to node `b` at `a * nodes + b`.
    links: Vec<Link>,
}

#[derive(Debug, Default)]
struct Node {
    region: Option<Region>,
    hello: Vec<u8>,
    /// Whose seat it is.
    seat: Seat,
    crashed: bool,
    /// Posts until it crashes, if it will.
    posts_left: Option<u64>,
    /// The nodes that it knows to be down.
    down: NodeSet,
    /// Those that it takes for down, though nothing keeps its posts from them.
    suspected: NodeSet,
    posted: u64,
    /// Peers to which it has posted, and which it has not rung since.
    unrung: NodeSet,
}

impl Node {
    /// All that it takes for down, right or wrong.
    fn takes_down(&self) -> NodeSet {
        self.down.union(self.suspected)
    }
}

impl Sim {
    /// So many nodes, and what drives their links. With `sees`, each sees the others'
    /// regions.
    ///
    /// # Panics
    ///
    /// If there are to be none, or more than [`MAX_NODES`].
    #[must_use]
    pub fn new(nodes: usize, seed: u64, sees: bool) -> (Self, Vec<SimNode>) {
        Self::with_seats(nodes, nodes, seed, sees)
    }

    /// As [`Self::new`], with some seats more than nodes, which are empty at first. With
    /// `at_once` nothing is under way for any time, and each sees the region of whom it has met
    /// in a seat.
    ///
    /// # Panics
    ///
    /// As [`Self::new`].
    #[must_use]
    pub fn with_seats(
        founders: usize,
        seats: usize,
        seed: u64,
        at_once: bool,
    ) -> (Self, Vec<SimNode>) {
        assert!((1..=MAX_NODES).contains(&seats), "{seats} nodes");
        assert!((1..=seats).contains(&founders), "{founders} of {seats}");
        let world = Arc::new(World {
            at_once,
            sees: at_once && founders == seats,
            state: Mutex::new(State {
                rng: fastrand::Rng::with_seed(seed),
                at_once: false,
                restless: true,
                severs: false,
                watcher: Watcher::default(),
                founders,
                incarnations: founders as u64,
                regions: BTreeMap::new(),
                nodes: (0..seats).map(|seat| Node::of(seat, founders)).collect(),
                links: (0..seats * seats).map(|_| Link::default()).collect(),
            }),
            met: Condvar::new(),
        });
        let node = |rank| SimNode {
            world: Arc::clone(&world),
            rank,
            incarnation: rank as u64 + 1,
        };
        let nodes = (0..founders).map(node).collect();
        (Self { world }, nodes)
    }

    /// From now on no node waits for others when it meets them: all have regions and hellos
    /// like its own. So one thread can let all of them meet.
    pub fn meet_at_once(&self) {
        self.world.lock().at_once = true;
    }

    /// Links on which something is under way.
    #[must_use]
    pub fn busy_links(&self) -> Vec<(usize, usize)> {
        let state = self.world.lock();
        let count = state.nodes.len();
        let busy = (0..state.links.len()).filter(|&at| !state.links[at].is_empty());
        busy.map(|at| (at / count, at % count)).collect()
    }

    /// Lets the next part of what is under way from one node to another arrive.
    pub fn advance(&self, from: usize, to: usize) {
        self.world.lock().advance(from, to);
    }

    /// Lets a node crash when it has posted so many writes more. What it does behind that,
    /// until its owner notices ([`Self::has_crashed`]), reaches nobody.
    pub fn crash_after(&self, node: usize, posts: u64) {
        self.world.lock().nodes[node].posts_left = Some(posts);
    }

    /// Lets a node crash now.
    pub fn crash(&self, node: usize) {
        self.world.lock().nodes[node].crashed = true;
    }

    /// Whether a node has crashed.
    #[must_use]
    pub fn has_crashed(&self, node: usize) -> bool {
        self.world.lock().nodes[node].crashed
    }

    /// Lets what a crashed node has under way be lost, from a random point on.
    pub fn lose(&self, node: usize) {
        let mut state = self.world.lock();
        let State {
            rng, nodes, links, ..
        } = &mut *state;
        let count = nodes.len();
        for link in &mut links[node * count..][..count] {
            link.lose(rng);
        }
    }

    /// Puts a word into a node's memory that nobody has posted.
    ///
    /// # Panics
    ///
    /// If there is no such word.
    pub fn scribble(&self, node: usize, offset: usize, word: u64) {
        let state = self.world.lock();
        let region = state.nodes[node].region.as_ref();
        let place = region.and_then(|region| region.word(offset).ok());
        place.expect("a word").store(word, Ordering::Release);
    }

    /// Whether a node has posted to somebody whom it has not rung since: that one may sleep.
    #[must_use]
    pub fn owes_rings(&self, node: usize) -> bool {
        !self.world.lock().nodes[node].unrung.is_empty()
    }

    /// A node learns that another one is down; nothing goes from it to that one any more.
    /// The other may be up: then the link between them is broken in this direction.
    pub fn notice(&self, node: usize, down: usize) {
        let mut state = self.world.lock();
        state.nodes[node].down = state.nodes[node].down.with(down);
        if state.severs {
            state.lose_all(node, down);
            state.lose_all(down, node);
        }
    }

    /// A node takes another one for down. What it posts to that one arrives all the same.
    pub fn suspect(&self, node: usize, other: usize) {
        let mut state = self.world.lock();
        state.nodes[node].suspected = state.nodes[node].suspected.with(other);
        if state.severs {
            state.lose_all(other, node);
        }
    }

    /// From now on a node that takes another one for down cuts it off: what that one has
    /// under way to the node, or posts to it yet, is lost.
    pub fn sever(&self) {
        self.world.lock().severs = true;
    }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Only an assertion of a test panics, after which nothing is looked at any more.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn advance(&mut self, from: usize, to: usize) {
        let at = from * self.nodes.len() + to;
        if let Some(target) = &self.nodes[to].region {
            let watcher = &mut self.watcher;
            let own = (from, self.nodes[from].region.as_ref());
            let mut touch = |arrival: &Arrival<'_>| watcher.sees(own, to, arrival);
            self.links[at].advance(target, &mut self.rng, &mut touch);
        }
    }

    fn lose_all(&mut self, from: usize, to: usize) {
        let at = from * self.nodes.len() + to;
        self.links[at].lose_all();
    }

    /// Whether nothing that one node posts can reach the other any more, nor the other way
    /// round.
    fn are_severed(&self, node: usize, peer: usize) -> bool {
        let count = self.nodes.len();
        let ways = [node * count + peer, peer * count + node];
        let is_idle = ways.iter().all(|&way| self.links[way].is_empty());
        is_idle && (self.severs || self.nodes[peer].crashed || !self.has_met(node, peer))
    }

    /// Now and then something arrives somewhere while a node is in the middle of its posts.
    fn meanwhile(&mut self) {
        if self.restless && self.rng.u8(..) < 64 {
            let (from, to) = (0..self.nodes.len(), 0..self.nodes.len());
            let (from, to) = (self.rng.usize(from), self.rng.usize(to));
            self.advance(from, to);
        }
    }

    /// Lets all arrive that is under way on a link.
    fn flush(&mut self, from: usize, to: usize) {
        let at = from * self.nodes.len() + to;
        while !self.links[at].is_empty() {
            self.advance(from, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{Endpoint, Fabric, FabricError, Write};
    use std::time::Duration;

    const BYTES: usize = 4096;

    fn pair(seed: u64, sees: bool) -> (Sim, Vec<Arc<dyn Endpoint>>) {
        let (sim, nodes) = Sim::new(2, seed, sees);
        let meet = |node: SimNode| {
            std::thread::spawn(move || {
                // SAFETY: only words are looked at, and all else is one thread's.
                let met = unsafe { node.connect(BYTES, &[], Duration::from_secs(20)) };
                met.expect("they meet").endpoint
            })
        };
        let meeting: Vec<_> = nodes.into_iter().map(meet).collect();
        let met = meeting
            .into_iter()
            .map(|node| node.join().expect("it meets"));
        (sim, met.collect())
    }

    fn put(node: &dyn Endpoint, at: usize, value: u64) {
        let word = node.region().word(at).expect("a word");
        word.store(value, Ordering::Relaxed);
    }

    fn at(node: &dyn Endpoint, at: usize) -> u64 {
        let word = node.region().word(at).expect("a word");
        word.load(Ordering::Relaxed)
    }

    fn same(at: usize, len: usize) -> Write {
        Write {
            local: at,
            remote: at,
            len,
        }
    }

    #[test]
    fn writes_arrive_in_their_order_and_words_in_any() {
        let (mut any_order, mut parts) = (false, false);
        for seed in 0..200 {
            let (sim, nodes) = pair(seed, false);
            (0..3).for_each(|word| put(&*nodes[0], word * 8, 1));
            put(&*nodes[0], 1024, 2);
            nodes[0]
                .post(1, &[same(0, 24), same(1024, 8)])
                .expect("a post");
            while !sim.busy_links().is_empty() {
                sim.advance(0, 1);
                let words = [0, 8, 16].map(|word| at(&*nodes[1], word));
                any_order |= words[0] < words[1];
                parts |= words.contains(&0) && words.contains(&1);
                // The second write is behind the whole first one.
                assert!(at(&*nodes[1], 1024) == 0 || words == [1; 3], "seed {seed}");
            }
            assert_eq!(at(&*nodes[1], 1024), 2);
        }
        assert!(any_order && parts);
    }

    #[test]
    fn long_sources_are_read_late_and_short_ones_at_once() {
        let mut late = false;
        for seed in 0..100 {
            let (sim, nodes) = pair(seed, false);
            nodes[0]
                .post(1, &[same(0, 512), same(1024, 8)])
                .expect("a post");
            put(&*nodes[0], 0, 7);
            put(&*nodes[0], 1024, 7);
            while !sim.busy_links().is_empty() {
                sim.advance(0, 1);
            }
            late |= at(&*nodes[1], 0) == 7;
            assert_eq!(at(&*nodes[1], 1024), 0, "a short source is copied");
        }
        assert!(late);
    }

    #[test]
    fn a_crash_ends_what_is_posted_behind_it() {
        let (sim, nodes) = pair(1, true);
        sim.crash_after(0, 1);
        put(&*nodes[0], 0, 1);
        put(&*nodes[0], 8, 1);
        nodes[0]
            .post(1, &[same(0, 8), same(8, 8)])
            .expect("nobody is told");
        assert!(sim.has_crashed(0));
        assert_eq!([0, 8].map(|word| at(&*nodes[1], word)), [1, 0]);
        sim.notice(1, 0);
        assert_eq!(
            nodes[1].post(0, &[same(0, 8)]),
            Err(FabricError::PeerDown(0))
        );
    }
}
