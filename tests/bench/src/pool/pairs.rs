// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection between each two nodes, all by this process. No node knows another one
//! before, so that each call finds nothing to reuse.

use std::time::{Duration, Instant};

use anyhow::Result;
use weft_shim::{Access, Device, MemoryRegion, Qp, Queues, SendWr};

use super::result::Measured;
use crate::counters::counter;
use crate::memory::{process_bytes, Machine};
use crate::newcomer::{qp_config, queues_config, write_once};
use crate::nodes::{Node, CLIENT};
use crate::stats::Times;
use crate::verbs::REGION_BYTES;

/// A node's session, and its connections.
struct Session {
    qps: Vec<Qp>,
    queues: Queues,
    memory: MemoryRegion,
    node: Node,
}

impl Session {
    fn open(node: Node) -> Result<Self> {
        let device = Device::open_on(u32::from(node.0))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self {
            qps: Vec::new(),
            queues: Queues::create(&device, &queues_config())?,
            memory: MemoryRegion::allocate(&device, REGION_BYTES, access)?,
            node,
        })
    }

    /// Connects to another node and WRITEs to its memory. Answers what the call and the WRITE
    /// took.
    fn connect(&mut self, to: &Self) -> Result<[Duration; 2]> {
        let begin = Instant::now();
        let qp = self.queues.connect(to.node.gid(), 0, &qp_config())?;
        let call = begin.elapsed();
        let write = SendWr::write(self.memory.slice(0..8)?, to.memory.remote());
        write_once(&mut self.queues, write.on(&qp))?;
        self.qps.push(qp);
        Ok([call, begin.elapsed() - call])
    }
}

/// All sessions.
pub struct Pairs(Vec<Session>);

impl Pairs {
    /// Connects the clients' node and the peers, each with each other, and looks what that
    /// takes.
    pub fn measure(peers: &[Node]) -> Result<Measured> {
        let nodes = [CLIENT].into_iter().chain(peers.iter().copied());
        let mut pairs = Self(nodes.map(Session::open).collect::<Result<_>>()?);
        let pid = std::process::id();
        let first = Machine::settled()?;
        let before = Machine::settled()?;
        let process = process_bytes(pid)?;
        let begin = Instant::now();
        let (calls, first_writes) = pairs.connect()?;
        let time = begin.elapsed();
        let rc_queues = counter("rc_queues")?;
        let after = Machine::settled()?;
        let made = usize::try_from(calls.count())?;
        Ok(Measured {
            made,
            limit: None,
            calls,
            first_writes,
            per_sec: made as f64 / time.as_secs_f64().max(1e-9),
            writes_per_sec: None,
            module_bytes: after.kernel_since(&before),
            process_bytes: process_bytes(pid)? - process,
            machine_bytes: after.all - before.all,
            noise_bytes: before.kernel_since(&first).abs(),
            rc_queues,
        })
    }

    /// Answers what the calls and the first WRITEs took.
    fn connect(&mut self) -> Result<(Times, Times)> {
        let (mut calls, mut writes) = (Times::new(), Times::new());
        for at in 1..self.0.len() {
            let (from, to) = self.0.split_at_mut(at);
            for session in from {
                let [call, write] = session.connect(&to[0])?;
                calls.record(call);
                writes.record(write);
            }
        }
        Ok((calls, writes))
    }
}
