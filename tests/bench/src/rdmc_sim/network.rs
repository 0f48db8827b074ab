// SPDX-License-Identifier: MIT OR Apache-2.0

//! Links of nodes and racks, and how long a block takes across them.
//!
//! Each direction of a node's link is a server: one block at a time, first come,
//! first served. A block is not stored on its way: it enters the target's link
//! while it leaves the sender's, and is there when its last bit has passed the
//! slower one. A rack's links to the others are one server each way, as fast as
//! all of them together, as if routes were spread perfectly: a block passes when
//! the rack has carried all that came before it.
//!
//! That is not a model of packets. Blocks that meet on a link would share it and
//! both end late; here one waits for the other, which takes as long for both
//! together. What waits for a link holds up nobody on those before it, as if
//! switches had room for all: senders that wait for a target's
//! `ready_for_block`, a few blocks at a time, do not fill them.

use super::case::{Links, Racks};

/// Nanoseconds since the multicasts began.
pub type Ns = u64;

/// All links.
pub struct Network<'a> {
    links: &'a Links,
    nodes: Vec<Duplex>,
    /// How many times as long the links of a node take.
    slowness: Vec<f64>,
    racks: Vec<Duplex>,
    crossings: u64,
}

/// When each direction of a link will be free.
#[derive(Clone, Copy, Default)]
struct Duplex {
    out_free_ns: Ns,
    in_free_ns: Ns,
}

impl<'a> Network<'a> {
    /// Idle links of so many nodes.
    pub fn new(links: &'a Links, nodes: usize) -> Self {
        let mut slowness = vec![1.0; nodes];
        for &node in &links.slow.nodes {
            slowness[node] = links.slow.factor;
        }
        let racks = links.racks.map_or(0, |racks| nodes.div_ceil(racks.nodes));
        Self {
            links,
            nodes: vec![Duplex::default(); nodes],
            slowness,
            racks: vec![Duplex::default(); racks],
            crossings: 0,
        }
    }

    /// Takes the sender's link for a block, as soon as it is free: when it
    /// begins.
    pub fn enter(&mut self, node: usize, bytes: u64, now: Ns) -> Ns {
        let span = self.on_link(bytes, self.slowness[node]);
        take(&mut self.nodes[node].out_free_ns, now, span)
    }

    /// Takes the racks' links for a block that enters the sender's now: when it
    /// gets to the target's.
    pub fn cross(&mut self, (from, to): (usize, usize), bytes: u64, now: Ns) -> Ns {
        let Some(racks) = self.links.racks else {
            return now;
        };
        let (up, down) = (from / racks.nodes, to / racks.nodes);
        if up == down {
            return now;
        }
        self.crossings += 1;
        let span = self.on_top(bytes, racks);
        let out = take(&mut self.racks[up].out_free_ns, now, span) + span;
        let through = take(&mut self.racks[down].in_free_ns, out - span, span) + span;
        // The last bit passes the racks at that time, and the others before it
        // as fast as links of nodes let them.
        now.max(through.saturating_sub(self.on_link(bytes, 1.0)))
    }

    /// Takes the target's link for a block that has got there: when its last bit
    /// is at the target.
    pub fn land(&mut self, (from, to): (usize, usize), bytes: u64, now: Ns) -> Ns {
        let span = self.on_link(bytes, self.slowness[to]);
        let begin = take(&mut self.nodes[to].in_free_ns, now, span);
        let slowest = self.slowness[from].max(self.between(from, to));
        (begin + span).max(now + self.on_link(bytes, slowest))
    }

    /// Blocks that went from rack to rack.
    pub fn crossings(&self) -> u64 {
        self.crossings
    }

    /// How many times as long blocks take between two nodes.
    fn between(&self, a: usize, b: usize) -> f64 {
        let slow = &self.links.slow;
        let listed = slow.pairs.contains(&(a, b)) || slow.pairs.contains(&(b, a));
        if listed {
            slow.factor
        } else {
            1.0
        }
    }

    /// For how long a block has a node's link.
    fn on_link(&self, bytes: u64, slowness: f64) -> Ns {
        let bits = ns(bits_us(bytes, self.links.gbps) * slowness);
        // However little it is, time goes on.
        (ns(self.links.block_us) + bits).max(1)
    }

    /// For how long a block has the links of a rack.
    fn on_top(&self, bytes: u64, racks: Racks) -> Ns {
        let gbps = self.links.gbps * racks.nodes as f64 / racks.oversubscription;
        ns(bits_us(bytes, gbps))
    }
}

/// Takes a link for a time, from when it is free: when that is.
fn take(free_ns: &mut Ns, now: Ns, span: Ns) -> Ns {
    let begin = now.max(*free_ns);
    *free_ns = begin + span;
    begin
}

fn bits_us(bytes: u64, gbps: f64) -> f64 {
    bytes as f64 * 8.0 / (gbps * 1e3)
}

/// Microseconds in nanoseconds.
pub fn ns(us: f64) -> Ns {
    // Times have limits on the command line that keep sums far from an overflow.
    (us * 1e3).round() as Ns
}

#[cfg(test)]
mod tests {
    use super::super::case::Slow;
    use super::*;

    /// A block of 1000 bytes takes 8 us.
    fn links(racks: Option<Racks>) -> Links {
        Links {
            gbps: 1.0,
            block_us: 0.0,
            latency_us: 0.0,
            jitter_us: 0.0,
            posted: 1,
            racks,
            slow: Slow::default(),
        }
    }

    /// A block that enters the sender's link now: when its last bit is at the
    /// target.
    fn send(network: &mut Network<'_>, ends: (usize, usize), now: Ns) -> Ns {
        let there = network.cross(ends, 1000, now);
        network.land(ends, 1000, there)
    }

    #[test]
    fn blocks_that_meet_wait_for_one_another() {
        let links = links(None);
        let mut network = Network::new(&links, 4);
        assert_eq!(send(&mut network, (0, 1), 0), 8_000);
        assert_eq!(send(&mut network, (2, 1), 0), 16_000);
        assert_eq!(send(&mut network, (2, 3), 5_000), 13_000);
        let begins = [0, 0].map(|now| network.enter(0, 1000, now));
        assert_eq!(begins, [0, 8_000]);
    }

    #[test]
    fn a_rack_shares_what_it_has_among_its_nodes() {
        for (oversubscription, last) in [(1.0, 8_000), (2.0, 16_000), (4.0, 32_000)] {
            let racks = Racks {
                nodes: 2,
                oversubscription,
            };
            let links = links(Some(racks));
            let mut network = Network::new(&links, 4);
            assert_eq!(send(&mut network, (0, 1), 0), 8_000, "within the rack");
            let first = send(&mut network, (0, 2), 0);
            assert_eq!(first, 8_000.max(last / 2));
            assert_eq!(send(&mut network, (1, 3), 0), last);
            assert_eq!(network.crossings(), 2);
        }
    }

    #[test]
    fn the_slowest_part_decides() {
        let mut links = links(None);
        links.block_us = 1.0;
        links.slow = Slow {
            nodes: vec![1],
            pairs: vec![(2, 3)],
            factor: 3.0,
        };
        let mut network = Network::new(&links, 4);
        assert_eq!(send(&mut network, (0, 1), 0), 25_000);
        assert_eq!(send(&mut network, (3, 2), 0), 25_000);
        assert_eq!(send(&mut network, (0, 3), 0), 9_000);
    }
}
