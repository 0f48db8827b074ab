// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes that hold connections, and their peers. Their parent tells what to make.

use anyhow::{ensure, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use weft_shim::{Access, Device, MemoryRegion, PeerHandle, Qp, Queues, SendWr};
use weft_verbs::{Cq, Endpoint, InitQp, LocalGid, Mr, Op, Pd, QpConfig, RcQp, WorkRequest};

use crate::child::{next_word, say_ready};
use crate::cli::System;
use crate::newcomer::{qp_config, queues_config, write_once};
use crate::nodes::Node;
use crate::peer::Region;
use crate::verbs::{register, wait, MAX_SEND_WR, REGION_BYTES};

/// What a process is told on its command line.
#[derive(Args)]
pub struct HolderArgs {
    #[arg(long, value_enum)]
    system: System,
    #[arg(long)]
    node: u16,
}

/// What its parent tells it to do.
#[derive(Serialize, Deserialize)]
pub enum Order {
    /// Verbs: make queue pairs, and tell their addresses. A peer's send nothing.
    Offer { count: usize, sends: bool },
    /// Verbs: connect them to these, and WRITE to the peer's memory if they send.
    Join {
        endpoints: Vec<[u8; Endpoint::BYTES]>,
        region: Option<Region>,
    },
    /// Weft: make queue pairs that are connected to a node, or open it by as many handles,
    /// and WRITE to its memory by each.
    Connect {
        count: usize,
        node: u16,
        region: Region,
        by_handle: bool,
    },
}

/// What it says to that.
#[derive(Default, Serialize, Deserialize)]
pub struct Answer {
    /// Addresses of queue pairs.
    pub endpoints: Vec<[u8; Endpoint::BYTES]>,
    /// Why there are no more connections.
    pub failure: Option<String>,
}

/// Is the process.
pub fn hold(args: &HolderArgs) -> Result<()> {
    let node = Node(args.node);
    node.enter()?;
    match args.system {
        System::Verbs => serve(&mut VerbsHolder::open(node)?),
        System::Weft => serve(&mut WeftHolder::open(node)?),
    }
}

trait Holder {
    /// Its memory, for peers.
    fn region(&self) -> Region;
    fn obey(&mut self, order: Order) -> Result<Answer>;
}

fn serve(holder: &mut impl Holder) -> Result<()> {
    say_ready(&holder.region())?;
    while let Some(order) = next_word()? {
        // A limit of the device or the module is an answer.
        let answer = holder.obey(order).unwrap_or_else(|error| Answer {
            failure: Some(format!("{error:#}")),
            ..Answer::default()
        });
        say_ready(&answer)?;
    }
    Ok(())
}

struct VerbsHolder {
    pd: Pd,
    mr: Mr,
    cq: Cq,
    local: LocalGid,
    offered: Vec<InitQp>,
    connected: Vec<RcQp>,
}

impl VerbsHolder {
    fn open(node: Node) -> Result<Self> {
        let context = node.open()?;
        let (pd, mr) = register(&context, REGION_BYTES)?;
        Ok(Self {
            pd,
            mr,
            // One for all of them, as a program with many connections has it.
            cq: Cq::new(&context, MAX_SEND_WR)?,
            local: node.local_gid(&context)?,
            offered: Vec::new(),
            connected: Vec::new(),
        })
    }

    fn offer(&mut self, count: usize, sends: bool) -> Result<Answer> {
        let config = QpConfig {
            max_send_wr: if sends { MAX_SEND_WR } else { 1 },
            ..QpConfig::default()
        };
        let mut answer = Answer::default();
        for _ in 0..count {
            let qp = InitQp::with_config(&self.pd, &self.cq, self.local, &config)?;
            answer.endpoints.push(qp.endpoint().encode());
            self.offered.push(qp);
        }
        Ok(answer)
    }

    fn join(
        &mut self,
        endpoints: &[[u8; Endpoint::BYTES]],
        region: Option<Region>,
    ) -> Result<Answer> {
        ensure!(endpoints.len() == self.offered.len(), "not one for each");
        for (qp, theirs) in self.offered.drain(..).zip(endpoints) {
            let qp = qp.connect(&Endpoint::decode(theirs)?)?;
            if let Some(Region { addr, rkey }) = region {
                qp.post(&WorkRequest::new(Op::Write, &self.mr, 8, (addr, rkey)))?;
                wait(&self.cq)?;
            }
            self.connected.push(qp);
        }
        Ok(Answer::default())
    }
}

impl Holder for VerbsHolder {
    fn region(&self) -> Region {
        let (addr, rkey) = (self.mr.pages().addr(), self.mr.rkey());
        Region { addr, rkey }
    }

    fn obey(&mut self, order: Order) -> Result<Answer> {
        match order {
            Order::Offer { count, sends } => self.offer(count, sends),
            Order::Join { endpoints, region } => self.join(&endpoints, region),
            Order::Connect { .. } => anyhow::bail!("verbs was told to do Weft's work"),
        }
    }
}

/// Queue pairs on the queues of one session, whose rings are as large as one call's
/// requests need.
struct WeftHolder {
    qps: Vec<Qp>,
    /// Made for the first handle.
    unconnected: Option<Qp>,
    handles: Vec<PeerHandle>,
    queues: Queues,
    memory: MemoryRegion,
    device: Device,
}

impl WeftHolder {
    fn open(node: Node) -> Result<Self> {
        let device = Device::open_on(u32::from(node.0))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self {
            qps: Vec::new(),
            unconnected: None,
            handles: Vec::new(),
            queues: Queues::create(&device, &queues_config())?,
            memory: MemoryRegion::allocate(&device, REGION_BYTES, access)?,
            device,
        })
    }

    fn connect(&mut self, to: Node, region: Region) -> Result<()> {
        let qp = self.queues.connect(to.gid(), 0, &qp_config())?;
        let write = SendWr::write(self.memory.slice(0..8)?, region.into());
        write_once(&mut self.queues, write.on(&qp))?;
        self.qps.push(qp);
        Ok(())
    }

    fn open_handle(&mut self, to: Node, region: Region) -> Result<()> {
        let handle = PeerHandle::open(&self.device, to.gid(), 0)?;
        let qp = match &self.unconnected {
            Some(qp) => qp,
            None => {
                let qp = self.queues.unconnected(&qp_config())?;
                self.unconnected.insert(qp)
            }
        };
        let write = SendWr::write(self.memory.slice(0..8)?, region.into());
        write_once(&mut self.queues, write.on_to(qp, &handle))?;
        self.handles.push(handle);
        Ok(())
    }
}

impl Holder for WeftHolder {
    fn region(&self) -> Region {
        self.memory.remote().into()
    }

    fn obey(&mut self, order: Order) -> Result<Answer> {
        let Order::Connect {
            count,
            node,
            region,
            by_handle,
        } = order
        else {
            anyhow::bail!("Weft was told to do verbs' work");
        };
        for _ in 0..count {
            match by_handle {
                true => self.open_handle(Node(node), region)?,
                false => self.connect(Node(node), region)?,
            }
        }
        Ok(Answer::default())
    }
}
