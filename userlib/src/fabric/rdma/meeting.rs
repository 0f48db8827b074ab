// SPDX-License-Identifier: MIT OR Apache-2.0

//! How nodes of a network find one another: each has a TCP address, and all
//! know the list.
//!
//! Node `i` listens on the address at `i`, connects to all below it and accepts
//! all above. Over each connection the two say who they are ([`super::speech`]).
//! When a node has connected its queue pairs it says so to everybody, and goes on
//! when everybody has: so nobody writes to a node that is not ready.
//!
//! Whoever reaches the port could take part, as with rdma_cm: the addresses
//! belong on a network that is trusted.

#[cfg(test)]
mod tests;

use super::frame::{Frame, Purpose};
use super::line::is_to_itself;
use super::place::Place;
use super::speech::{hear_frame, hear_rest, read_by, wait_readable, Failure, Heard, Node, RETRY};
use crate::fabric::{FabricError, NodeSet, MAX_HELLO_BYTES};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const READY: u8 = b'M';
/// How long a host may take to answer, before it is tried again.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// How long one who has called may take to say who it is.
pub(super) const STRANGER_PATIENCE: Duration = Duration::from_secs(1);

/// A peer that was met.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) rank: usize,
    pub(super) region_bytes: usize,
    pub(super) card: Vec<u8>,
    pub(super) hello: Vec<u8>,
    pub(super) line: TcpStream,
}

/// A node, and the card that it has for each peer.
struct Own<'a> {
    node: &'a Node,
    card: &'a dyn Fn(usize) -> Vec<u8>,
}

/// Meets all other nodes, or says who is missing at the end of the time. `card` makes the card
/// for a peer, at most [`super::frame::MAX_CARD_BYTES`]. Answers in the order of ranks, and
/// with what this node listens by, for those who come later.
pub(super) fn meet(
    node: &Node,
    card: &dyn Fn(usize) -> Vec<u8>,
    end: Instant,
) -> Result<(Vec<Met>, TcpListener), FabricError> {
    if node.hello.len() > MAX_HELLO_BYTES {
        return Err(FabricError::BadHello(node.hello.len()));
    }
    let listener = node.place.listen()?;
    let own = Own { node, card };
    let mut met: Vec<Met> = Vec::with_capacity(node.place.founders);
    for rank in 0..node.place.rank {
        match own.call(rank, end) {
            Ok(peer) => met.push(peer),
            Err(failure) => return Err(explain(failure, &node.place, &met)),
        }
    }
    while met.len() + 1 < node.place.founders {
        match own.answer(&listener, end, &met) {
            Ok(peer) => met.push(peer),
            Err(failure) => return Err(explain(failure, &node.place, &met)),
        }
    }
    met.sort_by_key(|peer| peer.rank);
    Ok((met, listener))
}

/// Tells everybody that this node is ready, and waits until everybody is.
pub(super) fn all_ready(met: &mut [Met], end: Instant) -> Result<(), FabricError> {
    for peer in &mut *met {
        say_ready(&mut peer.line).map_err(|_| FabricError::PeerDown(peer.rank))?;
    }
    for Met { rank, line, .. } in met {
        hear_ready(*rank, line, end).map_err(|failure| match failure {
            Failure::Late => FabricError::Timeout {
                missing: NodeSet::EMPTY.with(*rank),
            },
            Failure::Gone => FabricError::PeerDown(*rank),
            Failure::Other(error) => error,
        })?;
    }
    Ok(())
}

/// Tells a peer that this node is connected with it.
pub(super) fn say_ready(line: &mut impl Write) -> Result<(), Failure> {
    line.write_all(&[READY]).map_err(|_| Failure::Gone)
}

/// Waits until a peer says so.
pub(super) fn hear_ready(peer: usize, line: &mut TcpStream, end: Instant) -> Result<(), Failure> {
    let mut byte = [0];
    read_by(line, &mut byte, end)?;
    if byte == [READY] {
        return Ok(());
    }
    let what = "it did not say that it is ready";
    Err(Failure::Other(FabricError::Protocol { peer, what }))
}

