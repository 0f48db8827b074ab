// SPDX-License-Identifier: MIT OR Apache-2.0

//! A fabric in memory, without threads and without a clock: its owner decides when what
//! was posted arrives, and which node crashes at which post. It is as unfriendly as the
//! promises of [`crate::fabric`] allow: the words of a write arrive in any order, parts of
//! it at different times, a source is read as late as it may be. All of it follows from a
//! seed, so that a run can be repeated.
//!
//! Nodes of which each sees the others' regions, as over shared memory, have no links: a
//! post is done when it returns.

mod link;
mod memory;
#[cfg(test)]
mod model;

mod watch;

use super::{Connected, Endpoint, Fabric, FabricError, NodeSet, Region, Write, MAX_NODES};
use link::{Arrival, Link};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
pub use watch::Touch;
use watch::Watcher;

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
}

#[derive(Debug)]
struct World {
    /// Whether nodes see each other's regions.
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
    nodes: Vec<Node>,
    /// From node `a` to node `b` at `a * nodes + b`.
    links: Vec<Link>,
}

#[derive(Debug, Default)]
struct Node {
    region: Option<Region>,
    hello: Vec<u8>,
    crashed: bool,
    /// Posts until it crashes, if it will.
    posts_left: Option<u64>,
    /// The nodes that it knows to be down.
    down: NodeSet,
    /// Those that it takes for down, though nothing keeps its posts from them.
    suspected: NodeSet,
    posted: u64,
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
        assert!((1..=MAX_NODES).contains(&nodes), "{nodes} nodes");
        let world = Arc::new(World {
            sees,
            state: Mutex::new(State {
                rng: fastrand::Rng::with_seed(seed),
                at_once: false,
                restless: true,
                severs: false,
                watcher: Watcher::default(),
                nodes: (0..nodes).map(|_| Node::default()).collect(),
                links: (0..nodes * nodes).map(|_| Link::default()).collect(),
            }),
            met: Condvar::new(),
        });
        let node = |rank| SimNode {
            world: Arc::clone(&world),
            rank,
        };
        let nodes = (0..nodes).map(node).collect();
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
        let regions = (&self.nodes[from].region, &self.nodes[to].region);
        if let (Some(source), Some(target)) = regions {
            let watcher = &mut self.watcher;
            let mut touch = |arrival: &Arrival<'_>| watcher.sees(from, to, arrival);
            self.links[at].advance(source, target, &mut self.rng, &mut touch);
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
        is_idle && (self.severs || self.nodes[peer].crashed)
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

impl Fabric for SimNode {
    fn rank(&self) -> usize {
        self.rank
    }

    fn nodes(&self) -> usize {
        self.world.lock().nodes.len()
    }

    fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        let mut state = self.world.lock();
        let at_once = state.at_once;
        for (rank, node) in state.nodes.iter_mut().enumerate() {
            if node.region.is_none() && (at_once || rank == self.rank) {
                node.region = Some(memory::region(region_bytes)?);
                node.hello = hello.to_vec();
            }
        }
        self.world.met.notify_all();
        let is_alone = |state: &mut State| state.nodes.iter().any(|node| node.region.is_none());
        let waited = self.world.met.wait_timeout_while(state, timeout, is_alone);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let absent = (0..state.nodes.len()).filter(|&node| state.nodes[node].region.is_none());
        let absent: NodeSet = absent.collect();
        if !absent.is_empty() {
            return Err(FabricError::Timeout { missing: absent });
        }
        let region = state.nodes[self.rank].region.clone();
        let region = region.ok_or(FabricError::BadRegion(region_bytes))?;
        let seen = state.nodes.iter().map(|node| match self.world.sees {
            true => node.region.clone(),
            false => None,
        });
        Ok(Connected {
            endpoint: Arc::new(SimEndpoint {
                rank: self.rank,
                nodes: state.nodes.len(),
                region,
                seen: seen.collect(),
                world: Arc::clone(&self.world),
            }),
            hellos: state.nodes.iter().map(|node| node.hello.clone()).collect(),
        })
    }
}

/// A node that has met the others.
#[derive(Debug)]
struct SimEndpoint {
    rank: usize,
    nodes: usize,
    region: Region,
    /// The regions that it sees.
    seen: Vec<Option<Region>>,
    world: Arc<World>,
}

impl SimEndpoint {
    fn check(&self, state: &State, peer: usize) -> Result<Region, FabricError> {
        let region = state.nodes.get(peer).filter(|_| peer != self.rank);
        let region = region.and_then(|node| node.region.clone());
        region.ok_or(FabricError::NoSuchPeer {
            peer,
            nodes: self.nodes,
        })
    }
}

impl Endpoint for SimEndpoint {
    fn rank(&self) -> usize {
        self.rank
    }

