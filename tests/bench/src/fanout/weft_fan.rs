// SPDX-License-Identifier: MIT OR Apache-2.0

//! Batches by Weft.

use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use weft_shim::{
    Access, MemoryRegion, PeerHandle, Qp, QpConfig, Queues, QueuesConfig, Remote, SendWr, Wc,
};

use super::{Shape, Targets};
use crate::nodes::Node;
use crate::round_robin::{Case, Sample};
use crate::verbs::REGION_BYTES;
use crate::weft::device;

/// For one batch.
const PATIENCE: Duration = Duration::from_secs(10);

/// A session with queues, and its targets.
pub struct WeftFan {
    /// One for each target, or an unconnected one.
    qps: Vec<Qp>,
    /// Of the unconnected one.
    handles: Vec<PeerHandle>,
    /// Each target's memory.
    remotes: Vec<Remote>,
    queues: Queues,
    memory: MemoryRegion,
    /// Of a WRITE.
    bytes: usize,
    /// Room for a batch's completions.
    room: Vec<Wc>,
    /// The target that comes next.
    next: usize,
}

impl WeftFan {
    /// Connects to the targets, or opens them, and WRITEs to each.
    pub fn open(shape: Shape, peers: &[(Node, Remote)]) -> Result<Self> {
        let device = device()?;
        let batch = u32::try_from(shape.batch)?;
        let queues = Queues::create(
            &device,
            &QueuesConfig {
                max_send_wr: batch,
                max_wc: batch,
                max_recv_wr: 0,
            },
        )?;
        let config = QpConfig {
            max_send_wr: batch,
            ..QpConfig::default()
        };
        let peers = peers.iter().take(shape.nodes).cycle().take(shape.targets);
        let (mut qps, mut handles, mut remotes) = (Vec::new(), Vec::new(), Vec::new());
        if shape.by == Targets::Unconnected {
            qps.push(queues.unconnected(&config)?);
        }
        for &(node, remote) in peers {
            remotes.push(remote);
            match shape.by {
                Targets::Connected => qps.push(queues.connect(node.gid(), 0, &config)?),
                Targets::Unconnected => handles.push(PeerHandle::open(&device, node.gid(), 0)?),
            }
        }
        let mut this = Self {
            qps,
            handles,
            remotes,
            queues,
            memory: MemoryRegion::allocate(&device, REGION_BYTES, Access::LOCAL_WRITE)?,
            bytes: usize::try_from(shape.bytes)?,
            room: vec![Wc::default(); shape.batch],
            next: 0,
        };
        for _ in 0..shape.targets.div_ceil(shape.batch) {
            this.sample()?;
        }
        Ok(this)
    }
}

impl Case for WeftFan {
    fn sample(&mut self) -> Result<Sample> {
        let Self {
            qps,
            handles,
            remotes,
            queues,
            memory,
            bytes,
            room,
            next,
        } = self;
        let local = memory.slice(0..*bytes)?;
        let request = |turn: usize| {
            let at = turn % remotes.len();
            let write = SendWr::write(local, remotes[at]).signaled();
            match handles.get(at) {
                Some(handle) => write.on_to(&qps[0], handle),
                None => write.on(&qps[at]),
            }
        };
        let requests: Vec<_> = (*next..*next + room.len()).map(request).collect();
        *next = (*next + room.len()) % remotes.len();
        let start = Instant::now();
        let progress = queues.enter(&requests, room, requests.len(), PATIENCE)?;
        let call = start.elapsed();
        ensure!(
            progress.submitted == requests.len() && progress.completed == requests.len(),
            "a batch did not end: {progress:?} of {}",
            requests.len()
        );
        for wc in room {
            wc.result()?;
        }
        Ok(Sample {
            call,
            ..Sample::default()
        })
    }
}
