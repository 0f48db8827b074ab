// SPDX-License-Identifier: MIT OR Apache-2.0

//! How many connections each address has, and may have.
//!
//! An address is shared by its host's kernel, whose module publishes the node's record,
//! and by the host's users, who may READ the table. The source port tells them apart, and
//! each class has a number of connections of its own, so that users cannot take the
//! module's.
//!
//! A host that dies without a word leaves connections whose end nobody sees. So at a limit one
//! of those that there are makes room for a new one.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Connections at once.
const MAX_CONNECTIONS: usize = 16_384;
/// Those of readers among them, so that room for nodes is left.
const MAX_READERS: usize = 4_096;
/// Connections of one address from reserved ports. A node has four; for a moment as many
/// again when it connects anew, and some of a former life whose end nobody saw.
const MAX_NODE_PER_PEER: usize = 32;
/// Connections of one address from other ports.
const MAX_READERS_PER_PEER: usize = 16;
/// Ports below this take `CAP_NET_BIND_SERVICE` (`PROT_SOCK` in the kernel).
const FIRST_UNRESERVED_PORT: u16 = 1024;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// From a reserved port: it may publish.
    Node,
    /// From any other port, which each user of a host can have: it may READ.
    Reader,
}

impl Class {
    /// The class of a connection from `peer`.
    pub fn of(peer: SocketAddr) -> Self {
        if peer.port() < FIRST_UNRESERVED_PORT {
            Self::Node
        } else {
            Self::Reader
        }
    }
}

/// Why a connection is refused, or takes the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there are {MAX_CONNECTIONS} connections, which is the limit")]
    Full,
    #[error("there are {MAX_READERS} connections from unreserved ports, which is the limit")]
    FullOfReaders,
    #[error("the address has {MAX_NODE_PER_PEER} from reserved ports, which is the limit")]
    PeerFull,
    #[error("the address has {MAX_READERS_PER_PEER} from unreserved ports, which is the limit")]
    PeerFullOfReaders,
}

/// A connection that there is.
pub struct Standing<Id> {
    /// Its name.
    pub id: Id,
    /// Its other end.
    pub peer: SocketAddr,
    /// When it was accepted.
    pub accepted: Instant,
    /// Whether its peer has completed it.
    pub is_complete: bool,
}

impl Refusal {
    /// The connection of `all` that makes room for `peer`. One that is not complete may be
    /// forged, and goes first; else the one that was accepted longest ago. If that was a living
    /// node's, the node connects again within seconds, and so the dead ones' are the oldest
    /// soon. A reader takes no place of a node.
    pub fn displaced<Id>(
        self,
        peer: SocketAddr,
        all: impl Iterator<Item = Standing<Id>>,
    ) -> Option<Id> {
        let may_go = |other: &Standing<Id>| {
            let is_above = Class::of(peer) == Class::Reader && Class::of(other.peer) == Class::Node;
            self.ends_with(peer, other.peer) && !(other.is_complete && is_above)
        };
        let first = all
            .filter(may_go)
            .min_by_key(|other| (other.is_complete, other.accepted));
        first.map(|other| other.id)
    }

    /// Whether `peer`, which was refused, would not be if a connection of `other` ended.
    fn ends_with(self, peer: SocketAddr, other: SocketAddr) -> bool {
        let is_same = || {
            let ips = [peer, other].map(|addr| addr.ip().to_canonical());
            ips[0] == ips[1] && Class::of(peer) == Class::of(other)
        };
        match self {
            Self::Full => true,
            Self::FullOfReaders => Class::of(other) == Class::Reader,
            Self::PeerFull | Self::PeerFullOfReaders => is_same(),
        }
    }
}

/// The connections of all addresses. `Id` names a connection.
pub struct Peers<Id> {
    all: HashMap<IpAddr, Peer<Id>>,
    nodes: usize,
    readers: usize,
}

struct Peer<Id> {
    /// Those from reserved ports, in the order in which they were accepted.
    nodes: Vec<Id>,
    readers: usize,
    /// The one of `nodes` that published the address's own record last.
    publisher: Option<Id>,
}

impl<Id: Copy + PartialEq> Peers<Id> {
    /// Nobody is connected.
    pub fn new() -> Self {
        Self {
            all: HashMap::new(),
            nodes: 0,
            readers: 0,
        }
    }

