// SPDX-License-Identifier: GPL-2.0

//! A port's agent: starts the port's node when its address is there, looks after the
//! node in the background, and stops it when the address or the device goes, or when
//! its network namespace is left by everybody.

use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};

use super::{registry, Node};
use crate::rdma::{Client, Device, Port};
use crate::sync::{new_periodic, Periodic, Routine};
use crate::text::Shown;

/// How often a node is looked after, when all is well and when not.
const CALM_MS: u32 = 1000;
const BUSY_MS: u32 = 100;
/// The longest pause between tries to start a node.
const LONGEST_PAUSE_MS: u32 = 3200;

/// What an agent knows of its port.
struct State {
    node: Option<Arc<Node>>,
    /// Why the node could not be started last time; a reason is told once.
    told: Option<Error>,
    /// Tries in a row that failed.
    failures: u32,
}

/// Looks after one port.
#[pin_data(PinnedDrop)]
struct PortAgent {
    port: Port,
    #[pin]
    state: Mutex<State>,
    #[pin]
    work: Periodic<Self>,
}

impl PortAgent {
    fn new(port: Port) -> Result<Pin<KBox<Self>>> {
        let state = State {
            node: None,
            told: None,
            failures: 0,
        };
        KBox::pin_init(
            pin_init!(Self {
                port,
                state <- kernel::new_mutex!(state, "weft_port_agent"),
                work <- new_periodic!("weft_port_agent_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts, keeps or stops the node; answers when to look again.
    fn look_after(&self) -> u32 {
        let mut state = self.state.lock();
        if let Some((node, why)) = self.lost(&mut state) {
            pr_info!("{}: {why}\n", Shown(node.gid));
            retire(&node);
        }
        if state.node.is_none() {
            self.start(&mut state);
        }
        match &state.node {
            Some(node) if node.maintain() => CALM_MS,
            Some(_) => BUSY_MS,
            None => LONGEST_PAUSE_MS.min(BUSY_MS << state.failures.min(8)),
        }
    }

    /// Takes out a node that has to go, with the reason.
    fn lost(&self, state: &mut State) -> Option<(Arc<Node>, &'static str)> {
        let node = state.node.as_ref()?;
        let why = if !node.is_alive() {
            "its network namespace has gone"
        } else if self.port.index_of(&node.gid).is_none() {
            "the address is gone"
        } else if !self.is_in_live_netns() {
            "nobody uses its network namespace any more"
        } else {
            return None;
        };
        Some((state.node.take()?, why))
    }

    fn is_in_live_netns(&self) -> bool {
        let netdev = self.port.netdev();
        netdev.is_some_and(|netdev| netdev.is_in_live_netns())
    }

    fn start(&self, state: &mut State) {
        match self.new_node() {
            Ok(node) => {
                *state = State {
                    node: Some(node),
                    told: None,
                    failures: 0,
                };
            }
            // There is no address yet: that is no failure.
            Err(EAGAIN) => state.failures = 0,
            Err(error) => {
                if state.told != Some(error) {
                    pr_warn!("cannot start a node: {error:?}; will try again\n");
                }
                state.told = Some(error);
                state.failures += 1;
            }
        }
    }

    fn new_node(&self) -> Result<Arc<Node>> {
        let netdev = self.port.netdev().ok_or(EAGAIN)?;
        if !netdev.is_in_live_netns() {
            return Err(EAGAIN);
        }
        // A namespace that goes looks for its nodes in the registry. This one is held
        // until the node is there.
        let netns = netdev.netns().ok_or(EAGAIN)?;
        let node = Node::start(self.port, netdev, &netns, crate::udp_port())?;
        registry::insert(&node).inspect_err(|_| node.stop())?;
        pr_info!("node {} is up, port {}\n", Shown(node.gid), node.port);
        Ok(node)
    }

    /// Stops the work and the node. May sleep.
    fn stop(&self) {
        self.work.stop();
        let node = self.state.lock().node.take();
        if let Some(node) = node {
            retire(&node);
        }
    }
}

/// Stops a node and takes it out of the registry. May sleep.
///
/// In this order: stopping gives up connections that may be the last to keep the
/// namespace. It then goes at once, looks for the node, and has to find it and wait
/// until its socket is closed.
pub(super) fn retire(node: &Arc<Node>) {
    node.stop();
    registry::remove(node);
}

// SAFETY: the offset is the field's own; `drop` below stops the work.
unsafe impl Routine for PortAgent {
    const OFFSET: usize = core::mem::offset_of!(Self, work);

    fn run(&self) {
        let pause_ms = self.look_after();
        self.work.schedule(pause_ms);
    }
}

#[pinned_drop]
impl PinnedDrop for PortAgent {
    fn drop(self: Pin<&mut Self>) {
        self.stop();
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
            agent.start(&mut agent.state.lock());
            agent.work.schedule(0);
        }
        Ok(KBox::new(Self { agents }, GFP_KERNEL)?)
    }

    fn remove(self: KBox<Self>) {
        self.agents.iter().for_each(|agent| agent.stop());
    }
}
