// SPDX-License-Identifier: MIT OR Apache-2.0

//! Workers that connect by verbs: a queue pair for each other worker.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use weft_verbs::{InitQp, LocalGid, Mr, Op, Pd, RcQp, Wc, WorkRequest};

use super::board::Board;
use super::worker::Worker;
use crate::nodes::Node;
use crate::peer::Region;
use crate::verbs::{register, Completions, REGION_BYTES};
use crate::wait::Wait;

/// Requests that a queue pair has outstanding.
const MAX_SEND_WR: u32 = 1;

pub struct VerbsWorker {
    index: usize,
    others: Vec<usize>,
    board: Arc<Board>,
    kind: usize,
    pd: Pd,
    mr: Mr,
    completions: Completions,
    local: LocalGid,
    /// Connections stay from round to round.
    keep: bool,
    offered: Vec<(usize, InitQp)>,
    connected: Vec<(RcQp, WorkRequest)>,
}

impl VerbsWorker {
    /// Opens the node's device and registers memory, which it leaves on the board.
    pub fn new(
        (index, workers): (usize, usize),
        node: Node,
        board: &Arc<Board>,
        kind: usize,
        wait: Wait,
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
            completions: Completions::new(wait, &context, u32::try_from(workers)?)?,
            local: node.local_gid(&context)?,
            keep: false,
            offered: Vec::new(),
            connected: Vec::new(),
        })
    }

    /// Whether its connections stay from round to round.
    pub fn that_keeps(self, keep: bool) -> Self {
        Self { keep, ..self }
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
            let qp = InitQp::new(&self.pd, self.completions.cq(), self.local, MAX_SEND_WR)?;
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
            left -= self.completions.take(&mut room).context("a first WRITE")?;
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
