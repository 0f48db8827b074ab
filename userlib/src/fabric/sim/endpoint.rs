// SPDX-License-Identifier: MIT OR Apache-2.0

//! A node's own view of the simulated fabric.

use super::{memory, SimNode, State, World};
use crate::fabric::{Connected, Endpoint, Fabric, FabricError, Meeting, NodeSet, Region, Write};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

// SAFETY: the endpoint is that of below.
unsafe impl Fabric for SimNode {
    fn rank(&self) -> usize {
        self.rank
    }

    fn nodes(&self) -> usize {
        self.world.lock().nodes.len()
    }

    fn has_seats(&self) -> bool {
        let state = self.world.lock();
        state.founders != state.nodes.len()
    }

    fn has_sight(&self) -> bool {
        self.world.at_once
    }

    unsafe fn connect(
        self,
        region_bytes: usize,
        hello: &[u8],
        timeout: Duration,
    ) -> Result<Connected, FabricError> {
        let mut state = self.world.lock();
        let at_once = state.at_once;
        let founders = state.founders;
        let is_newcomer = self.incarnation > founders as u64;
        let State { nodes, regions, .. } = &mut *state;
        for (rank, node) in nodes.iter_mut().enumerate() {
            let at_once = at_once && !is_newcomer && rank < founders;
            if node.region.is_none() && (at_once || rank == self.rank) {
                let region = memory::region(region_bytes)?;
                regions.insert(node.seat.incarnation(), region.clone());
                node.region = Some(region);
                node.hello = hello.to_vec();
            }
        }
        self.world.met.notify_all();
        let is_alone = |state: &mut State| {
            state.nodes[..founders]
                .iter()
                .any(|node| node.region.is_none())
        };
        let waited = self.world.met.wait_timeout_while(state, timeout, is_alone);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let absent = (0..founders).filter(|&node| state.nodes[node].region.is_none());
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
                incarnation: self.incarnation,
                nodes: state.nodes.len(),
                region,
                seen: seen.collect(),
                world: Arc::clone(&self.world),
            }),
            hellos: state.nodes.iter().map(|node| node.hello.clone()).collect(),
            meeting: match is_newcomer {
                true => Meeting::Newcomer {
                    incarnation: self.incarnation,
                    met: NodeSet::EMPTY,
                },
                false => Meeting::Founders((0..founders).collect()),
            },
        })
    }
}

/// A node that has met the others.
#[derive(Debug)]
struct SimEndpoint {
    rank: usize,
    incarnation: u64,
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

// SAFETY: links carry what is posted, and nothing else touches the regions but tests.
unsafe impl Endpoint for SimEndpoint {
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

    fn sight_of(&self, peer: usize) -> Option<Region> {
        if peer == self.rank || !self.world.at_once {
            return None;
        }
        let state = self.world.lock();
        let met = state.nodes[self.rank].seat.whom_it_met(peer)?;
        state.regions.get(&met).cloned()
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
            if own.crashed || !own.seat.is_of(self.incarnation) {
                // Nobody is left to be told.
                return Ok(());
            }
            if own.down.contains(peer) {
                return Err(FabricError::PeerDown(peer));
            }
            own.posted += 1;
            own.unrung = own.unrung.with(peer);
            let takes_down = state.nodes[peer].takes_down();
            let is_cut_off = state.severs && takes_down.contains(self.rank);
            if is_cut_off || !state.has_met(self.rank, peer) {
                continue;
            }
            let at = self.rank * self.nodes + peer;
            let State { rng, links, .. } = &mut *state;
            links[at].post(&self.region, *write, rng);
            if self.world.at_once {
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

    fn callers(&self) -> NodeSet {
        self.world.lock().callers(self.rank)
    }

    fn admit(&self, seat: usize) -> Result<u64, FabricError> {
        self.world.lock().admit(self.rank, seat)
    }

    /// Nobody sleeps: it is noted.
    fn ring(&self, node: usize) {
        let own = &mut self.world.lock().nodes[self.rank];
        if own.seat.is_of(self.incarnation) {
            own.unrung = own.unrung.minus(NodeSet::EMPTY.with(node));
        }
    }

    fn sleep(&self, _timeout: Option<Duration>, ready: &mut dyn FnMut() -> bool) {
        ready();
    }

    fn posted(&self) -> u64 {
        self.world.lock().nodes[self.rank].posted
    }
}