    /// Whether one more connection from `peer` is allowed.
    pub fn admit(&self, peer: SocketAddr) -> Result<(), Refusal> {
        let found = self.all.get(&peer.ip().to_canonical());
        let (nodes, readers) = found.map_or((0, 0), |peer| (peer.nodes.len(), peer.readers));
        let is_full = self.nodes + self.readers >= MAX_CONNECTIONS;
        // The narrowest limit first: an end that makes room there does so for the wider ones.
        match Class::of(peer) {
            Class::Node if nodes >= MAX_NODE_PER_PEER => Err(Refusal::PeerFull),
            Class::Reader if readers >= MAX_READERS_PER_PEER => Err(Refusal::PeerFullOfReaders),
            Class::Reader if self.readers >= MAX_READERS => Err(Refusal::FullOfReaders),
            Class::Node | Class::Reader if is_full => Err(Refusal::Full),
            Class::Node | Class::Reader => Ok(()),
        }
    }

    /// A connection was accepted.
    pub fn enter(&mut self, peer: SocketAddr, id: Id) {
        let found = self.all.entry(peer.ip().to_canonical());
        let found = found.or_insert_with(|| Peer {
            nodes: Vec::new(),
            readers: 0,
            publisher: None,
        });
        match Class::of(peer) {
            Class::Node => {
                found.nodes.push(id);
                self.nodes += 1;
            }
            Class::Reader => {
                found.readers += 1;
                self.readers += 1;
            }
        }
    }

    /// A connection that had entered is over.
    pub fn leave(&mut self, peer: SocketAddr, id: Id) {
        let ip = peer.ip().to_canonical();
        let Some(found) = self.all.get_mut(&ip) else {
            return;
        };
        match Class::of(peer) {
            Class::Node => {
                let before = found.nodes.len();
                found.nodes.retain(|&node| node != id);
                self.nodes -= before - found.nodes.len();
                found.publisher = found.publisher.filter(|&publisher| publisher != id);
            }
            Class::Reader => {
                found.readers -= 1;
                self.readers -= 1;
            }
        }
        if found.nodes.is_empty() && found.readers == 0 {
            self.all.remove(&ip);
        }
    }

