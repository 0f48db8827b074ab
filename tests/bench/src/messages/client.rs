// SPDX-License-Identifier: MIT OR Apache-2.0

//! Clients that send a message and wait for its answer.

use std::time::Duration;

use anyhow::{ensure, Context as _, Result};
use weft_shim::{Access, MemoryRegion, RecvWr, SendWr, Vqp, VqpConfig, Wc};
use weft_verbs::{
    Access as VerbsAccess, Mr, Op, Pages, PathMtu, Pd, RcQp, Route, Srq, WorkRequest,
};

use super::Station;
use crate::pace::Step;
use crate::verbs::Completions;
use crate::wait::Wait;
use crate::weft::device;

/// Buffers that a client has for answers.
const BUFFERS: u32 = 4;
/// Messages that it may have on the way.
const MAX_SEND_WR: u32 = 16;
/// One message of so many makes a completion, which frees the queue.
const SIGNAL_EVERY: u32 = MAX_SEND_WR / 2;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client of Weft: a VQP that sends to the station's port, and to which the
/// answers come. A system call submits a message and waits for the answer.
pub struct WeftEcho {
    vqp: Vqp,
    buffers: MemoryRegion,
    message: MemoryRegion,
    bytes: usize,
    /// Where answers are copied to, if they are.
    copy: Option<Vec<u8>>,
}

impl WeftEcho {
    /// Connects. `copies`: answers are copied out of the receive buffer.
    pub fn connect(station: &Station, bytes: u32, copies: bool) -> Result<Self> {
        let device = device()?;
        let bytes = usize::try_from(bytes)?;
        let buffers =
            MemoryRegion::allocate(&device, bytes * BUFFERS as usize, Access::LOCAL_WRITE)?;
        let message = MemoryRegion::allocate(&device, bytes, Access::empty())?;
        let config = VqpConfig {
            max_send_wr: MAX_SEND_WR,
            max_recv_wr: BUFFERS,
        };
        let mut vqp = Vqp::create(&device, &config)?;
        vqp.qconnect(station.node.gid(), station.port)?;
        for index in 0..BUFFERS as usize {
            let slice = buffers.slice(index * bytes..(index + 1) * bytes)?;
            vqp.post_recv(&[RecvWr::new(slice).wr_id(index as u64)]);
        }
        Ok(Self {
            vqp,
            buffers,
            message,
            bytes,
            copy: copies.then(|| vec![0; bytes]),
        })
    }
}

impl Step for WeftEcho {
    fn step(&mut self) -> Result<()> {
        let message = [SendWr::send(self.message.slice(0..self.bytes)?)];
        let mut room = [Wc::default()];
        let progress = self.vqp.enter(&message, &mut room, 1, PATIENCE)?;
        ensure!(progress.submitted == 1, "a message was not taken");
        ensure!(progress.completed == 1, "no answer within {PATIENCE:?}");
        let bytes = room[0].result()? as usize;
        ensure!(room[0].is_recv() && bytes == self.bytes, "no answer came");
        let index = room[0].wr_id();
        let start_of = index as usize * self.bytes;
        if let Some(copy) = &mut self.copy {
            self.buffers.copy_out(start_of, copy)?;
        }
        let slice = self.buffers.slice(start_of..start_of + self.bytes)?;
        self.vqp.post_recv(&[RecvWr::new(slice).wr_id(index)]);
        Ok(())
    }
}

/// A client of verbs. It polls without a pause, or sleeps until something is done; messages
/// and answers go by one queue pair.
pub struct VerbsEcho {
    qp: RcQp,
    message: Mr,
    completions: Completions,
    srq: Srq,
    bytes: u32,
    sent: u32,
}

impl VerbsEcho {
    /// Connects.
    pub fn connect(station: &Station, bytes: u32, wait: Wait) -> Result<Self> {
        let route = Route::resolve(station.rdma_cm, PATIENCE)?;
        let context = route.context()?;
        let pd = Pd::new(&context)?;
        let completions = Completions::new(wait, &context, MAX_SEND_WR + BUFFERS)?;
        let srq = Srq::new(&pd, BUFFERS, bytes)?;
        let pages = Pages::zeroed(bytes as usize)?;
        let message = Mr::register(&pd, &pages, VerbsAccess::LocalWrite)?;
        let (qp, _) = route
            .connect_receiving(&pd, completions.cq(), &srq, MAX_SEND_WR)
            .context("cannot connect to the station")?;
        Ok(Self {
            qp,
            message,
            completions,
            srq,
            bytes,
            sent: 0,
        })
    }

    /// The path MTU of its queue pair.
    pub fn path_mtu(&self) -> Result<PathMtu> {
        Ok(self.qp.path_mtu()?)
    }
}

impl Step for VerbsEcho {
    fn step(&mut self) -> Result<()> {
        let request = WorkRequest::new(Op::Send, &self.message, self.bytes, (0, 0));
        self.sent = self.sent.wrapping_add(1);
        match self.sent % SIGNAL_EVERY {
            0 => self.qp.post(&request)?,
            _ => self.qp.post_unsignaled(&request)?,
        }
        let mut room = [weft_verbs::Wc::default()];
        loop {
            let taken = self.completions.take(&mut room);
            taken.context("a message or its answer")?;
            let [wc] = &room;
            // Else that of a message, of this one or one before.
            if wc.is_recv() {
                ensure!(wc.byte_len() == self.bytes, "another answer came");
                return Ok(self.srq.post(wc.wr_id())?);
            }
        }
    }
}
