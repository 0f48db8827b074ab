// SPDX-License-Identifier: MIT OR Apache-2.0

//! Workers that connect by verbs: a queue pair for each other worker.

use std::sync::Arc;

use anyhow::{bail, Result};
use weft_verbs::{Cq, InitQp, LocalGid, Mr, Op, Pd, RcQp, Wc, WorkRequest};

use super::board::Board;
use super::worker::Worker;
use crate::nodes::Node;
use crate::peer::Region;
use crate::verbs::{register, REGION_BYTES};

/// Requests that a queue pair has outstanding.
const MAX_SEND_WR: u32 = 1;

pub struct VerbsWorker {
    index: usize,
    others: Vec<usize>,
    board: Arc<Board>,
    kind: usize,
    pd: Pd,
    mr: Mr,
    cq: Cq,
    local: LocalGid,
    /// Connections stay from round to round.
    keep: bool,
    offered: Vec<(usize, InitQp)>,
    connected: Vec<(RcQp, WorkRequest)>,
}

impl VerbsWorker {
    /// Opens the node's device and registers memory, which it leaves on the board.
    pub fn new(
        index: usize,
        workers: usize,
        node: Node,
        board: &Arc<Board>,
        kind: usize,
        keep: bool,
    ) -> Result<Self> {
        let context = node.open()?;
        let (pd, mr) = register(&context, REGION_BYTES)?;
        let (addr, rkey) = (mr.pages().addr(), mr.rkey());
        board.post_region(kind, index, Region { addr, rkey });
        Ok(Self {
            index,
            others: (0..workers).filter(|&other| other != index).collect(),
            board: board.clone(),
            kind,
            pd,
            mr,
            // All WRITEs of a round complete to it.
            cq: Cq::new(&context, u32::try_from(workers)?)?,
            local: node.local_gid(&context)?,
            keep,
            offered: Vec::new(),
            connected: Vec::new(),
        })
    }
}

impl Worker for VerbsWorker {
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn meets(&self) -> bool {
        self.connected.is_empty()
    }

    fn offer(&mut self) -> Result<()> {
        if !self.connected.is_empty() {
            return Ok(());
        }
        for &other in &self.others {
            let qp = InitQp::new(&self.pd, &self.cq, self.local, MAX_SEND_WR)?;
            self.board.post(self.index, other, &qp.endpoint());
            self.offered.push((other, qp));
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        for (other, qp) in self.offered.drain(..) {
            let qp = qp.connect(&self.board.endpoint(other, self.index)?)?;
            let Region { addr, rkey } = self.board.region(self.kind, other)?;
            let request = WorkRequest::new(Op::Write, &self.mr, 8, (addr, rkey));
            self.connected.push((qp, request));
        }
        Ok(())
    }

    /// Posts all of them, then waits for all.
    fn write(&mut self) -> Result<()> {
        for (qp, request) in &self.connected {
            qp.post(request)?;
        }
        let mut room = [Wc::default(); 16];
        let mut left = self.connected.len();
        while left > 0 {
            let done = self.cq.poll(&mut room)?;
            if let Some(failure) = done.iter().find_map(Wc::failure) {
                bail!("a first WRITE failed: {failure}");
            }
            left -= done.len();
        }
        Ok(())
    }

    fn disconnect(&mut self) {
        self.offered.clear();
        if !self.keep {
            self.connected.clear();
        }
    }
}
