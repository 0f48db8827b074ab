// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weft's cases, and the null ioctl for reference.
//!
//! A session keeps the rings of VQPs that went, for its next ones. So `create` in all
//! cases but `cold` is that of a worker whose connections come and go one at a time;
//! the first VQP of a session, and one beside many others, cost what `cold` and `mesh`
//! show.
//!
//! The DCCache is the node's. With several clients, the look-up of one serves
//! those that connect right after it, in `cold`, `warm` and `call_uncached` too: that
//! is what happens when a crowd of workers starts on a host that does not know the
//! peer. When a node's DCCache is emptied, its streams to the peers go too; so the
//! first WRITE makes one in those cases, and finds one in the others.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{ensure, Context as _, Result};
use weft_shim::{Access, Device, MemoryRegion, Remote, Vqp};

use super::{Cold, Named, Peers};
use crate::cli::{ConnectSystem, Transport};
use crate::newcomer::{vqp_config, Task};
use crate::nodes::{Node, CLIENT};
use crate::peer::{Peer, Region};
use crate::readers::WeftReader;
use crate::round_robin::{Case, MakeCase, Part, Parts, Sample, Taken};
use crate::turns::Turns;
use crate::verbs::REGION_BYTES;
use crate::weft::{device, NullIoctl};

/// The meta server that the module asks, which has to be on another node than the
/// clients and the peers: a look-up crosses the network like any other request.
pub fn meta_server(peers: &[Node]) -> Result<SocketAddr> {
    let servers = device()?.meta_servers()?;
    let server = servers.iter().find(|server| server.connected);
    let addr = server.context("the module has no meta server")?.addr;
    let mut nodes = [CLIENT].iter().chain(peers);
    ensure!(
        nodes.all(|node| addr.ip() != node.ip()),
        "the meta server at {addr} is on the clients' node or a peer's: boot with --meta-node"
    );
    Ok(addr)
}

/// Weft on this host, and the peers' memory.
pub struct WeftCases<'a> {
    all: &'a Peers,
    peers: Vec<(Node, Region)>,
}

/// What the module knows of the peer that a client connects to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Knows {
    /// Nothing: its DCCache was emptied.
    Nothing,
    /// Its record, and those of the other peers, which take turns.
    All,
    /// The session connected to it last.
    Last,
}

impl<'a> WeftCases<'a> {
    /// Checks that the meta server knows the peers.
    pub fn open(peers: &'a Peers) -> Result<Self> {
        let device = device()?;
        let one = |(node, peer): &(Node, Peer)| -> Result<_> {
            let gid = node.gid();
            device.lookup(gid).with_context(|| {
                format!("the meta server does not tell of {gid}: is weft-meta added?")
            })?;
            let region = peer.ready.weft;
            Ok((*node, region.context("the peer does not serve Weft")?))
        };
        Ok(Self {
            all: peers,
            peers: peers.iter().map(one).collect::<Result<_>>()?,
        })
    }

    /// All cases.
    pub fn cases(&self) -> Vec<Named<'_>> {
        let named = |system, case, slow, make| Named {
            system,
            case,
            exchange: None,
            slow,
            make,
        };
        let weft = |case, make| named(ConnectSystem::Weft, case, false, make);
        let null_ioctl: MakeCase<'_> = Box::new(|| Ok(Box::new(NullIoctl::open()?)));
        let dc_read8: MakeCase<'_> = Box::new(|| Ok(Box::new(self.dc_read8()?)));
        vec![
            named(ConnectSystem::Weft, "cold", true, Box::new(|| self.cold())),
            weft("warm", self.connects(Knows::Nothing, true)),
            weft("cached", self.connects(Knows::All, true)),
            weft("same", self.connects(Knows::Last, true)),
            weft("call_uncached", self.connects(Knows::Nothing, false)),
            weft("call_cached", self.connects(Knows::All, false)),
            weft("call_same", self.connects(Knows::Last, false)),
            weft("dc_read8", dc_read8),
            named(ConnectSystem::Ref, "null_ioctl", false, null_ioctl),
        ]
    }

    fn cold(&self) -> Result<Box<dyn Case + '_>> {
        let task = |&(node, region): &(Node, Region)| Task::Weft {
            node: node.0,
            region,
        };
        let device = device()?;
        let forget = move || Ok(device.flush_dccache()?);
        let tasks = self.peers.iter().map(task).collect();
        Ok(Box::new(Cold::new(tasks, forget)))
    }

    fn connects(&self, knows: Knows, write: bool) -> MakeCase<'_> {
        Box::new(move || {
            let device = device()?;
            let peers = self.peers.iter();
            let mut peers: Vec<(Node, Remote)> = peers.map(|&(n, r)| (n, r.into())).collect();
            if knows == Knows::Last {
                let mut turns = Turns::in_turn(peers.len());
                peers = vec![peers[turns.turn()]];
            }
            Ok(Box::new(Connect {
                memory: MemoryRegion::allocate(&device, REGION_BYTES, Access::LOCAL_WRITE)?,
                device,
                turns: Turns::in_turn(peers.len()),
                peers,
                knows,
                write,
            }))
        })
    }

    fn dc_read8(&self) -> Result<WeftReader> {
        let (node, peer) = &self.all[Turns::in_turn(self.all.len()).turn()];
        WeftReader::connect(*node, &peer.ready, Transport::Dc)
    }
}

/// A new VQP that is connected, and may carry a WRITE.
struct Connect {
    device: Device,
    memory: MemoryRegion,
    peers: Vec<(Node, Remote)>,
    turns: Turns,
    knows: Knows,
    write: bool,
}

impl Connect {
    fn connect(&self, (node, remote): (Node, Remote)) -> Result<Sample> {
        let begin = Instant::now();
        let mut vqp = Vqp::create(&self.device, &vqp_config())?;
        let created = Instant::now();
        vqp.qconnect(node.gid(), 0)?;
        let connected = Instant::now();
        let mut parts = Parts::default().with(Part::Create, created - begin);
        if self.write {
            vqp.write(self.memory.slice(0..8)?, remote)?;
            let end = Instant::now();
            parts = parts
                .with(Part::FirstWrite, end - connected)
                .with(Part::Total, end - begin);
        }
        Ok(Sample {
            call: connected - created,
            parts,
            ..Sample::default()
        })
    }
}

impl Case for Connect {
    fn sample(&mut self) -> Result<Sample> {
        let begin = Instant::now();
        if self.knows == Knows::Nothing {
            self.device.flush_dccache()?;
        }
        let outside = begin.elapsed();
        let peer = self.peers[self.turns.turn()];
        Ok(Sample {
            outside,
            ..self.connect(peer)?
        })
    }

    fn samples(&mut self, count: u32, taken: &mut Taken<'_>) -> Result<()> {
        if self.knows != Knows::Nothing {
            // The case before may have emptied the DCCache.
            let begin = Instant::now();
            for &peer in &self.peers {
                self.connect(peer)?;
            }
            taken.leave_out(begin.elapsed());
        }
        for _ in 0..count {
            taken.add(self.sample()?);
        }
        Ok(())
    }
}
