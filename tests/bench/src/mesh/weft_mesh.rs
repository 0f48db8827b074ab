// SPDX-License-Identifier: MIT OR Apache-2.0

//! Workers that connect by Weft: a VQP for each other worker.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use weft_shim::{Access, Device, MemoryRegion, Vqp};

use super::board::Board;
use super::worker::Worker;
use crate::newcomer::vqp_config;
use crate::nodes::Node;
use crate::verbs::REGION_BYTES;

pub struct WeftWorker {
    device: Device,
    memory: MemoryRegion,
    board: Arc<Board>,
    kind: usize,
    /// All other workers, and their nodes.
    others: Vec<(usize, Node)>,
    /// The DCCache is emptied before each round.
    forget: bool,
    connected: Vec<(usize, Vqp)>,
}

impl WeftWorker {
    /// Opens a session on its node and registers memory, which it leaves on the board.
    pub fn new(
        index: usize,
        places: &[Node],
        board: &Arc<Board>,
        kind: usize,
        forget: bool,
    ) -> Result<Self> {
        let node = places[index];
        let device = Device::open_on(u32::from(node.0))
            .with_context(|| format!("cannot use Weft on node {}", node.0))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = MemoryRegion::allocate(&device, REGION_BYTES, access)?;
        board.post_region(kind, index, memory.remote().into());
        let all = places.iter().copied().enumerate();
        Ok(Self {
            device,
            memory,
            board: board.clone(),
            kind,
            others: all.filter(|&(other, _)| other != index).collect(),
            forget,
            connected: Vec::new(),
        })
    }
}

impl Worker for WeftWorker {
    fn prepare(&mut self) -> Result<()> {
        if self.forget {
            self.device.flush_dccache()?;
        }
        Ok(())
    }

    fn meets(&self) -> bool {
        false
    }

    fn offer(&mut self) -> Result<()> {
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        for &(other, node) in &self.others {
            let mut vqp = Vqp::create(&self.device, &vqp_config())?;
            vqp.qconnect(node.gid(), 0)
                .with_context(|| format!("cannot connect to node {}", node.0))?;
            self.connected.push((other, vqp));
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        for (other, vqp) in &mut self.connected {
            let remote = self.board.region(self.kind, *other)?.into();
            vqp.write(self.memory.slice(0..8)?, remote)?;
        }
        Ok(())
    }

    fn disconnect(&mut self) {
        self.connected.clear();
    }
}