    /// The address's own record was published by `id`. Answers with the connections that
    /// this shows to be over: a node publishes by one connection, so the one that did so
    /// before, and what is older, are of a former life whose end was not seen.
    pub fn published(&mut self, peer: SocketAddr, id: Id) -> Vec<Id> {
        let Some(found) = self.all.get_mut(&peer.ip().to_canonical()) else {
            return Vec::new();
        };
        let before = found.publisher.replace(id).filter(|&before| before != id);
        let last = before.and_then(|before| found.nodes.iter().position(|&node| node == before));
        let over = last.map_or(&[][..], |last| &found.nodes[..=last]);
        over.iter().copied().filter(|&node| node != id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], port))
    }

    /// The other end of the `n`-th of many connections, eight from each address.
    fn many(n: usize, port: u16) -> SocketAddr {
        SocketAddr::from((u32::try_from(n / 8).unwrap().to_be_bytes(), port))
    }

    /// Enters connections as long as they are admitted, at most `most`.
    fn crowd(
        peers: &mut Peers<usize>,
        from: impl Fn(usize) -> SocketAddr,
        most: usize,
    ) -> (usize, Option<Refusal>) {
        for n in 0..most {
            if let Err(refusal) = peers.admit(from(n)) {
                return (n, Some(refusal));
            }
            peers.enter(from(n), n);
        }
        (most, None)
    }

    #[test]
    fn users_of_a_host_do_not_take_the_connections_of_its_module() {
        let mut peers = Peers::new();
        let users = crowd(&mut peers, |_| at(1, 40_000), 1_000);
        assert_eq!(
            users,
            (MAX_READERS_PER_PEER, Some(Refusal::PeerFullOfReaders))
        );
        let module = crowd(&mut peers, |_| at(1, 1_023), 1_000);
        assert_eq!(module, (MAX_NODE_PER_PEER, Some(Refusal::PeerFull)));
        assert_eq!(peers.admit(at(2, 1_024)), Ok(()));
        assert_eq!(peers.admit(at(2, 1_023)), Ok(()));
    }

    #[test]
    fn a_mapped_address_is_the_same_peer() {
        let mut peers = Peers::new();
        crowd(&mut peers, |_| at(1, 600), MAX_NODE_PER_PEER);
        let mapped = SocketAddr::new("::ffff:10.0.0.1".parse().unwrap(), 600);
        assert_eq!(peers.admit(mapped), Err(Refusal::PeerFull));
    }

    #[test]
    fn readers_of_all_hosts_leave_room_for_nodes() {
        let mut peers = Peers::new();
        let readers = crowd(&mut peers, |n| many(n, 40_000), usize::MAX);
        assert_eq!(readers, (MAX_READERS, Some(Refusal::FullOfReaders)));
        let nodes = crowd(&mut peers, |n| many(n, 600), usize::MAX);
        assert_eq!(nodes, (MAX_CONNECTIONS - MAX_READERS, Some(Refusal::Full)));
    }

    #[test]
    fn a_connection_that_is_over_makes_room_and_leaves_nothing() {
        let mut peers = Peers::new();
        crowd(&mut peers, |_| at(1, 600), MAX_NODE_PER_PEER);
        peers.leave(at(1, 600), 7);
        assert_eq!(peers.admit(at(1, 700)), Ok(()));
        (0..MAX_NODE_PER_PEER).for_each(|n| peers.leave(at(1, 600), n));
        peers.enter(at(1, 2_000), 1);
        peers.leave(at(1, 2_000), 1);
        peers.leave(at(1, 2_000), 1);
        assert!(peers.all.is_empty());
        assert_eq!((peers.nodes, peers.readers), (0, 0));
    }

    #[test]
    fn a_publication_ends_the_one_before_it_and_what_is_older() {
        let mut peers = Peers::new();
        let from = at(1, 600);
        (1..=4).for_each(|id| peers.enter(from, id));
        assert_eq!(peers.published(from, 2), []);
        assert_eq!(peers.published(from, 2), [], "it was the one itself");
        (5..=8).for_each(|id| peers.enter(from, id));
        assert_eq!(peers.published(from, 5), [1, 2]);
        peers.leave(from, 5);
        assert_eq!(peers.published(from, 6), [], "the one before is gone");
    }

    #[test]
    fn what_makes_room_is_what_there_is_too_much_of() {
        let node = at(1, 600);
        assert!(Refusal::PeerFull.ends_with(node, at(1, 601)));
        assert!(!Refusal::PeerFull.ends_with(node, at(1, 2_000)));
        assert!(!Refusal::PeerFull.ends_with(node, at(2, 601)));
        assert!(Refusal::FullOfReaders.ends_with(at(1, 2_000), at(2, 2_000)));
        assert!(!Refusal::FullOfReaders.ends_with(at(1, 2_000), at(2, 600)));
        assert!(Refusal::Full.ends_with(node, at(2, 2_000)));
    }

    /// The one of these connections that goes for one from `peer`: each is from somewhere, was
    /// accepted when it says, and is complete or not.
    fn displaced(
        refusal: Refusal,
        peer: SocketAddr,
        all: &[(SocketAddr, u64, bool)],
    ) -> Option<usize> {
        let start = Instant::now();
        let standing = all
            .iter()
            .enumerate()
            .map(|(id, &(peer, at, is_complete))| Standing {
                id,
                peer,
                accepted: start + Duration::from_secs(at),
                is_complete,
            });
        refusal.displaced(peer, standing)
    }

    #[test]
    fn the_connection_that_was_accepted_longest_ago_makes_room() {
        let node = at(1, 600);
        let all = [
            (at(2, 600), 1, true),
            (node, 3, true),
            (node, 2, true),
            (at(1, 2_000), 0, true),
        ];
        assert_eq!(displaced(Refusal::Full, node, &all), Some(3));
        assert_eq!(displaced(Refusal::PeerFull, node, &all), Some(2));
        let reader = at(1, 3_000);
        assert_eq!(displaced(Refusal::PeerFullOfReaders, reader, &all), Some(3));
    }

    #[test]
    fn one_that_is_not_complete_makes_room_before_all_others() {
        let node = at(1, 600);
        let all = [(node, 0, true), (node, 5, false), (node, 4, false)];
        assert_eq!(displaced(Refusal::PeerFull, node, &all), Some(2));
        assert_eq!(displaced(Refusal::Full, at(3, 2_000), &all), Some(2));
    }

    #[test]
    fn a_reader_takes_no_place_of_a_node() {
        let (reader, nodes) = (at(1, 2_000), [(at(2, 600), 0, true), (at(3, 600), 1, true)]);
        assert_eq!(displaced(Refusal::Full, reader, &nodes), None);
        let with_reader = [nodes[0], (at(3, 2_000), 1, true)];
        assert_eq!(displaced(Refusal::Full, reader, &with_reader), Some(1));
    }

    #[test]
    fn an_address_that_has_all_it_may_takes_no_place_of_others() {
        let mut peers = Peers::new();
        crowd(&mut peers, |_| at(1, 600), MAX_NODE_PER_PEER);
        crowd(&mut peers, |n| many(n, 600), usize::MAX);
        assert_eq!(peers.admit(at(2, 600)), Err(Refusal::Full));
        assert_eq!(peers.admit(at(1, 600)), Err(Refusal::PeerFull));
    }

    #[test]
    fn a_user_cannot_have_a_reserved_port() {
        assert_eq!(Class::of(at(1, 1_023)), Class::Node);
        assert_eq!(Class::of(at(1, 1_024)), Class::Reader);
    }
}