    fn nodes(&self) -> usize {
        self.nodes
    }

    fn region(&self) -> &Region {
        &self.region
    }

    fn region_of(&self, peer: usize) -> Option<&Region> {
        let other = peer != self.rank;
        self.seen.get(peer)?.as_ref().filter(|_| other)
    }

    fn post(&self, peer: usize, writes: &[Write]) -> Result<(), FabricError> {
        let mut state = self.world.lock();
        let target = self.check(&state, peer)?;
        for write in writes {
            self.region.range(write.local, write.len)?;
            target.range(write.remote, write.len)?;
        }
        for write in writes {
            let own = &mut state.nodes[self.rank];
            if own.posts_left == Some(0) {
                own.crashed = true;
            }
            own.posts_left = own.posts_left.map(|left| left.saturating_sub(1));
            if own.crashed {
                // Nobody is left to be told.
                return Ok(());
            }
            if own.down.contains(peer) {
                return Err(FabricError::PeerDown(peer));
            }
            own.posted += 1;
            let takes_down = state.nodes[peer].takes_down();
            if state.severs && takes_down.contains(self.rank) {
                continue;
            }
            let at = self.rank * self.nodes + peer;
            let State { rng, links, .. } = &mut *state;
            links[at].post(&self.region, *write, rng);
            if self.world.sees {
                state.flush(self.rank, peer);
            }
            state.meanwhile();
        }
        Ok(())
    }

    fn read(
        &self,
        peer: usize,
        local: usize,
        remote: usize,
        len: usize,
    ) -> Result<(), FabricError> {
        let mut state = self.world.lock();
        let source = self.check(&state, peer)?;
        source.range(remote, len)?;
        self.region.range(local, len)?;
        if state.nodes[self.rank].down.contains(peer) {
            return Err(FabricError::PeerDown(peer));
        }
        state.flush(self.rank, peer);
        memory::copy(&source, remote, &self.region, local, len);
        Ok(())
    }

    fn fence(&self, peer: usize) -> Result<(), FabricError> {
        let mut state = self.world.lock();
        self.check(&state, peer)?;
        if state.nodes[self.rank].down.contains(peer) {
            return Err(FabricError::PeerDown(peer));
        }
        state.flush(self.rank, peer);
        Ok(())
    }

    fn poll(&self) {}

    fn down(&self) -> NodeSet {
        self.world.lock().nodes[self.rank].takes_down()
    }

    fn severed(&self) -> NodeSet {
        let state = self.world.lock();
        let down = state.nodes[self.rank].takes_down();
        down.iter()
            .filter(|&peer| state.are_severed(self.rank, peer))
            .collect()
    }

    /// Nobody sleeps.
    fn ring(&self, _node: usize) {}

    fn sleep(&self, _timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        ready();
    }

    fn posted(&self) -> u64 {
        self.world.lock().nodes[self.rank].posted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 4096;

    fn pair(seed: u64, sees: bool) -> (Sim, Vec<Arc<dyn Endpoint>>) {
        let (sim, nodes) = Sim::new(2, seed, sees);
        let meet = |node: SimNode| {
            std::thread::spawn(move || {
                let met = node.connect(BYTES, &[], Duration::from_secs(20));
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
