// SPDX-License-Identifier: MIT OR Apache-2.0

//! Weft's cases, and the null ioctl for reference.
//!
//! In `warm`, `cached` and `same` the session has queues, as a verbs program has a
//! completion queue, and one call makes a queue pair on them and connects it. It is
//! dropped after its WRITE. In `uncached` and the cases that begin with `call` a VQP with
//! queues of its own is made first, whose memory the session keeps from one to the next, and
//! what is timed as the call is `qconnect` on it.
//!
//! `cold` is a new process on a node that does not know the peer; in `cold_known` the node
//! has connected to it before, for others.
//!
//! In `in_a_row` none is dropped before the last was made, so that each takes memory that
//! none had before.
//!
//! The DCCache is the node's. With several clients, the look-up of one serves
//! those that connect right after it, in `cold`, `warm` and `uncached` too: that
//! is what happens when a crowd of workers starts on a host that does not know the
//! peer. When a node's DCCache is emptied, its streams to the peers go too; so the
//! first WRITE makes one in those cases, and finds one in the others.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{bail, ensure, Context as _, Result};
use weft_shim::{Access, Device, MemoryRegion, Queues, Remote, SendWr, Vqp};

use super::{Cold, Named, Pace, Peers};
use crate::cli::{ConnectSystem, Transport};
use crate::newcomer::{qp_config, queues_config, vqp_config, write_once, Task};
use crate::nodes::{Node, CLIENT};
use crate::peer::{Peer, Region};
use crate::readers::WeftReader;
use crate::round_robin::{Case, MakeCase, Part, Parts, Sample, Taken};
use crate::turns::Turns;
use crate::verbs::REGION_BYTES;
use crate::wait::Wait;
use crate::weft::{device, NullIoctl, Way};

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
    /// `dc_read8` is over DC, and the pool would try busy peers on RC meanwhile.
    _ways: Vec<Way>,
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
            _ways: Way::force_all(peers.iter().map(|(node, _)| *node), Transport::Dc)?,
        })
    }

    /// All cases but those of [`Self::in_a_row`].
    pub fn cases(&self) -> Vec<Named<'_>> {
        let dc_read8: MakeCase<'_> = Box::new(|| Ok(Box::new(self.dc_read8()?)));
        let cold: MakeCase<'_> = Box::new(|| self.cold(Knows::Nothing));
        let cold_known: MakeCase<'_> = Box::new(|| self.cold(Knows::All));
        vec![
            named(ConnectSystem::Weft, "cold", Pace::Slow, cold),
            named(ConnectSystem::Weft, "cold_known", Pace::Slow, cold_known),
            weft("warm", self.connects(Knows::Nothing)),
            weft("cached", self.connects(Knows::All)),
            weft("same", self.connects(Knows::Last)),
            weft("uncached", self.calls(Knows::Nothing)),
            weft("call_cached", self.calls(Knows::All)),
            weft("call_same", self.calls(Knows::Last)),
            weft("dc_read8", dc_read8),
            named(ConnectSystem::Ref, "null_ioctl", Pace::Fast, null_ioctl()),
        ]
    }

    /// Connections that are all kept, and the null ioctl that they are compared with.
    pub fn in_a_row(&self) -> Vec<Named<'_>> {
        let in_a_row: MakeCase<'_> = Box::new(|| Ok(Box::new(InARow(self.targets()))));
        vec![
            weft("in_a_row", in_a_row),
            named(
                ConnectSystem::Ref,
                "null_in_a_row",
                Pace::Fast,
                null_ioctl(),
            ),
        ]
    }

    /// The peers' memory.
    fn targets(&self) -> Vec<(Node, Remote)> {
        let peers = self.peers.iter();
        peers.map(|&(node, region)| (node, region.into())).collect()
    }

    /// Those that a client connects to, which knows so much of them.
    fn known(&self, knows: Knows) -> Vec<(Node, Remote)> {
        let peers = self.targets();
        match knows {
            Knows::Last => vec![peers[Turns::in_turn(peers.len()).turn()]],
            Knows::Nothing | Knows::All => peers,
        }
    }

    fn cold(&self, knows: Knows) -> Result<Box<dyn Case + '_>> {
        let task = |&(node, region): &(Node, Region)| Task::Weft {
            node: node.0,
            region,
        };
        let device = device()?;
        let forget = move || Ok(device.flush_dccache()?);
        let tasks: Vec<_> = self.peers.iter().map(task).collect();
        if knows == Knows::Nothing {
            return Ok(Box::new(Cold::new(tasks, forget)));
        }
        let mut client = Client::open()?;
        let peers = self.targets();
        // Other cases have emptied the DCCache meanwhile. Not that of the peer that is
        // next, whose turn this does not know: all of them.
        let learn = move || {
            peers
                .iter()
                .try_for_each(|&peer| client.connect(peer).map(drop))
        };
        Ok(Box::new(Cold::new(tasks, learn)))
    }

    fn connects(&self, knows: Knows) -> MakeCase<'_> {
        Box::new(move || {
            let peers = self.known(knows);
            Ok(Box::new(Connect {
                client: Client::open()?,
                turns: Turns::in_turn(peers.len()),
                peers,
                knows,
            }))
        })
    }

    fn calls(&self, knows: Knows) -> MakeCase<'_> {
        Box::new(move || {
            let peers = self.known(knows);
            Ok(Box::new(Call {
                device: device()?,
                turns: Turns::in_turn(peers.len()),
                peers,
                knows,
            }))
        })
    }

    fn dc_read8(&self) -> Result<WeftReader> {
        let (node, peer) = &self.all[Turns::in_turn(self.all.len()).turn()];
        WeftReader::connect(*node, &peer.ready, Transport::Dc)
    }
}

