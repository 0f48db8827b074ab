// SPDX-License-Identifier: MIT OR Apache-2.0

//! Workers that connect by Weft: a VQP for each other worker.

use anyhow::{Context as _, Result};
use weft_shim::{Device, Vqp, VqpConfig};

use super::Worker;
use crate::nodes::Node;

struct WeftWorker {
    device: Device,
    /// The nodes of all other workers.
    others: Vec<Node>,
    connected: Vec<Vqp>,
}

/// A worker on each of `places`.
pub fn workers(places: &[Node]) -> Result<Vec<Box<dyn Worker>>> {
    let worker = |(index, node): (usize, &Node)| -> Result<Box<dyn Worker>> {
        let mut others = places.to_vec();
        others.remove(index);
        Ok(Box::new(WeftWorker {
            device: Device::open_on(u32::from(node.0))
                .with_context(|| format!("cannot use Weft on node {}", node.0))?,
            others,
            connected: Vec::new(),
        }))
    };
    places.iter().enumerate().map(worker).collect()
}

impl Worker for WeftWorker {
    fn prepare(&mut self) -> Result<()> {
        Ok(self.device.flush_dccache()?)
    }

    fn offer(&mut self) -> Result<()> {
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        for node in &self.others {
            let mut vqp = Vqp::create(&self.device, &VqpConfig::default())?;
            vqp.qconnect(node.gid(), 0)
                .with_context(|| format!("cannot connect to node {}", node.0))?;
            self.connected.push(vqp);
        }
        Ok(())
    }

    fn disconnect(&mut self) {
        self.connected.clear();
    }
}
