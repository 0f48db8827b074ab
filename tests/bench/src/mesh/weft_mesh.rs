// SPDX-License-Identifier: MIT OR Apache-2.0

//! Workers that connect by Weft: a queue pair for each other worker, all on one set of
//! queues.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use weft_shim::{
    Access, Device, MemoryRegion, Qp, QpConfig, Queues, QueuesConfig, Remote, SendWr, Wc,
};

use super::board::Board;
use super::worker::Worker;
use crate::nodes::Node;
use crate::verbs::REGION_BYTES;

/// Requests that a queue pair has outstanding, as verbs' here.
const MAX_SEND_WR: u32 = 1;
/// For all of a worker's WRITEs.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct WeftWorker {
    device: Device,
    queues: Queues,
    memory: MemoryRegion,
    board: Arc<Board>,
    kind: usize,
    /// All other workers, and their nodes.
    others: Vec<(usize, Node)>,
    /// The DCCache is emptied before each round.
    forget: bool,
    /// It waits for the others where verbs' workers have to.
    meets: bool,
    connected: Vec<(Qp, Remote)>,
    /// Room for the completions of all WRITEs.
    room: Vec<Wc>,
}

impl WeftWorker {
    /// Opens a session on its node, makes queues and registers memory, which it leaves on
    /// the board.
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
        let workers = u32::try_from(places.len())?;
        // All WRITEs of a round are posted to them, and complete to them.
        let queues = QueuesConfig {
            max_send_wr: workers,
            max_wc: workers,
            max_recv_wr: 0,
        };
        Ok(Self {
            queues: Queues::create(&device, &queues)?,
            device,
            memory,
            board: board.clone(),
            kind,
            others: all.filter(|&(other, _)| other != index).collect(),
            forget,
            meets: false,
            connected: Vec::new(),
            room: vec![Wc::default(); places.len()],
        })
    }
}

impl WeftWorker {
    /// Whether it waits for the others where verbs' workers have to.
    pub fn that_meets(self, meets: bool) -> Self {
        Self { meets, ..self }
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
        self.meets
    }

    fn offer(&mut self) -> Result<()> {
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        let config = QpConfig {
            max_send_wr: MAX_SEND_WR,
            ..QpConfig::default()
        };
        for &(other, node) in &self.others {
            let qp = self.queues.connect(node.gid(), 0, &config);
            let qp = qp.with_context(|| format!("cannot connect to node {}", node.0))?;
            let remote = self.board.region(self.kind, other)?.into();
            self.connected.push((qp, remote));
        }
        Ok(())
    }

    /// Posts all of them and waits for all, in one system call.
    fn write(&mut self) -> Result<()> {
        let Self {
            queues,
            memory,
            connected,
            room,
            ..
        } = self;
        let local = memory.slice(0..8)?;
        let request = |(qp, remote): &(Qp, Remote)| SendWr::write(local, *remote).on(qp).signaled();
        let requests: Vec<_> = connected.iter().map(request).collect();
        let progress = queues.enter(&requests, room, requests.len(), PATIENCE)?;
        let all = requests.len();
        ensure!(
            (progress.submitted, progress.completed) == (all, all),
            "not all of {all} first WRITEs ended: {progress:?}"
        );
        for wc in &room[..all] {
            wc.result()?;
        }
        Ok(())
    }

    fn disconnect(&mut self) {
        self.connected.clear();
    }
}
