// SPDX-License-Identifier: GPL-2.0

//! A port's agent: starts the port's node when its address is there, looks after the
//! node in the background, and stops it when the address or the device goes.

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};

use super::{registry, Node};
use crate::rdma::{Client, Device, Port};
use crate::sync::{new_periodic, Periodic, Routine};
use crate::text::Shown;

/// How often a node is looked after, when all is well and when not.
const CALM_MS: u32 = 1000;
const BUSY_MS: u32 = 100;

/// Looks after one port.
#[pin_data]
struct PortAgent {
    port: Port,
    #[pin]
    node: Mutex<Option<Arc<Node>>>,
    #[pin]
    work: Periodic<Self>,
}

impl PortAgent {
    fn new(port: Port) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                port,
                node <- kernel::new_mutex!(None, "weft_port_agent"),
                work <- new_periodic!("weft_port_agent_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts, keeps or stops the node; answers whether all is well.
    fn look_after(&self) -> bool {
        let mut slot = self.node.lock();
        if let Some(node) = slot.take_if(|node| self.port.ipv4_gid() != Some(node.gid)) {
            pr_info!("{}: the address is gone\n", Shown(node.gid));
            retire(&node);
        }
        if let Some(node) = &*slot {
            return node.maintain();
        }
        match self.start() {
            Ok(node) => {
                let well = node.maintain();
                *slot = Some(node);
                well
            }
            Err(error) => {
                if error != EAGAIN {
                    pr_warn!("cannot start a node: {error:?}; will try again\n");
                }
                false
            }
        }
    }

    fn start(&self) -> Result<Arc<Node>> {
        let node = Node::start(self.port, crate::udp_port())?;
        registry::insert(&node).inspect_err(|_| node.stop())?;
        pr_info!("node {} is up, port {}\n", Shown(node.gid), node.port);
        Ok(node)
    }

    fn stop(&self) {
        self.work.stop();
        let node = self.node.lock().take();
        if let Some(node) = node {
            retire(&node);
        }
    }
}

fn retire(node: &Arc<Node>) {
    registry::remove(node);
    node.stop();
}

// SAFETY: the offset is the field's own; `Ports::remove` stops the work before
// it drops the agent.
unsafe impl Routine for PortAgent {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        let well = self.look_after();
        self.work.schedule(if well { CALM_MS } else { BUSY_MS });
    }
}

/// The ports of a device.
pub(crate) struct Ports {
    agents: KVec<Pin<KBox<PortAgent>>>,
}

impl Client for Ports {
    fn add(device: Device) -> Result<KBox<Self>> {
        let mut agents = KVec::new();
        for port in device.ports() {
            agents.push(PortAgent::new(port)?, GFP_KERNEL)?;
        }
        // The first start here, so that nodes are numbered in the order of their
        // devices; connecting to meta servers is left to the background.
        for agent in &agents {
            if let Ok(node) = agent.start() {
                *agent.node.lock() = Some(node);
            }
            agent.work.schedule(0);
        }
        Ok(KBox::new(Self { agents }, GFP_KERNEL)?)
    }

    fn remove(self: KBox<Self>) {
        for agent in &self.agents {
            agent.stop();
        }
    }
}