fn explain(failure: Failure, place: &Place, met: &[Met]) -> FabricError {
    match failure {
        Failure::Other(error) => error,
        Failure::Late | Failure::Gone => FabricError::Timeout {
            missing: place
                .founders()
                .filter(|&rank| met.iter().all(|peer| peer.rank != rank))
                .collect(),
        },
    }
}

impl Own<'_> {
    /// Connects to a lower rank, which may not have started yet.
    fn call(&self, rank: usize, end: Instant) -> Result<Met, Failure> {
        loop {
            let left = end.saturating_duration_since(Instant::now()).max(RETRY);
            let addr = self.node.place.addrs[rank];
            if let Ok(line) = TcpStream::connect_timeout(&addr, left.min(CONNECT_PATIENCE)) {
                match self.introduce(line, end, Some(rank)) {
                    // It ended half-way: perhaps it starts again.
                    Err(Failure::Gone) => {}
                    outcome => return outcome,
                }
            }
            if Instant::now() >= end {
                return Err(Failure::Late);
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Accepts one higher rank. Strangers are hung up on.
    fn answer(&self, listener: &TcpListener, end: Instant, met: &[Met]) -> Result<Met, Failure> {
        loop {
            wait_readable(listener, end)?;
            let Ok((line, _)) = listener.accept() else {
                continue;
            };
            let quiet = line.set_nonblocking(false);
            quiet.map_err(|error| Failure::Other(FabricError::io("fcntl", &error)))?;
            let patience = end.min(Instant::now() + STRANGER_PATIENCE);
            match self.introduce(line, patience, None) {
                Ok(peer)
                    if peer.rank > self.node.place.rank
                        && met.iter().all(|other| other.rank != peer.rank) =>
                {
                    return Ok(peer)
                }
                Ok(_) | Err(Failure::Gone | Failure::Late) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Tells the peer who we are, and hears who it is. Who called (`called`: whom)
    /// speaks first, so that a stranger learns nothing from whoever listens.
    fn introduce(
        &self,
        mut line: TcpStream,
        end: Instant,
        called: Option<usize>,
    ) -> Result<Met, Failure> {
        if let Some(rank) = called {
            if is_to_itself(&line) {
                // The peer is not there yet.
                return Err(Failure::Gone);
            }
            self.tell(&mut line, rank)?;
        }
        let frame = hear_frame(&mut line, end)?;
        if frame.purpose != Purpose::Meeting {
            // A newcomer, which is too early: it tries again.
            return Err(Failure::Gone);
        }
        if let Err(refusal) = self.judge(&frame, called) {
            // It is one of us, and should learn it too.
            if called.is_none() {
                Node::say(&mut line, self.frame())?;
            }
            return Err(Failure::Other(refusal));
        }
        let Heard { card, hello } = hear_rest(&mut line, &frame, end)?;
        if called.is_none() {
            self.tell(&mut line, frame.rank)?;
        }
        Ok(Met {
            rank: frame.rank,
            region_bytes: frame.region_bytes,
            card,
            hello,
            line,
        })
    }

    fn frame(&self) -> Frame {
        let nodes = self.node.place.founders as u64;
        self.node.frame(Purpose::Meeting, nodes)
    }

    fn tell(&self, line: &mut TcpStream, to: usize) -> Result<(), Failure> {
        self.node.introduce(line, self.frame(), &(self.card)(to))
    }

    /// Whether the other side can be a node of the same fabric.
    fn judge(&self, frame: &Frame, called: Option<usize>) -> Result<(), FabricError> {
        let place = &self.node.place;
        self.node.judge(frame, place.founders as u64)?;
        if called.is_some_and(|rank| rank != frame.rank) || frame.rank >= place.founders {
            let what = "its rank is not that of its address: give all nodes the same list";
            let peer = frame.rank;
            return Err(FabricError::Protocol { peer, what });
        }
        Ok(())
    }
}