fn named<'a>(
    system: ConnectSystem,
    case: &'static str,
    pace: Pace,
    make: MakeCase<'a>,
) -> Named<'a> {
    Named {
        system,
        case,
        exchange: None,
        wait: Wait::Call,
        pace,
        make,
    }
}

fn weft<'a>(case: &'static str, make: MakeCase<'a>) -> Named<'a> {
    named(ConnectSystem::Weft, case, Pace::Fast, make)
}

fn null_ioctl<'a>() -> MakeCase<'a> {
    Box::new(|| Ok(Box::new(NullIoctl::open()?)))
}

/// A session with queues and memory.
struct Client {
    device: Device,
    queues: Queues,
    memory: MemoryRegion,
}

impl Client {
    fn open() -> Result<Self> {
        let device = device()?;
        Ok(Self {
            queues: Queues::create(&device, &queues_config())?,
            memory: MemoryRegion::allocate(&device, REGION_BYTES, Access::LOCAL_WRITE)?,
            device,
        })
    }

    /// A new queue pair, and its first WRITE.
    fn connect(&mut self, (node, remote): (Node, Remote)) -> Result<Sample> {
        let begin = Instant::now();
        let qp = self.queues.connect(node.gid(), 0, &qp_config())?;
        let connected = Instant::now();
        let write = SendWr::write(self.memory.slice(0..8)?, remote);
        write_once(&mut self.queues, write.on(&qp))?;
        let end = Instant::now();
        Ok(Sample {
            call: connected - begin,
            parts: Parts::default()
                .with(Part::FirstWrite, end - connected)
                .with(Part::Total, end - begin),
            ..Sample::default()
        })
    }
}

/// A new queue pair that is made, connected and written over.
struct Connect {
    client: Client,
    peers: Vec<(Node, Remote)>,
    turns: Turns,
    knows: Knows,
}

impl Case for Connect {
    fn sample(&mut self) -> Result<Sample> {
        let begin = Instant::now();
        if self.knows == Knows::Nothing {
            self.client.device.flush_dccache()?;
        }
        let outside = begin.elapsed();
        let peer = self.peers[self.turns.turn()];
        Ok(Sample {
            outside,
            ..self.client.connect(peer)?
        })
    }

    fn samples(&mut self, count: u32, taken: &mut Taken<'_>) -> Result<()> {
        if self.knows != Knows::Nothing {
            // The case before may have emptied the DCCache.
            let begin = Instant::now();
            for &peer in &self.peers {
                self.client.connect(peer)?;
            }
            taken.leave_out(begin.elapsed());
        }
        for _ in 0..count {
            taken.add(self.sample()?);
        }
        Ok(())
    }
}

/// `qconnect` on a new VQP.
struct Call {
    device: Device,
    peers: Vec<(Node, Remote)>,
    turns: Turns,
    knows: Knows,
}

impl Call {
    fn call(&self, (node, _): (Node, Remote)) -> Result<Sample> {
        let begin = Instant::now();
        let mut vqp = Vqp::create(&self.device, &vqp_config())?;
        let created = Instant::now();
        vqp.qconnect(node.gid(), 0)?;
        Ok(Sample {
            call: created.elapsed(),
            parts: Parts::default().with(Part::Create, created - begin),
            ..Sample::default()
        })
    }
}

impl Case for Call {
    fn sample(&mut self) -> Result<Sample> {
        let begin = Instant::now();
        if self.knows == Knows::Nothing {
            self.device.flush_dccache()?;
        }
        let outside = begin.elapsed();
        let peer = self.peers[self.turns.turn()];
        Ok(Sample {
            outside,
            ..self.call(peer)?
        })
    }

    fn samples(&mut self, count: u32, taken: &mut Taken<'_>) -> Result<()> {
        if self.knows != Knows::Nothing {
            // The case before may have emptied the DCCache.
            let begin = Instant::now();
            for &peer in &self.peers {
                self.call(peer)?;
            }
            taken.leave_out(begin.elapsed());
        }
        for _ in 0..count {
            taken.add(self.sample()?);
        }
        Ok(())
    }
}

/// Connections to peers in turn, in a session of each block's own, which keeps them until
/// the block has ended.
struct InARow(Vec<(Node, Remote)>);

impl Case for InARow {
    fn sample(&mut self) -> Result<Sample> {
        bail!("none of them stands alone")
    }

    fn samples(&mut self, count: u32, taken: &mut Taken<'_>) -> Result<()> {
        let begin = Instant::now();
        let client = Client::open()?;
        let gids: Vec<_> = self.0.iter().map(|(node, _)| node.gid()).collect();
        for gid in &gids {
            client.queues.connect(*gid, 0, &qp_config())?;
        }
        let mut qps = Vec::with_capacity(count as usize);
        taken.leave_out(begin.elapsed());
        for gid in gids.iter().cycle().take(count as usize) {
            let begin = Instant::now();
            qps.push(client.queues.connect(*gid, 0, &qp_config())?);
            taken.add(Sample {
                call: begin.elapsed(),
                ..Sample::default()
            });
        }
        let begin = Instant::now();
        drop((qps, client));
        taken.leave_out(begin.elapsed());
        Ok(())
    }
}
