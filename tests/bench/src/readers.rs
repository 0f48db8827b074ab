// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clients that READ 8 bytes and wait for them: of one peer, of several peers, or of
//! many regions of one.

use std::time::Instant;

use anyhow::{ensure, Context as _, Result};
use weft_shim::Remote;
use weft_verbs::{Op, WorkRequest};

use crate::cli::{ExchangeKind, Transport};
use crate::nodes::{Node, CLIENT};
use crate::peer::Ready;
use crate::round_robin::{Case, Sample};
use crate::turns::Turns;
use crate::verbs::{Exchange, Link, Stack, MAX_SEND_WR, REGION_BYTES};
use crate::wait::Wait;
use crate::weft::{device, WeftLink};

/// Bytes of a READ.
const BYTES: u32 = 8;

/// Reads by verbs.
pub struct VerbsReader {
    links: Vec<(Link, WorkRequest)>,
    turns: Turns,
}

impl VerbsReader {
    /// Connects to a peer, to poll.
    pub fn connect(peer: &Ready) -> Result<Self> {
        Self::connect_all([peer], Wait::Poll)
    }

    /// Connects to several peers, each time to READ from one that is drawn at random.
    pub fn connect_all<'a>(peers: impl IntoIterator<Item = &'a Ready>, wait: Wait) -> Result<Self> {
        let context = CLIENT.open()?;
        let local = CLIENT.local_gid(&context)?;
        let stack = Stack::waiting(wait, &context, REGION_BYTES, MAX_SEND_WR)?;
        let connect = |peer| {
            Link::warm(
                stack.clone(),
                local,
                Exchange::with(ExchangeKind::Tcp, peer),
            )
        };
        Self::over(peers.into_iter().map(connect).collect::<Result<_>>()?)
    }

    /// Reads over connections that are there.
    pub fn over(links: Vec<Link>) -> Result<Self> {
        ensure!(!links.is_empty(), "there is no peer");
        let with_request = |link: Link| {
            let request = link.request(Op::Read, BYTES, 0);
            (link, request)
        };
        Ok(Self {
            turns: Turns::drawn(links.len()),
            links: links.into_iter().map(with_request).collect(),
        })
    }
}

impl Case for VerbsReader {
    fn sample(&mut self) -> Result<Sample> {
        let (link, request) = &self.links[self.turns.turn()];
        let start = Instant::now();
        link.run(request)?;
        Ok(Sample {
            call: start.elapsed(),
            ..Sample::default()
        })
    }
}

/// Reads by Weft.
pub struct WeftReader {
    links: Vec<WeftLink>,
    /// Where it reads, and over which connection.
    targets: Vec<(usize, Remote)>,
    turns: Turns,
}

impl WeftReader {
    /// Connects to a peer, by a transport that has to be the one that requests take.
    pub fn connect(node: Node, peer: &Ready, transport: Transport) -> Result<Self> {
        let known = memory(peer)?;
        Self::over_one(node, known, transport, vec![(0, known)])
    }

    /// The same, to READ all of the peer's many regions in turn.
    pub fn of_keys(node: Node, peer: &Ready, transport: Transport) -> Result<Self> {
        let targets = peer.keys.iter().map(|&region| (0, region.into()));
        Self::over_one(node, memory(peer)?, transport, targets.collect())
    }

    fn over_one(
        node: Node,
        known: Remote,
        transport: Transport,
        targets: Vec<(usize, Remote)>,
    ) -> Result<Self> {
        ensure!(!targets.is_empty(), "the peer has no regions");
        let mut link = WeftLink::connect(node, known, BYTES as usize, MAX_SEND_WR)?;
        link.expect(transport)?;
        Ok(Self {
            links: vec![link],
            turns: Turns::in_turn(targets.len()),
            targets,
        })
    }

    /// Connects to several peers in one session, each time to READ from one that is
    /// drawn at random.
    pub fn connect_all<'a>(peers: impl IntoIterator<Item = (Node, &'a Ready)>) -> Result<Self> {
        let device = device()?;
        let connect = |(node, peer)| -> Result<WeftLink> {
            let at = (0, memory(peer)?);
            WeftLink::with(&device, node, at, BYTES as usize, MAX_SEND_WR)
        };
        let links = peers.into_iter().map(connect).collect::<Result<Vec<_>>>()?;
        ensure!(!links.is_empty(), "there is no peer");
        let remotes = links.iter().map(|link| link.remote);
        Ok(Self {
            targets: remotes.enumerate().collect(),
            turns: Turns::drawn(links.len()),
            links,
        })
    }
}

/// The memory that a peer serves by Weft.
fn memory(peer: &Ready) -> Result<Remote> {
    Ok(peer.weft.context("the peer does not serve Weft")?.into())
}

impl Case for WeftReader {
    fn sample(&mut self) -> Result<Sample> {
        let (link, remote) = self.targets[self.turns.turn()];
        let WeftLink { vqp, memory, .. } = &mut self.links[link];
        let start = Instant::now();
        vqp.read(memory.slice(0..BYTES as usize)?, remote)?;
        Ok(Sample {
            call: start.elapsed(),
            ..Sample::default()
        })
    }
}
