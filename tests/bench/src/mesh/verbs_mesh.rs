// SPDX-License-Identifier: MIT OR Apache-2.0

//! Workers that connect by verbs: a queue pair for each other worker.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use weft_verbs::{Endpoint, InitQp, LocalGid, RcQp};

use super::Worker;
use crate::nodes::Node;
use crate::verbs::Stack;

/// Where workers leave their queue pairs' addresses for one another.
struct Board {
    workers: usize,
    endpoints: Mutex<Vec<Option<Endpoint>>>,
}

impl Board {
    fn post(&self, from: usize, to: usize, endpoint: Endpoint) {
        let mut endpoints = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        endpoints[from * self.workers + to] = Some(endpoint);
    }

    fn read(&self, from: usize, to: usize) -> Result<Endpoint> {
        let endpoints = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        endpoints[from * self.workers + to].context("a worker made no queue pair")
    }
}

struct VerbsWorker {
    index: usize,
    board: Arc<Board>,
    stack: Arc<Stack>,
    local: LocalGid,
    offered: Vec<(usize, InitQp)>,
    connected: Vec<RcQp>,
}

/// A worker on each of `places`.
pub fn workers(places: &[Node]) -> Result<Vec<Box<dyn Worker>>> {
    let board = Arc::new(Board {
        workers: places.len(),
        endpoints: Mutex::new(vec![None; places.len() * places.len()]),
    });
    let worker = |(index, node): (usize, &Node)| -> Result<Box<dyn Worker>> {
        let context = node.open()?;
        Ok(Box::new(VerbsWorker {
            index,
            board: board.clone(),
            stack: Stack::on(&context)?,
            local: node.local_gid(&context)?,
            offered: Vec::new(),
            connected: Vec::new(),
        }))
    };
    places.iter().enumerate().map(worker).collect()
}

impl Worker for VerbsWorker {
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    fn offer(&mut self) -> Result<()> {
        for other in (0..self.board.workers).filter(|&other| other != self.index) {
            let qp = self.stack.new_qp(self.local)?;
            self.board.post(self.index, other, qp.endpoint());
            self.offered.push((other, qp));
        }
        Ok(())
    }

    fn connect(&mut self) -> Result<()> {
        for (other, qp) in self.offered.drain(..) {
            let theirs = self.board.read(other, self.index)?;
            self.connected.push(qp.connect(&theirs)?);
        }
        Ok(())
    }

    fn disconnect(&mut self) {
        self.offered.clear();
        self.connected.clear();
    }
}
